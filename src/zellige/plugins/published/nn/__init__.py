"""Networks of published models that are no DiT: Llama's kin, GPT-2, BERT."""

from .bert import Bert, BertNet
from .gpt2 import GPT2
from .llama import Llama, LlamaNet

__all__ = ["GPT2", "Bert", "BertNet", "Llama", "LlamaNet"]
