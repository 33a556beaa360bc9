"""Planted errors in the average over symmetries of the data, and in rows that are learnt without their given part."""

from .mutant import Mutant as M

AV, SY, PU = "nn/averaged.py", "data/symmetry.py", "data/puzzles.py"
AVERAGE = "symmetries.average mdlm"
TESTS, DATA = "tests/models/test_averaged.py", "tests/data/test_symmetry.py"

SYMMETRIES = [
    M("a copy's positions are put back by the move itself", AV, "back = move.argsort()", "back = move", AVERAGE),
    M("a copy's tokens keep the copy's names", AV,
      ".log_softmax(-1)[..., rename[: logits.shape[-1]]]", ".log_softmax(-1)", AVERAGE),
    M("a copy's tokens are named back the wrong way", AV, "[..., rename[: logits.shape[-1]]]",
      "[..., rename.argsort()[: logits.shape[-1]]]", AVERAGE),
    M("logarithms are averaged, not probabilities", AV, "torch.stack(logs).logsumexp(0) - math.log(self.symmetries)",
      "torch.stack(logs).mean(0).log_softmax(-1)", AVERAGE),
    M("the average has the sum of the copies' probabilities", AV, " - math.log(self.symmetries)", "",
      why="predictions are normalised again; the head's own numbers are log-probabilities", tests=TESTS),
    M("the mask is one of the tokens of a copy", AV,
      "logits.masked_fill(torch.arange(logits.shape[-1], device=h.device) == self.mask, -torch.inf)", "logits", AVERAGE),
    M("a copy reads the tokens of the sequence itself", AV, "features(rename[x[:, move]]", "features(x[:, move]", AVERAGE),
    M("an estimate keeps its positions", AV, "estimate[:, move][..., rename.argsort()]", "estimate[..., rename.argsort()]",
      why="the enumerated networks carry no estimate", tests=TESTS),
    M("an estimate keeps the names of its tokens", AV, "estimate[:, move][..., rename.argsort()]",
      "estimate[:, move][..., rename]", why="the enumerated networks carry no estimate", tests=TESTS),
    M("a carried estimate costs one pass for all copies", "samplers/ancestral.py",
      "super().passes(method) // (2 if self.carries else 1)", "1 if self.carries else super().passes(method)",
      why="verify counts no passes", tests=TESTS),
    M("the other strand is not read backwards", SY, "places[::-1], np.array(complement(tokenizer))",
      "places, np.array(complement(tokenizer))", why="verify has no data", tests=DATA),
    M("images are turned upside down", SY, "np.flip(places.reshape(tokenizer.shape), 1)",
      "np.flip(places.reshape(tokenizer.shape), 0)", why="verify has no data", tests=DATA),
    M("lines leave their band", PU, "k * bands + np.take_along_axis(within, bands, 1)",
      "bands + k * np.take_along_axis(within, bands, 1)", why="verify has no data", tests=DATA),
    M("a row that is learnt whole has its given part all the same", "training/order.py", "batch.mask | is_whole[:, None]",
      "batch.mask", why="verify trains nothing", tests="tests/training/test_augment.py"),
]  # fmt: skip
