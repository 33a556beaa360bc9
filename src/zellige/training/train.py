"""`train` as a function: makes a run folder, fills it, and goes on where it was stopped, with the same numbers as
unbroken.

    run = train("mdlm", data=Data("pydocs"), net=Net(layers=4, hidden=128), train=Train(steps=2300), run="runs/first")
    run.validation                          # ≤ 2.190 ± 0.021 bits/char (95%)

`requests.Training` resolves what is not given, `session` does the work.
"""

import os
from typing import Any, Literal

from torch import nn

from ..base.arguments import checked
from ..methods.method import Method
from ..models.config import Train
from ..nn.block import Net
from ..show.progress import Progress
from .requests import Training
from .run import Run


@checked
def train(
    method: str | type[Method] | None = None,
    *,
    data: Any = None,
    net: Net | nn.Module | None = None,
    train: Train | None = None,
    options: Any = None,
    run: str | os.PathLike | None = None,
    recipe: str = "",
    size: Literal["tiny", "small", "base", "medium"] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Train a method, or go on with a run.

    Args:
        method: a name of `zellige list methods`, or an own class; by default the recipe's, or mdlm.
        data: which corpus: a Data; the name of a data set; a path; or values: a list of texts, a data set of
            `datasets`, an array or tensor of whole numbers, or a dict of these by split (`Data.of` says more about
            them).
        net: the transformer's sizes, or an own network with `features` and `head` (and, if it is not 256, a `length`).
        options: the method's own Config.
        run: the folder; by default runs/METHOD-DATA, of a recipe runs/RECIPE, with a number after it where that is
            there.
        recipe: a name of `zellige list recipes`: what is not given is as the paper has it.
        size: tiny, small, base or medium (`setup.SIZES`): the network and the training where they are not given.
        resume: go on with the run in that folder; started by torchrun or Slurm, begin it where there is none. What is
            not given is the run's own; of what is given, only steps, lr, clip, precision, what computes them (devices,
            nodes, strategy, accumulate) and what is written when may differ from it.
        overwrite: replace the run in that folder.
        progress: where progress is reported; nowhere by default.

    Raises:
        InputError: the input is wrong, or another process trains there, and nothing was written; or the disk is full,
            and the last checkpoint is intact.
        Stopped: Ctrl-C, SIGTERM or SIGUSR1; the last step is saved. A SystemExit: uncaught it ends the process with
            130, 143 or 138.
        Diverged: the loss is not finite.
    """
    folder = None if run is None else os.fspath(run)
    request = Training(method, data, net, train, options, None, folder, recipe, size, None, resume, overwrite)
    return request.run(progress)
