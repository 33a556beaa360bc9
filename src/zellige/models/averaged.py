"""A model whose network is averaged over symmetries of its data."""

import torch

from ..base.errors import InputError
from ..data.symmetry import symmetries
from ..nn.averaged import Averaged
from ..samplers.predict import reads_tokens
from .model import Model


def is_symmetric(model: Model) -> bool:
    """Return whether a model can be averaged over symmetries of its data."""
    try:
        return averaged(model, 2) is not model
    except InputError:
        return False


def averaged(model: Model, count: int | None) -> Model:
    """The model with its network averaged over `count` symmetries of its data; itself for 1 or None.

    Every sampler and bound then uses the average; see `nn.averaged`. It shares the weights, and costs `count` times as
    much.

    Raises:
        InputError: the data have no symmetries, or fewer; the network does not give p(x_0 | x_t) of masks.
    """
    if count in (None, 1):
        return model
    method = model.method
    if (why := reads_tokens(method)) or method.latents or getattr(method.network, "sees_given", False):
        raise InputError(
            f"`symmetries` averages p(x_0 | x_t) of masks, and {method.name} {why or 'reads more'}; leave it out"
        )
    found = symmetries(model.config.data, model.tokenizer, count)
    device = next(method.parameters()).device
    moves, renames = (torch.as_tensor(values.copy(), device=device).long() for values in (found.moves, found.renames))
    return model.with_method(method.of_network(Averaged(method.network, moves, renames, method.process.mask_id)))
