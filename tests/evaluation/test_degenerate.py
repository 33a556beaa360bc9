"""Which metrics a degenerate sampler fools, by the row of each."""

import pytest

from zellige.evaluation.interval import Number
from zellige.evaluation.metrics import METRICS
from zellige.plugins.evaluations.generate.degenerate import fooled_metrics


def around(value):
    return Number(value, value - 0.1, value + 0.1)


@pytest.mark.parametrize(
    ("name", "higher"),
    [("entropy", True), ("distinct-3", True), ("perplexity", False), ("TV-2", False), ("typicality", None)],
)
def test_a_cheat_fools_a_metric_by_its_direction(name, higher):
    """Lower typicality than that of real text is a fault and fools nobody; it was counted as better."""
    assert METRICS[name].higher is higher
    for value, holds in ((0.5, higher is False), (1.0, True), (1.15, True), (1.5, higher is True)):
        assert (fooled_metrics({name: around(value)}, {name: around(1.0)}) == (name,)) == holds


def test_a_metric_without_a_row_is_not_judged():
    with pytest.raises(ValueError, match="the metric 'sparkle' has no row"):
        fooled_metrics({"sparkle": around(1)}, {"sparkle": around(1)})
