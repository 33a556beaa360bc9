"""The documentation as a site: pages from the code, twins in Markdown, nothing that a browser would fetch elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import zellige
from zellige.base.schema import read_json
from zellige.data.prepare import prepare
from zellige.evaluation.metrics import METRICS
from zellige.models import shipped
from zellige.plugins.verify import identities, verify

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import generated  # noqa: E402
import outputs  # noqa: E402
import pages  # noqa: E402
import results_pictures  # noqa: E402
import samples  # noqa: E402

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|link(?![^>]*rel="(?:author|canonical)"))\b[^>]*?(?:src|href|data)=["'](?:https?:)?//"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//|url\(\s*["']?(?:https?:)?//"""
)


def test_each_method_sampler_and_metric_has_a_page():
    for kind in pages.KINDS:
        there = {path for path in (ROOT / "docs" / kind).glob("*.md") if path.stem != "index"}
        assert there == {*pages.paths(kind).values()}


@pytest.mark.parametrize(
    "path", [path for kind in pages.KINDS for path in pages.paths(kind).values()], ids=lambda p: p.stem
)
def test_every_page_begins_with_its_idea(path):
    title, _, idea = path.read_text(encoding="utf-8").partition("\n")
    assert title.startswith("# ")
    assert len(idea.split()) > 20


def test_the_page_of_a_metric_is_of_its_row():
    """Its name, interval and paper, the docstring and the code of its function, and of no other page's."""
    made = {page: "\n".join(pages.metric_page(page)) for page in pages.of_samples()}
    for metric in METRICS.all().values():
        function = getattr(metric.function, "func", metric.function)
        first = pages.prose((function.__doc__ or "").partition("\n")[0])
        known = [f"- `{name}`: " for name in metric.takes]
        for said in (f"`{metric.name}`", metric.interval, metric.paper, first, f"def {function.__name__}(", *known):
            assert said in made[metric.page], said
        others = [page for page, text in made.items() if f"def {function.__name__}(" in text and page != metric.page]
        assert not others, metric.name


def test_markdown_of_a_docstring():
    text = (
        "A *b* costs $1 where x <y:\n\n    a = 1\n\n    b = 2\n\nTV      halves\n        of it\n\n"
        ">>> a + b\n3\n\nArgs:\n    x: one,\n        two.\nLast."
    )
    assert pages.markdown(text) == (
        "A \\*b\\* costs \\$1 where x \\<y:\n\n```text\na = 1\n\nb = 2\n```\n\n```text\nTV      halves\n        of it\n```\n\n"
        "```text\n>>> a + b\n3\n```\n\nArgs:\n\n- `x`: one, two.\n\nLast.\n"
    )


def test_every_output_is_written():
    """Each marked command has its output below it, and no mark stands anywhere else."""
    assert outputs.pages()
    for page in outputs.pages():
        text = page.read_text(encoding="utf-8")
        blocks = [*outputs.BLOCK.finditer(text)]
        assert len(blocks) == len(re.findall(r"^<!-- (?:output|recorded)", text, re.MULTILINE)), page.name
        assert all(block["shown"] and block["shown"].strip() for block in blocks), (
            f"{page.name}: python docs/_tools/outputs.py"
        )
        assert not [block["shown"] for block in blocks if "Traceback" in block["shown"]], page.name


def test_an_output_that_changed_is_seen(tmp_path):
    shown = "total  2.282 ± 0.102\n"
    assert outputs.same(shown, "total  2.283 ± 0.102\n")
    for other in ("total  2.382 ± 0.102\n", "sum  2.282 ± 0.102\n", "total  2.282\n"):
        assert not outputs.same(shown, other)
    page = "```sh\necho 'took 3.1 s'; cat note\n```\n<!-- output: last 2 -->\n\n<!-- file: note -->\n```text\nfirst\nlast\n```\n"
    new = outputs.written(page)
    assert "-->\n```text\nfirst\nlast\n```\n\n<!-- file" in new
    assert outputs.written(new) == new
    assert "took …\n" in outputs.written(page.replace(": last 2", ""))
    assert "-->\n```text\ntook …\nlast\n```\n" in outputs.written(page.replace("last 2", "lines took|las"))


@pytest.mark.long
@pytest.mark.parametrize("page", outputs.pages(), ids=lambda page: page.stem)
def test_the_outputs_come_again(page):
    text = page.read_text(encoding="utf-8")
    assert outputs.written(text) == text, f"python docs/_tools/outputs.py {page}"


def test_the_samples_are_all_there_and_counted():
    """The page is what its script writes of its samples: every seed, every count and interval, each text with its verdict."""
    text = samples.PAGE.read_text(encoding="utf-8")
    there = samples.standing(text)
    assert samples.page(there) == text, "make generate"
    assert [len(there["texts"][name]) for name in samples.TEXTS] == [16]
    assert len(there["filled"]) == 10
    assert (len(there["molecules"]), len(there["puzzles"])) == (20, 10)
    assert all((ROOT / "docs" / name).is_file() for name in re.findall(r"\]\(\.\./(pictures/samples/[^)]+)\)", text))
    assert set(samples.TEXTS) == {name for name in shipped.names() if shipped.card(name)["what"].endswith("in English")}
    for name, texts in there["texts"].items():
        runs = [run for run in shipped.card(name)["runs"] if run["command"].startswith("zellige sample")]
        assert [run["command"] for run in runs] == [samples.text_command(name, seed) for seed in samples.SEEDS]
        assert [run["numbers"]["samples"][0].split() for run in runs] == [text.split() for text in texts]


def test_a_sample_that_nobody_read_is_refused():
    there = samples.standing(samples.PAGE.read_text(encoding="utf-8"))
    there["texts"]["stories"][3] += " more"
    with pytest.raises(SystemExit, match="not read yet"):
        samples.page(there)


