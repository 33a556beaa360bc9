"""A Sphinx extension: beside each page its text as Markdown, `page.md`, and `llms.txt`, which lists them (llmstxt.org).

A page that is made of docstrings by directives has its text as Sphinx writes plain text; every other page is its own source.
"""

from pathlib import Path

from sphinx.builders.text import TextBuilder
from sphinx.writers.text import TextTranslator

SOURCES: dict[str, str] = {}  # page -> its source, with what is generated
TEXTS: dict[str, str] = {}  # page -> its twin


def read(app, page, source):
    SOURCES[page] = source[0]


def twin(app, page, template, context, doctree):
    """Keep the twin of a page that is being written; generated pages (search, index) have no doctree and no twin."""
    if doctree is None:
        return
    text = SOURCES.get(page) or Path(app.env.doc2path(page)).read_text(encoding="utf-8")
    if "{eval-rst}" in text:
        copy, builder = doctree.deepcopy(), TextBuilder(app, app.env)
        builder.init()
        visitor = TextTranslator(copy, builder)
        copy.walkabout(visitor)
        text = visitor.body
    TEXTS[page] = text


def write(app, failure):
    """The twins, and llms.txt: the title of each page in the order of the table of contents."""
    if failure or app.builder.format != "html":
        return
    out, (start, *_), titles = Path(app.outdir), [app.config.root_doc], app.env.titles
    for page, text in TEXTS.items():
        (out / f"{page}.md").write_text(text, encoding="utf-8")
    about = Path(app.env.doc2path(start)).read_text(encoding="utf-8").split("\n\n")[1].replace("\n", " ")
    lines = [f"# {app.config.project} {app.config.version}", "", f"> {about}", ""]
    for caption, section in sections(app.env, start):
        lines += [f"## {caption}", "", *(f"- [{titles[page].astext()}]({page}.md)" for page in section), ""]
    (out / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def sections(env, start):
    """Each table of contents of the first page: its caption, and the pages in it with those below them."""
    from sphinx import addnodes

    below = lambda page: [page, *(p for child in env.toctree_includes.get(page, ()) for p in below(child))]  # noqa: E731
    for toctree in env.get_doctree(start).findall(addnodes.toctree):
        yield toctree["caption"], [page for _, child in toctree["entries"] for page in below(child)]


def setup(app):
    app.connect("source-read", read, priority=450)  # after what is generated, before the links to other files
    app.connect("html-page-context", twin)
    app.connect("build-finished", write)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
