"""Does a change compute what was computed before, bit for bit?

    python studies/same_numbers.py record FILE      on the commit before: some 3 minutes of one core
    python studies/same_numbers.py compare FILE     after the change: every key that differs, is missing or is new

A record maps a key, such as `mdlm {"time": true}/float32/given/loss`, to the sha256 of the exact bytes (dtype, shape, data), or
to the text of an error. It holds each method in the variants of its paper and in more configurations: loss, bound and their
gradients, terms, estimators, noise, predictions; the states and calls of every sampler; of trained models weights, metrics,
evaluations, texts, embeddings, a comparison; and what wrong calls say. All is asked by public names, so that modules may move
under it. Bits are equal on one machine with one torch; `about` says which. `--only mdlm errors` asks for these sections (a
method, verbs, errors). Exits with 1 where something differs.
"""

import argparse
import csv
import hashlib
import itertools
import json
import platform
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import zellige
from zellige import METHODS, SAMPLERS, Batch, Data, Net, Train
from zellige.methods import build

V, L, B = 5, 6, 4  # tokens, length, rows
NET = Net(layers=1, hidden=16, heads=2, length=L, condition=8)
VARYING = {
    "seconds",
    "tokens_per_second",
    "flops_per_second",
    "seconds_left",
    "versions",
    "run",
    "path",
    "command",
    "zellige",
    "distribution_key",
}  # of this hour and this place; a record made before distributions had keys has none


def grid(**choices: Any) -> list[dict[str, Any]]:
    """Every combination of the choices."""
    return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]


