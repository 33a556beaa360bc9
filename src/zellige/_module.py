"""Modules that can be called: `zellige.train(...)` runs `zellige.train.train(...)`.

The package names its verbs as its files (train.py, evaluate.py, verify.py). Importing the submodule binds the module to
that name, so without this the function of the same name could never be reached as `zellige.train`.
"""

import inspect
import sys
from types import ModuleType


class _Callable(ModuleType):
    def __call__(self, *args, **kwargs):
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


def callable_module(name: str) -> None:
    """Make the module `name` callable as its function of the same name, with its signature and docstring.

    Called at the end of that module.
    """
    module = sys.modules[name]
    function = getattr(module, name.rpartition(".")[2])
    module.__class__ = _Callable
    module.__signature__ = inspect.signature(function)  # pyright: ignore[reportAttributeAccessIssue]
    module.__doc__ = function.__doc__
