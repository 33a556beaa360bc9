"""Parts of Zellige that plug into the library, a folder each, in the way in which packages of others do.

The library imports none of them by an import statement, save for type checkers. It finds them by name: through TABLE,
`GROUPS` and `part` of `base.plugins`, and the lazy names of `zellige`, `zellige.evaluations` and `zellige.studies`.

    verify/       the identities of methods and samplers, by enumeration
    evaluations/  what else `zellige evaluate` asks of a model
    published/    layouts of models that others have published, with their networks; import and export
    studies/      comparisons, sweeps, plans, probes and GLUE
    report/       the page of a run
    students/     what is trained on a model: classifiers for guidance, speculative heads, students of few steps
    web/          play and serve
    kinds/        kinds of data: DNA, molecules, puzzles, music
    adapters/     lm-evaluation-harness, pipelines, SGLang

TABLE has the form of a package's entry points (`zellige.base.plugins`). It names all of ours that are found in a group,
those in the library too, such as the commands of `cli/`. Only "zellige.trainings" is closed to other packages.
"""

COMMANDS: dict[str, tuple[str, str]] = {  # in the order of `zellige --help`: the function, and the sentence there
    "demo": ("zellige.cli.demo:command", "start here: watch a small model learn to write stories (4 min)"),
    "train": ("zellige.cli.train:train", "train a model of METHOD on your text or on a data set"),
    "tune": ("zellige.cli.tune:tune", "fine-tune a model on prompts and answers, or other data (LoRA)"),
    "evaluate": ("zellige.cli.evaluate:evaluate", "measure the likelihood of a text, or the quality of samples"),
    "sample": ("zellige.cli.drawing:sample", "sample text, images or music; --watch shows each step"),
    "infill": ("zellige.cli.drawing:infill", "fill the masked spans of a text; the rest stays as it is"),
    "verify": ("zellige.plugins.verify.command:verify", "check a method where every possible text can be listed"),
    "compare": (
        "zellige.plugins.studies.compare.command:compare",
        "train several methods on the same budget and compare them",
    ),
    "sweep": ("zellige.plugins.studies.sweep.command:sweep", "train a METHOD with several values of its options"),
    "plan": ("zellige.plugins.studies.plan.command:plan", "estimate memory, time and cost of a training on other GPUs"),
    "report": ("zellige.plugins.report.command:report", "write a self-contained HTML page about a run"),
    "play": ("zellige.plugins.web.command:play", "open a web page where models write, step by step"),
    "serve": ("zellige.plugins.web.command:serve", "serve a text model by an OpenAI-compatible interface"),
    "list": ("zellige.cli.lists:list_", "list models, methods, samplers, data sets and recipes"),
    "import": ("zellige.plugins.published.command:import_", "convert a published model, from the hub or from files"),
    "export": ("zellige.plugins.published.command:export", "save a model for published code or for the hub"),
    "doctor": ("zellige.cli.doctor:doctor", "show versions, devices, extras and caches"),
    "completion": ("zellige.cli.completion:completion", "print a completion script for bash, zsh or fish"),
}
TABLE: dict[str, dict[str, str]] = {
    "zellige.commands": {name: address for name, (address, _) in COMMANDS.items()},
    "zellige.trainings": {  # by the word after `zellige train`, where that is no method; by the flag of `evaluate`
        "--train-features": "zellige.plugins.evaluations.generate.features_command:train_features",
        "classifier": "zellige.plugins.students.command:train_on_model",
        "speculative": "zellige.plugins.students.command:train_on_model",
        "distill": "zellige.plugins.students.command:train_on_model",
    },
    "zellige.evaluations": {  # by the flag of `zellige evaluate` that asks for one
        "suite": "zellige.plugins.evaluations.suite.command:SUITE",
        "generate": "zellige.plugins.evaluations.generate.command:GENERATE",
        "pairs": "zellige.plugins.evaluations.pairs.command:PAIRS",
        "probe": "zellige.plugins.studies.probes.command:PROBE",
        "bracket": "zellige.plugins.evaluations.bracket.command:BRACKET",
        "steps": "zellige.plugins.evaluations.steps.command:STEPS",  # last: others have an option of that name
    },
    "zellige.datasets": {
        "jsb-chorales": "zellige.plugins.kinds.music:CHORALES",
        "lakh-pianoroll": "zellige.plugins.kinds.music:PIANOROLL",
        "sudoku": "zellige.plugins.kinds.puzzles:SUDOKU",
        "qm9": "zellige.plugins.kinds.molecules:QM9",
        "smiles": "zellige.plugins.kinds.molecules:SMILES",
        "dna": "zellige.plugins.kinds.dna:DNA",
        "nouns": "zellige.plugins.kinds.nouns:NOUNS",
    },
    "zellige.metrics": {
        "valid": "zellige.plugins.kinds.molecules.metrics:VALID",
        "unique": "zellige.plugins.kinds.molecules.metrics:UNIQUE",
        "new": "zellige.plugins.kinds.molecules.metrics:NEW",
        "right class": "zellige.plugins.kinds.molecules.metrics:RIGHT_CLASS",
        "property": "zellige.plugins.kinds.molecules.metrics:PROPERTY",
        "valid picture": "zellige.plugins.kinds.nouns.metrics:VALID",
        "right parts": "zellige.plugins.kinds.nouns.metrics:RIGHT_PARTS",
        "new picture": "zellige.plugins.kinds.nouns.metrics:NEW_PICTURE",
        "held-out picture": "zellige.plugins.kinds.nouns.metrics:HELD_OUT_PICTURE",
    },
    "zellige.tokenizers": {
        "image": "zellige.data.levels:Levels",
        "grid": "zellige.data.levels:Levels",
        "table": "zellige.data.table:Table",
        "smiles": "zellige.plugins.kinds.molecules.tokens:Smiles",
        "selfies": "zellige.plugins.kinds.molecules.tokens:Selfies",
        "roll": "zellige.plugins.kinds.music.notes:Notes",
        "palette": "zellige.plugins.kinds.nouns.parts:Palette",
    },
}
