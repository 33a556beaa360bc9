"""A recipe: how a paper trained a model, in the words of this library, and the number that it reports."""

from dataclasses import dataclass
from typing import Any

from ..data import Data
from ..errors import InputError
from ..methods import METHODS
from ..models.config import Config, Train
from ..nn.block import Net
from ..show.numbers import SIGN


@dataclass(frozen=True)
class Reported:
    """The number of a paper: `≤ 3.435 bits/dim, test, table 3`.

    kind: "bound" or "exact". where: of which split, in which table.
    """

    value: str
    unit: str
    where: str
    kind: str = "bound"

    def __str__(self) -> str:
        return f"{SIGN[self.kind]} {self.value} {self.unit}"


@dataclass(frozen=True)
class Recipe:
    """One configuration of a paper.

    Attributes:
        paper, arxiv: what it is called, and its number.
        source: where in the paper, or in its authors' code, the choices stand.
        method, options: the method's name, and its choices that are not the default.
        vocabulary: data tokens of the tokenizer, or levels of a pixel.
        sampler, drawing, steps: what the paper draws with, its options that are not the default, how many steps; samples of
            validations, which are only looked at, take `train.sample_steps`.
        reported: the number to reach.
        published: the parameters that the paper or its checkpoint has; None where neither says, or what they say does not add up.
        ours: what the source does not give, so that the value here is a choice of our own.
        differs: what is known to be otherwise than in the paper.
    """

    paper: str
    arxiv: str
    source: str
    method: str
    data: Data
    net: Net
    train: Train
    vocabulary: int
    reported: Reported
    options: tuple[tuple[str, Any], ...] = ()
    sampler: str = "ancestral"
    drawing: tuple[tuple[str, Any], ...] = ()
    steps: int = 1000
    published: float | None = None
    ours: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """All of it as the config of a run."""
        return Config(self.method, METHODS[self.method].Config(**dict(self.options)), self.data, self.net, self.train)

    def for_method(self, name: str, method: Any) -> Config:
        """The config, where `method` is None or that of this recipe, which is called `name`; else InputError."""
        if method is not None and method not in (self.method, METHODS[self.method]):
            other = method if isinstance(method, str) else method.__name__
            raise InputError(f"recipe {name} trains {self.method}, not {other}; leave the method out")
        return self.config

    def note(self, name: str) -> str:
        """What a run says of it at its start."""
        return f"recipe {name}: {self.paper} reports {self.reported} ({self.reported.where})"