SCHEDULE = {"schedule": ("loglinear", "linear", "cosine", "cosine-power", "polynomial", "geometric", "linear-sigma")}
NOISE = {"process": ("absorbing", "uniform", "absorbing-uniform", "middle", "gaussian", "band")}
RATES = {"process": ("uniform", "gaussian", "birth-death", "absorbing")}
ENDS, EIGHT = {"schedule": "linear-sigma", "sigma_min": 1e-3, "sigma_max": 7.0}, {"diffusion_steps": (8,)}
MORE: dict[str, list[dict[str, Any]]] = {  # configurations beside the variants
    "d3pm": grid(**NOISE, prediction=("leave-one-out", "mean"), **EIGHT)
    + grid(process=("absorbing", "uniform", "gaussian"), schedule=("linear", "cosine", "mutual-information"), **EIGHT)
    + grid(process=("nearest",), neighbours=(2,), prediction=("leave-one-out", "mean"), **EIGHT)
    + grid(process=("gaussian", "band"), width=(1,), last=("image",), **EIGHT)
    + grid(auxiliary=(0.0, 0.1), auxiliary_at=("all",), mask_proportion=(0.5,), process=NOISE["process"][:3:2], **EIGHT),
    "csm": [
        *grid(neighbourhood=("hamming", "cycle", "grid", "star"), objective=("csm", "denoising", "score-entropy")),
        {"forward_neighbours": 2, "neighbours": 0}, {"objective": "denoising", "noise": 0.5, "positive": True},
    ],
    "tauldr": grid(**RATES, objective=("two-pass", "one-pass", "generic"))
    + grid(**RATES, prediction=("leave-one-out",), auxiliary=(0.1,), auxiliary_at=("all",))
    + [{"process": "gaussian", "base": 2.0, "growth": 50.0, "rate_sigma": 1.5, "target_sigma": 4.0, "min_time": 0.01}],
    "sedd": [{"scale_by_sigma": False}, {"scale_by_sigma": True, "process": "uniform"}],
    "radd": grid(**SCHEDULE) + grid(loss=("lambda-dce", "t-dce", "t-dse"), schedule=("cosine", "geometric")) + [ENDS],
    "mdlm": grid(**SCHEDULE, time=(False, True)) + grid(schedule=("cosine", "geometric"), time=(True,), diffusion_steps=(1, 4))
    + [ENDS, {"mask": 2}, {"schedule": "unheard-of"}],
    "md4": [
        *grid(schedule=("linear", "cosine", "polynomial"), time=(False,), diffusion_steps=(0, 4)),
        {"schedule": "polynomial", "exponent": 0.7, "eps": 1e-2}, {"eps": 0.0},
    ],
    "genmd4": [{"exponent": 2.0}, {"learn": False}, {"eps": 0.0, "begin": 0.0}, {"eps": 1e-2, "begin": 0.01}],
    "udlm": [*grid(**SCHEDULE, time=(True, False)), ENDS, {"time": False, "diffusion_steps": 4}],
    "bd3lm": grid(block=(1, 2, 3, 6), prediction=("mean", "score"), time=(False, True)) + grid(block=(2,), **SCHEDULE)
    + grid(block=(3,), clip=((0.3, 0.8),), search=(False, True)) + [{"block": 4}],
    "ar": [{"begin": 1}],
}  # fmt: skip
OPTIONS: dict[str, list[dict[str, Any]]] = {  # of samplers, beside none
    "ancestral": [*grid(grid=("cosine", "log-snr")), *grid(argmax=("last", "every")), {"choose": False}],
    "euler": grid(grid=("cosine", "log-snr")),
    "any_order": [{"per_step": 2}],
    "fixed_order": [{"order": "backward"}, {"order": (2, 0, 1, 5, 4, 3), "per_step": 2}],
    "confidence": [*grid(confidence=("margin", "entropy")), {"threshold": 0.3}],
    "remasking": [*grid(remasking=("rescale", "conf", "loop")), {"eta": 0.5}],
    "tau_leaping": [*grid(jumps=("one", "sum")), {"corrector": 1, "corrector_step": 0.5}, {"argmax": "last"}],
    "blockwise": [{"block_sampler": "first_hitting"}, {"stride": 2}, {"end": 1}, {"entropy": 0.5}, {"window": 3}],
    "left_to_right": [{"top_k": 2}, {"window": 3}, {"end": 1}, {"entropy": 0.5}],
}  # fmt: skip
ARGUMENTS = [  # of Evaluate
    "data", "split", "draws", "seed", "limit", "batch", "estimator", "ends", "steps", "grid", "terms", "unconditional",
    "symmetries", "processes",
]  # fmt: skip
GUIDED = [{"temperature": 0.7}, {"temperature": 0.0}, {"top_p": 0.6}]
WRONG = """\
build("mdml", V) ;; build("mdlm", 0) ;; build("mdlm", V, NET, METHODS["md4"].Config())
build("tauldr", V, NET, METHODS["tauldr"].Config(process="gaussian")) ;; build("csm", 1, NET)
METHODS["bd3lm"].Config(clip=(0.8, 0.3)) ;; METHODS["csm"].Config(noise=2.0) ;; METHODS["mdlm"].Config(tim=True)
Net(hidden=10, heads=3) ;; Net(grid=(2, 2), length=5) ;; Train(lr=-1.0) ;; Train(stps=3) ;; Batch(x[0]) ;; Batch(x, x)
method.loss(x) ;; method.loss(Batch(x + V)) ;; method.loss(Batch(x.repeat(1, 2))) ;; method.bound(Batch(x), 0)
method.predict(x, torch.zeros(3)) ;; method.predict(x, 0.5, at=x) ;; method.predict(x, 0.5, condition=x[:, 0])
method.corrupt(Batch(x), torch.zeros(2, 2)) ;; draw("ancestral", method, steps=0) ;; draw("ancestral", method, steps=x)
draw("ancestral", method, fixed=x[:, :2]) ;; draw("ancestral", method, rows=2) ;; draw("ancestral", method, gridd="cosine")
draw("ancestral", method, grid="x") ;; draw("fixed_order", method, order=(0, 0)) ;; draw("confidence", method, threshold=2.0)
draw("remasking", method, eta=-1.0) ;; draw("tau_leaping", method, jumps="x") ;; draw("blockwise", method, stride=0)
draw("metropolis", method, top_p=0.5) ;; zellige.load(here / "none") ;; zellige.sample(method)
zellige.sample(here / "none", n=3) ;; zellige.evaluate(here / "none", steps=-1) ;; zellige.embed(method, "abc")
zellige.infill(3, "a_") ;; zellige.train("mdml") ;; zellige.train("mdlm", data="txt", run=here / "new")
zellige.train("mdlm", data=Data("text", path=str(here / "none.txt")), run=here / "new")
zellige.train("mdlm", run=here / "new", resume=True) ;; zellige.compare(["mdlm"], run=here / "new", calls=[0])
zellige.verify("mdlm", only="bond") ;; zellige.nothing"""


