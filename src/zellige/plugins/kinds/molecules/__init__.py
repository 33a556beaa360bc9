"""Molecules as texts, SMILES or SELFIES.

`tokens` has the two tokenizers, `read` the files, `smiles` the grammar and the valences, `properties` the classes,
`display` the drawing, `metrics` what samples are judged by, and `task` what a model of molecules is asked.
"""

from zellige.data.catalogue import Source

_QM9 = (
    "https://raw.githubusercontent.com/aspuru-guzik-group/selfies/"
    "eb6177e5f20cfd8787f2ac4423f5b38dce6eeeb8/tests/test_sets/qm9.csv"
)
QM9 = Source(
    "small molecules, SMILES",
    "2 MB",
    "90% / 5% / 5% shuffled",
    "CC0",
    "2.2 MB",
    fields=("smiles",),
    reads=("path", "field", "tokenizer", "labels", "labels_by"),
    files={"all": (_QM9, "80c060e299a44112b89be3fc6d95145dfeda97aa3eab1e2662aafdfbb00f7929")},
    reader="zellige.plugins.kinds.molecules.read:read",
    task="zellige.plugins.kinds.molecules.task:shares",
)
SMILES = Source(
    "your own SMILES",
    "any",
    "90% / 5% / 5% shuffled",
    "yours",
    "`data.path`",
    fields=QM9.fields,
    reads=QM9.reads,
    reader=QM9.reader,
    task=QM9.task,
)
