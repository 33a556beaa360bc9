"""What `zellige evaluate --suite` is asked for."""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from zellige.base.requests import aside, data_of_json, declared, option
from zellige.data import Local
from zellige.evaluation.requests import ESTIMATOR, TWO, LikelihoodRequest, distributed_option

from .protocol import Protocol, protocol_named

if TYPE_CHECKING:
    from zellige.models.model import ModelSource

    from .suite import SuiteTable


@declared
class EvaluateSuite(LikelihoodRequest["SuiteTable"]):
    """The data sets of a suite, evaluated by one protocol: the zero-shot table of the literature.

    A missing set is named with the reason, and the others are evaluated. `progress` is called for each set.
    """

    returns = "zellige.plugins.evaluations.suite.suite:SuiteTable"

    suite: str = option(
        "name of the suite; zero-shot: PTB, WikiText-2 and -103, LM1B, LAMBADA, AG News, PubMed, arXiv",
        default="zero-shot",
    )
    protocol: str | Protocol = option(
        "zellige, or as in a paper: mdlm, sedd, bd3lm",
        default="zellige",
        read=lambda value: value if isinstance(value, str) else Protocol(**value),
    )
    data: Local = option("where the sets are", default=Local(), kw_only=True, read=partial(data_of_json, Local))
    only: tuple[str, ...] = option("only these sets of the suite", default=(), kw_only=True)
    draws: int | None = option(
        "random noisy copies of each sequence (default: the protocol's)", default=None, minimum=1, kw_only=True
    )
    limit: int | None = option(
        "evaluate only this many sequences per set, evenly spaced (default: all)",
        default=None,
        minimum=2,
        why=TWO,
        kw_only=True,
    )
    estimator: str = option(ESTIMATOR, default="bound", kw_only=True)
    distributed: bool = distributed_option()
    begin: Callable[[str], None] | None = aside("called with the name of each set", default=None)

    def run(self, model: "ModelSource") -> "SuiteTable":
        """Evaluate a model on each set."""
        from zellige.models.model import as_model, identity

        from .suite import SUITES, SuiteTable, evaluate_sets, refuse

        began = time.perf_counter()
        names, protocol, model = SUITES[self.suite], protocol_named(self.protocol), as_model(model)
        refuse(self.suite, self.only, model, self.estimator, self.data.path)
        how = self.arguments("estimator", "distributed") | {"draws": self.draws or protocol.draws}
        rows = evaluate_sets(model, self.only or names, protocol, self.data.path, self.data.cache, self.begin, **how)
        about = identity(model) | {"length": protocol.length or model.method.shape[0]}
        seconds = time.perf_counter() - began
        return SuiteTable(self.suite, protocol, rows, about, self.seed, seconds, request=self.saved())
