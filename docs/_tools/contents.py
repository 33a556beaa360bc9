"""The table of contents of the site: each part with its pages. A page of a forge shows none of it."""

CONTENTS = {
    "Tutorials": ("tutorials/start", "tutorials/your_text"),
    "Understand": (
        "learn/masked-diffusion",
        "learn/uniform-and-blocks",
        "learn/bounds",
        "learn/choose",
        "learn/glossary",
    ),
    "Data": (
        "guides/data",
        "guides/images",
        "guides/classes",
    ),
    "Train": (
        "guides/train",
        "guides/start_from",
        "guides/start_from_llm",
        "guides/tune",
        "guides/options",
        "guides/many_devices",
        "guides/plan",
    ),
    "Sample": (
        "guides/sample",
        "guides/infill",
        "guides/choose_sampler",
        "guides/long",
        "guides/few_steps",
        "guides/guidance",
        "guides/models",
        "guides/large",
        "guides/play",
        "guides/serve",
    ),
    "Evaluate": (
        "guides/evaluate",
        "guides/judge",
        "guides/compare",
        "guides/reproduce",
        "guides/harness",
        "guides/represent",
    ),
    "Extend": (
        "guides/python",
        "guides/method",
        "guides/sampler",
    ),
    "Reference": (
        "methods/index",
        "samplers/index",
        "metrics/index",
        "reference/commands",
        "reference/api",
        "reference/data_sets",
        "reference/network",
        "reference/formats",
        "reference/recipes",
        "reference/tables",
        "reference/protocols",
        "guides/troubleshooting",
    ),
    "Theory": (
        "theory/model",
        "theory/samplers",
        "reference/laws",
        "theory/two_sided",
        "theory/differences",
    ),
    "Evidence": (
        "evidence/results",
        "evidence/findings",
        "evidence/agreement",
        "evidence/samples",
        "evidence/performance",
        "evidence/comparison",
    ),
    "Develop": (
        "contributing",
        "design",
        "releasing",
    ),
}


def trees() -> str:
    """What follows the first page."""
    tree = "```{{toctree}}\n:hidden:\n:caption: {}\n\n{}\n```\n"
    return "".join("\n" + tree.format(part, "\n".join(pages)) for part, pages in CONTENTS.items())