@pytest.mark.long
def test_the_samples_come_again(shared):
    there = samples.standing(samples.PAGE.read_text(encoding="utf-8"))
    for name, texts in there["texts"].items():
        assert [samples.printed(samples.text_command(name, seed)).split() for seed in (0, 15)] == [
            texts[seed].split() for seed in (0, 15)
        ]
    assert samples.printed(samples.infill_command(samples.GAPS[0])).split() == there["filled"][0].split()
    assert samples.printed(samples.MOLECULES).split("\n") == there["molecules"]
    data = zellige.Data("sudoku", path=str(shared / "data" / "sudoku" / "sudoku9_pairs.csv.xz"), size=9)
    clues = prepare(data, 81).split("test").clues
    assert clues is not None
    assert ["".join(str(cell + 1) if cell >= 0 else "." for cell in row) for row in clues[:10]] == [*samples.PUZZLES]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` does: minutes."""
    pytest.importorskip("sphinx", reason="sphinx is not installed: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", ROOT / "docs", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_each_group_of_identities_has_its_heading():
    groups = {key.partition(".")[0] for key in (*identities.SHARED, *identities.OWN)}
    assert groups <= set(verify.PAGES)
    for target in verify.PAGES.values():
        page, _, anchor = target.partition("#")
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in slugs, target


def test_what_would_be_fetched_is_seen():
    for text in (
        '<script defer src="https://cdn.example/x.js">', "<img alt='' src='//example/x.png'>", "@import 'https://example/x.css'",
        '<link rel="stylesheet" href="https://example/x.css">', "a { background: url(https://example/x.png) }",
    ):  # fmt: skip
        assert FETCHED.search(text)
    assert not FETCHED.search(
        '<a href="https://example">x</a> <img src="x.png"> <link rel="canonical" href="https://example/">'
    )


@pytest.mark.long
def test_the_site_asks_no_other_host(site):
    files = [path for kind in ("html", "css", "js") for path in site.rglob(f"*.{kind}")]
    assert len(files) > 60
    assert [
        f"{p.relative_to(site)}: {m[0]}" for p in files for m in FETCHED.finditer(p.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.long
def test_every_page_has_a_twin_and_stands_in_llms_txt(site):
    listed = set(re.findall(r"\]\(([\w/-]+)\.md\)", (site / "llms.txt").read_text(encoding="utf-8")))
    sources = {
        str(p.relative_to(ROOT / "docs").with_suffix(""))
        for p in (ROOT / "docs").rglob("*.md")
        if "_build" not in p.parts
    }
    assert sources > {*generated.names()}
    assert listed == sources - {"index"}
    for page in sources:
        assert (site / f"{page}.html").is_file()
        twin = (site / f"{page}.md").read_text(encoding="utf-8")
        assert "{eval-rst}" not in twin
        assert len(twin) > 200
    assert "class zellige.Batch(" in (site / "reference" / "api.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_search_needs_no_server(site):
    """Sphinx's index is a script that the page loads: that works from file:// too."""
    assert (site / "searchindex.js").read_text(encoding="utf-8").startswith("Search.setIndex(")
    assert 'src="searchindex.js"' in (site / "search.html").read_text(encoding="utf-8")


def test_the_pictures_of_studies_show_the_rows_of_their_tables():
    corners = {
        "learning": ("A random distribution on 81 sequences", "method"),
        "few-steps": ("Few steps", "total variation"),
        "text8": ("Text8, one network and one budget", "run"),
    }
    assert {*corners, "results-curves", "stories"} == {picture.stem for picture in results_pictures.PICTURES}
    for picture, (page, _) in results_pictures.PICTURES.items():
        if picture.stem in corners:
            _, *rows = results_pictures.table(page.read_text(encoding="utf-8"), *corners[picture.stem])
            drawn = picture.read_text(encoding="utf-8")
            assert len(rows) > 5
            assert not [row[0] for row in rows if f">{row[0].partition(' (')[0]}<" not in drawn], "make generate"


def test_the_curves_of_results_are_those_of_the_included_models():
    picture = (ROOT / "docs" / "pictures" / "results-curves.svg").read_text(encoding="utf-8")
    ends = {
        name: read_json(shipped.FOLDER / name / "config.json", dict)["about"]["curve"][-1] for name in shipped.names()
    }
    missing = [name for name, (_, bound, _) in ends.items() if f">{name}: ≤ {bound:.3f}<" not in picture]
    assert not missing, "make generate"
    beside = (ROOT / "studies" / "included-models" / "stories.svg").read_text(encoding="utf-8")
    logs = [(shipped.FOLDER / name / "log.csv").read_text(encoding="utf-8") for name in ("stories", "stories-mdlm")]
    last = [float(log.splitlines()[-1].split(",")[7]) for log in logs]
    assert all(f": ≤ {bound:.3f}<" in beside for bound in last), "make generate"


def test_each_included_model_has_its_log_and_weights_among_the_main_numbers():
    """Links to what is there; they are downloads of the site (docs/conf.py)."""
    links = set(
        re.findall(
            r"\]\(\.\./\.\./(src/zellige/models/shipped/[^)#]+)", results_pictures.PAGE.read_text(encoding="utf-8")
        )
    )
    for name in shipped.names():
        log = shipped.LOG if (shipped.FOLDER / name / shipped.LOG).is_file() else "README.md"
        for file in ("README.md", "model.safetensors", log):
            assert f"src/zellige/models/shipped/{name}/{file}" in links, "docs/evidence/results.md, The main numbers"
    assert not [link for link in links if not (ROOT / link).is_file()]
