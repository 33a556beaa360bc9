"""Networks: what reads x_t (and the time) and returns hidden states, a head on them, and the loss on the head."""

from .bert import Bert, BertNet
from .block import Net
from .classifier import Classifier
from .cross_entropy import cross_entropy
from .gpt2 import GPT2
from .llama import Llama, LlamaNet
from .table import Table
from .transformer import DiT
from .unet import UNet

__all__ = ["GPT2", "Bert", "BertNet", "Classifier", "DiT", "Llama", "LlamaNet", "Net", "Table", "UNet", "cross_entropy"]
