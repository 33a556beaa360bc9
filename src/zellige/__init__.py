"""Zellige: discrete diffusion for text, images and any tokens.

Names are imported when they are first used, so `import zellige` is light: no torch, no trainer, no data library.
"""

from typing import TYPE_CHECKING

from .base.lazy import lazy

if TYPE_CHECKING:  # what `__getattr__` imports when it is asked for
    from . import evaluations as evaluations
    from . import exact as exact
    from . import studies as studies
    from .base.errors import InputError as InputError
    from .cli import demo as demo
    from .core.batch import Batch as Batch
    from .core.schedule import CLEAN as CLEAN
    from .core.schedule import PRIOR as PRIOR
    from .data import Data as Data
    from .evaluation.requests import Evaluate as Evaluate
    from .evaluation.requests import evaluate as evaluate
    from .methods import METHODS as METHODS
    from .methods.method import Method as Method
    from .models.config import Config as Config
    from .models.config import Train as Train
    from .models.embed import embed as embed
    from .models.model import Model as Model
    from .models.model import load as load
    from .nn.block import Net as Net
    from .plugins import report as report
    from .plugins.adapters.pipelines import pipeline as pipeline
    from .plugins.students.requests import TrainClassifier as TrainClassifier
    from .plugins.students.requests import TrainDistill as TrainDistill
    from .plugins.students.requests import TrainSpeculative as TrainSpeculative
    from .plugins.studies.compare.request import compare as compare
    from .plugins.studies.plan.request import plan as plan
    from .plugins.studies.sweep.sweep import sweep as sweep
    from .plugins.verify.verify import verify as verify
    from .samplers import SAMPLERS as SAMPLERS
    from .samplers import State as State
    from .samplers import guidance as guidance
    from .samplers import guide as guide
    from .samplers import run as run
    from .sampling.infill import Infill as Infill
    from .sampling.infill import infill as infill
    from .sampling.sample import Sample as Sample
    from .sampling.sample import sample as sample
    from .sampling.sample import watch as watch
    from .show.record import Record as Record
    from .training.requests import Training as Training
    from .training.requests import Tune as Tune
    from .training.train import train as train

__version__ = "0.2.0"

_WHERE = {  # public name -> the module that defines it
    "InputError": "base.errors",
    "CLEAN": "core.schedule",
    "PRIOR": "core.schedule",
    "Batch": "core.batch",
    "Method": "methods.method",
    "METHODS": "methods",
    "Net": "nn.block",
    "SAMPLERS": "samplers",
    "State": "samplers",
    "run": "samplers",
    "Data": "data",
    "Train": "models.config",
    "Config": "models.config",
    "Model": "models.model",
    "load": "models.model",
    "watch": "sampling.sample",
    "sample": "sampling.sample",
    "infill": "sampling.infill",
    "Sample": "sampling.sample",
    "Infill": "sampling.infill",
    "embed": "models.embed",
    "pipeline": "plugins.adapters.pipelines",
    "train": "training.train",
    "Training": "training.requests",
    "TrainClassifier": "plugins.students.requests",
    "TrainDistill": "plugins.students.requests",
    "TrainSpeculative": "plugins.students.requests",
    "Tune": "training.requests",
    "plan": "plugins.studies.plan.request",
    "sweep": "plugins.studies.sweep.sweep",
    "evaluate": "evaluation.requests",
    "Evaluate": "evaluation.requests",
    "Record": "show.record",
    "verify": "plugins.verify.verify",
    "compare": "plugins.studies.compare.request",
}
_MODULES = {  # public modules
    "evaluations": "evaluations",
    "studies": "studies",
    "report": "plugins.report",
    "guide": "samplers.guide",
    "guidance": "samplers.guidance",
    "exact": "exact",
    "demo": "cli.demo",
}

__all__ = ["__version__", *_WHERE, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy(__name__, _WHERE, _MODULES)
