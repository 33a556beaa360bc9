"""The numbers of recipes and tables, held against what no page that is written again can change.

These are the published values beside the checkout, the relations between the numbers of a paper, and a digest of each table.
"""

import hashlib
import math
import re
import sys
from pathlib import Path

import pytest

from testing.places import SHARED
from zellige.base.errors import InputError
from zellige.papers import PAPERS, RECIPE_SECTIONS, made, notes, read, recipe_entries
from zellige.papers.recipes import RECIPES, _recipe
from zellige.papers.tables import TABLES, PublishedTable, TableRow, _table, plain

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_tools"))
import published_configurations as published  # pyright: ignore[reportMissingImports]

NUMBER = r"(\d*\.?\d+(?:e-\d+)?)"
ROWS = [(name, table, row) for name, table in TABLES.items() for row in table.rows]

# ---------------------------------------------------------------------------------- beside the checkout
# Of each file texts, with # for a number and ... for anything between; below a text whose its numbers are, in order:
# `table: row`, with all of its values, or `table: row: column`; `|` stands between rows that have the same numbers.
TOLD = {
    "PUBLISHED.md": """
length 256): AR #, ..., D3PM uniform <=#, D3PM absorb <=#, SEDD absorb <=# (EDLM
    md4-2: Transformer AR | sedd-2: Autoregressive | d3pm-1: Transformer decoder
    md4-2: D3PM uniform | sedd-2: D3PM uniform | d3pm-1: D3PM uniform: 1,000 steps
    md4-2: D3PM absorb | sedd-2: D3PM absorb | d3pm-1: D3PM mask (lambda 0.01): 1,000 steps
    md4-2: SEDD absorb | sedd-2: SEDD absorb
**MD4 <=#**, ... GenMD4 <=#, SEDD uniform <=# [M]
    md4-2: MD4
    md4-2: GenMD4
    sedd-2: SEDD uniform
**LM1B test PPL**: AR #, D3PM absorb <=#, ..., SEDD uniform <=#, SEDD absorb <=# [S]
    sedd-3: Transformer
    sedd-3: D3PM absorb
    sedd-3: SEDD uniform
    sedd-3: SEDD absorb | mdlm-1: SEDD (33B tokens)
MDLM <=# (33B), <=# (327B)
    mdlm-1: MDLM (33B tokens) | mdlm-8: MDLM
    mdlm-1: MDLM (327B tokens)
AR #-#, SEDD #, MDLM <=#, BD3 L'=16/8/4 <=#/#/#
    bd3lm-3: AR
    bd3lm-1: AR
    bd3lm-3: SEDD
    bd3lm-3: MDLM
    bd3lm-3: BD3-LM L'=16
    bd3lm-3: BD3-LM L'=8
    bd3lm-3: BD3-LM L'=4
OWT PPL**: AR #, SEDD <=#, MDLM <=# (paper) / <=# (bd3lms re-eval), BD3 L'=16/8/4 <=#/#/**#**
    mdlm-2: AR | bd3lm-4: AR
    mdlm-2: SEDD | md4-5: SEDD absorb, small | bd3lm-4: SEDD
    mdlm-2: MDLM
    bd3lm-4: MDLM
    bd3lm-4: BD3-LM L'=16
    bd3lm-4: BD3-LM L'=8
    bd3lm-4: BD3-LM L'=4
GenMD4 <=#, EDLM-NCE ... MD4-S <=#, MD4-M <=# [M]
    md4-5: GenMD4, small
    md4-5: MD4, small
    md4-5: MD4, medium
MDLM paper [S]: AR # # # # # # #; SEDD # # # # # # #; MDLM # # # # # # #;
    mdlm-3: AR
    mdlm-3: SEDD
    mdlm-3: MDLM
Table 5 [S]: AR # # # # # # #; SEDD # # # # # # #; MDLM # # # # # # #; BD3 L'=4 # # # # # # #.
    bd3lm-5: AR
    bd3lm-5: SEDD
    bd3lm-5: MDLM
    bd3lm-5: BD3-LM L'=4
SEDD-absorb S <=# # # # #; uniform S # # # # #; D3PM # # # # #;
    sedd-1: SEDD absorb, small | radd-1: SEDD-Scale
    sedd-1: SEDD uniform, small | radd-1: SEDD-Uniform
    sedd-1: D3PM, small
RADD small PTB: DSE #, t-DCE #, lambda-DCE #, AO #; lambda-DCE 1BW # vs AO #;
    radd-1: RADD-DSE: PTB
    radd-1: RADD-t-DCE: PTB
    radd-1: RADD-lambda-DCE: PTB
    radd-1: RADD-AO: PTB
    radd-1: RADD-lambda-DCE: 1BW
    radd-1: RADD-AO: 1BW
medium best WT2 #, PTB #, WT103 #, LAMBADA # [S]. Full row ... #/#/#/#/# [M]. MD4-S #/#/#/#/#
    radd-2: RADD-DSE: WikiText2
    radd-2: RADD-DSE: PTB
    radd-2: RADD-DSE: WikiText103
    radd-2: RADD-AO: LAMBADA
    radd-1: RADD-lambda-DCE
    md4-1: MD4, small
BPD MD4 <=# (...), ImageNet64 <=# [S ... D3PM absorb # (FID #), D3PM Gauss # (FID #), tauLDR #,
    md4-3: CIFAR-10: MD4
    md4-3: ImageNet 64: MD4
    tauldr-1: D3PM absorbing: bits/dim | d3pm-3: D3PM absorbing lambda 0.001: bits/dim | md4-3: CIFAR-10: D3PM absorb
    tauldr-1: D3PM absorbing: FID | d3pm-3: D3PM absorbing lambda 0.001: FID
    tauldr-1: D3PM Gauss: bits/dim | md4-3: CIFAR-10: D3PM Gauss
    tauldr-1: D3PM Gauss: FID | d3pm-3: D3PM Gauss + logistic: FID
    tauldr-1: tauLDR, 10 correctors: bits/dim | tauldr-1: tauLDR, no corrector: bits/dim | md4-3: CIFAR-10: tauLDR
FID # (0 correctors) / # (10 correctors), IS # / # [S]
    tauldr-1: tauLDR, no corrector: FID
    tauldr-1: tauLDR, 10 correctors: FID
    tauldr-1: tauLDR, no corrector: IS
    tauldr-1: tauLDR, 10 correctors: IS
300 samples): AR #, SEDD #, MDLM #, BD3 16/8/4 = #/#/#; L=2048 BD3-4 #, AR # [S]
    bd3lm-7: AR: 1,024 tokens
    bd3lm-7: SEDD: 1,024 tokens
    bd3lm-7: MDLM: 1,024 tokens
    bd3lm-7: BD3-LM L'=16: 1,024 tokens
    bd3lm-7: BD3-LM L'=8: 1,024 tokens
    bd3lm-7: BD3-LM L'=4: 1,024 tokens
    bd3lm-7: BD3-LM L'=4: 2,048 tokens
    bd3lm-7: AR: 2,048 tokens
""",
    "SEEDS.md": """
text8 uniform # and NN #; LM1B uniform # and NN #; ... L_vb #, Gauss L_vb #, Gauss L_lambda # (FID #);
    d3pm-1: D3PM uniform: 1,000 steps
    d3pm-1: D3PM NN (L_vb): 1,000 steps
    d3pm-2: D3PM uniform: 1,000 steps
    d3pm-2: D3PM NN: 1,000 steps
    d3pm-3: D3PM absorbing L_vb: bits/dim
    d3pm-3: D3PM Gauss L_vb: bits/dim
    d3pm-3: D3PM Gauss lambda 0.001: bits/dim
    d3pm-3: D3PM Gauss lambda 0.001: FID
AR rows (#; #); ... (uniform # is one)
    d3pm-1: Transformer decoder
    d3pm-2: Transformer
    d3pm-3: D3PM uniform L_vb: bits/dim | d3pm-4: cosine: bits/dim
absorbing + nearest neighbours (#)
    d3pm-5: D3PM absorbing + NN lambda 0.01
D3PM-uniform row (#)
    tauldr-2: D3PM uniform: Hellinger
SEDD-Unscale (#:
    radd-1: SEDD-Unscale: LAMBADA
generative perplexity # -> # at 4,096 steps
    radd-3: RADD-medium: 4096 steps
    radd-4: RADD-medium: 4096 steps
without carry-over #, without both #
    mdlm-8: and without carry-over
    mdlm-8: and without zero masking
absorbing process on MD4's network, #
    md4-3: CIFAR-10: tauLDR absorb
class-conditional # (on a third
    md4-6: cosine, class conditional: 256 steps
AR #, AR with random batch sizes #, block length 1 # -> # fully masked
    bd3lm-1: AR
    bd3lm-1: AR + random batch size
    bd3lm-1: BD3-LM L'=1
    bd3lm-1: BD3-LM L'=1 + tuned schedule
""",
}
CHOSEN = {  # the same, with the choices of a recipe
    "PUBLISHED.md": """
md4 recipe: #L x # (feature_dim 64 x # heads), bs #, #M steps, lr #, wd #, dropout #,
    md4-text8: layers hidden heads batch steps lr weight_decay dropout
""",
    "SEEDS.md": """
Lakh pianoroll (# states, # steps,
    tauldr-lakh: vocabulary length
""",
    "CHECKPOINTS.md": """
mdlm-noeos-owt)... model_length #, hidden_dim #, cond_dim **#**...n_blocks #, n_heads #, dropout #,
    mdlm-owt: length hidden condition layers heads dropout
udlm-qm9 |...vocab #, length #, time_conditioning True
    udlm-lm1b: vocabulary length
sedd-medium |...| #/#/# and
    sedd-owt: hidden layers heads
sedd-medium |...and #/#/#, cond #, length #
    sedd-owt-medium: hidden layers heads condition length
radd-t-dce (#k steps)...dropout #,
    radd-owt: steps dropout
""",
}


