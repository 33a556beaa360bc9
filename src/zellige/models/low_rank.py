"""What is trained of a tuned model. The command line reads these options without torch."""

from dataclasses import dataclass

from ..base.requests import check_fields, option


@check_fields
@dataclass(frozen=True)
class Adapter:
    """Low-rank products beside some of the matrices of a network (LoRA, Hu et al. 2021, arXiv 2106.09685).

    The base is `train.start`. A matrix W computes W x + alpha / rank B A x; A (rank, inputs) begins random, B (outputs,
    rank) at zero.

    Attributes:
        targets: the projections, as their blocks call them: ("query", "value"); () before the base is known: all.
        length: tokens of a row of the data; 0: as many as the model reads.
        base_sha256: digest of the base's weights (`model.fingerprint`).
    """

    rank: int = option("rank of the adapters", default=16, minimum=1)
    alpha: float = option("adapters are scaled by alpha / rank", default=32.0, above=0)
    dropout: float = option("fraction of an adapter's inputs dropped in training", default=0.0, minimum=0, below=1)
    targets: tuple[str, ...] = ()
    length: int = option(default=0, minimum=0)
    base_sha256: str = ""
