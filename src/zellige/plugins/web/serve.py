"""The endpoint of `zellige serve`: /v1/models, /v1/completions and /v1/chat/completions in the form of OpenAI's, on
FastAPI.

Each answer to something wrong is OpenAI's: {"error": {"message", "type", "param", "code"}}, the message in one
sentence.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from zellige.base.errors import InputError
from zellige.models.model import Model, identity
from zellige.show.kinds import of

from .completions import Asked, Chat, Completion, Plan, Step, answer, opening, parts, plan, usage
from .guard import Guard, Limits
from .meter import Meter, Metered
from .refusals import WRONG, Refusals
from .worker import Worker, in_turns

URLS = "/v1/models, /v1/completions, /v1/chat/completions, /health and /metrics"
TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    504: "timeout",
}


def refusal(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    kind = TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def application(
    model: Model,
    name: str,
    limits: Limits | None = None,
    host: str = "127.0.0.1",
    token: str | None = None,
    log: Callable[[str], None] | None = None,
):
    """The ASGI application that serves one model of text under `name`; `log` gets a line for each request.

    Raises InputError: the model makes no text.
    """
    kind = of(model.tokenizer)
    if not kind.running:
        raise InputError(f"serve completes texts, and this model makes {kind.many}; zellige play shows it")
    limits = limits or Limits()
    model.method.eval()
    in_turns(model.method.network)

    @contextlib.asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        app.state.worker = Worker(name, limits)
        try:
            yield
        finally:
            app.state.worker.close()

    app = FastAPI(title="Zellige", docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    created, meter = int(time.time()), Meter(log)

    refusals = Refusals(refusal, limits.seconds, "an object with `prompt` or `messages`", URLS)
    refusals.add_to(app)
    about = {"id": name, "object": "model", "created": created, "owned_by": "zellige", "zellige": identity(model)}

    @app.get("/health")
    async def _() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def _(request: Request) -> Response:
        worker = request.app.state.worker
        return Response(meter.text(len(worker.jobs), worker.running), media_type="text/plain; version=0.0.4")

    @app.get("/v1/models")
    async def _() -> dict[str, Any]:
        return {"object": "list", "data": [about]}

    @app.get("/v1/models/{asked:path}")
    async def _(asked: str) -> Response:
        return JSONResponse(about) if asked == name else JSONResponse(*_no_model(asked, name))

    @app.post("/v1/completions")
    async def _(asked: Completion, request: Request) -> Response:
        return await answered(asked, request)

    @app.post("/v1/chat/completions")
    async def _(asked: Chat, request: Request) -> Response:
        return await answered(asked, request)

    async def answered(asked: Asked, request: Request) -> Response:
        if asked.model and asked.model != name:
            return JSONResponse(*_no_model(asked.model, name))
        completion = await asyncio.to_thread(plan, asked, model, limits)  # a chat template may take a while
        steps = meter.counted(request.app.state.worker.ask(completion.job()).steps(request.is_disconnected))
        if asked.stream:
            return StreamingResponse(stream(asked, completion, steps), media_type="text/event-stream")
        last: Step | None = None
        async for step in steps:
            last = step
        return Response(status_code=499) if last is None else JSONResponse(answer(asked, name, completion, last))

    async def stream(asked: Asked, completion: Plan, steps: AsyncIterator[Step]) -> AsyncIterator[str]:
        head, last = opening(asked, name), None
        try:
            async for step in steps:
                last = step
                for part in parts(asked, head, completion, step):
                    yield f"data: {json.dumps(part, ensure_ascii=False)}\n\n"
            if last is not None and (asked.stream_options or {}).get("include_usage"):
                yield f"data: {json.dumps(head | {'choices': [], 'usage': usage(completion, last)})}\n\n"
        except WRONG as error:
            yield f"data: {json.dumps(refusals.of(error)[1])}\n\n"
        yield "data: [DONE]\n\n"

    app.add_middleware(Guard, limits=limits, host=host, token=token, refuse=refusal)
    app.add_middleware(Metered, meter=meter)
    return app


def _no_model(asked: str, name: str) -> tuple[dict[str, Any], int]:
    return refusal(404, "model_not_found", f"no model '{asked:.100}' here; there is '{name}'", "model"), 404
