"""Sphinx: make docs."""

import sys
from pathlib import Path

from zellige import __version__

sys.path.insert(0, str(Path(__file__).parent / "_tools"))  # generated, twins

project = "Zellige"
copyright = "the Zellige authors"
release = version = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "generated", "twins"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the tests run the snippets of these pages
exclude_patterns = ["_build", "_tools"]

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"Zellige {version}"
html_static_path, html_css_files = ["static"], ["zellige.css"]
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # PyTorch's are written for other pages
napoleon_use_ivar = True  # a field that has a docstring of its own is described once
suppress_warnings = ["ref.python"]  # a name that two modules have (`Progress`): a reference to it goes nowhere
autodoc_typehints = "signature"
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "ignore-module-all": True,
}  # a name where it is defined


def plain_docstrings(app, what, name, obj, options, lines):
    """Our docstrings are plain text, written for the eye: make reStructuredText of them.

    A module's, which is theory with formulas, stays as it stands. In the others `x` is code, * and | are themselves, and
    an indented part that follows an empty line is a formula or an example. A class of options has what each says of itself.
    """
    import dataclasses
    import re

    from zellige.base.requests import option_of

    if what == "class" and dataclasses.is_dataclass(obj):
        declared = [(field.name, option_of(field)) for field in dataclasses.fields(obj)]
        told = [f"    {name}: {option.help}" for name, option in declared if option and option.help]
        lines += ["Attributes:", *told, ""] if told else []
    if what == "module":
        lines[:] = [".. code-block:: text", "", *("   " + line for line in lines), ""]
        return
    out: list[str] = []
    literal = False
    for i, line in enumerate(lines):
        indented = line.startswith("    ")
        if indented and i and not lines[i - 1].strip() and (not out or not out[-1].startswith("    ")):
            out += ["::", ""]
            literal = True
        elif not indented and line.strip():
            literal = False
        if indented and literal:
            out.append(line)
        else:
            parts = re.split(r"(``?[^`]+``?)", line)
            parts = [
                f"``{p.strip('`').strip()}``" if p.startswith("`") else re.sub(r"([*|])", r"\\\1", p) for p in parts
            ]
            out.append("".join(parts))
    lines[:] = out


def formula(self, node):
    """A formula as MathML, which browsers draw themselves: a page needs nothing from another host."""
    from docutils import nodes
    from latex2mathml.converter import convert

    block = isinstance(node, nodes.math_block)
    self.body.append(convert(node.astext(), display="block" if block else "inline"))
    raise nodes.SkipNode


def files(app, name, source):
    """Links to files that are no pages of the site become downloads; CONTRIBUTING.md is one of its pages."""
    import re

    places = r"examples/[^)]*\.(?:ipynb|py|sh)|src/zellige/[^)#]*|studies/[^)#]*|tests/[^)#]*|SECURITY\.md"
    link = rf"\[([^\]]+)\]\(((?:\.\./)+(?:{places}))(?:#[^)]*)?\)"
    role = lambda match: f"{{download}}`{match[1].replace('`', '')} <{match[2]}>`"  # noqa: E731 - code in it would end it
    source[0] = re.sub(link, role, source[0])
    source[0] = re.sub(r"\]\(((?:\.\./)*)\.\./CONTRIBUTING\.md", r"](\1contributing.md", source[0])


def setup(app):
    app.connect("source-read", files)
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-docstring", plain_docstrings, priority=400)  # before napoleon
