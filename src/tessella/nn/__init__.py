"""Networks: what reads x_t (and the time) and returns hidden states, a head on them, and the loss on the head."""

from tessella.nn.classifier import Classifier
from tessella.nn.cross_entropy import cross_entropy
from tessella.nn.llama import Llama, LlamaNet
from tessella.nn.table import Table
from tessella.nn.transformer import DiT, Net

__all__ = ["Classifier", "DiT", "Llama", "LlamaNet", "Net", "Table", "cross_entropy"]
