"""TABLES: the tables of the papers as data. Each row has what the paper reports and the recipe that trains it.

    zellige list tables                                  # all of them
    zellige plan mdlm-1 --gpus 8                         # what each row of one would cost
    zellige compare --table mdlm-1 --minutes 5           # its rows on data at hand: never a reproduction

The values are copied from the papers' text. Rows about other kinds of models (flows, continuous diffusion, weights of GPT-2) are
left out. A row without a recipe says why in its note. The recipes have their reported numbers from here (`reported`).
"""

from dataclasses import dataclass

from ..base.errors import InputError
from ..base.plugins import Registry
from ..show.numbers import SIGN


@dataclass(frozen=True)
class Reported:
    """The number of a paper: `≤ 3.435 bits/dim, test, table 3`; "-" where the paper gives none.

    kind: "bound" or "exact". where: of which split, in which table.
    """

    value: str
    unit: str
    where: str
    kind: str = "bound"

    def __str__(self) -> str:
        return f"{signed(self.value, self.unit, self.kind)} {self.unit}" if self.value else "-"


LIKELIHOODS = ("PPL", "bits/char", "bits/dim")  # units of numbers that may be bounds


def signed(value: str, unit: str, kind: str) -> str:
    """A value with `≤` or `=` where it is a likelihood."""
    return f"{SIGN[kind]} {value}" if unit in LIKELIHOODS else value


@dataclass(frozen=True)
class TableRow:
    """One row of a table.

    Attributes:
        name: what the paper calls it.
        values: what it reports, in the order of the table's columns, with its spread: `1.61 ± 0.02`; "" where it has none.
        recipe: the recipe that trains it; "" where there is none, and `note` says why.
        exact: its likelihood is exact, no bound.
        quoted_from: the paper whose number it is, if it is another paper's.
        note: what else is known of the row.
    """

    name: str
    values: tuple[str, ...]
    recipe: str = ""
    exact: bool = False
    quoted_from: str = ""
    note: str = ""

    @property
    def quoted(self) -> bool:
        """Return whether the number is another paper's."""
        return bool(self.quoted_from)

    @property
    def kind(self) -> str:
        """Of its likelihood."""
        return "exact" if self.exact else "bound"


@dataclass(frozen=True)
class Column:
    """Quantity of a column: its unit, and its name where the table has several of a unit."""

    unit: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}, {self.unit}" if self.name else self.unit


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper.

    Attributes:
        paper, arxiv: what the paper is called, and its number.
        number: of the table, or (`figure`) of the figure.
        what: it is about, in a few words.
        protocol: on what the numbers were measured.
        evaluation: the command that measures a trained row, with RUN in the place of its folder.
    """

    paper: str
    arxiv: str
    number: str
    what: str
    protocol: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    evaluation: str = "zellige evaluate RUN"
    figure: bool = False

    @property
    def title(self) -> str:
        """`MDLM (arXiv 2406.07524), table 1`"""
        return f"{self.paper} (arXiv {self.arxiv}), {self.place}"

    @property
    def place(self) -> str:
        return f"{'figure' if self.figure else 'table'} {self.number}"

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes of its rows, each once."""
        return tuple(dict.fromkeys(row.recipe for row in self.rows if row.recipe))

    def shown(self, row: TableRow) -> list[str]:
        """The values of a row as they are printed, "-" where there is none."""
        return [
            signed(v, column.unit, row.kind) if v else "-" for column, v in zip(self.columns, row.values, strict=True)
        ]

    def reported(self, row: TableRow, whose: str = "") -> Reported:
        """The first number of a row, and where it stands; whose: before the number of the table, where it needs saying."""
        given = [(column, value) for column, value in zip(self.columns, row.values, strict=True) if value]
        if not given:
            return Reported("", "", f"{whose}{self.place}")
        first, value = given[0]
        more = [f"{column.unit} {plain(v)}" for column, v in given if column.unit != first.unit]
        where = ", ".join(filter(None, (first.name, self.protocol, f"{whose}{self.place}")))
        where += f" ({', '.join(more)})" if more else ""
        return Reported(plain(value), first.unit, where, row.kind)


def plain(value: str) -> str:
    """A value without its spread: 1.61 of `1.61 ± 0.02`."""
    return value.partition(" ")[0]


# ---------------------------------------------------------------------------------- what several tables share
def _row(name: str, *values: str, by: str = "", exact: bool = False, quoted: str = "", note: str = "") -> TableRow:
    notes = (quoted and f"quoted from {quoted}", note)
    return TableRow(name, values, by, exact, quoted, ", ".join(filter(None, notes)))


