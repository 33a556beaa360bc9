"""What holds for the project as a whole: light imports, one version everywhere, and documents that tell the truth."""

import ast
import functools
import importlib
import inspect
import re
import shlex
import sys
import tomllib
import types
from contextlib import chdir
from pathlib import Path

import pytest

import zellige
from zellige.cli import COMMANDS, help, main
from zellige.cli.evaluate import EVALUATIONS
from zellige.data import DATASETS
from zellige.models import shipped
from zellige.plugins.published import LAYOUTS

MODES = [f"--{name}" for name in EVALUATIONS.names()]  # flags that make another command of `evaluate`

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import generated  # noqa: E402

README, COMPARISON = ROOT / "README.md", ROOT / "docs" / "evidence" / "comparison.md"
MADE = {ROOT / "docs" / f"{name}.md" for name in generated.names()}
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "studies").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts and page not in MADE]  # what is written


def test_every_public_name_is_there():
    for module in (zellige, zellige.evaluations, zellige.studies):
        for name in module.__all__:
            assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nothing_such"):
        zellige.nothing_such  # noqa: B018


# -------------------------------------------------------------------------------------------------------------- files


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {_normal(n): v for n, _, v in (line.partition("==") for line in lines if line and not line.startswith("#"))}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    "name", ["train", "evaluate", "verify", "compare", "sample", "infill", "watch", "embed", "load"]
)
def test_a_verb_is_a_function_with_a_help_of_its_own(name):
    verb = getattr(zellige, name)
    assert inspect.isfunction(verb)
    assert not {"args", "kwargs"} & set(inspect.signature(verb).parameters)
    assert inspect.getdoc(verb)


def test_a_type_checker_sees_every_public_name():
    assert (Path(zellige.__file__).parent / "py.typed").is_file()
    for module in (zellige, zellige.evaluations, zellige.studies):
        block = next(n for n in ast.parse(Path(str(module.__file__)).read_text()).body if isinstance(n, ast.If))
        seen = {alias.asname for n in block.body if isinstance(n, ast.ImportFrom) for alias in n.names}
        assert seen == set(module.__all__) - {"__version__"}


def test_the_version_is_the_same_everywhere():
    version = zellige.__version__
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_every_requirement_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(r for e in ("test", "dev", "docs") for r in project["optional-dependencies"][e]),
    ]
    names = {_normal(re.split(r"[\[<>=!~ ]", requirement)[0]) for requirement in wanted}
    assert names <= pins().keys()
    assert pins()["torch"] == "2.13.0"


def test_data_that_needs_nothing_comes_with_the_base():
    """scikit-learn holds the digits, with which the README trains on images."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert DATASETS["digits"].needs == "nothing"
    assert "scikit-learn" in {_normal(re.split(r"[<>=]", requirement)[0]) for requirement in required}


def test_the_tests_run_on_the_pinned_versions():
    """As CI has them. Where a package has another version here, make has not been run since constraints.txt changed."""
    from importlib.metadata import version

    for name in ("torch", "lightning", "numpy", "cattrs", "safetensors"):
        assert version(name).partition("+")[0] == pins()[name]


def lead_somewhere(page: Path, text: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target and "pictures/plan" not in target:  # which `make docs` draws
            to = (page.parent / target).resolve()  # a forge shows what is written alone
            made = to in MADE and ROOT / "docs" in page.parents
            assert made or (to not in MADE and to.exists()), f"{page.name}: {target}"


def test_links_between_the_pages_lead_somewhere():
    for page in {*PAGES, *ROOT.glob("*.md")}:
        lead_somewhere(page, page.read_text())


def test_what_is_made_from_the_code_is_true(capsys):
    """Links lead somewhere, commands and options exist."""
    for page in (*PAGES, *MADE):
        name = page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")
        text = generated.whole(name) if page in MADE else generated.rest(name)
        lead_somewhere(page, text)
        for command in commands(text):
            exists(command, capsys)


def test_a_label_stands_in_one_page():
    labels = [label for page in PAGES for label in re.findall(r"^\((.+)\)=$", page.read_text(), re.MULTILINE)]
    assert len(labels) == len(set(labels))


def test_scripts_import_names_that_are_there():
    """Within functions, too, which no other test runs."""
    for script in (
        path
        for folder in ("benchmarks", "docs/_tools", "examples", "studies")
        for path in (ROOT / folder).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zellige"):
                module = importlib.import_module(node.module or "")
                for name in (alias.name for alias in node.names):
                    assert hasattr(module, name) or importlib.import_module(f"{node.module}.{name}"), script.name


def test_the_pages_that_help_to_choose_name_every_method_and_sampler():
    def named(page: str, entry: str) -> list[str]:
        return re.findall(rf"^\| {entry} \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)

    assert sorted(named("learn/choose.md", r"`(\w+)`")) == sorted(zellige.METHODS)
    assert sorted(named("guides/choose_sampler.md", r"\[`(\w+)`\]\(.*?\)")) == sorted(zellige.SAMPLERS)


def test_counts_on_the_first_pages_are_those_of_the_code():
    published = {cls.system: cls.paper for cls in zellige.METHODS.values() if cls.paper}
    models = ("Six", "Seven", "Eight", "Nine")[len(shipped.names()) - 6] + " small trained models"
    counts = f"{len(published)} methods", f"{len(zellige.SAMPLERS)} samplers", f"{len(LAYOUTS)} published formats"
    for page, phrases in {
        "README.md": (*counts, models), "docs/evidence/comparison.md": counts, "docs/tutorials/start.md": (models,),
        "docs/guides/models.md": counts[2:], "docs/reference/formats.md": counts[2:],
        "docs/index.md": (f"{len(published)} published methods",),
    }.items():  # fmt: skip
        for phrase in phrases:
            assert phrase in (ROOT / page).read_text(), page
    linked = dict(re.findall(r"\[([\w-]+)\]\(https://arxiv\.org/abs/([\d.]+)\)", README.read_text()))
    assert linked == published


def test_numbers_of_the_readme_stand_on_the_page_that_is_linked_beside_them():
    text = README.read_text().partition("\n## What it reaches")[2].partition("\n## Cite")[0]
    seen = 0
    for item in re.split(r"\n(?=[|-]|\n)", text):
        pages = [README.parent / target for target in re.findall(r"\]\(([^)#:]+\.md)[^)]*\)", item)]
        there = "".join(page.read_text() for page in pages)
        numbers = re.findall(r"\d+\.\d+", re.sub(r"\]\([^)]*\)", "]", item)) if pages else []
        assert not [number for number in numbers if number not in there], item
        seen += len(numbers)
    assert seen >= 12


def test_the_readme_and_citation_cff_cite_the_same():
    entry = re.search(r"```bibtex\n(.*?)```", README.read_text(), re.DOTALL)
    assert entry is not None
    given = dict(re.findall(r"(\w+) += \{+(.+?)\}+,?\n", entry[1]))
    said = dict(
        re.findall(r'^(?:  - )?(title|version|name): "?([^"\n]+)"?$', (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    )
    assert given == {"title": said["title"], "version": said["version"], "author": said["name"]}


# ------------------------------------------------------------------------------------------------- commands, snippets


def commands(text: str, inline: bool = False) -> set[str]:
    """Every `zellige ...` and `make ...` that a page shows in a block of shell commands; in a sentence, too, if `inline`."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
    blocks += re.findall(r"`(zellige \w+ [^`]+)`", text) if inline else []
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    typed = [line.removeprefix("$ ").partition("#")[0].strip() for line in lines]
    return {line for line in typed if line.startswith(("zellige ", "make "))}