def digest(value: Any) -> str:
    """sha256 of the exact bytes of tensors and of what holds them, 16 hex digits; a float is written in full."""
    sha = hashlib.sha256()

    def feed(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            sha.update(f"{value.dtype}{tuple(value.shape)}".encode() + value.detach().contiguous().numpy().tobytes())
        elif isinstance(value, Mapping):
            feed([[key, value[key]] for key in value if key not in VARYING])
        elif isinstance(value, list | tuple):
            sha.update(f"[{len(value)}".encode())
            for each in value:
                feed(each)
        else:
            sha.update(repr(value).encode())

    feed(value)
    return sha.hexdigest()[:16]


class Record:
    """What was computed, `entries`: key -> digest, or the text of an error; of the sections `only`, or of all."""

    def __init__(self, folder: Path, only: list[str]):
        self.entries: dict[str, str] = {}
        self.folder, self.only = folder, only

    def wants(self, key: str) -> bool:
        """Whether the key's section, its first word, was asked for."""
        return not self.only or key.split()[0] in self.only

    def __call__(self, key: str, compute: Callable, *values: Any, view: Callable = lambda x: x, **named: Any) -> Any:
        """Return compute(*values, **named), or None where it fails; note its `view` under `key`, or the error.

        Of a mapping each entry is noted.
        """
        try:
            value = compute(*values, **named)
            result = view(value)
            entries = (
                {f"{key}/{name}": result[name] for name in result} if isinstance(result, Mapping) else {key: result}
            )
            self.entries |= {
                name: digest(entry) for name, entry in entries.items() if name.split("/")[-1] not in VARYING
            }
        except Exception as error:
            self.entries[key] = f"{type(error).__name__}: {error}".replace(str(self.folder), "FOLDER")
            return None
        return value


def seeded(seed: int = 1, rows: int = 0) -> Any:
    """A generator, or one for each row."""
    each = [torch.Generator().manual_seed(seed + row) for row in range(max(rows, 1))]
    return each if rows else each[0]


# ---------------------------------------------------------------------------------- methods
def batches() -> dict[str, Batch]:
    """Rows of tokens: with given positions (one row is given whole), all free, packed, and shorter ones."""
    x, free = torch.randint(V, (B, L), generator=seeded()), torch.rand(B, L, generator=seeded(2)) < 0.6
    free[1] = False
    packed = Batch(x, None, (torch.rand(B, L, generator=seeded(3)) < 0.3).long().cumsum(-1))
    return {"given": Batch(x, free), "free": Batch(x), "packed": packed, "short": Batch(x[:, :3])}


def tiny(name: str, **choices: Any) -> Any:
    """A method with a seeded network; no weight stays where it begins, such as a head at 0."""
    torch.manual_seed(0)
    method = build(name, V, NET, METHODS[name].Config(**choices), ordered=True)
    with torch.no_grad():
        for i, parameter in enumerate(method.parameters()):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=seeded(i)))
    return method.eval()


def weights(method: Any) -> list[torch.Tensor]:
    """Of a method, in their order."""
    return list(method.parameters())


def likelihoods(record: Record, key: str, method: Any, batch: Batch) -> None:
    """Loss, bound, their gradients, terms and estimators."""
    for name in ("loss", "bound"):
        value = record(f"{key}/{name}", getattr(method, name), batch, seeded())
        if value is not None:
            record(f"{key}/{name}/gradients", torch.autograd.grad, value.sum(), weights(method), allow_unused=True)
    with torch.no_grad():
        record(f"{key}/terms", method.terms, batch, seeded())
        for name, estimator in method.estimators().items():
            record(f"{key}/{name}", estimator, batch, seeded())