PPL, BITS = (Column("PPL"),), (Column("bits/char"),)
IMAGE = (Column("bits/dim"), Column("FID"), Column("IS"))
FIVE = tuple(Column("PPL", name) for name in ("LAMBADA", "WikiText2", "PTB", "WikiText103", "1BW"))
SEVEN = tuple(Column("PPL", name) for name in ("PTB", "Wikitext", "LM1B", "Lambada", "AG News", "Pubmed", "Arxiv"))
GLUE = (
    Column("PPL", "C4"), Column("accuracy", "MNLI matched"), Column("accuracy", "MNLI mismatched"), Column("F1", "QQP"),
    Column("accuracy", "QNLI"), Column("accuracy", "SST-2"), Column("Matthews", "CoLA"), Column("Spearman", "STS-B"),
    Column("F1", "MRPC"), Column("accuracy", "RTE"), Column("mean"),
)  # fmt: skip
ZERO_SHOT = "zellige evaluate RUN --suite zero-shot"
SAMPLES = "zellige evaluate RUN --generate"
AR_8192 = "the paper's 1,000-step column is empty: one network evaluation a token"
FIGURE = "the paper has curves, no number"
ARCHITECTURE = (
    "the paper's network is Mamba, which is not built; `net.kind` conv takes its place, with sizes of your own"
)
UNREAD_LAKH = "neither its rate nor its number of steps is in the configuration that was read"

# ---------------------------------------------------------------------------------- the tables
TABLES: Registry[PublishedTable] = Registry("table", "zellige list tables")


def _add(name: str, *table, **more) -> None:
    TABLES[name] = PublishedTable(*table, **more)


_D3PM, _TAULDR, _SEDD, _RADD = (
    ("D3PM", "2107.03006"), ("tauLDR", "2205.14987"), ("SEDD", "2310.16834"), ("RADD", "2406.03736"),
)  # fmt: skip
_MDLM, _MD4, _DUO, _BD3LM = (
    ("MDLM", "2406.07524"), ("MD4", "2406.04329"), ("Duo", "2506.10892"), ("BD3-LM", "2503.09573"),
)  # fmt: skip

