"""Networks: what reads x_t (and the time) and returns hidden states, a head on them, and the loss on the head."""

from .block import Net
from .classifier import Classifier
from .cross_entropy import cross_entropy
from .table import Table
from .transformer import DiT
from .unet import UNet

__all__ = ["Classifier", "DiT", "Net", "Table", "UNet", "cross_entropy"]
