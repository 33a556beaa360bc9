"""The page of `zellige play`: models, their draws step by step, bounds, and a run as a file.
The page itself is in `assets/`."""

import contextlib
import dataclasses
import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from pydantic import Field

from zellige import samplers
from zellige.base.arguments import MOST_SEED
from zellige.base.errors import InputError
from zellige.base.requests import Option, options_of
from zellige.data import DATASETS, chat
from zellige.methods.method import Method
from zellige.models import shipped
from zellige.models.averaged import is_symmetric
from zellige.models.class_names import class_names, find_classes
from zellige.models.decoding import WATCHED, Decoding, as_watched
from zellige.models.model import Model, identity, unit
from zellige.plugins.evaluations.bracket.gaps import GAP_STEPS, bound_gaps, bracket_gaps, gaps_work
from zellige.plugins.report.page import asset
from zellige.plugins.report.trace import page_text, piece_layout
from zellige.samplers.pairing import of_length, usual_steps
from zellige.samplers.replay import path_of
from zellige.sampling.masked_text import approximate, inserts, masked_text
from zellige.sampling.sample import Sample
from zellige.show.kinds import of
from zellige.show.numbers import parameters

from .body import Body, DecodingBody
from .drawn import Recorder, draws_predictions, recorded
from .examples import EXAMPLES
from .export import Recorded, exported, formats
from .guard import Guard, Limits
from .refusals import WRONG, Refusals
from .worker import Job, Worker, in_turns

LAID_OUT = ("steps", "sampler", "temperature", "top_p")  # fields of `Decoding` with a place of their own on the page
SCRIPTS = ("play.js", "pane.js", "link.js", "look.js", "molecule.js", "server.js", "sound.js")
LIMITS = Limits(body=8 << 20, waiting=64, lanes=8, steps=2_000)


def page_options(sampler: type[samplers.Sampler]) -> dict[str, Option]:
    """The options that the page lists for a sampler: those of the sampler,
    and the fields of `Decoding` that no sampler has."""
    options = {name: options_of(Decoding)[name] for name in WATCHED if name not in samplers.every_option()}
    return {name: option for name, option in (options | options_of(sampler)).items() if name not in LAID_OUT}


def sampler_fields(sampler: type[samplers.Sampler]) -> list[dict[str, Any]]:
    """The options of a sampler as the page reads them: {name, kind, note, default}."""
    return [
        {"name": option.name, "kind": option.word, "note": option.help, "default": option.default}
        for option in page_options(sampler).values()
    ]


class Draw(DecodingBody):
    """A request of the page for one sample: the beginning of the text (`_` for a masked token), a question
    (`chat`), or the tokens that stay."""

    model: int = Field(0, ge=0)
    seed: int = Field(0, ge=0, le=MOST_SEED)
    class_: str | None = Field(None, alias="class")
    text: str = ""
    chat: bool = False
    fixed: list[int] | None = None


class AskedBound(Body):
    """A request for -log p of sampled tokens given those that were `held`, from above or from both sides."""

    model: int = Field(0, ge=0)
    tokens: list[int]
    held: list[int]
    both: bool = False
    class_: str | None = Field(None, alias="class")


def refusal(status: int, code: str, message: str, field: str | None = None) -> dict[str, Any]:
    return {"error": message, "code": code, "field": field}


def admitted(method: Method) -> list[dict[str, Any]]:
    """The samplers that support a method: {name, label, about, error, counted, options}; `counted`:
    `steps` changes it."""
    return [
        {
            "name": name,
            "label": cls.label or name,
            "about": cls.sentence,
            "error": cls.claim,
            "counted": counted(cls, method),
            "options": sampler_fields(cls),
        }
        for name, cls in samplers.SAMPLERS.items()
        if cls.reason_against(method) is None
    ]


def counted(cls: type[samplers.Sampler], method: Method) -> bool:
    """Return whether a sampler takes as many steps as it is asked for; some take one for each position."""
    try:
        return len(cls().times(method, 1)) != len(cls().times(method, 2))
    except InputError:
        return True


def about_model(model: Model) -> dict[str, Any]:
    """{sentence, test, about, examples}: from the card of a model that comes with Zellige; of another what it was
    trained on.

    `about` is the sentence with the number on test data.
    """
    if name := shipped.name_of(model):
        card = shipped.card(name)
        what = f"{card['what'][0].upper()}{card['what'][1:]}"
        about = f"{what}; on test data {card['test']}."
        return {"sentence": f"{what}.", "test": card["test"], "about": about, "examples": EXAMPLES.get(name, ())}
    data = model.config.data.name
    sentence = f"Trained on {DATASETS[data].what if data in DATASETS else data}."
    return {"sentence": sentence, "test": "", "about": sentence, "examples": ()}


