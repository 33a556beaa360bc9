"""What is released: the wheel, its metadata, an installation of it in an empty environment, and the workflows that make it."""

import ast
import contextlib
import email
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from importlib import metadata as metadata_of
from pathlib import Path, PurePosixPath

import pytest

import zellige
from zellige.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import api  # noqa: E402

SOURCE = Path(zellige.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PYTHONS = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, cwd=ROOT, env=os.environ | variables)


# ----------------------------------------------------------------------------------------------------------- the wheel
@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with wheel and sources, built as `make wheel` does, in a repository that has an address."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: make test installs it")
    folder = tmp_path_factory.mktemp("dist")
    repository = {"GITHUB_REPOSITORY": "someone/zellige", "GITHUB_REF_NAME": "v1", "SOURCE_DATE_EPOCH": "1700000000"}
    done = run(sys.executable, "-m", "hatchling", "build", "-d", folder, **repository)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    package = {name for name in wheel.namelist() if ".dist-info/" not in name}
    tree = {path.relative_to(SOURCE.parent) for path in SOURCE.rglob("*") if path.is_file()}
    assert package == {str(path) for path in tree if "__pycache__" not in path.parts}
    ships = {name for name in package if re.match(r"zellige/(models|data)/shipped/[\w-]+/", name)}
    assert {PurePosixPath(name).suffix for name in package - ships} == {
        ".py",
        ".html",
        ".css",
        ".js",
        ".json",
        ".toml",
        ".typed",
    }
    assert {PurePosixPath(name).suffix for name in ships} <= {
        ".safetensors",
        ".json",
        ".md",
        ".png",
        ".csv",
        ".xz",
        ".npz",
        "",
    }
    assert {
        "zellige/py.typed",
        "zellige/plugins/web/assets/play.html",
        "zellige/plugins/report/assets/page.html",
    } <= package


