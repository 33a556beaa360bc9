"""Nouns: small pictures in colour, composed of parts. `parts` has the pictures, how many there are and which one a
sample is nearest to, `display` the drawing, `metrics` what samples are judged by."""

from zellige.data.catalogue import Source

NOUNS = Source(
    "composed, 32 x 32",
    "29 kB",
    "1M / 5k / 5k pictures",
    "CC0",
    "nothing",
    reads=("labels", "labels_by"),
    files={"all": ("nouns/parts.npz", None)},
    reader="zellige.plugins.kinds.nouns.parts:read",
    task="zellige.plugins.kinds.nouns.metrics:shares",
)
