"""Every number of a paper that source and docs cite stands in tests/citations.md beside its file, with the paper it is of."""

import importlib
import re
import sys
from pathlib import Path

from zellige.plugins.verify import identities

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "citations.md"
sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import generated  # noqa: E402

MADE = [ROOT / "docs" / f"{name}.md" for name in generated.names()]  # of source that is read itself
ONE = r"(?:[A-I](?:\.\d+)*|\d+(?:\.\d+)*)\b"
KIND = r"eqs?\.|sections?|appendix|appendices|tables?|theorems?|propositions?|algorithms?|figures?"
CITED = re.compile(rf"\b({KIND}) ({ONE}(?:(?:, | and | to ){ONE})*)", re.I)
BARE = re.compile(r"(?<![\w.])([A-I]\.\d+(?:\.\d+)*)\b")  # of an appendix: "A.2.1"
ARXIV = re.compile(r"\b\d{4}\.\d{5}\b")
KINDS = {"eqs.": "eq.", "appendices": "appendix"}


def cited(text: str) -> set[str]:
    """What a text cites: {"eq. 4", "section 3.2", "appendix A.2.1", ...}."""
    named = {
        f"{KINDS.get(kind.lower(), kind.lower().rstrip('s'))} {number}"
        for kind, numbers in CITED.findall(text)
        for number in re.findall(ONE, numbers)
    }
    return named | {f"appendix {number}" for number in BARE.findall(text)}


def sources() -> dict[str, str]:
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("src/**/*.toml"), ROOT / "README.md"]
    files += [*ROOT.glob("docs/**/*.md"), *ROOT.glob("studies/**/*.md")]
    files = [path for path in files if path not in (LIST, *MADE) and "_build" not in path.parts]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}
    return {path: re.sub(r"\s+#?\s*", " ", text) for path, text in texts.items()}  # wherever a line ends


def rows() -> list[list[str]]:
    """The cells of the rows of the list."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in LIST.read_text().splitlines() if "|" in line
    ]


def test_what_is_a_citation():
    text = (
        "eq. 6 and 8 (A.2.1), sections 3.3, 5.1; Theorem 2, propositions 1 and 3, appendix C, a table of 3, eq. 4 to 6"
    )
    found = "eq. 6, eq. 8, appendix A.2.1, section 3.3, section 5.1, theorem 2, proposition 1, proposition 3, appendix C, eq. 4"
    assert cited(text) == set(found.split(", "))


def test_every_citation_is_in_the_list_and_no_other():
    listed: dict[str, set[str]] = {}
    for place, _, numbers, *_ in (row for row in rows() if row[0].startswith("`")):
        listed.setdefault(place.strip("`"), set()).update(number.strip() for number in numbers.split(";"))
    assert listed == {path: cited(text) for path, text in sources().items() if cited(text)}


def test_every_paper_is_in_the_list():
    papers = {row[0]: row[1] for row in rows() if len(row) > 1 and ARXIV.search(row[1])}
    ours = {number for text in sources().values() for number in ARXIV.findall(text)}
    assert {ARXIV.search(number)[0] for number in papers.values()} == ours  # pyright: ignore[reportOptionalSubscript]
    assert {row[1] for row in rows() if row[0].startswith("`")} <= set(papers)


# that docstrings call as the file of their class; options; others' names
OBJECTS = {"method", "model", "process", "terminal", "result", "report"}
OBJECTS |= {"train", "data", "net", "config", "completions", "lists"}


def test_what_docstrings_name_is_there():
    """`file.name`, of a file of the library: it has that name; `file.py` is there; or it is a check of `verify`."""
    source, wrong = ROOT / "src" / "zellige", []
    paths = {".".join(path.relative_to(source).with_suffix("").parts): path for path in source.rglob("*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    for path in files.values():
        for named in re.findall(r"`([a-z_][a-z_.]*\.[A-Za-z_]\w*)(?:\([^`]*\))?`", path.read_text(encoding="utf-8")):
            place, _, name = named.rpartition(".")
            homes = [file for file in files if f".{file}".endswith(f".{place}")]
            if place in OBJECTS or named in {*identities.SHARED, *identities.OWN}:
                continue
            if name == "py":
                wrong += [] if homes or list(ROOT.glob(f"*/{named}")) else [(path.name, named)]
            elif homes and not any(f".{file}".endswith(f".{named}") for file in files):
                has = (hasattr(importlib.import_module(f"zellige.{home}"), name) for home in homes)
                wrong += [] if any(has) else [(path.name, named)]
    assert wrong == [], wrong