def texts(of: dict[str, str]) -> list[tuple[str, str, list[str]]]:
    """The file, the text and the lines below it, of each text."""
    found: list[tuple[str, str, list[str]]] = []
    for file, lines in of.items():
        for line in lines.strip().splitlines():
            if line.startswith(" "):
                found[-1][2].append(line.strip())
            else:
                found.append((file, line, []))
    return found


def told(file: str, text: str) -> list[float]:
    """The numbers of a text in one of the files beside the checkout."""
    if not (SHARED / file).is_file():
        pytest.skip(f"no published values at {SHARED / file}: set ZELLIGE_SHARED")
    pattern = re.escape(text).replace(r"\#", NUMBER).replace(re.escape("..."), ".*?")
    found = re.search(pattern, (SHARED / file).read_text(encoding="utf-8"))
    assert found, f"{file} has no {text!r}"
    return [float(number) for number in found.groups()]


def values_of(address: str) -> list[float]:
    """The values of a row, or that of one of its columns."""
    name, _, rest = address.strip().partition(": ")
    table = TABLES[name]
    row = next(row for row in table.rows if rest == row.name or rest.startswith(f"{row.name}: "))
    column = rest.removeprefix(row.name).removeprefix(": ")
    values = zip(table.columns, row.values, strict=True)
    return [float(plain(value)) for of, value in values if value and column in ("", of.name or of.unit)]


