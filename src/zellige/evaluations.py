"""What else `zellige evaluate` can ask of a model, each a request with `run(model)`.

    zellige.evaluations.EvaluateBracket(numbers=(8, 64)).run("stories")

`zellige.evaluate` is the plain bound on -log p.
"""

from typing import TYPE_CHECKING

from .base.lazy import lazy

if TYPE_CHECKING:  # what `__getattr__` imports when it is asked for
    from .plugins.evaluations.bracket.request import EvaluateBracket as EvaluateBracket
    from .plugins.evaluations.generate.request import EvaluateSamples as EvaluateSamples
    from .plugins.evaluations.generate.request import TrainFeatures as TrainFeatures
    from .plugins.evaluations.pairs.request import EvaluatePairs as EvaluatePairs
    from .plugins.evaluations.steps.request import EvaluateSteps as EvaluateSteps
    from .plugins.evaluations.suite.request import EvaluateSuite as EvaluateSuite
    from .plugins.studies.probes.requests import EvaluateGlue as EvaluateGlue
    from .plugins.studies.probes.requests import EvaluateProbe as EvaluateProbe

WHERE = {
    "EvaluateSteps": "plugins.evaluations.steps.request",
    "EvaluateBracket": "plugins.evaluations.bracket.request",
    "EvaluateSuite": "plugins.evaluations.suite.request",
    "EvaluatePairs": "plugins.evaluations.pairs.request",
    "EvaluateSamples": "plugins.evaluations.generate.request",
    "EvaluateGlue": "plugins.studies.probes.requests",
    "EvaluateProbe": "plugins.studies.probes.requests",
    "TrainFeatures": "plugins.evaluations.generate.request",
}

__all__ = [*WHERE]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy(__name__, WHERE)
