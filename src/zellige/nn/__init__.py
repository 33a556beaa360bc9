"""Networks: what reads x_t (and the time) and returns hidden states, a head on them, and the loss on the head."""

from ..plugins.published.nn.bert import Bert, BertNet
from ..plugins.published.nn.gpt2 import GPT2
from ..plugins.published.nn.llama import Llama, LlamaNet
from .block import Net
from .classifier import Classifier
from .cross_entropy import cross_entropy
from .table import Table
from .transformer import DiT
from .unet import UNet

__all__ = ["GPT2", "Bert", "BertNet", "Classifier", "DiT", "Llama", "LlamaNet", "Net", "Table", "UNet", "cross_entropy"]
