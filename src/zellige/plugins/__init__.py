"""What plugs into the library, a folder each. The library imports no plug-in but by name, through TABLE.

    verify/     the identities of methods and samplers, by enumeration
    published/  layouts of models that others have published, with their networks; import and export
    studies/    comparisons, sweeps, plans, probes and GLUE
    report/     the page of a run
    web/        play and serve
    kinds/      kinds of data: DNA, puzzles, music
    adapters/   lm-evaluation-harness, pipelines, SGLang

TABLE says what is found by name, in the form of a package's entry points (`zellige.base.plugins`).
"""

TABLE: dict[str, dict[str, str]] = {
    "zellige.commands": {  # in the order of `zellige --help`
        "demo": "zellige.cli.demo:command",
        "train": "zellige.cli.train:train",
        "tune": "zellige.cli.tune:tune",
        "evaluate": "zellige.cli.evaluate:evaluate",
        "sample": "zellige.cli.drawing:sample",
        "infill": "zellige.cli.drawing:infill",
        "verify": "zellige.plugins.verify.command:verify",
        "compare": "zellige.plugins.studies.compare.command:compare",
        "sweep": "zellige.plugins.studies.sweep.command:sweep",
        "plan": "zellige.plugins.studies.plan.command:plan",
        "report": "zellige.plugins.report.command:report",
        "play": "zellige.plugins.web.command:play",
        "serve": "zellige.plugins.web.command:serve",
        "list": "zellige.cli.lists:list_",
        "import": "zellige.plugins.published.command:import_",
        "export": "zellige.plugins.published.command:export",
        "doctor": "zellige.cli.doctor:doctor",
        "completion": "zellige.cli.completion:completion",
    },
    "zellige.evaluations": {  # by the flag of `zellige evaluate` that asks for one
        "suite": "zellige.cli.evaluate_bounds:SUITE",
        "generate": "zellige.cli.generate:GENERATE",
        "pairs": "zellige.cli.evaluate_bounds:PAIRS",
        "probe": "zellige.plugins.studies.probes.command:PROBE",
        "bracket": "zellige.cli.evaluate_bounds:BRACKET",
        "steps": "zellige.cli.evaluate_bounds:STEPS",  # last: others have an option of that name
    },
    "zellige.datasets": {
        "jsb-chorales": "zellige.plugins.kinds.music:CHORALES",
        "lakh-pianoroll": "zellige.plugins.kinds.music:PIANOROLL",
        "sudoku": "zellige.plugins.kinds.puzzles:SUDOKU",
        "dna": "zellige.plugins.kinds.dna:DNA",
    },
    "zellige.tokenizers": {
        "image": "zellige.data.levels:Levels",
        "grid": "zellige.data.levels:Levels",
        "table": "zellige.data.table:Table",
        "selfies": "zellige.data.selfies:Selfies",
        "smiles": "zellige.data.tokenizer:Characters",
        "roll": "zellige.plugins.kinds.music.notes:Notes",
    },
}