_add(
    "d3pm-1", *_D3PM, "1", "text8, by noise and number of steps", "test",
    tuple(Column("bits/char", f"{steps} steps") for steps in ("1,000", "256", "20")),
    (
        _row("D3PM uniform", "1.61 ± 0.02", "1.68 ± 0.01", "1.79 ± 0.03", by="d3pm-text8-uniform"),
        _row("D3PM NN (L_vb)", "1.59 ± 0.03", "1.64 ± 0.02", "1.75 ± 0.02", by="d3pm-text8-nearest"),
        _row("D3PM mask (lambda 0.01)", "1.45 ± 0.02", "1.47 ± 0.03", "1.56 ± 0.04", by="d3pm-text8"),
        _row("Transformer decoder", "", "1.23", "", by="d3pm-text8-ar", exact=True),
    ),
    evaluation="zellige evaluate RUN --steps 1000 256 20",
)  # fmt: skip
_add(
    "d3pm-2", *_D3PM, "2", "LM1B, by noise and number of steps", "test, packed, per word",
    tuple(Column("PPL", f"{steps} steps") for steps in ("1,000", "128", "64")),
    (
        _row("D3PM uniform", "137.9 ± 2.1", "139.2 ± 1.2", "145.0 ± 1.2", by="d3pm-lm1b-uniform"),
        _row("D3PM NN", "149.5 ± 1.3", "158.6 ± 2.2", "160.4 ± 1.2", by="d3pm-lm1b-nearest"),
        _row("D3PM absorbing", "76.9 ± 2.3", "80.1 ± 1.2", "83.6 ± 6.1", by="d3pm-lm1b"),
        _row("Transformer", "", "43.6", "", by="d3pm-lm1b-ar", exact=True, note=AR_8192),
    ),
    evaluation="zellige evaluate RUN --steps 1000 128 64",
)  # fmt: skip
_add(
    "d3pm-3", *_D3PM, "3", "CIFAR-10, by noise and loss", "test", IMAGE,
    (
        _row("D3PM uniform L_vb", "5.08 ± 0.02", "51.27 ± 2.15", "5.99 ± 0.14", by="d3pm-cifar10-uniform"),
        _row("D3PM absorbing L_vb", "4.83 ± 0.02", "41.28 ± 0.65", "6.26 ± 0.10", by="d3pm-cifar10-absorbing-vb"),
        _row("D3PM absorbing lambda 0.001", "4.40 ± 0.02", "30.97 ± 0.64", "6.78 ± 0.08", by="d3pm-cifar10-absorbing"),
        _row("D3PM Gauss L_vb", "3.966 ± 0.005", "15.30 ± 0.55", "7.75 ± 0.13", by="d3pm-cifar10-gauss-logits-vb"),
        _row("D3PM Gauss lambda 0.001", "3.975 ± 0.006", "8.34 ± 0.10", "8.54 ± 0.12", by="d3pm-cifar10-gauss-logits"),
        _row("D3PM Gauss + logistic", "3.435 ± 0.007", "7.34 ± 0.19", "8.56 ± 0.10", by="d3pm-cifar10-gauss"),
    ),
)  # fmt: skip
_add(
    "d3pm-4", *_D3PM, "4", "CIFAR-10, uniform noise by schedule", "test", IMAGE,
    (
        _row("linear, beta 0.02 to 1", "4.99 ± 0.03", "79.86 ± 1.64", "4.44 ± 0.05", by="d3pm-cifar10-uniform-linear"),
        _row("cosine", "5.08 ± 0.02", "51.27 ± 2.15", "5.99 ± 0.14", by="d3pm-cifar10-uniform"),
    ),
)  # fmt: skip
_add(
    "d3pm-5", *_D3PM, "5", "text8, with and without the cross-entropy", "test",
    tuple(Column("bits/char", f"{steps} steps") for steps in ("1,000", "50")),
    (
        _row("D3PM uniform lambda 0.01", "1.91", "", by="d3pm-text8-uniform-hybrid"),
        _row("D3PM uniform L_vb", "1.61", "1.7", by="d3pm-text8-uniform"),
        _row("D3PM absorbing lambda 0.01", "1.44", "1.53", by="d3pm-text8", note="1.45 in table 1"),
        _row("D3PM absorbing L_vb", "1.47", "", by="d3pm-text8-vb"),
        _row("D3PM absorbing + NN lambda 0.01", "1.53", "", by="d3pm-text8-absorbing-nearest"),
        _row("D3PM NN L_vb", "", "1.62", by="d3pm-text8-nearest"),
    ),
    evaluation="zellige evaluate RUN --steps 1000 50",
)  # fmt: skip
_add(
    "d3pm-6", *_D3PM, "6", "text8, six layers, uniform noise by schedule", "test", BITS,
    (
        _row("1/(T - t + 1)", "2.37", by="d3pm-text8-uniform-small-even"),
        _row("cosine", "1.73", by="d3pm-text8-uniform-small"),
        _row("mutual information", "1.74", by="d3pm-text8-uniform-small-mi"),
    ),
)  # fmt: skip
_add(
    "tauldr-1", *_TAULDR, "1", "CIFAR-10", "test", IMAGE,
    (
        _row("D3PM absorbing", "4.40", "30.97", "6.78", by="d3pm-cifar10-absorbing", quoted="D3PM"),
        _row("D3PM Gauss", "3.44", "7.34", "8.56", by="d3pm-cifar10-gauss", quoted="D3PM"),
        _row("tauLDR, 10 correctors", "3.59", "3.74", "9.49", by="tauldr-cifar10"),
        _row("tauLDR, no corrector", "3.59", "8.10", "8.74", by="tauldr-cifar10", note="drawn with `corrector` 0"),
    ),
)  # fmt: skip
_add(
    "tauldr-2", *_TAULDR, "2", "Lakh pianoroll, two bars given", "test, 5 samples a song",
    (Column("Hellinger"), Column("outliers")),
    (
        _row("tauLDR birth/death", "0.3928 ± 0.0010", "0.1316 ± 0.0012", note=UNREAD_LAKH),
        _row("tauLDR uniform", "0.3765 ± 0.0013", "0.1106 ± 0.0010", by="tauldr-lakh", note="drawn with `corrector` 0"),
        _row("tauLDR uniform, 2 correctors", "0.3762 ± 0.0015", "0.1091 ± 0.0014", by="tauldr-lakh"),
        _row("D3PM uniform", "0.3839 ± 0.0002", "0.1137 ± 0.0010", note=UNREAD_LAKH),
    ),
    evaluation="zellige evaluate RUN --generate --samples-per-text 5",
)  # fmt: skip
_add(
    "sedd-1", *_SEDD, "1", "trained on OpenWebText", "zero-shot", FIVE,
    (
        _row("SEDD absorb, small", "50.92", "41.84", "114.24", "40.62", "79.29", by="sedd-owt"),
        _row("SEDD uniform, small", "65.40", "50.27", "140.12", "49.60", "101.37", by="sedd-owt-uniform"),
        _row(
            "D3PM, small", "93.47", "77.28", "200.82", "75.16", "138.92",
            note="the paper gives neither its number of steps nor its lambda",
        ),
        _row("SEDD absorb, medium", "42.77", "31.04", "87.12", "29.98", "61.19", by="sedd-owt-medium"),
        _row("SEDD uniform, medium", "51.28", "38.93", "102.28", "36.81", "79.12", by="sedd-owt-uniform-medium"),
    ),
    evaluation=ZERO_SHOT,
)  # fmt: skip
_add(
    "sedd-2", *_SEDD, "2", "text8", "test", BITS,
    (
        _row("Autoregressive", "1.23", by="d3pm-text8-ar", exact=True, quoted="D3PM"),
        _row("D3PM uniform", "1.61", by="d3pm-text8-uniform", quoted="D3PM"),
        _row("D3PM absorb", "1.45", by="d3pm-text8", quoted="D3PM"),
        _row("SEDD uniform", "1.47", by="sedd-text8-uniform"),
        _row("SEDD absorb", "1.39", by="sedd-text8"),
    ),
)  # fmt: skip
_add(
    "sedd-3", *_SEDD, "3", "LM1B", "test, packed", PPL,
    (
        _row("Transformer", "31.98", by="sedd-lm1b-ar", exact=True),
        _row("D3PM absorb", "77.50", quoted="DiffusionBERT", note="whose configuration was not read"),
        _row("SEDD uniform", "40.25", by="sedd-lm1b-uniform"),
        _row("SEDD absorb", "32.79", by="sedd-lm1b"),
    ),
)  # fmt: skip
_add(
    "sedd-5", *_SEDD, "5", "writing with 50 tokens given", "WebText, 5 samples of each of 1,000 texts", (Column("MAUVE"),),
    (
        _row("SEDD, beginning given", "0.957", by="sedd-owt-medium"),
        _row("SEDD, both ends given", "0.942", by="sedd-owt-medium", note="with `prompt_tokens` 25 and `suffix_tokens` 25"),
    ),
    evaluation="zellige evaluate RUN --generate --prompt-tokens 50 --length 100 --samples-per-text 5 --count 1000 --mauve",
)  # fmt: skip
_add(
    "radd-1", *_RADD, "1", "trained on OpenWebText, small", "zero-shot", FIVE,
    (
        _row("SEDD-Uniform", "65.40", "50.27", "140.12", "49.60", "101.37", by="sedd-owt-uniform", quoted="SEDD"),
        _row("SEDD-Unscale", "52.21", "44.75", "130.49", "43.14", "80.70", by="sedd-owt-unscaled"),
        _row("SEDD-Scale", "50.92", "41.84", "114.24", "40.62", "79.29", by="sedd-owt", quoted="SEDD"),
        _row("RADD-DSE", "49.57", "38.83", "111.74", "37.46", "72.35", by="radd-owt-dse"),
        _row("RADD-t-DCE", "50.56", "39.02", "109.03", "36.38", "72.60", by="radd-owt-t-dce"),
        _row("RADD-lambda-DCE", "51.70", "39.98", "107.85", "37.98", "72.99", by="radd-owt"),
        _row("RADD-AO", "50.27", "38.26", "110.38", "35.90", "74.28", by="radd-owt-ao"),
    ),
    evaluation=ZERO_SHOT,
)  # fmt: skip
_add(
    "radd-2", *_RADD, "2", "trained on OpenWebText, medium", "zero-shot", FIVE,
    (
        _row("SEDD-Unscale", "44.60", "34.85", "93.26", "32.97", "67.91", by="sedd-owt-medium-unscaled"),
        _row("SEDD-Scale", "42.77", "31.04", "87.12", "29.98", "61.19", by="sedd-owt-medium", quoted="SEDD"),
        _row("RADD-DSE", "42.30", "29.17", "75.16", "28.03", "57.45", by="radd-owt-medium-dse"),
        _row("RADD-t-DCE", "43.24", "30.19", "78.77", "29.36", "57.95", by="radd-owt-medium-t-dce"),
        _row("RADD-lambda-DCE", "44.10", "30.60", "82.08", "29.29", "60.32", by="radd-owt-medium"),
        _row("RADD-AO", "41.96", "29.96", "79.06", "28.51", "57.07", by="radd-owt-medium-ao"),
    ),
    evaluation=ZERO_SHOT,
)  # fmt: skip
_STEPS = tuple(Column("generative PPL", f"{steps} steps") for steps in (32, 64, 128, 256, 512, 1024, 2048, 4096))
for _number, _bits, _sedd, _radd in (
    ("3", "float64", ("159", "113", "94", "87", "84", "86", "82", "81"), ("158", "113", "96", "89", "84", "83", "81", "81")),
    ("4", "float32", ("125", "85", "62", "51", "41", "34", "27", "22"), ("126", "84", "63", "51", "41", "33", "27", "22")),
):  # fmt: skip
    _add(
        f"radd-{_number}", *_RADD, _number, f"samples by Gumbel noise in {_bits}", "GPT-2 large, 1,024 samples", _STEPS,
        (
            _row("SEDD-medium", *_sedd, by="sedd-owt-medium"),
            _row("RADD-medium", *_radd, by="radd-owt-medium"),
        ),
        evaluation=SAMPLES,
    )  # fmt: skip
