"""The page docs/reference/tables.md: every table of the papers row by row, and what is done of them."""

from zellige.papers.tables import TABLES, PublishedTable

HEAD = """\
# Tables of the papers

Name a table of a paper, and Zellige names its rows, their cost, and the command that trains each of them. **None of the tables
has been repeated here with the paper's data and budget.** This page is made from the code by `docs/_tools/tables.py`.

```sh
zellige list tables
zellige plan mdlm-1 --gpus 8 --price 2.5
zellige train --recipe mdlm-lm1b-ar
zellige compare --table mdlm-1 --minutes 5
```

- `plan` counts the FLOPs, the memory and the hours of each row.
- `train --recipe` trains a row as the paper says. [Recipes](recipes.md) has every configuration, with its source.
- `evaluate --generate` needs `pip install '.[eval]'`, with `--mauve` also `mauve`; data of the Hugging Face hub need `data`
  ([extras](../tutorials/start.md#more-ways-to-install)).
- `compare --table` runs the methods of all rows on data that is at hand, for the same minutes each. The first line says which
  data that is. Numbers there are not the paper's numbers on other hardware: data, network and budget differ. What it shows is
  how the methods compare on that data, with paired intervals. The same command goes on where it was stopped.

In Python: `zellige.studies.PlanTable("mdlm-1", gpus=8).run()` and
`zellige.studies.Compare(table="mdlm-1", minutes=5).run()`. The tables are
`zellige.papers.tables.TABLES`.

The numbers were copied from the papers' text. Rows about other kinds of models are left out: flows, continuous diffusion, the
weights of GPT-2. A number after ± is the paper's own spread, mostly a standard deviation over two to five seeds.

"""
LISTS: dict[
    str, list[tuple[str, str, str]]
] = {  # of each paper: where, what, and the command that does it ("" where none does)
    "D3PM": [
        ("3.3, figures 2 and 8", "the bound with fewer steps than T", "zellige evaluate RUN --steps 256 128 64 20"),
        (
            "A.7, eq. 17",
            "mutual-information schedule with the frequencies of the training data",
            "zellige train d3pm --process uniform --schedule mutual-information --unigrams counts.npy",
        ),
        (
            "table 5",
            "absorbing with nearest neighbours",
            "zellige train d3pm --process absorbing-nearest --embedding embedding.npy",
        ),
        (
            "3.1",
            "transition matrices of one's own, from a file",
            "zellige train d3pm --process matrix --matrix blosum62.csv",
        ),
        ("B.2", "inverse square-root decay; random crops", "zellige train --recipe d3pm-text8"),
        ("B.2", "sentencepiece", "zellige train d3pm --data.tokenizer sentencepiece:8192"),
        ("B.2, table 2", "perplexity per word, as its logarithm: bits per word", "zellige evaluate RUN"),
        ("tables 1 to 4", "mean and deviation over seeds", "zellige compare mdlm md4 --seeds 3"),
        (
            "4",
            "BERT as one step of absorbing-uniform; AR as a deterministic chain of masks",
            "zellige verify d3pm --only bound.bert",
        ),
        ("figures 2 and 10", "corrupt a text and reconstruct it", "zellige sample RUN --reconstruct TEXT --noise 0.4"),
        ("figure 1", "swiss roll of quantised points", "python studies/swiss-roll/swiss_roll.py"),
    ],
    "CSM": [
        (
            "tabular experiments",
            "density estimation on tables of categories, with baselines",
            "python studies/tabular/tabular.py",
        ),
        ("baselines", "ratio matching and discrete marginalisation", "zellige train csm --objective ratio-matching"),
        (
            "images",
            "MNIST by denoising CSM at several noise levels: of this paper only the abstract could be read, and it has no number",
            "",
        ),
    ],
    "tauLDR": [
        (
            "6.3, table 2",
            "music with two bars given; Hellinger distance, proportion of outliers",
            "zellige evaluate RUN --generate --prompt-tokens 32 --samples-per-text 5",
        ),
        (
            "6.1, figure 3",
            "an image of tau; Hellinger distance beside exact simulation",
            "python studies/tau-image/tau_image.py",
        ),
        (
            "theorem 1",
            "the bound on the error of tau-leaping, beside the error",
            "python studies/leaping/leaping_bound.py",
        ),
        ("H.2", "residual sums divided by the root of 2; logistic bins", "zellige train --recipe tauldr-cifar10"),
        (
            "figures 9, 10, 12",
            "fraction of the positions that jump, are clipped, are rejected, by step",
            "zellige sample RUN --sampler tau_leaping --json -",
        ),
    ],
    "SEDD": [
        (
            "5.3.2, table 5",
            "writing with a beginning or both ends given, by MAUVE",
            "zellige evaluate RUN --generate --prompt-tokens 25 --suffix-tokens 25 --length 100 --samples-per-text 5 --mauve",
        ),
        ("D.1", "squared loss of the score instead of score entropy", "zellige train sedd --loss squared"),
    ],
    "RADD": [
        (
            "tables 3 and 4",
            "Gumbel noise in float32 against float64",
            "zellige evaluate RUN --generate --calls 1024 --samplers ancestral ancestral:gumbel_bits=24",
        ),
        (
            "table 3",
            "entropy of 8.1: more than ln 1,024 nats, so not of one sample in nats; here the unit is named",
            "zellige evaluate RUN --generate",
        ),
    ],
    "MDLM": [
        (
            "5.1, table 4",
            "start from BERT; GLUE",
            "zellige train mdlm --train.start answerdotai/ModernBERT-base; zellige evaluate RUN --probe glue",
        ),
        (
            "5.2, table 6",
            "a language model of a genome, with dilated convolutions in the place of Mamba",
            "zellige train mdlm --data.name dna --data.path hg38.fa --data.reverse-complement --net.kind conv --net.length 1024",
        ),
        (
            "5.2, table 7",
            "Genomic Benchmarks in five folds, of such a model",
            "zellige evaluate RUN --probe human_nontata_promoters --data.path genomic_benchmarks --folds 5",
        ),
        (
            "5.3, table 8",
            "SUBS switched off in parts",
            "zellige train mdlm --diffusion-steps 1000 --no-carry-over --no-zero-masking",
        ),
        (
            "figure 3",
            "variance of the loss; stratified and independent times",
            "python studies/learning/variance.py RUN",
        ),
    ],
    "MD4": [
        ("7.1, figure 5", "HellaSwag by the joint bound", "zellige evaluate RUN --pairs hellaswag.jsonl"),
        ("J", "SwiGLU, dropout of channels", "zellige train --recipe md4-text8"),
        (
            "reviews",
            "schedules that see the sentence, as LoMDM learns them. In GenMD4 the rate at a mask is a mean over tokens, which "
            "p(x_0^i | x_t) gives. With alpha_i(t, x_0) of the whole sentence it is a mean over sentences, which that does not "
            "give: the network needs rates of its own, and the bound a divergence between these and the true ones",
            "",
        ),
        ("H.4", "MaskGIT's loss, without weights", "zellige train md4 --loss maskgit --schedule cosine"),
        ("H.4", "SUNDAE's loss, of two denoising steps", "zellige train udlm --loss sundae --no-time"),
    ],
    "BD3-LM": [
        ("table 1", "AR with batches of random size", "zellige train ar --token-share 0.5"),
        ("table 2, eq. 10", "variance of the bound over clipping intervals", "python studies/clipping/clipping.py"),
        (
            "table 6",
            "lengths of documents that end by themselves",
            "zellige evaluate RUN --generate --length 131072 --count 500",
        ),
        ("table 8", "square and square-root schedules", "zellige train bd3lm --schedule square-root"),
    ],
}