def about(number: int, name: str, model: Model) -> dict[str, Any]:
    """The entries of a model that the page reads."""
    kind, entries = of(model.tokenizer), identity(model)
    whole, block = admitted(model.method), admitted(of_length(model.method, 1))  # a text of one token is in one block
    labels = [page_text(kind.pieces([i])[0]) for i in range(model.tokenizer.size)] if kind.name == "grid" else []
    return {
        "number": number, "name": page_text(name), "what": f"{entries['method']}, {parameters(entries['parameters'])}",
        "kind": kind.name, **about_model(model),
        "template": chat.template_of(model.tokenizer).plain if kind.name == "text" else "",
        "running": kind.running, "layout": piece_layout(kind), "length": int(model.method.shape[0]), "samplers": whole,
        "inside": [sampler for sampler in block if not samplers.SAMPLERS[sampler["name"]].grows],
        "sampler": getattr(model.method, "sampler", "ancestral"), "advice": as_watched(model.defaults),
        "classes": class_names(model), "labels": labels, "symmetric": is_symmetric(model),
        "unit": unit(model.tokenizer), "tokens": model.tokenizer.unit, "size": model.tokenizer.size,
        "steps": usual_steps(model.method),
        "approximate": approximate(model), "draws_predictions": draws_predictions(model.method),
        "bounded": bool(model.method.bounded), "fingerprint": model.tokenizer.fingerprint,
        "formats": formats(kind),
    }  # fmt: skip


def draw_request(asked: Draw, model: Model) -> Sample:
    """The request for samples that the page makes."""
    kind, length = of(model.tokenizer), int(model.method.shape[0])
    if inserts(model):
        raise InputError(
            f"{model.method.name} inserts tokens, which the page does not show; use zellige sample --watch"
        )
    request = Sample.of(**asked.decoding(), seed=asked.seed, classes=asked.class_)
    if asked.fixed is not None:
        return dataclasses.replace(request, fixed=asked.fixed, alone=len(asked.fixed) < length)
    if not kind.running:
        return dataclasses.replace(request, fixed=kind.read(asked.text).tolist() if asked.text else None)
    if asked.chat and asked.text:
        return dataclasses.replace(request, prompt=asked.text, chat=True)
    if "_" in asked.text:
        given = masked_text(model, asked.text, length)
        if given.cut:
            raise InputError("the page fills a _ for each token; use zellige infill for a span of any length")
        return dataclasses.replace(request, fixed=given.fixed, alone=True)
    return dataclasses.replace(request, prompt=asked.text or None)