_add(
    "radd-7", *_RADD, "7", "trained on OpenWebText, small, 1M steps", "zero-shot", FIVE,
    (
        _row("RADD-t-DCE", "48.92", "37.44", "102.49", "37.20", "70.58", by="radd-owt-t-dce-1m"),
        _row("RADD-lambda-DCE", "49.74", "37.13", "98.84", "36.66", "69.77", by="radd-owt-1m"),
        _row("RADD-AO", "49.43", "36.86", "102.36", "35.25", "70.71", by="radd-owt-ao-1m"),
    ),
    evaluation=ZERO_SHOT,
)  # fmt: skip
_add(
    "mdlm-1", *_MDLM, "1", "LM1B", "test, a sentence a row", PPL,
    (
        _row("D3PM (absorb)", "76.90", by="d3pm-lm1b", quoted="D3PM", note="which counts words"),
        _row("SEDD (33B tokens)", "32.79", by="sedd-lm1b", quoted="SEDD"),
        _row("AR (33B tokens)", "22.32", by="mdlm-lm1b-ar", exact=True),
        _row("AR (327B tokens)", "20.86", by="mdlm-lm1b-ar-327b", exact=True),
        _row("MDLM (33B tokens)", "27.04", by="mdlm-lm1b"),
        _row("MDLM (327B tokens)", "23.00", by="mdlm-lm1b-327b"),
    ),
)  # fmt: skip
_add(
    "mdlm-2", *_MDLM, "2", "OpenWebText", "last 100,000 documents", PPL,
    (
        _row("AR", "17.54", by="mdlm-owt-ar", exact=True),
        _row("SEDD", "24.10", by="mdlm-owt-sedd"),
        _row("MDLM", "23.21", by="mdlm-owt"),
    ),
)  # fmt: skip
_add(
    "mdlm-3", *_MDLM, "3", "trained on OpenWebText", "zero-shot, validation splits", SEVEN,
    (
        _row("AR", "82.05", "25.75", "51.25", "51.28", "52.09", "49.01", "41.73", by="mdlm-owt-ar", exact=True),
        _row("SEDD", "100.09", "34.28", "68.20", "49.86", "62.09", "44.53", "38.48", by="mdlm-owt-sedd"),
        _row("MDLM", "95.26", "32.83", "67.01", "47.52", "61.15", "41.89", "37.37", by="mdlm-owt"),
    ),
    evaluation=ZERO_SHOT,
)  # fmt: skip
_add(
    "mdlm-4", *_MDLM, "4", "BERT trained further on C4; GLUE", "GLUE's validation splits; C4's by section 5.1", GLUE,
    (
        _row("AR", "22", "80.94", "80.78", "86.98", "86.16", "90.14", "33.43", "84.32", "83.88", "47.29", "74.88", exact=True,
             note="the paper does not say how it was trained"),
        _row("BERT", "78", "84.43", "85.35", "88.41", "90.46", "92.20", "54.81", "88.41", "89.16", "61.37", "81.62",
             note="masked language modelling is no method here; judge MosaicML's weights as they are"),
        _row("BERT + MDLM-FT", "35", "84.76", "85.07", "88.49", "90.30", "92.20", "57.69", "87.48", "90.53", "62.09", "82.06",
             by="mdlm-c4-bert", note="CoLA's is called accuracy, but is below the 69% of a constant answer"),
    ),
    evaluation="zellige evaluate RUN --probe glue",
)  # fmt: skip
_add(
    "mdlm-6", *_MDLM, "6", "HG38, the human genome", "test", PPL,
    (
        _row("AR Mamba", "3.067 ± 0.010", exact=True, note=ARCHITECTURE),
        _row("SEDD", "3.216 ± 0.003", note=ARCHITECTURE),
        _row("MDLM", "3.199 ± 0.010", note=ARCHITECTURE),
    ),
)  # fmt: skip
_add(
    "mdlm-8", *_MDLM, "8", "LM1B, what each part of MDLM is worth", "test, a sentence a row", PPL,
    (
        _row("MDLM", "27.04 ± 0.01", by="mdlm-lm1b"),
        _row("without continuous time", "27.19 ± 0.07", by="mdlm-lm1b-discrete"),
        _row("and without carry-over", "28.56 ± 0.15", by="mdlm-lm1b-no-carry-over"),
        _row("and without zero masking", "28.51 ± 0.15", by="mdlm-lm1b-no-subs"),
    ),
)  # fmt: skip
_add(
    "md4-1", *_MD4, "1", "trained on OpenWebText", "zero-shot", FIVE,
    (
        _row("SEDD absorb, small", "49.73", "38.94", "107.54", "39.15", "72.96", by="md4-owt-sedd"),
        _row("MD4, small", "48.43", "34.94", "102.26", "35.90", "68.10", by="md4-owt"),
        _row("SEDD absorb, medium", "42.77", "31.04", "87.12", "29.98", "61.19", by="sedd-owt-medium", quoted="SEDD"),
        _row("MD4, medium", "44.12", "25.84", "66.07", "25.84", "51.45", by="md4-owt-medium"),
    ),
    evaluation=ZERO_SHOT,
)  # fmt: skip
_add(
    "md4-2", *_MD4, "2", "text8", "test", BITS,
    (
        _row("Transformer AR", "1.23", by="d3pm-text8-ar", exact=True, quoted="D3PM"),
        _row("D3PM uniform", "1.61", by="d3pm-text8-uniform", quoted="D3PM"),
        _row("D3PM absorb", "1.45", by="d3pm-text8", quoted="D3PM"),
        _row("SEDD absorb", "1.39", by="sedd-text8", quoted="SEDD"),
        _row("MD4", "1.37", by="md4-text8"),
        _row("GenMD4", "1.34", by="genmd4-text8"),
    ),
)  # fmt: skip
_add(
    "md4-3", *_MD4, "3", "CIFAR-10 and ImageNet 64", "test (ImageNet: validation)", (Column("bits/dim"),),
    (
        _row("CIFAR-10: D3PM absorb", "4.40", by="d3pm-cifar10-absorbing", quoted="D3PM"),
        _row("CIFAR-10: D3PM Gauss", "3.44", by="d3pm-cifar10-gauss", quoted="D3PM"),
        _row("CIFAR-10: tauLDR", "3.59", by="tauldr-cifar10", quoted="tauLDR"),
        _row("CIFAR-10: tauLDR absorb", "3.52", by="md4-cifar10-tauldr"),
        _row("CIFAR-10: MD4", "2.75", by="md4-cifar10"),
        _row("ImageNet 64: MD4", "3.40", by="md4-imagenet64"),
    ),
)  # fmt: skip
_add(
    "md4-5", *_MD4, "5", "OpenWebText", "validation", PPL,
    (
        _row("SEDD absorb, small", "24.10", by="md4-owt-sedd"),
        _row("MD4, small", "22.13", by="md4-owt"),
        _row("GenMD4, small", "21.80", by="genmd4-owt"),
        _row("MD4, medium", "16.64", by="md4-owt-medium"),
    ),
)  # fmt: skip
_add(
    "md4-6", *_MD4, "6", "ImageNet 64, by schedule, grid and steps", "50,000 samples",
    tuple(Column("FID", f"{steps} steps") for steps in (64, 128, 256, 512)),
    (
        _row("linear", "193.81", "128.18", "72.94", "50.21", by="md4-imagenet64-samples-linear"),
        _row(
            "linear, cosine grid", "42.07", "25.16", "18.31", "18.22", by="md4-imagenet64-samples-linear",
            note="drawn with `grid` cosine",
        ),
        _row("cosine", "47.46", "23.84", "17.8", "18.74", by="md4-imagenet64-samples"),
        _row("cosine, class conditional", "30.75", "11.39", "7.13", "7.8", by="md4-imagenet64-classes"),
    ),
    evaluation=SAMPLES,
)  # fmt: skip
_add(
    "md4-figure-5", *_MD4, "5", "FineWeb-Edu, HellaSwag", "accuracy by training step", (Column("accuracy"),),
    tuple(
        _row(f"{label}, {size}", "", by=f"md4-fineweb{kind}-{size}", note=FIGURE)
        for label, kind in (("MD4", ""), ("AR", "-ar"))
        for size in ("small", "medium", "large")
    ),
    evaluation="zellige evaluate RUN --pairs hellaswag.jsonl",
    figure=True,
)  # fmt: skip
_add(
    "duo-1", *_DUO, "1", "LM1B, the rows of uniform noise", "test, a sentence a row", PPL,
    (
        _row("AR Transformer", "22.3", by="mdlm-lm1b-ar", exact=True, quoted="MDLM"),
        _row("MDLM", "27.0", by="mdlm-lm1b", quoted="MDLM"),
        _row("SEDD uniform", "40.3", by="sedd-lm1b-uniform", quoted="SEDD"),
        _row("UDLM", "31.3", by="udlm-lm1b"),
    ),
)  # fmt: skip
_add(
    "bd3lm-1", *_BD3LM, "1", "LM1B, one token a block, 16B tokens", "test, packed", PPL,
    (
        _row("AR", "22.88", by="bd3lm-lm1b-ar-16b", exact=True),
        _row("AR + random batch size", "24.37", by="bd3lm-lm1b-ar-16b-random-batch", exact=True),
        _row("BD3-LM L'=1", "25.56", by="bd3lm-lm1b-1"),
        _row("BD3-LM L'=1 + tuned schedule", "22.88", by="bd3lm-lm1b-1-masked"),
    ),
)  # fmt: skip
CLIPS = {"0-50": (0.0, 0.5), "30-80": (0.3, 0.8), "50-100": (0.5, 1.0), "0-100": (0.0, 1.0)}  # of BD3-LM's table 2
_add(
    "bd3lm-2", *_BD3LM, "2", "LM1B, by block and clipping interval", "test, packed", (Column("PPL"), Column("variance")),
    tuple(
        _row(f"L'={block}, U[{low:g}, {high:g}]", ppl, variance, by=f"bd3lm-lm1b-{block}-clip-{name}")
        for block, values in {
            128: (("31.72", "1.03"), ("31.78", "1.35"), ("31.92", "1.83"), ("31.78", "3.80")),
            16: (("31.27", "7.90"), ("31.19", "3.62"), ("31.29", "3.63"), ("31.33", "7.39")),
            4: (("29.23", "32.68"), ("29.37", "10.39"), ("29.16", "8.28"), ("29.23", "23.65")),
        }.items()
        for (name, (low, high)), (ppl, variance) in zip(CLIPS.items(), values, strict=True)
    ),
)  # fmt: skip
for _number, _data, _what, _protocol, _values in (
    ("3", "lm1b", "LM1B, 65B tokens", "test, packed", ("22.83", "32.68", "31.78", "30.60", "29.83", "28.23")),
    (
        "4", "owt", "OpenWebText, 524B tokens", "last 100,000 documents",
        ("17.54", "24.10", "22.98", "22.27", "21.68", "20.73"),
    ),
):  # fmt: skip
    _others = "bd3lm-lm1b" if _data == "lm1b" else "mdlm-owt"
    _add(
        f"bd3lm-{_number}", *_BD3LM, _number, _what, _protocol, PPL,
        tuple(
            _row(name, value, by=by, exact=name == "AR", note=note)
            for (name, by, note), value in zip(
                (
                    ("AR", f"{_others}-ar", ""), ("SEDD", f"{_others}-sedd", ""),
                    ("MDLM", f"bd3lm-{_data}-pretrain", "its first 850,000 of 1M steps, with which the blocks begin"),
                    ("BD3-LM L'=16", f"bd3lm-{_data}-16", ""), ("BD3-LM L'=8", f"bd3lm-{_data}-8", ""),
                    ("BD3-LM L'=4", f"bd3lm-{_data}", ""),
                ),
                _values, strict=True,
            )
        ),
    )  # fmt: skip
