"""Genomic Benchmarks (Gresova et al. 2023): eight tasks of classifying DNA, which MDLM's authors report on.

    zellige evaluate RUN --probe human_nontata_promoters --data.path genomic_benchmarks --folds 5

A task is a folder as its authors publish it: `train/CLASS/*.txt` and `test/CLASS/*.txt`, a sequence in each file. The
protocol is that of Caduceus (Schiff et al. 2024), which MDLM follows: five seeds, each splits the training sequences 90
to 10, trains on the first part and stops by the second; the published test sequences are held out. Reported are the
mean over the folds, and the lowest and the highest.
"""

from pathlib import Path

import torch

from zellige.base.errors import InputError

TASKS = (
    "dummy_mouse_enhancers_ensembl",
    "demo_coding_vs_intergenomic_seqs",
    "demo_human_or_worm",
    "human_enhancers_cohn",
    "human_enhancers_ensembl",
    "human_ensembl_regulatory",
    "human_ocr_ensembl",
    "human_nontata_promoters",
)


def read_task(name: str, path: str | Path | None) -> tuple[list[str], torch.Tensor, tuple[str, ...], int]:
    """The sequences of a task in upper case, training before test, their labels, the classes, and how many are of the
    test.

    path: its folder, or the folder that holds it.

    Raises:
        InputError: no such folder; a split or a class is missing; an empty file.
    """
    if path is None:
        raise InputError(f"{name} is read from a folder; give the one that holds it by `data.path`")
    folder = Path(path).expanduser()
    folder = folder / name if (folder / name).is_dir() else folder
    classes = _classes(folder / "train")
    if _classes(folder / "test") != classes or len(classes) < 2:
        raise InputError(
            f"'{folder}' is no task of Genomic Benchmarks; it has folders train and test, and in each one for every "
            "class"
        )
    texts, labels = list[str](), list[int]()
    for split in ("train", "test"):
        first = len(texts)
        for label, of in enumerate(classes):
            for file in sorted((folder / split / of).glob("*.txt")):
                texts.append(file.read_text(encoding="ascii", errors="replace").strip().upper())
                labels.append(label)
                if not texts[-1]:
                    raise InputError(f"'{file}' is empty; a sequence stands in each file")
        if len(texts) == first:
            raise InputError(f"'{folder / split}' holds no .txt files; a sequence stands in each")
    return texts, torch.tensor(labels), classes, len(texts) - first


def _classes(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(f.name for f in folder.iterdir() if f.is_dir())) if folder.is_dir() else ()