@pytest.mark.parametrize(("file", "text", "places"), texts(TOLD))
def test_a_table_has_the_values_that_stand_beside_the_checkout(file, text, places):
    lines = [[values_of(address) for address in line.split(" | ")] for line in places]
    assert all(same == line[0] for line in lines for same in line)
    assert [value for line in lines for value in line[0]] == told(file, text)


@pytest.mark.parametrize(("file", "text", "places"), texts(CHOSEN))
def test_a_recipe_has_the_values_that_stand_beside_the_checkout(file, text, places):
    """That of the authors' file, where the paper contradicts it."""
    (name, _, choices), *_ = (place.partition(": ") for place in places)
    recipe, entries = RECIPES[name], {entry.ours: entry for entry in published.PUBLISHED[name]}
    scales = [{"M": 1e6, "k": 1e3}.get(letter, 1.0) for letter in re.findall(r"#(\w?)", text)]
    for choice, value, scale in zip(choices.split(), told(file, text), scales, strict=True):
        part = next((part for part in ("net", "train") if hasattr(getattr(recipe, part), choice)), "")
        entry = entries.get(f"{part}.{choice}")
        ours = published.said(recipe, f"{part}.{choice}".removeprefix("."))
        if file == "PUBLISHED.md" and entry is not None and entry.paper is not None:
            ours = entry.value
        assert ours == pytest.approx(value * scale, rel=1e-9), choice