def test_the_sources_hold_what_tests_and_docs_need(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {PurePosixPath(name).parts[1] for name in archive.getnames()}
    assert {
        "src",
        "tests",
        "docs",
        "benchmarks",
        "studies",
        "Makefile",
        "constraints.txt",
        "LICENSE",
        "hatch_build.py",
    } <= names
    assert not {".venv", "dist", "runs", ".git"} & names


def test_the_metadata(metadata):
    assert metadata["Version"] == zellige.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert set(metadata.get_all("Provides-Extra", [])) == set(EXTRAS)
    assert metadata["Requires-Python"] == f">={PYTHONS[0]}"
    assert PYTHONS == ["3.11", "3.12", "3.13", "3.14"]
    from trove_classifiers import classifiers

    assert set(metadata.get_all("Classifier", [])) <= classifiers


def test_the_address_is_that_of_the_repository(metadata):
    """PyPI shows the README without the files beside it: its links lead to the tag."""
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert urls["Source"] == "https://github.com/someone/zellige"
    assert urls["Changelog"] == "https://github.com/someone/zellige/blob/v1/CHANGELOG.md"
    readme = metadata.get_payload()
    assert "](https://github.com/someone/zellige/blob/v1/docs/index.md)" in readme
    assert "](https://github.com/someone/zellige/raw/v1/docs/pictures/appear.gif)" in readme
    assert not re.search(r"\]\((?!https?://)", readme)


def test_no_address_is_made_up():
    pytest.importorskip("hatchling")
    done = run(sys.executable, "-m", "hatchling", "metadata", GITHUB_REPOSITORY="")
    assert '"urls"' not in done.stdout
    assert '"The Zellige authors"' in done.stdout


# ---------------------------------------------------------------------------------------------------------- the extras
def test_an_extra_that_is_named_is_there():
    """In an error, `not_installed(what, package, extra)`, and wherever `zellige[extra]` is to be typed."""
    named: dict[str, set[str]] = {}
    for path in [*SOURCE.rglob("*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "Dockerfile"]:
        text = path.read_text(encoding="utf-8")
        for extras in re.findall(r"zellige\[([a-z,]+)\]", text):
            named.setdefault(extras, set())
        for call in ast.walk(ast.parse(text)) if path.suffix == ".py" and "not_installed(" in text else ():
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "not_installed":
                _, package, extra = (ast.literal_eval(word) if i else "" for i, word in enumerate(call.args[:3]))
                named.setdefault(extra, set()).add(package)
    assert {
        "data",
        "eval",
        "fid",
        "harness",
        "mauve",
        "music",
        "sweep",
        "tune",
        "video",
        "wandb",
        "web",
    } <= named.keys()
    for extras, packages in named.items():
        brought = " ".join(" ".join(EXTRAS[extra]) for extra in extras.split(","))
        assert all(package in brought or package == "pyarrow" for package in packages)  # datasets stands on pyarrow


def required(names: list[str]) -> set[str]:
    """The distributions that come with these requirements, and with what they require."""
    found, left = set[str](), [re.split(r"[\[<>=!~; ]", name)[0] for name in names]
    while left:
        name = left.pop().lower().replace("_", "-")
        if name not in found:
            found.add(name)
            with contextlib.suppress(metadata_of.PackageNotFoundError):
                needs = metadata_of.requires(name) or []
                left += [re.split(r"[\[<>=!~; (]", need)[0] for need in needs if "extra ==" not in need]
    return found


def test_the_extra_docs_brings_what_the_modules_of_the_reference_import():
    """The reference imports each; what the environment of the tests holds beside hides what is missing from it."""
    brought = required([*PROJECT["dependencies"], *EXTRAS["docs"]])
    owners = metadata_of.packages_distributions()
    missing = set()
    for name in re.findall(r"automodule:: zellige\.(\S+)", api.page()):
        path = SOURCE / name.replace(".", "/")
        text = (path / "__init__.py" if (path / "__init__.py").exists() else path.with_suffix(".py")).read_text(
            encoding="utf-8"
        )
        for node in ast.parse(text).body:
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for package in {module.partition(".")[0] for module in modules} - sys.stdlib_module_names - {"zellige"}:
                if not {owner.lower().replace("_", "-") for owner in owners[package]} & brought:
                    missing.add((name, package))
    assert missing == set()


# ------------------------------------------------------------------------------------------------------- the workflows
def steps(path: Path) -> list[dict]:
    jobs = pytest.importorskip("yaml").safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_names_is_there(path):
    makefile = (ROOT / "Makefile").read_text()
    made = {"dist", "docs/_build", "zellige.cdx.json", ".venv/bin/python"}  # by the steps themselves
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v\d+)", step["uses"])
        for target in re.findall(r"\bmake ([\w-]+)", step.get("run", "")):
            assert re.search(rf"^{target}:", makefile, re.M), target
        words = shlex.split(step.get("run", ""), comments=True) + [str(v) for v in step.get("with", {}).values()]
        for word in (word.partition("=")[2] or word for word in words):
            file = word.partition("::")[0].removesuffix("/*").removesuffix("/*.whl")
            if re.fullmatch(r"[\w.][\w./-]*(/[\w.-]+|\.(txt|py|toml|md))", file) and "dist" not in file.split("/"):
                assert file in made or (ROOT / file).exists(), file


def test_the_tests_run_on_every_python_that_is_promised():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == PYTHONS
    chosen = jobs["dependencies"]["strategy"]["matrix"]["include"]
    assert [(c["resolution"], c["python"]) for c in chosen] == [
        ("lowest-direct", PYTHONS[0]),
        ("highest", PYTHONS[-1]),
    ]


def test_a_workflow_may_only_what_it_must():
    """Read, unless a job says more; and only those that prove who they are may ask for a token."""
    yaml = pytest.importorskip("yaml")
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            more = job.get("permissions", {})
            assert set(more) <= {"id-token", "attestations", "pages"}
            assert not (more and any("run" in step for step in job["steps"])), (
                "a job with a token runs none of our code"
            )


def test_the_image_has_what_it_copies_and_no_root():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    context = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [shlex.split(line)[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    for name in {name for names in copied for name in names}:
        assert (ROOT / name).exists()
        assert f"!{name}" in context
    assert [line for line in lines if line.startswith("USER ")] == ["USER zellige"]


# ------------------------------------------------------------------------------------------------ an empty environment
SMALL = "--net.layers 1 --net.hidden 16 --net.heads 2 --train.steps 2 --train.batch 2 --train.samples 0 --quiet"
TEXT = f"{SMALL} --net.length 32 --net.conv 0"  # as published, so that it can be exported
BASE = """
demo --steps 2 --run runs/demo
train mdlm --run runs/text {TEXT}
train ar --run runs/next {TEXT}
train md4 --data.name digits --run runs/digits {SMALL}
train mdlm --data.name jsb-chorales --data.path chorales.json --data.size 32 --run runs/music {SMALL}
sample molecules --count 1
evaluate runs/text --limit 2 --draws 2
evaluate runs/text --generate --judge runs/next --count 4 --steps 4
evaluate --train-features seen --data.name digits --epochs 1
evaluate runs/digits --generate --features seen --count 80 --steps 4
sample runs/text --steps 4
sample runs/digits --steps 4 --out digits.png
infill runs/text "the ____ of" --steps 4
verify mdlm --only bound.closed-form
compare mdlm ar --run runs/compare {TEXT} --train.validate-rows 4 --limit 2
sweep mdlm --lr 1e-3,2e-3 --run runs/sweep {TEXT}
plan mdlm --vocabulary 27 {TEXT}
report runs/text
export runs/text --to mdlm --out theirs
import theirs --out back
list
list models
list methods
list samplers
list data
list checkpoints
list recipes
doctor
completion bash
"""
WITH_EXTRA = {
    "play runs/text": "web",
    "serve runs/text": "web",
    "sample runs/music --out a.mid": "music",
    "sample runs/text --out a.mp4": "video",
    "sweep mdlm --lr 1e-4..1e-2 --trials 2 --search tpe --run runs/s {TEXT}": "sweep",
    "evaluate runs/text --generate": "eval",
    "tune runs/text --data.name pydocs --run runs/t": "tune",
    "evaluate runs/text --generate --judge runs/next --mauve": "mauve",
    "evaluate runs/digits --generate": "fid",
    "train mdlm --data.name lm1b --run runs/b": "data",
    "train mdlm --data.name text --data.path a.parquet --run runs/b": "data",
    "train mdlm --train.wandb project --run runs/b": "wandb",
    "-m zellige.plugins.adapters.harness --model zellige --model_args path=runs/text --tasks x": "harness",
}


def test_every_command_is_tried():
    assert {line.split()[0] for line in (*BASE.strip().splitlines(), *WITH_EXTRA)} - {"-m"} == set(COMMANDS.names())


@pytest.fixture(scope="module")
def empty(built, tmp_path_factory) -> Path:
    """A folder whose `bin` is a new environment with the wheel and what it requires, and nothing else.

    ZELLIGE_EMPTY names one that is there already: an installation takes minutes.
    """
    if there := os.environ.get("ZELLIGE_EMPTY"):
        return Path(there)
    folder = tmp_path_factory.mktemp("empty") / "env"
    venv.create(folder, with_pip=True)
    (path,) = built.glob("*.whl")
    done = run(folder / "bin" / "pip", "install", "-q", "-c", ROOT / "constraints.txt", path)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    rows = str([[[60 + i % 7, 55, 52 + i % 3, 48] for i in range(64)]] * 4)
    (folder / "chorales.json").write_text(f'{{"train": {rows}, "valid": {rows}, "test": {rows}}}')
    (folder / "a.parquet").write_bytes(b"PAR1" + bytes(64) + b"PAR1")
    return folder


def typed(line: str, empty: Path, place: Path) -> subprocess.CompletedProcess:
    words = shlex.split(line.format(SMALL=SMALL, TEXT=TEXT))
    program = [empty / "bin" / "python"] if words[0] == "-m" else [empty / "bin" / "zellige"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    variables = clean | {"ZELLIGE_CACHE": str(place / "cache"), "COLUMNS": "200"}
    return subprocess.run([*program, *words], capture_output=True, text=True, cwd=place, env=variables)


@pytest.mark.long
@pytest.mark.parametrize("line", BASE.strip().splitlines())
def test_the_base_install_runs(line, empty, place):
    done = typed(line, empty, place)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("line", WITH_EXTRA)
def test_what_an_extra_brings_is_said_in_one_line(line, empty, place):
    done = typed(line, empty, place)
    assert done.returncode == 2
    assert done.stdout == ""
    message = rf"error: [^\n]* needs [^\n]*; pip install 'zellige\[{WITH_EXTRA[line]}\]'(, or (give|take) [^\n]*)?\n"
    assert re.fullmatch(message, done.stderr), done.stderr


@pytest.mark.long
def test_the_sources_build_the_same_wheel(built, tmp_path):
    (archive,) = built.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    names = lambda path: sorted(zipfile.ZipFile(path).namelist())  # noqa: E731
    assert names(*built.glob("*.whl")) == names(*(source / "dist").glob("*.whl"))