def draw_job(asked: Draw, model: Model, limits: Limits) -> Job:
    """One sample, alone in its group: its steps are seen one by one. InputError where something is wrong."""
    limits.check("text", len(asked.text), "characters in a text")
    limits.check("tokens", len(asked.fixed or ()), "tokens")
    if asked.class_ is not None:
        find_classes(model, asked.class_)
    request = draw_request(asked, model)
    trajectory = request.trajectory(model)
    drawn = trajectory.lengths[0] if trajectory.lengths else int(model.method.shape[0])
    size = drawn if request.fixed is None else len(request.fixed)
    limits.check_draw(trajectory.sampler, trajectory.method, trajectory.steps, size)
    note = approximate(model) if request.fixed is not None else None
    sampler = trajectory.sampler
    distribution = f"{sampler.name} ({sampler.claim}){f'; {note}' if note else ''}"
    recorder = Recorder(model)
    frames = dataclasses.replace(trajectory, sampler=recorded(sampler, recorder.predictions)).frames()

    def start(jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
        for step in recorder.steps(frames):
            yield step | {"size": size, "distribution": distribution} if "start" in step else step

    return Job(object(), start, lambda job, step: step)


def bound_job(asked: AskedBound, model: Model, limits: Limits) -> Job:
    """-log p of what was drawn given the rest, from above or from both sides: eight replicates, one after another."""
    if not model.method.bounded:
        raise InputError(f"{model.method.name} defines no likelihood bound; nothing is said of -log p")
    limits.check("tokens", len(asked.tokens), "tokens")
    size = model.tokenizer.size
    if len(asked.tokens) != len(asked.held) or not all(0 <= token < size for token in asked.tokens):
        raise InputError(f"`tokens` must be 0 to {size - 1:,}, with as many `held`; draw again")
    if not 0 < len(asked.tokens) <= model.method.shape[0] or all(asked.held):
        raise InputError("nothing was drawn, so there is nothing to bound; draw first")
    label = None if asked.class_ is None else int(find_classes(model, asked.class_)[0])
    limits.check_work(gaps_work(model.method, len(asked.tokens), asked.both and not model.method.exact, GAP_STEPS))

    method, given_positions = model.method, [bool(h) for h in asked.held]
    exact, both_sides = bool(method.exact), asked.both and not method.exact
    distribution = path_of(method, GAP_STEPS).distribution.text if both_sides else "the model's own distribution"

    def start(jobs: Sequence[Job]) -> Iterator[tuple[float, float | None, bool]]:
        if both_sides:
            yield from bracket_gaps(method, asked.tokens, given_positions, steps=GAP_STEPS, condition=label)
        else:
            yield from (
                (nats, None, True) for nats in bound_gaps(method, asked.tokens, given_positions, condition=label)
            )

    def see(job: Job, found: tuple[float, float | None, bool]) -> dict[str, Any]:
        above, below = (side if side is not None and math.isfinite(side) else None for side in found[:2])
        return {"nats": above, "below": below, "determined": found[2], "exact": exact, "distribution": distribution}

    return Job(object(), start, see)


def export_job(run: Recorded, model: Model, limits: Limits) -> Job:
    """A run as a file, in one step; what makes it pauses between its pictures."""
    limits.check("tokens", len(run.start), "tokens")

    def start(jobs: Sequence[Job]) -> Iterator[tuple[bytes, str]]:
        yield exported(run, model)

    return Job(object(), start, lambda job, file: file)


def front(words: Mapping[str, str]) -> str:
    """The page, with the meanings of words that it uses."""
    return _asset("play.html").replace(
        "$words", "".join(f"<dt>{escape(w)}</dt><dd>{escape(t)}</dd>" for w, t in words.items())
    )


def _asset(name: str) -> str:
    return (files(__package__ or "zellige.plugins.web") / "assets" / name).read_text(encoding="utf-8")


def application(
    models: dict[str, Any], limits: Limits = LIMITS, host: str = "127.0.0.1", words: Mapping[str, str] = {}
) -> FastAPI:
    """The ASGI application of the page for some models by name; `words`: what words on the page mean."""
    model_list = list(models.values())
    for model in model_list:
        model.method.eval()
        in_turns(model.method.network)
    models_about = [about(i, name, model) for i, (name, model) in enumerate(models.items())]

    @contextlib.asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        app.state.workers = [Worker(name, limits) for name in models]
        app.state.exports = Worker("export", dataclasses.replace(limits, lanes=1))
        try:
            yield
        finally:
            for worker in [*app.state.workers, app.state.exports]:
                worker.close()

    app = FastAPI(title="Zellige", docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)

    refusals = Refusals(
        refusal, limits.seconds, "an object, as the page does", "/, /api/models, /api/draw, /api/bound, /api/export"
    )
    refusals.add_to(app)
    texts = {
        "/": (front(words), "text/html"),
        **{f"/{name}": (_asset(name), "text/javascript") for name in SCRIPTS},
        "/player.js": (asset("player.js"), "text/javascript"),
        "/play.css": (asset("report.css") + _asset("play.css"), "text/css"),
    }
    for path, (content, kind) in texts.items():
        app.add_route(path, _static(content, kind), methods=["GET"])

    @app.get("/api/models")
    async def _() -> list[dict[str, Any]]:
        return models_about

    def of_number(number: int) -> Any:
        if number >= len(model_list):
            raise InputError(f"there is no model {number}; there are {len(model_list)}")
        return model_list[number]

    @app.post("/api/draw")
    async def _(asked: Draw, request: Request) -> Response:
        job = draw_job(asked, of_number(asked.model), limits)
        request.app.state.workers[asked.model].ask(job)
        return StreamingResponse(lines(job, request), media_type="application/x-ndjson")

    @app.post("/api/bound")
    async def _(asked: AskedBound, request: Request) -> Response:
        job = bound_job(asked, of_number(asked.model), limits)
        request.app.state.workers[asked.model].ask(job)
        return StreamingResponse(lines(job, request), media_type="application/x-ndjson")

    @app.post("/api/export")
    async def _(run: Recorded, request: Request) -> Response:
        job = export_job(run, of_number(run.model), limits)
        async for content, media in request.app.state.exports.ask(job).steps(request.is_disconnected):
            name = {"content-disposition": f"attachment; filename=zellige.{run.format}"}
            return Response(content, media_type=media, headers=name)
        return Response(status_code=499)

    async def lines(job: Job, request: Request) -> AsyncIterator[str]:
        try:
            async for step in job.steps(request.is_disconnected):
                yield json.dumps(step, ensure_ascii=False, allow_nan=False) + "\n"
        except WRONG as error:
            yield json.dumps(refusals.of(error)[1]) + "\n"

    app.add_middleware(Guard, limits=limits, host=host, token=None, refuse=refusal)
    return app


def _static(content: str, kind: str) -> Any:
    async def answer(request: Request) -> Response:
        return HTMLResponse(content) if kind == "text/html" else Response(content, media_type=kind)

    return answer