def exists(command: str, capsys: pytest.CaptureFixture) -> None:
    """The target of make is there; the command is, and so is each of its options: they stand in its help."""
    program, name, *words = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{re.escape(name)}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    assert name in COMMANDS.names()
    method = words[: 2 if words[0] == "--recipe" else 1] if name == "train" else []
    mode = next(
        (words[i : i + 2] for i, word in enumerate(words) if name == "evaluate" and word in MODES),
        [],
    )
    mode = [word for word in mode if word in MODES or not word.startswith("--")]  # a mode has a help of its own
    one = name == "compare" and words[1].startswith("--")  # of one model, not of several methods
    mode += [word for word in words if one and word == "--samplers"]
    assert main([name, *method, *mode, "--help-all"]) == 0
    shown = capsys.readouterr().out
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"{re.escape(option)}\b", shown) or option in help.commands(), option


SHOWN = {line for page in PAGES for line in commands(page.read_text(), inline=page in (README, COMPARISON))}


@pytest.mark.parametrize("command", sorted(SHOWN))
def test_commands_and_options_exist(command, capsys):
    exists(command, capsys)


def snippets(page: Path) -> str:
    """The Python of a page, in order, on its own lines; without the blocks that say why they are not run."""
    lines, out, inside, skip = page.read_text().splitlines(), [], False, False
    for line in lines:
        if line.startswith("```"):
            inside = line == "```python" and not skip
            skip = False
        elif line.startswith("<!-- not run"):
            skip = True
        elif inside:
            out.append(line)
            continue
        out.append("")
    return "\n".join(out)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def folder(tmp_path_factory, monkeypatch_module) -> Path:
    """A folder with the run that the pages name, only far shorter."""
    from zellige import Data, Net, Train

    folder = tmp_path_factory.mktemp("docs")
    monkeypatch_module.setenv("ZELLIGE_CACHE", str(folder / "cache"))
    net = Net(layers=1, hidden=32, heads=2, length=128, conv=7)
    with chdir(folder):
        zellige.train("mdlm", data=Data(), net=net, train=Train(steps=4, batch=4, samples=1), run="runs/pydocs")
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page).strip()], ids=lambda page: page.stem)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_snippets_run(page, whole, folder, monkeypatch):
    """In short, `verify` checks the closed forms alone: what else it checks has its tests in tests/exact."""
    if not whole:
        monkeypatch.setattr(zellige, "verify", functools.partial(zellige.verify, only="bound.closed-form"))
    module = types.ModuleType("snippets")
    monkeypatch.setitem(sys.modules, "snippets", module)  # where a class looks up the names of its annotations
    with chdir(folder):
        exec(compile(snippets(page), str(page), "exec"), vars(module))


def test_formulas_of_the_docs_come_from_no_other_host():
    conf = (ROOT / "docs" / "conf.py").read_text()
    assert 'html_math_renderer = "mathml"' in conf
    assert "mathjax" not in conf
    convert = pytest.importorskip("latex2mathml.converter").convert
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
        for block, inline in re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", text, flags=re.S):
            assert "\\" not in re.sub(r"<[^>]*>", "", convert(block or inline)), f"{page.name}: {block or inline}"