_add(
    "bd3lm-5", *_BD3LM, "5", "trained on OpenWebText", "zero-shot, validation splits", SEVEN,
    (
        _row("AR", "81.07", "25.32", "51.14", "52.13", "52.11", "48.59", "41.22", by="mdlm-owt-ar", exact=True),
        _row("SEDD", "96.33", "35.98", "68.14", "48.93", "67.82", "45.39", "40.03", by="mdlm-owt-sedd"),
        _row("MDLM", "90.96", "33.22", "64.94", "48.29", "62.78", "43.13", "37.89", by="bd3lm-owt-pretrain"),
        _row("BD3-LM L'=4", "96.81", "31.31", "60.88", "50.03", "61.67", "42.52", "39.20", by="bd3lm-owt"),
    ),
    evaluation=ZERO_SHOT,
)  # fmt: skip
_add(
    "bd3lm-6", *_BD3LM, "6", "lengths of documents that end by themselves", "500 documents",
    (Column("tokens", "median"), Column("tokens", "most")),
    (
        _row("OpenWebText, train split", "717", "131K", note="the data itself"),
        _row("AR", "4008", "131K", by="mdlm-owt-ar"),
        _row("SEDD", "1021", "1024", by="mdlm-owt-sedd"),
        _row("BD3-LM L'=16", "798", "9982", by="bd3lm-owt-16"),
    ),
    evaluation="zellige evaluate RUN --generate --length 131072 --count 500",
)  # fmt: skip
_add(
    "bd3lm-7", *_BD3LM, "7", "samples", "GPT-2 large, 300 samples, nucleus 0.9",
    (Column("generative PPL", "1,024 tokens"), Column("generative PPL", "2,048 tokens")),
    (
        _row("AR", "14.1", "13.2", by="mdlm-owt-ar"),
        _row("SEDD", "52.0", "", by="mdlm-owt-sedd"),
        _row("MDLM", "46.8", "41.3", by="bd3lm-owt-pretrain"),
        _row("BD3-LM L'=16", "33.4", "31.5", by="bd3lm-owt-16"),
        _row("BD3-LM L'=8", "30.4", "28.2", by="bd3lm-owt-8"),
        _row("BD3-LM L'=4", "25.7", "23.6", by="bd3lm-owt"),
    ),
    evaluation="zellige evaluate RUN --generate --top-p 0.9",
)  # fmt: skip
_add(
    "bd3lm-8", *_BD3LM, "8", "LM1B, fine-tuned on 3B tokens, by schedule", "test, packed", (Column("PPL"), Column("variance")),
    (
        _row("L'=4, U[0.45, 0.95]", "29.21", "6.24", by="bd3lm-lm1b-4-short-45-95"),
        _row("L'=4, U[0.3, 0.8]", "29.38", "10.33", by="bd3lm-lm1b-4-short-30-80"),
        _row("L'=4, linear U[0, 1]", "30.18", "23.45", by="bd3lm-lm1b-4-short-linear"),
        _row("L'=4, logarithmic", "30.36", "23.53", by="bd3lm-lm1b-4-short-logarithmic"),
        _row("L'=4, square root", "31.41", "26.43", by="bd3lm-lm1b-4-short-square-root"),
        _row("L'=16, U[0.45, 0.95]", "31.42", "3.60", by="bd3lm-lm1b-16-short-45-95"),
        _row("L'=16, U[0.3, 0.8]", "31.12", "3.58", by="bd3lm-lm1b-16-short-30-80"),
        _row("L'=16, linear U[0, 1]", "31.72", "7.62", by="bd3lm-lm1b-16-short-linear"),
        _row("L'=16, square", "31.43", "13.03", by="bd3lm-lm1b-16-short-square"),
        _row("L'=16, cosine", "31.41", "13.00", by="bd3lm-lm1b-16-short-cosine"),
    ),
)  # fmt: skip


def reported(recipe: str, paper: str) -> Reported:
    """Reported number of a recipe: a likelihood first, on its own data before zero-shot, by its paper before one that quotes it.

    Raises:
        InputError: no table has a row that it trains.
    """
    found = [(table, row) for table in TABLES.values() for row in table.rows if row.recipe == recipe]
    if not found:
        raise InputError(f"no table has a row of the recipe {recipe}; add one to `training.tables`")

    def rank(one: tuple[PublishedTable, TableRow]) -> tuple[bool, ...]:
        table, row = one
        return not any(row.values), row.quoted, table.columns[0].unit not in LIKELIHOODS, table.evaluation == ZERO_SHOT

    table, row = min(found, key=rank)
    return table.reported(row, "" if table.paper == paper else f"{table.paper}'s ")