# ---------------------------------------------------------------------------------- relations
FACTORS = {  # how a published value comes to be ours, by the beginning of `Entry.how`
    "x T ln 2": lambda r: r.config.options.diffusion_steps * math.log(2),
    "x T": lambda r: r.config.options.diffusion_steps,
    "x T / L": lambda r: r.config.options.diffusion_steps / r.net.length,
    "x 0.99": lambda r: 1 - r.config.options.min_time,
    "x 0.99 / 3,072": lambda r: (1 - r.config.options.min_time) / r.net.length,
    "x 0.99 / 224": lambda r: (1 - r.config.options.min_time) / (r.net.length - int(r.data.given.split(":")[1])),
    "/ L": lambda r: 1 / r.net.length,
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_converted_value_is_the_published_one_times_its_factor(name):
    recipe = RECIPES[name]
    for entry in published.PUBLISHED[name]:
        how = entry.how.partition(":")[0]
        if how.startswith(("x ", "/ ")):
            assert entry.here == pytest.approx(entry.value * FACTORS[how](recipe), rel=1e-12), entry.ours
        if how.startswith("("):  # of a time that begins at 0.01
            assert entry.here == pytest.approx((entry.value - 0.01) / 0.99, abs=5e-5), entry.ours


RELATED = {  # numbers without a file: when a run writes; of the data, the count of parameters, the row's name; ours
    "train.validate_every", "train.log_every", "net.length", "data.fill", "net.condition", "options.block",
    "options.exponent", "options.auxiliary",
}  # fmt: skip
DATA = {  # length of a row, data tokens: of GPT-2, of BERT, letters, levels of a pixel, pitches
    "openwebtext": (1024, 50257), "fineweb-edu": (1024, 50257), "lm1b": (128, 30522), "c4": (128, 30522),
    "text8": (256, 27),
    "cifar10": (3 * 32 * 32, 256), "imagenet64": (3 * 64 * 64, 256), "imagenet64-oord": (3 * 64 * 64, 256),
    "lakh-pianoroll": (256, 129),
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_every_number_of_a_recipe_has_a_source_or_a_relation(name):
    (entries,) = (found[name] for paper in PAPERS if name in (found := recipe_entries(read(paper))))
    numbers = {
        f"{part}.{choice}"
        for part in RECIPE_SECTIONS
        for choice, value in entries[part].items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    assert numbers - {*entries["published"]} <= RELATED
    recipe = RECIPES[name]
    length, vocabulary = DATA[recipe.data.name]
    tokenizer = recipe.data.tokenizer.partition("sentencepiece:")[2]
    assert (recipe.net.length, recipe.vocabulary) == (length, int(tokenizer or vocabulary))
    assert math.prod(recipe.net.grid) == (length if recipe.net.is_unet else 1)


def tokens_of(name: str, alone: bool = False) -> float:
    """Positions that pass through the network, with those of the run that it begins with unless `alone`."""
    recipe = RECIPES[name]
    begun = recipe.train.start.removeprefix("runs/")
    passed = recipe.train.steps * recipe.train.batch * recipe.net.length
    return passed + (tokens_of(begun) if begun in RECIPES and not alone else 0)


def test_steps_times_batch_times_length_are_the_tokens_that_the_paper_counts():
    """MDLM counts half of those that pass its network, and all of AR's; BD3-LM's MDLM is a first stage, 0.85 of it."""
    checked = 0
    for name, table, row in ROWS:
        stated = re.search(r"(\d+)B tokens", row.name) or re.search(r"(\d+)B tokens", table.what)
        if stated is None or not row.recipe or RECIPES[row.recipe].paper != table.paper:
            continue
        part = 0.5 if table.paper == "MDLM" and RECIPES[row.recipe].method != "ar" else 1.0
        part /= 0.85 if row.recipe.endswith("-pretrain") else 1.0
        passed = tokens_of(row.recipe, alone="fine-tuned" in table.what)
        assert part * passed == pytest.approx(float(stated[1]) * 1e9, rel=0.03), f"{name}: {row.name}"
        checked += 1
    assert checked == 28


def test_a_recipe_has_the_choices_that_the_name_of_its_row_says():
    checked = 0
    for name, _, row in ROWS:
        recipe = RECIPES.get(row.recipe)
        if recipe is None:
            continue
        options, where = dict(recipe.options), f"{name}: {row.name}"
        if block := re.search(r"L'=(\d+)", row.name):
            assert options["block"] == int(block[1]), where
            checked += 1
        if clip := re.search(r"U\[([\d.]+), ([\d.]+)\]", row.name):
            assert options.get("clip", (0.0, 1.0)) == (float(clip[1]), float(clip[2])), where
            checked += 1
        if correctors := re.search(r"(\d+) correctors", row.name):
            assert dict(recipe.drawing)["corrector"] == int(correctors[1]), where
            checked += 1
    assert checked == 55


@pytest.mark.parametrize("name", TABLES)
def test_a_value_may_be_one_of_its_unit_and_stands_in_order(name):
    """Fewer steps make a looser bound; an exact likelihood is below the bounds; a mean is that of the other columns."""
    table = TABLES[name]
    least = {"bits/char": 1.0, "bits/dim": 2.0, "PPL": 3.0, "IS": 1.0, "MAUVE": 0.0, "Hellinger": 0.0, "outliers": 0.0}
    most = {
        "bits/char": math.log2(27), "bits/dim": 8.0, "accuracy": 100.0, "F1": 100.0, "mean": 100.0, "Matthews": 100.0,
        "Spearman": 100.0, "MAUVE": 1.0, "Hellinger": 1.0, "outliers": 1.0, "IS": 12.0, "PPL": 250.0,
    }  # fmt: skip
    for row in table.rows:
        values = [
            (column.unit, float(plain(v).replace("K", "e3"))) for column, v in zip(table.columns, row.values) if v
        ]
        assert all(least.get(unit, 0.0) <= value <= most.get(unit, math.inf) for unit, value in values), row.name
        bounds = [value for unit, value in values if unit in ("bits/char", "PPL")]
        if all("steps" in column.name for column in table.columns) and len(bounds) > 1:
            assert bounds == sorted(bounds), row.name
        if table.columns[-1].unit == "mean":
            scores = [value for _, value in values[1:-1]]
            assert values[-1][1] == pytest.approx(sum(scores) / len(scores), abs=0.01)


# ---------------------------------------------------------------------------------- digests
DIGESTS = {
    "d3pm-1": "24172fdc", "d3pm-2": "b723ae60", "d3pm-3": "8fea9d2e", "d3pm-4": "09cd4553", "d3pm-5": "fb696524",
    "d3pm-6": "ebb298e6", "tauldr-1": "d6769227", "tauldr-2": "72152176", "sedd-1": "7d434ebd", "sedd-2": "15812db4",
    "sedd-3": "7b5fb056", "sedd-5": "e5093a80", "radd-1": "70a6b86d", "radd-2": "839c3865", "radd-3": "7e2fb4b4",
    "radd-4": "56ec9515", "radd-7": "4120fda5", "mdlm-1": "575dee95", "mdlm-2": "9b453291", "mdlm-3": "d69df7bf",
    "mdlm-4": "5fff8460", "mdlm-6": "ab645313", "mdlm-8": "a113dc9f", "md4-1": "09037c7e", "md4-2": "34ac9cd5",
    "md4-3": "e30a072d", "md4-5": "c7ce0ed8", "md4-6": "683796ba", "md4-figure-5": "d581c81f", "duo-1": "fee727d1",
    "bd3lm-1": "6aad6a2d", "bd3lm-2": "863cee45", "bd3lm-3": "4beb5d2b", "bd3lm-4": "ec35e235", "bd3lm-5": "3aa47705",
    "bd3lm-6": "8c513f00", "bd3lm-7": "46704397", "bd3lm-8": "a3b30541",
}  # fmt: skip


def digest(table: PublishedTable) -> str:
    """Of what the paper says: rows, columns, values, and which are exact or quoted."""
    rows = [(row.name, row.values, row.exact, row.quoted_from) for row in table.rows]
    said = (table.paper, table.arxiv, table.number, [str(column) for column in table.columns], rows)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:8]


def test_no_table_has_changed_since_it_was_read():
    """The second writing of the numbers that neither stand beside the checkout nor follow from others."""
    changed = {name: digest(table) for name, table in TABLES.items() if DIGESTS.get(name) != digest(table)}
    assert not changed, "read these tables in their papers again; if the new values are right, write their digests here"
    assert {*DIGESTS} == {*TABLES}


# ---------------------------------------------------------------------------------- what the reader refuses
def entries(**more) -> dict:
    """The entries of a recipe, with others in place of some of them."""
    return recipe_entries(read("mdlm"))["mdlm-owt"] | more


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"net": {"layer": 2}}, "recipe r, net: Net() has no argument 'layer'; did you mean 'layers'?"),
        ({"net": {"layers": "two"}}, "mdlm.toml, recipe r, net: `net.layers` is 'two'; it must be a whole number"),
        ({"train": {"lr": True}}, "recipe r, train: `train.lr` is True; it must be a number"),
        ({"train": {"steps": 0}}, "recipe r, train: `train.steps` is 0; it must be 1 or more"),
        ({"data": {"nam": "text8"}}, "recipe r, data: Data() has no argument 'nam'; did you mean 'name'?"),
        ({"options": {"shedule": "linear"}}, "options: Config() has no argument 'shedule'; did you mean 'schedule'?"),
        ({"steps": 10.5}, "recipe r: `steps` is 10.5; it must be a whole number"),
        ({"vocabulary": "many"}, "recipe r: `vocabulary` is 'many'; it must be a whole number"),
        ({"lr": 3e-4}, "recipe r: Recipe() has no argument 'lr'"),
        ({"differs": ["cunted"]}, "unknown note 'cunted'; did you mean 'counted'?"),
        ({"method": "mdml"}, "unknown method 'mdml'; did you mean 'mdlm'?"),
    ],
)  # fmt: skip
def test_a_wrong_entry_of_a_recipe_is_named(more, message):
    with pytest.raises(InputError) as wrong:
        _recipe("mdlm", "r", entries(**more))
    assert message in str(wrong.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"protocl": "test"}, "table t: PublishedTable() has no argument 'protocl'; did you mean 'protocol'?"),
        (
            {"rows": [{"name": "a", "values": [27.04]}]},
            "table t, rows: `values` is a list; it must be a tuple of texts",
        ),
        ({"rows": [{"name": "a", "value": ["1"]}]}, "table t, rows: TableRow() has no argument 'value'"),
        ({"columns": [{"units": "PPL"}]}, "table t, columns: Column() has no argument 'units'; did you mean 'unit'?"),
    ],
)
def test_a_wrong_entry_of_a_table_is_named(more, message):
    with pytest.raises(InputError) as wrong:
        _table(read("mdlm"), read("mdlm")["tables"]["mdlm-1"] | more, "table t")
    assert message in str(wrong.value)


