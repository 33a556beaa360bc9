"""The systems, one paper a file.

METHODS is the table of their names. After a new name or option run `make generate`: the command line reads them from
`cli/lists.json`, so that help imports no torch; `cli/help.py` names them in the usage of `train`.

method, diffusion               what every method is; what every method of diffusion is
absorbing, uniform, score       families: methods of masks, of uniform noise, and those whose network is a score
d3pm_*, tauldr_*, csm_*         parts of d3pm, tauldr and csm
every other file                a paper
"""

import sys
from typing import Any

from torch import nn

from ..base.arguments import checked, of_kind
from ..base.errors import InputError, at_least
from ..base.plugins import Registry, subclass
from ..nn.block import Net
from .ar import AR
from .bd3lm import BD3LM
from .csm import CSM
from .d3pm import D3PM
from .diffusion import Diffusion as Diffusion
from .flexmdm import FlexMDM
from .genmd4 import GenMD4
from .gidd import GIDD
from .md4 import MD4
from .mdlm import MDLM
from .method import Method
from .radd import RADD
from .sedd import SEDD
from .tauldr import TauLDR
from .udlm import UDLM

METHODS: Registry[type[Method]] = Registry(
    "method", "zellige list methods", "zellige.methods", subclass(Method, "a class of zellige.Method")
)
METHODS |= {
    "d3pm": D3PM,
    "csm": CSM,
    "tauldr": TauLDR,
    "sedd": SEDD,
    "radd": RADD,
    "mdlm": MDLM,
    "md4": MD4,
    "genmd4": GenMD4,
    "udlm": UDLM,
    "gidd": GIDD,
    "bd3lm": BD3LM,
    "flexmdm": FlexMDM,
    "ar": AR,
}


@checked
def find(method: str | type[Method]) -> type[Method]:
    """Return the class of a method, given by name or as a class. Raises InputError for an unknown name."""
    if isinstance(method, str):
        return METHODS[method]
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise InputError(
            f"method is {of_kind(method)}; it must be a name of zellige list methods, or a class of Method"
        )
    return method


@checked
def build(
    method: str | type[Method],
    vocabulary: int,
    net: Net | nn.Module | None = None,
    config: Any = None,
    length: int | None = None,
    ordered: bool = False,
) -> Method:
    """Create a method with a fresh network.

    Args:
        method: a name in METHODS, or an own class.
        vocabulary: V, the number of data tokens.
        net: the transformer's sizes, or an own network with `features` and `head`.
        config: the method's own Config.
        length: L; net.length where `net` is a Net.
        ordered: whether the tokens are levels of something, such as pixels or pitches.

    Raises:
        InputError: a choice that needs ordered tokens, where they are not.
    """
    cls = find(method)
    config = cls.Config() if config is None else config
    if not isinstance(config, cls.Config):
        raise InputError(f"`config` is {of_kind(config)}; it must be {cls.__name__}.Config")
    at_least("vocabulary", vocabulary, 1)
    if not ordered and (choice := cls.needs_order(config)):
        raise InputError(
            f"{choice} needs ordered tokens, such as pixels or pitches; these are not, use uniform or absorbing"
        )
    if not isinstance(net, nn.Module):
        net = net or Net()
        length = length or net.length
        net = cls.build_network(net, vocabulary, config)
    if length is None:
        raise InputError("an own network does not say its length; give length=")
    instance = cls.resolve(config)(net, vocabulary, (length,), config)
    instance.ordered = ordered
    return instance


def reference(method: type[Method]) -> str:
    """Name of a method on the command line: mdlm, or file.py:Class for a user's own."""
    if (builtin := METHODS.get(method.name)) and method.__module__ == builtin.__module__:
        return method.name  # also of the class of one file that `resolve` chose
    file = getattr(sys.modules.get(method.__module__), "__file__", None)
    return f"{file}:{method.__qualname__}" if file else method.__qualname__