def section(name: str, table: PublishedTable) -> str:
    head = ["row", *map(str, table.columns), "recipe", ""]
    rows = [head, ["---"] * len(head)]
    for row in table.rows:
        recipe = f"[{row.recipe}](recipes.md#{row.recipe})" if row.recipe else "none"
        rows.append([row.name, *table.shown(row), recipe, row.remark])
    lines = "\n".join("| " + " | ".join(cell or " " for cell in cells) + " |" for cells in rows)
    measured = table.evaluation.replace("RUN", "runs/RECIPE")
    return f"### {name}\n\n{table.title}: {table.what}; {table.protocol}. Measured with `{measured}`.\n\n{lines}\n"


def beyond() -> str:
    """What else the papers contain."""
    parts = []
    for paper, rows in LISTS.items():
        lines = []
        for where, what, command in rows:
            text = f"~~{where}: {what}~~ `{command}`" if command else f"{where}: {what}"
            lines.append(f"- {text}\n")
        parts.append(f"### {paper}: figures and options\n\n{''.join(lines)}")
    return "\n".join(parts)


def page() -> str:
    sections = "\n".join(section(name, table) for name, table in TABLES.items())
    open_rows = [
        f"- {name}, {row.name}: {row.remark}\n"
        for name, table in TABLES.items()
        for row in table.rows
        if not row.recipe
    ]
    return (
        f"{HEAD}## The tables\n\n{sections}\n## Rows without a recipe\n\n{''.join(open_rows)}\n"
        "## What else the papers contain\n\nStruck out where the command beside it does it; the rest is open.\n\n"
        f"{beyond()}"
    )