@torch.no_grad()
def predictions(record: Record, key: str, method: Any, batch: Batch) -> None:
    """Noise at several times, and the ratios that are predicted there: everywhere, at some positions, beside clean tokens."""
    some = torch.rand(batch.tokens.shape, generator=seeded(4)) < 0.5
    for t, name, more in (
        (0.5, "predict", {}), (1.0, "predict", {}), (zellige.PRIOR, "predict", {}),
        (0.5, "at", {"at": some}), (0.5, "beside", {"context": batch.tokens}),
    ):  # fmt: skip
        at = f"{key}/{name} t={t}"
        x_t = None if method.process is None else record(f"{at}/corrupt", method.corrupt, batch, t, seeded())
        ask = partial(method.predict, batch.tokens if x_t is None else x_t, t, segments=batch.segments, **more)
        pred = record(f"{at}/ratio", ask, view=lambda pred, t=t: pred.ratio(t) if hasattr(pred, "ratio") else pred.v)
        for s in () if pred is None or x_t is None else (zellige.CLEAN, 0.0, min(t, 1.0) / 2):
            record(f"{at}/ratio s={s}", pred.ratio, s)


def draw(sampler: str, method: Any, steps: Any = 4, fixed: Any = None, rows: int = B, **options: Any) -> Any:
    """Every state of a sampler, each row with a generator of its own, or (rows=0) one for all."""
    how = {"fixed": fixed, "generator": seeded(5, rows)}
    return list(zellige.run(SAMPLERS[sampler](**options), method, (B, L), steps, **how))


def samples(record: Record, key: str, method: Any, full: bool) -> None:
    """The states and calls of every sampler; of one that does not admit the method, why."""
    fixed = torch.full((B, L), -1)
    fixed[:, 1], fixed[0], fixed[2, 4] = 3, torch.arange(L) % V, 0
    view = lambda states: {"states": [s.x for s in states], "sample": states[-1].x, "calls": states[-1].calls}  # noqa: E731
    for name in SAMPLERS:
        admitted = record(f"{key}/{name}", draw, name, method, view=view)
        if full and admitted is not None:
            record(f"{key}/{name}/fixed", draw, name, method, fixed=fixed, view=view)
            for more in [{"steps": 8, "rows": 0}, *OPTIONS.get(name, []), *GUIDED]:
                record(f"{key}/{name}/{json.dumps(more)}", draw, name, method, view=view, **more)


def methods(record: Record) -> None:
    """Every method: in the variants of its paper with every kind of batch, in float32 and float64; in more configurations."""
    for name, cls in METHODS.items():
        variants = list(cls.variants)
        for choices in (
            variants + [more for more in MORE.get(name, []) if more not in variants] if record.wants(name) else ()
        ):
            key, full = f"{name} {json.dumps(choices)}", choices in variants
            method = record(f"{key}/weights", tiny, name, view=weights, **choices)
            for dtype in () if method is None else (torch.float32, torch.float64)[: 1 + full]:
                at, method = f"{key}/{str(dtype).removeprefix('torch.')}", method.to(dtype)
                for what, batch in itertools.islice(batches().items(), None if full else 1):
                    likelihoods(record, f"{at}/{what}", method, batch)
                    predictions(record, f"{at}/{what}", method, batch)
                samples(record, at, method, full and dtype == torch.float32)


# ---------------------------------------------------------------------------------- verbs and errors
def trained(record: Record, name: str, data: Data, net: Net, train: Train) -> None:
    """A method trained and resumed: weights, metrics, samples; then all that is asked of a model."""
    run, key = record.folder / name, f"verbs {name}"
    for steps in (30, 40):
        how = {"data": data, "net": net, "train": replace(train, steps=steps), "run": run, "resume": steps > 30}
        record(f"{key}/{steps}", zellige.train, name, view=lambda done: [done.best_step, done.tokens], **how)
        model = record(f"{key}/{steps}/weights", zellige.load, run, view=lambda model: weights(model.method))
        record(f"{key}/{steps}/metrics", lambda: dict(enumerate(csv.DictReader((run / "metrics.csv").open()))))
        record(f"{key}/{steps}/samples", lambda: [file.read_text() for file in sorted((run / "samples").iterdir())])
    for more in ({}, *grid(estimator=("any_order", "forward")), {"steps": 4}, {"split": "validation", "draws": 3}):
        evaluate = partial(zellige.evaluate, model, limit=16, **more)
        record(f"{key}/evaluate {more}", evaluate, view=document)
    for more in [*grid(sampler=(None, *SAMPLERS, "analytic", "mean")), *GUIDED, {"prompt": "abc", "length": 9}]:
        record(f"{key}/sample {more}", zellige.sample, model, count=3, steps=6, **more)
    record(f"{key}/infill", zellige.infill, model, "ab__ cd_e", count=3, steps=5, seed=2)
    record(f"{key}/watch", lambda: [(f.t, f.x, f.calls, f.text) for f in zellige.watch(model, count=2, steps=5)])
    for more in ({}, {"layer": 0}, {"t": 0.5, "seed": 3}):
        record(f"{key}/embed {more}", zellige.embed, model, ["abc", "dead beef", "a b c" * 9], **more)


