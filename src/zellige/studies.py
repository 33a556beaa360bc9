"""Comparisons, sweeps and plans as requests: what `zellige.compare`, `zellige.sweep` and `zellige.plan` make and run.

zellige.studies.Compare(table="mdlm-1", minutes=5).run()
"""

from typing import TYPE_CHECKING

from .base.lazy import lazy

if TYPE_CHECKING:  # what `__getattr__` imports when it is asked for
    from .plugins.studies.compare.request import Compare as Compare
    from .plugins.studies.compare.request import CompareSamplers as CompareSamplers
    from .plugins.studies.plan.request import Plan as Plan
    from .plugins.studies.plan.request import PlanTable as PlanTable
    from .plugins.studies.sweep.sweep import Sweep as Sweep

WHERE = {
    "Compare": "plugins.studies.compare.request",
    "CompareSamplers": "plugins.studies.compare.request",
    "Sweep": "plugins.studies.sweep.sweep",
    "Plan": "plugins.studies.plan.request",
    "PlanTable": "plugins.studies.plan.request",
}

__all__ = [*WHERE]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy(__name__, WHERE)
