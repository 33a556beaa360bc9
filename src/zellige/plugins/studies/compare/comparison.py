"""`zellige compare`: several methods, the same network, data, seed and budget: one table and one figure.

    result = compare(["mdlm", "md4", "sedd:process=uniform"], data=Data("pydocs"), net=Net(layers=4),
    run="runs/compare") print(result)

Each method is a run of its own, in a folder of the comparison's, made by `train`; what is finished is used again, what
was interrupted goes on. Then each is measured: the bound on the test split, samples at several numbers of network
evaluations, the speed of its training. measured.json keeps that (with the nats of each text), so that a second call
measures nothing; compare.json, compare.md and compare.svg are made of it. With a limit the names of all four say so
(compare-limit-20.json).
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import torch

from zellige.base import files
from zellige.base.arguments import checked
from zellige.base.errors import InputError
from zellige.base.requests import Request
from zellige.base.schema import entries_of, read_by, read_json, shown, structure
from zellige.data import Data
from zellige.data.corpus import as_data
from zellige.evaluation.corpus import corpus_of
from zellige.evaluation.interval import mean
from zellige.evaluation.result import Result, difference, opened, summarize
from zellige.methods import build
from zellige.methods.method import Method
from zellige.models import model as models
from zellige.models.checkpoint.layout import CHECKPOINTS, holds_run, newest, step_of
from zellige.models.checkpoint.read import read_config, run_config
from zellige.models.config import Config, Train
from zellige.nn.block import Net
from zellige.plugins.evaluations.generate.sample_sets import sampler_of
from zellige.samplers import find as find_sampler
from zellige.show.numbers import count, counted, duration, parameters
from zellige.show.progress import TrainingPart, one_bar_each
from zellige.show.record import Record, as_file, json_record
from zellige.show.terminal import Terminal
from zellige.training import forecast, lock, logger, setup
from zellige.training.device import cuda, fleet, require_room
from zellige.training.requests import Training
from zellige.training.signals import Stopped

from . import table
from .entrant import Entrant, check_alike, check_folder, check_runs, entrants
from .measure import Settings, check_pairing, data_key, measure_method, measurement_key
from .paper import Rows
from .record import Bound, DataMeasurement, Difference, Findings, Judge, Measurement, Paper, Quality, Row
from .reference import judge_of

PROTOCOL = "zellige-compare-1"
MEANS = ("value", "low", "high", "entropy", "inside", "reached", "calls")  # of samples, over the seeds of a method
MEASURE = "remove it to measure again"


@dataclass(frozen=True)
class Comparison(Record):
    """A finished comparison; `print` it for the table.

    Attributes:
        folder: where compare.json, compare.md, compare.svg and the runs are.
        findings: the table.
        plain: all that compare.json holds, findings included.
        name: of the three files without their endings; `compare-limit-20` where only so many texts were judged.
    """

    command: ClassVar = "compare"
    advice: ClassVar = "give a compare.json that zellige compare wrote"
    folder: Path = field(metadata=read_by(Path))
    findings: Findings
    plain: dict[str, Any]
    name: str = "compare"

    def __str__(self) -> str:
        return "\n".join(table.terminal_lines(self.findings))

    def to_dict(self) -> dict[str, Any]:
        return self.plain

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        findings, arguments = document["result"], document["arguments"]
        name = f"compare-limit-{arguments.get('limit')}" if findings["partial"] else "compare"
        return {"folder": arguments.get("folder") or ".", "findings": findings, "plain": {**document}, "name": name}


@checked
def compare_methods(
    request: Request[Comparison],
    *,
    data: Any,
    net: Net | None,
    train: Train | None,
    folder: str | os.PathLike,
    calls: Sequence[int],
    terminal: Terminal | None,
    rows: Rows | None = None,
) -> Comparison:
    """Do what a request of a comparison asks (`request.Compare`); the arguments stand before its own fields.

    rows: of a paper's table, in the place of methods.
    """
    asked: Any = request
    terminal, where, size = terminal or Terminal(quiet=True), Path(folder), asked.size or ""
    several = rows.entrants if rows else entrants(asked.methods, where)
    if several and several[0].place:
        settled = {"data": data, "net": net, "size": asked.size, "seeds": asked.seeds if asked.seeds > 1 else None}
        settled["train"] = None if train is None or replace(train, seed=0) == Train() else train
        if name := next((name for name, value in settled.items() if value is not None), ""):
            raise InputError(f"`{name}` is for methods that are trained, and these runs are; leave it out")
    data = Data() if data is None else as_data(data)
    if size:
        usual = setup.SIZES[size].of(getattr(data, "name", ""), *(of.method for of in several))
        net, train = usual[0] if net is None else net, usual[1] if train is None else train
    train = train or Train()
    if train.devices > 1:  # several would each ask for all of the comparison
        raise InputError(f"`train.devices` is {train.devices}; compare trains on one device, leave it out")
    train = replace(train, devices=1)
    how = Settings(tuple(calls), asked.samples, asked.draws, asked.limit, train.seed, tuple(asked.samplers))
    check_folder(where)
    with terminal.waiting("reading"):
        work = _Work(several, data, net or Net(), train, where, how, terminal, request.saved(), asked.seeds, rows, size)
    with lock.hold(where, "compared"):
        work.announce()
        terminal.say(work.heading())
        measured = work.go()
        with terminal.waiting("drawing"):
            return work.write(*measured)


class _Work:
    """State that the steps of a comparison share."""

    def __init__(
        self, several: list[Entrant], data: Data, net: Net, train: Train, folder: Path, how: Settings,
        terminal: Terminal, request: Request[Comparison], seeds: int, rows: Rows | None, size: str,
    ):  # fmt: skip
        """Everything is checked here: names, choices, pairings, data, and the runs that are there."""
        self.several, self.folder, self.how, self.terminal, self.data = several, folder, how, terminal, data
        self.request, self.rows, self.minutes, self.size = request, rows, train.minutes if rows else 0.0, size
        self.fits = bool(train.minutes) and rows is None  # as many steps as the slowest may, the same for all
        self.seeds = tuple(range(how.seed, how.seed + seeds))
        if not several:
            raise InputError(
                f"no row of {rows.name if rows else 'it'} has a recipe; zellige list tables says which have"
            )
        runs, first = self.runs, several[0]
        self.trained = bool(first.place)  # before, and nothing is
        self.trainings = dict[str, Training]()
        wanted, supported = {name: find_sampler(sampler_of(name)[0]) for name in how.samplers}, set[str]()
        if self.trained:
            configs = {run.folder: run_config(self._place(run.folder))[0] for run in runs}
            check_alike([(run.title, self._place(run.folder), configs[run.folder]) for run in runs])
            self.corpus = corpus_of(models.load(self._place(first.folder)))
        else:
            begun = next((folder / run.folder for run in runs if holds_run(folder / run.folder)), folder)
            for run in runs:
                place = folder / run.folder if rows else begun
                begun_there = train.minutes and holds_run(place)  # its minutes have become steps
                planned = forecast.as_long_as(place, train) if begun_there else train
                self.trainings[run.folder] = run.training(data, net, planned, folder)
            configs = {name: training.config for name, training in self.trainings.items()}
            start = setup.load_start(train.start, first.method, first.name) if train.start else None
            ends = max(setup.ends_for(configs[run.folder], run.method) for run in runs)
            self.corpus = setup.read_corpus(configs[first.folder], ends, start=start)  # all learn the same ends
            configs = {name: setup.filled_up(config, self.corpus) for name, config in configs.items()}
        tokens = self.corpus.tokenizer
        classes = len(self.corpus.about.get("classes") or ())
        self.configs = {name: setup.shaped(config, tokens.shape, classes) for name, config in configs.items()}
        self.parameters, reasons = dict[str, int](), dict[str, str]()
        for entrant in several:
            try:
                method = self._built(entrant, self.configs[entrant.folder])
                number = method.parameter_count
                supported |= {name for name, sampler in wanted.items() if not sampler.reason_against(method)}
                self.parameters |= dict.fromkeys((run.folder for run in self._runs(entrant)), number)
            except InputError as reason:
                if rows is None:
                    raise
                reasons[entrant.folder] = str(reason)
        if alone := next((name for name in wanted if name not in supported), None):
            raise InputError(f"no method here supports the sampler {alone}; leave it out (zellige list samplers)")
        if rows is not None:
            self.rows = rows.without(reasons)
            self.several = self.rows.entrants
            self.configs = {run.folder: self.configs[run.folder] for run in self.runs}
        if not self.trained:
            check_runs(folder, self.configs)
        for run in map(self._place, self.configs):
            if holds_run(run):
                setup.same_corpus(read_config(run).get("about") or {}, self.corpus)
        self.unit = models.unit(tokens)
        self.part = f"-limit-{how.limit}" if how.limit is not None and how.limit < len(self.corpus.test) else ""

    def _place(self, name: str) -> Path:
        """The folder of a run, by its name in the comparison's or its place from there."""
        return Path(os.path.normpath(self.folder.resolve() / name)) if self.trained else self.folder / name

    @property
    def runs(self) -> list[Entrant]:
        """Every entrant with each of the seeds."""
        return [run for entrant in self.several for run in self._runs(entrant)]

    def _runs(self, entrant: Entrant) -> list[Entrant]:
        """The entrant with each of the seeds."""
        return entrant.seeded(self.seeds[0], len(self.seeds))

    def _built(self, entrant: Entrant, config: Config) -> Method:
        """The method, untrained; InputError where it cannot be built, or not be sampled."""
        if entrant.place:
            method = models.load(self._place(entrant.folder)).method
            check_pairing(method)
            return method
        require_room(config, fleet(config))
        tokens = self.corpus.tokenizer
        with torch.random.fork_rng(devices=[]):
            fresh = build(entrant.method, tokens.size, config.net, entrant.options, config.net.length, tokens.ordered)
        check_pairing(fresh)
        return fresh

    @property
    def config(self) -> Config:
        """The first one; they share data, net and train."""
        return next(iter(self.configs.values()))

    def announce(self) -> None:
        """Say how long the trainings will take that are not done; and let all take the steps that fit for the slowest.

        The first training is given the minutes that these steps take it, and so plans them again; the others take its
        steps.
        """
        left = [run for run in self.runs if not self._is_done(run)]
        several: Any = [self.configs[run.folder] for run in left]
        whole, on_cpu = 0, not cuda(self.config)
        if self.trained or not left:
            return
        if on_cpu and (several[0].train.minutes or not self.terminal.quiet):
            with self.terminal.waiting("timing"):
                several = forecast.timed([(self.configs[run.folder], run.method) for run in left], self.corpus)
            if several[0].config.train.minutes and self.rows:
                each = lambda one: forecast.shortened(one.config, one.per_row, one.validation)  # noqa: E731
                several = [replace(one, config=each(one)) for one in several]
            elif several[0].config.train.minutes:
                whole, several = several[0].config.train.steps, forecast.alike(several)
                name = left[0].folder
                budget = replace(self.configs[name].train, minutes=several[0].seconds / 60 + 1e-9)
                self.configs = {left[i].folder: one.config for i, one in enumerate(several)}
                self.configs[name] = replace(self.configs[name], train=budget)
        methods = (of.method for of in self.several)
        preset = setup.described(self.size, self.config, *methods, shaped=bool(self.corpus.tokenizer.shape))
        self.terminal.say(forecast.of_several(several, len(left), preset, whole, self.size))

    def _is_done(self, entrant: Entrant) -> bool:
        """Return whether a run was trained to its last step."""
        last = newest(self.folder / entrant.folder / CHECKPOINTS)
        return last is not None and step_of(last) >= self.configs[entrant.folder].train.steps

    def heading(self) -> str:
        t, n, tell = self.config.train, self.config.net, self.corpus
        if self.trained:
            names = ", ".join(f"{entrant.title} ({entrant.name})" for entrant in self.several)
            return f"{names}\n{tell.about['name']}, {count(tell.train.tokens_total)} tokens that they were trained on"
        sizes = str(n) if n.is_unet else f"{counted(n.layers, 'layer')}, hidden {n.hidden}"
        length = f"{self.minutes:g} minutes" if self.minutes else counted(t.steps, "step")
        title = f"{table.heading(self._paper())}\n" if self.rows else ""
        return (
            f"{title}{', '.join(entrant.label for entrant in self.several)}\n"
            f"{tell.about['name']}, {count(tell.train.tokens_total)} tokens to train on; {sizes}, "
            f"length {tell.train.length}; {length} of {t.batch} sequences a step, {_seeds_text(self.seeds)}"
        )

    def _paper(self) -> Paper:
        assert self.rows is not None
        path = getattr(self.data, "path", None)  # of data of one's own, whose name says little
        return self.rows.record(Path(path).name if path else self.corpus.about["name"], self.minutes)

    # ------------------------------------------------------------------------------------------------ the work
    def go(self) -> tuple[DataMeasurement, dict[str, Measurement]]:
        """Train and measure what is not there yet; the judge and the data, and each method by the folder of its run."""
        file = self.folder / f"measured{self.part}.json"
        measurements = read_json(file, dict, MEASURE) if file.is_file() else {}
        if self.minutes and measurements.setdefault("minutes", self.minutes) != self.minutes:
            raise InputError(
                f"the rows in '{shown(self.folder)}' were trained {measurements['minutes']:g} minutes each, "
                f"not {self.minutes:g}; "
                "use a new `run`"
            )
        files.write_file(file, as_file(measurements))
        judge, methods, data_wanted = None, dict[str, Measurement](), data_key(self.corpus, self.how)
        read = lambda name, kind: structure(measurements[name], kind, f"'{shown(file)}'", name, MEASURE, strict=False)  # noqa: E731
        data = read("data", DataMeasurement) if _is_of(measurements.get("data"), data_wanted) else None
        for number, entrant in enumerate(runs := self.runs, 1):
            run = self._place(entrant.folder)
            if not self.trained:
                self._train(entrant, run, f"{number} of {len(runs)}  {entrant.label}")
            key = measurement_key(run, self.corpus, self.how)
            if data is not None and _is_of(measurements.get(entrant.folder), key):
                methods[entrant.folder] = read(entrant.folder, Measurement)
                continue
            if judge is None:
                with self.terminal.waiting("counting"):
                    judge = judge_of(self.corpus, self.unit)
                reference = judge.reference(self.how.samples or judge.count)
                data = DataMeasurement(
                    key=data_wanted, judge=Judge(judge.kind, judge.name, self.unit), reference=reference
                )
            device = "cuda" if cuda(self.config) else "cpu"
            model = models.load(run, method=None if entrant.named else entrant.method, device=device)
            with one_bar_each(self.terminal) as show:
                methods[entrant.folder] = measure_method(model, run, key, judge, self.how, show)
            measurements |= {"data": entries_of(data), entrant.folder: entries_of(methods[entrant.folder])}
            files.write_file(file, as_file(measurements))
        assert data is not None
        return data, methods

    def _train(self, entrant: Entrant, run: Path, label: str) -> None:
        """The method's run, as far as it is not there."""
        if self.fits:
            self._take_steps()
        config, has_run = self.configs[entrant.folder], holds_run(run)
        last = newest(run / CHECKPOINTS)
        step = step_of(last) if last else 0
        state = "reused" if step >= config.train.steps else f"goes on at step {count(step)}" if step else ""
        self.terminal.say(f"{label}, {parameters(self.parameters[entrant.folder])}{', ' if state else ''}{state}")
        progress = TrainingPart(self.terminal)
        try:
            training = replace(self.trainings[entrant.folder], net=config.net, train=config.train, resume=has_run)
            finished_run = training.run(progress)
        except Stopped:
            again = logger.typed_command() or "the same call"
            self.terminal.say(f"  go on: {again}")
            raise
        finally:
            progress.close()
        if state != "reused":
            self.terminal.say(
                f"  trained in {duration(finished_run.seconds)}, validation "
                f"{finished_run.validation or 'without a bound'}"
            )

    def _take_steps(self) -> None:
        """Let all runs take the steps of one that was begun."""
        begun = next((self.folder / name for name in self.configs if holds_run(self.folder / name)), None)
        if begun is not None:
            of = partial(forecast.as_long_as, begun)
            self.configs = {name: replace(config, train=of(config.train)) for name, config in self.configs.items()}

    # ------------------------------------------------------------------------------------------------ what is written
    def write(self, data: DataMeasurement, measured: Mapping[str, Measurement]) -> Comparison:
        """compare.json, compare.md and compare.svg: the same files whenever the same was measured."""
        from zellige.plugins.report.palette import as_svg

        from .figure import comparison_figure

        several = [[measured[run.folder] for run in self._runs(entrant)] for entrant in self.several]
        rows = [
            replace(row_of(entrant, of_seeds), steps=int(read_config(self._place(entrant.folder))["train"]["steps"]))
            for entrant, of_seeds in zip(self.several, several)
        ]
        bounds = [[m.bound.result() for m in measurements if m.bound is not None] for measurements in several]
        ranking = sorted((row.bound.value, i) for i, row in enumerate(rows) if row.bound is not None)
        pairs, labels = differences([(rows[i].label, bounds[i]) for _, i in ranking])
        for (_, i), letter in zip(ranking, labels):
            rows[i] = replace(rows[i], letters=letter)
        firsts = [bounds[i][0] for _, i in ranking]
        partial = firsts[0].judged if firsts and self.part and data.judge.grams else ""
        order = [i for _, i in ranking] + [i for i, row in enumerate(rows) if row.bound is None]
        findings = Findings(
            data=self.corpus.about["name"], rows="text" if self.corpus.tokenizer.kind == "text" else "data", unit=self.unit,
            steps=max(row.steps or 0 for row in rows), partial=partial or None, calls=tuple(self.how.calls), judge=data.judge,
            reference=data.reference, methods=tuple(rows[i] for i in order), differences=tuple(pairs),
            command=logger.typed_command(), paper=self._paper() if self.rows else None,
            seeds=self.seeds if len(self.seeds) > 1 else (),
        )  # fmt: skip
        protocol = self._protocol(data, findings.samples, firsts)
        seconds = sum(method.seconds for method in measured.values())
        contents = json_record(
            "compare",
            self.request.to_dict(),
            entries_of(findings),
            unit=self.unit,
            kind="bound",
            protocol=protocol,
            seed=self.how.seed,
            seconds=seconds,
            request=self.request,
        )
        name = f"compare{self.part if partial else ''}"
        files.write_file(self.folder / f"{name}.json", as_file(contents))
        files.write_file(self.folder / f"{name}.md", table.markdown(findings, protocol, f"{name}.svg"))
        files.write_file(self.folder / f"{name}.svg", as_svg(comparison_figure(findings)))
        return Comparison(self.folder, findings, contents, name, request=self.request)

    def _protocol(self, data: DataMeasurement, samples: int, bounds: list[Result]) -> dict[str, Any]:
        first = bounds[0].protocol if bounds else {}
        alike = {
            k: v for k, v in first.items() if all(b.protocol.get(k) == v for b in bounds)
        }  # each row has its own too
        return {
            "name": PROTOCOL,
            "bound": alike,
            "samples": f"{samples} of each method at each number of steps, the same random numbers",
            "judge": data.judge.name,
            "real": f"{data.reference.rows} rows",
            "data sha256": self.corpus.about.get("sha256"),
            "network": "EMA weights, the best of the validations",
            "device": "cuda" if cuda(self.config) else "cpu",
            "seed": self.how.seed,
        } | ({"training": _seeds_text(self.seeds)} if len(self.seeds) > 1 else {})