def test_two_published_values_of_a_choice_are_refused_and_what_a_recipe_chooses_itself_is_not_inherited():
    value = {"key": "lr", "value": 1.0}
    base = {"published": {"a": {"train.lr": value, "net.heads": value, "options.schedule": value}}}
    own = {"base": "b", "train": {"lr": 2.0}, "published": {"c": {"train.steps": value}}}
    assert [*recipe_entries({"recipes": {"b": base, "r": own}})["r"]["published"]] == [
        "net.heads", "options.schedule", "train.steps",
    ]  # fmt: skip
    other = {"base": "b", "method": "ar"}
    assert [*recipe_entries({"recipes": {"b": base, "r": other}})["r"]["published"]] == ["train.lr", "net.heads"]
    with pytest.raises(InputError, match="two published values of one choice"):
        recipe_entries({"recipes": {"r": {"published": {"a": {"train.lr": value}, "c": {"train.lr": value}}}}})


def test_a_file_of_a_paper_has_known_parts_and_no_note_or_shared_part_that_nothing_names():
    for paper in PAPERS:
        document, shared = read(paper), read(paper).get("shared", {})
        known = {"paper", "arxiv", "repositories", "notes", "shared", "recipes", "tables"}
        assert {*document} <= known
        parts = [*document.get("recipes", {}).values(), *shared.values()]
        named = {note for part in parts for key in ("differs", "without", "ours") for note in part.get(key, [])}
        assert {*document.get("notes", {})} <= named, paper
        assert len(notes(paper, sorted(named))) == len(named)
        assert {*shared} <= {part.get("base") for part in parts}, paper
    assert made(TableRow, {"name": "a", "values": ["1"]}, "").values == ("1",)
