"""The classifiers of noisy text that UDLM's authors guide by."""

from pathlib import Path
from typing import Any

from zellige.models.checkpoint.read import place
from zellige.nn.classifier import Classifier
from zellige.nn.network import unfilled
from zellige.nn.transformer import DiT

from . import ddit
from .layout import Choices
from .opening import open_weights
from .reading import stripped, weights_and_config

STRIPS = ("classifier_model.", "classifier.", "_orig_mod.", "module.", "model.", "backbone.")


def classifier(source: str | Path, **choices: Any) -> Classifier:
    """A published classifier (`nn.Classifier`) from a folder or a file: its tensors say its sizes.

    Args:
        choices: `length` must be given; see `Choices`.

    Raises:
        InputError: as `read`.
    """
    tensors = stripped(open_weights(weights_and_config(Path(source))[0]).tensors, STRIPS)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    net = ddit.sizes(shapes, Choices.of(choices))
    with unfilled():
        trunk = DiT(net, shapes["vocab_embed.embedding"][0], time="sigma_map.mlp.0.weight" in shapes, ends=False)
        network = Classifier(trunk, net.hidden, shapes.get("output_layer.weight", (1,))[0])
    weights_by_name = {_ours(name): tensor for name, tensor in tensors.items() if name not in ddit.BUFFERS}
    place(network, weights_by_name, f"a classifier of {net.layers} layers", take=True)
    return network.eval()


def _ours(name: str) -> str:
    last = name.startswith("output_layer.")
    return name.replace("output_layer.", "output.") if last else f"trunk.{ddit.ours(name)}"
