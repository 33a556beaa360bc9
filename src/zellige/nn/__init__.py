"""Networks: what reads x_t (and the time) and returns hidden states, a head on them, and the loss on the head."""

from zellige.nn.classifier import Classifier
from zellige.nn.cross_entropy import cross_entropy
from zellige.nn.llama import Llama, LlamaNet
from zellige.nn.table import Table
from zellige.nn.transformer import DiT, Net

__all__ = ["Classifier", "DiT", "Llama", "LlamaNet", "Net", "Table", "cross_entropy"]