def _seeds_text(seeds: Sequence[int]) -> str:
    """`seed 0`, or `seeds 0 to 2`."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def _is_of(entry: object, key: dict[str, Any]) -> bool:
    """Return whether an entry of measured.json was measured with these settings."""
    return isinstance(entry, dict) and entry.get("key") == key


def row_of(entrant: Entrant, of_seeds: Sequence[Measurement]) -> Row:
    """One method in the table: without the nats of each text."""
    measured = over_seeds(of_seeds)
    bound = None if measured.bound is None else replace(measured.bound, nats=None, sizes=None)
    return Row(
        method=entrant.name,
        variant=entrant.variant,
        label=entrant.label,
        folder=entrant.folder,
        parameters=measured.parameters,
        sampler=measured.sampler,
        bound=bound,
        quality=measured.quality,
        tokens_per_second=measured.tokens_per_second,
        by_sampler=measured.by_sampler,
        seeds=tuple(m.bound.value for m in of_seeds if m.bound is not None) if len(of_seeds) > 1 else (),
    )


def over_seeds(measurements: Sequence[Measurement]) -> Measurement:
    """One measurement of a method that was trained with several seeds: the means;
    the bound with its interval over texts."""
    first = measurements[0]
    if len(measurements) == 1:
        return first
    bound, bounds = first.bound, [m.bound for m in measurements if m.bound is not None]
    if bound is not None:
        mean_bound, terms = Bound.of(_mean([b.result() for b in bounds])), _means([b.terms for b in bounds])
        bound = replace(mean_bound, kind=bound.kind, draws=bound.draws, protocol=bound.protocol, terms=terms)
    quality = _mean_quality([m.quality for m in measurements])
    by_sampler = tuple(
        replace(at[0], quality=_mean_quality([m.quality for m in at]))
        for at in zip(*(m.by_sampler for m in measurements))
    )
    speeds = [m.tokens_per_second for m in measurements if m.tokens_per_second]
    speed = fmean(speeds) if speeds else None
    return replace(first, bound=bound, quality=quality, by_sampler=by_sampler, tokens_per_second=speed)


def _mean_quality(of_seeds: Sequence[Sequence[Quality]]) -> tuple[Quality, ...]:
    """The means over the seeds, at each number of steps."""
    return tuple(
        replace(at[0], **_means([{k: v for k in MEANS if (v := getattr(q, k)) is not None} for q in at]))
        for at in zip(*of_seeds)
    )


def _means(entries: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(entry[name] for entry in entries) for name in entries[0]}


def _mean(results: Sequence[Result]) -> Result:
    """The mean over seeds, with the interval over texts of each text's own mean."""
    first = results[0]
    if len(results) == 1:
        return first
    assert first.sizes is not None
    nats = torch.stack([r.nats for r in results if r.nats is not None]).mean(0)
    return opened(summarize(nats, first.sizes, first.unit, first.kind), max(r.undetermined for r in results))


def differences(named: list[tuple[str, list[Result]]]) -> tuple[list[Difference], list[str]]:
    """Each pair's difference on the same texts with its interval, and the letters; best first.

    Args:
        named: of each method the results of its seeds. Of several, the interval is over texts and never narrower than
            Student's over the seeds, paired: the same seed has the same order of the data.
    """
    pairs, same = [], set()
    for j, (b, second) in enumerate(named):
        for i, (a, first) in enumerate(named[:j]):
            ends = [math.inf] * 3
            finite = [all(math.isfinite(result.value) for result in results) for results in (first, second)]
            if finite[1]:  # the bound of a score may be infinite; such a one comes last
                gap = difference(_mean(second), _mean(first))
                half = gap.half
                if len(first) > 1:
                    half = max(half, mean([b.value - a.value for a, b in zip(first, second)]).half)
                ends = [gap.value, gap.value - half, gap.value + half]
            apart = ends[1] > 0 and finite[0]
            pairs.append(Difference(b, a, *ends, same=not apart))
            same |= set() if apart else {(i, j), (j, i)}
    return pairs, table.letters(len(named), lambda i, j: (i, j) in same)
