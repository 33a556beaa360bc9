"""Budget of a page: as many samples and steps as some seconds allow, and the progress so far."""

from zellige.base.requests import Progress
from zellige.models.model import Model
from zellige.samplers.pairing import admissible
from zellige.show.kinds import of
from zellige.training.cost import model_flops

WATCHED = 4  # samples in the player
FILLED = 8  # rows that are filled in
TEXTS = 16  # over which the integrand is averaged
POINTS = 16  # times at which it is computed
STEPS = 64  # of the samples of texts
STEPS_OF_IMAGES = 32  # and of what has a shape, where each step looks at every place
ENTRY = {True: 100.0, False: 1500.0}  # FLOP to sample a position, for each state; few masks at a time


class Work:
    """Network evaluations for a page, in rows that pass through the network once.

    Attributes:
        steps: of the samples; fewer of a large model, if they were not asked for.
        watched, filled, texts: rows of each part.
    """

    def __init__(self, model: Model, steps: int | None = None, progress: Progress | None = None):
        method = model.method
        weights, L = list(method.parameters()), method.shape[0]
        flops = (model.config and model_flops(model.config, method)) or 6.0 * sum(p.numel() for p in weights) * L
        states = getattr(method.process, "K", method.vocabulary)
        masks = getattr(method.process, "mask", None) is not None
        self.row = flops / 3 + ENTRY[masks] * L * states
        self.budget = 1e15 if weights and weights[0].device.type == "cuda" else 2e11  # FLOP of a part: seconds
        if steps is None:
            steps = STEPS if of(model.tokenizer).running else STEPS_OF_IMAGES
            steps = max(8, min(steps, int(self.budget / (2 * self.row))))
        self.steps = admissible(method, min(steps, 199))
        self.watched = self._rows(WATCHED, 2 * self.steps)
        self.filled = 0 if of(model.tokenizer).running else self._rows(FILLED, self.steps)
        self.texts = max(2, self._rows(TEXTS, POINTS))
        self.progress, self.done = progress, 0
        self.passed(0)

    def _rows(self, most: int, calls: int) -> int:
        """Number of rows that may pass so many times."""
        return max(1, min(most, int(self.budget / (calls * self.row))))

    @property
    def total(self) -> int:
        """All of it."""
        return self.watched * 2 * self.steps + self.filled * self.steps + self.texts * POINTS

    def passed(self, rows: int) -> None:
        """So many rows more have passed."""
        self.done += rows
        if self.progress:
            self.progress(min(self.done, self.total), self.total)
