"""The commands by name: each a function of (the words after it, the terminal, when it began) that returns the exit code.

Their options are frozen dataclasses; what they do is one call of the Python interface; the rest is what is printed. Reading
this module imports no torch: a command does, once its options are read.
"""

from collections.abc import Callable, Sequence

from ..plugins.published.command import export, import_
from ..plugins.report.command import report
from ..plugins.studies.compare.command import compare
from ..plugins.studies.plan.command import plan
from ..plugins.studies.sweep.command import sweep
from ..plugins.verify.command import verify
from ..plugins.web.command import play, serve
from ..show.terminal import Terminal
from .completion import completion
from .demo import command as demo
from .doctor import doctor
from .drawing import infill, sample
from .evaluate import evaluate
from .lists import list_
from .train import train
from .tune import tune

Command = Callable[[Sequence[str], Terminal, float], int]
COMMANDS: dict[str, Command] = {
    "demo": demo, "train": train, "tune": tune, "evaluate": evaluate, "sample": sample, "infill": infill, "verify": verify,
    "compare": compare, "sweep": sweep, "plan": plan, "report": report, "play": play, "serve": serve, "list": list_,
    "import": import_, "export": export, "doctor": doctor,
    "completion": lambda words, terminal, _: completion(COMMANDS, words, terminal),
}  # fmt: skip
