"""What `make docs` makes: pages from the code, second parts of methods, samplers and metrics, the table of contents.

    .venv/bin/python docs/_tools/generated.py reference/api     prints the page docs/reference/api.md

As a Sphinx extension it writes the whole pages before Sphinx reads them (git ignores them), and adds the rest while it does.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import api
import commands
import contents
import floor_plan
import laws
import pages
import recipes
import tables

DOCS = Path(__file__).parents[1]
MODULES = {f"reference/{module.__name__}": module for module in (api, commands, laws, recipes, tables)}


def names() -> list[str]:
    """Whole pages, by their names in docs/ without `.md`."""
    return ["contributing", *MODULES, *(f"{kind}/index" for kind in pages.KINDS)]


def whole(name: str) -> str:
    """The text of a whole page."""
    if name == "contributing":
        return (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "](")
    return MODULES[name].page() if name in MODULES else pages.index(name.partition("/")[0])


def rest(name: str) -> str:
    """What follows the written part of a page; nothing for most."""
    kind, _, of = name.partition("/")
    if name == "index":
        return contents.trees()
    return pages.rest(kind, of) if kind in pages.KINDS and of != "index" else ""


def write(app) -> None:
    """Draw the floor plan; write the whole pages, each only if it has changed: Sphinx reads what is new."""
    floor_plan.main()
    for name in names():
        path, text = DOCS / f"{name}.md", whole(name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def add(app, name, source) -> None:
    source[0] += rest(name)


def setup(app):
    app.connect("builder-inited", write)
    app.connect("source-read", add, priority=400)  # before the links to other files
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    print(whole(sys.argv[1]) if sys.argv[1] in names() else rest(sys.argv[1]))