def document(result: Any) -> dict[str, Any]:
    """The JSON of a result, its arguments in the order of ARGUMENTS: theirs says nothing."""
    entries = result.to_dict()
    arguments = sorted(entries["arguments"].items(), key=lambda entry: ARGUMENTS.index(entry[0]))
    return entries | {"arguments": dict(arguments)}


def verbs(record: Record) -> None:
    """Train, evaluate, sample, infill, watch, embed, compare, verify, on a text of made-up words."""
    chance = random.Random(0)
    known = ["".join(chance.choices("abcdefgh", k=chance.randint(1, 6))) for _ in range(60)]
    (record.folder / "words.txt").write_text(" ".join(chance.choices(known, k=4000)), encoding="utf-8")
    data = Data("text", path=str(record.folder / "words.txt"), cache=str(record.folder / "cache"))
    net, train = replace(NET, length=16), Train(
        batch=8, lr=1e-2, warmup=5, ema=0.9, validate_every=15, validate_rows=8, sample_steps=4, log_every=5,
        device="cpu", precision="float32", tensorboard=False,
    )  # fmt: skip
    for name in ("mdlm", "udlm", "ar"):
        trained(record, name, data, net, train)
    brief = replace(train, steps=5, validate_every=0, samples=0)
    compare = partial(zellige.compare, data=data, net=net, train=brief, run=record.folder / "all", draws=1, limit=4)
    record("verbs compare", compare, ["mdlm", "ar"], calls=[2], samples=4, view=lambda table: table.plain["result"])
    for name in ("mdlm", "udlm"):
        view = lambda report: {f"{row.identity} {row.where}": row.error for row in report.rows}  # noqa: E731
        record(f"verbs verify {name}", zellige.verify, name, only="bound", view=view)


def errors(record: Record) -> None:
    """What wrong calls say."""
    here, method, x = record.folder / "wrong", tiny("mdlm"), torch.zeros(B, L, dtype=torch.long)
    here.mkdir()
    for call in WRONG.replace(" ;; ", "\n").splitlines():
        record(f"errors {call}", eval, call, {**globals(), "here": here, "method": method, "x": x})


# ---------------------------------------------------------------------------------- record and compare
def main() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="SECTION", help="of methods, verbs, errors: mdlm")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    started, comparing = time.perf_counter(), arguments.what == "compare"
    before = json.loads(arguments.file.read_text(encoding="utf-8")) if comparing else {}
    about = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    about |= {"machine": platform.machine(), "cpu": torch.backends.cpu.get_cpu_capability()}
    with tempfile.TemporaryDirectory() as folder:
        record = Record(Path(folder), arguments.only)
        methods(record)
        for section in (verbs, errors):
            if record.wants(section.__name__):
                section(record)
    after = record.entries
    print(f"{len(after):,} numbers and errors in {time.perf_counter() - started:.0f} s")
    if not comparing:
        text = json.dumps({"about": about, "entries": after}, indent=0, ensure_ascii=False)
        arguments.file.write_text(text + "\n", encoding="utf-8")
        return 0
    if before["about"] != about:
        print(f"recorded elsewhere, where bits may differ: {before['about']}; here: {about}")
    earlier = {key: value for key, value in before["entries"].items() if record.wants(key)}
    missing, new = earlier.keys() - after, after.keys() - earlier
    differ = {key for key in earlier.keys() & after if earlier[key] != after[key]}
    for key in sorted(missing | new | differ):
        what = "missing" if key in missing else "new" if key in new else "differs"
        print(f"{what:8} {key}" + (f"\n  before {earlier[key]}\n  after  {after[key]}" if key in differ else ""))
    print(f"{len(earlier):,} before: {len(differ):,} differ, {len(missing):,} are missing, {len(new):,} are new")
    return 1 if missing or new or differ else 0


if __name__ == "__main__":
    sys.exit(main())
