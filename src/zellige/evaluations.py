"""What else `zellige evaluate` can ask of a model, each a request with `run(model)`.

    zellige.evaluations.EvaluateBracket(numbers=(8, 64)).run("tales")

`zellige.evaluate` is the plain bound on -log p.
"""

from typing import TYPE_CHECKING

from .base.lazy import lazy

if TYPE_CHECKING:  # what `__getattr__` imports when it is asked for
    from .evaluation.requests import EvaluateBracket as EvaluateBracket
    from .evaluation.requests import EvaluatePairs as EvaluatePairs
    from .evaluation.requests import EvaluateSamples as EvaluateSamples
    from .evaluation.requests import EvaluateSteps as EvaluateSteps
    from .evaluation.requests import EvaluateSuite as EvaluateSuite
    from .evaluation.requests import TrainFeatures as TrainFeatures
    from .plugins.studies.probes.requests import EvaluateGlue as EvaluateGlue
    from .plugins.studies.probes.requests import EvaluateProbe as EvaluateProbe

WHERE = {
    "EvaluateSteps": "evaluation.requests",
    "EvaluateBracket": "evaluation.requests",
    "EvaluateSuite": "evaluation.requests",
    "EvaluatePairs": "evaluation.requests",
    "EvaluateSamples": "evaluation.requests",
    "EvaluateGlue": "plugins.studies.probes.requests",
    "EvaluateProbe": "plugins.studies.probes.requests",
    "TrainFeatures": "evaluation.requests",
}

__all__ = [*WHERE]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy(__name__, WHERE)
