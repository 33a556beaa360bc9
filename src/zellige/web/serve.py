"""The endpoint of `zellige serve`: /v1/models and /v1/completions in the form of OpenAI's, on FastAPI.

Each answer to something wrong is OpenAI's: {"error": {"message", "type", "param", "code"}}, the message in one sentence.
"""

import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from ..errors import InputError
from ..models.identity import identity
from ..show.kinds import of
from .completions import Completion, answer, opening, parts, plan, usage
from .guard import Guard
from .limits import Limits
from .worker import Busy, Failed, OutOfTime, Worker

TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    504: "timeout",
}
CODES = {Busy: (429, "busy"), OutOfTime: (504, "timeout"), Failed: (500, "failed"), InputError: (400, "invalid_value")}


def refusal(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    kind = TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def application(model: Any, name: str, limits: Limits | None = None, host: str = "127.0.0.1", token: str | None = None):
    """The ASGI application that serves one model of text under `name`.

    Raises InputError: the model makes no text.
    """
    kind = of(model.tokenizer)
    if not kind.running:
        raise InputError(f"serve completes texts, and this model makes {kind.many}; zellige play shows it")
    limits = limits or Limits()
    model.method.eval()

    @contextlib.asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        app.state.worker = Worker(name, limits)
        try:
            yield
        finally:
            app.state.worker.close()

    app = FastAPI(title="Zellige", docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    started = int(time.time())

    def wrong(error: Exception) -> tuple[int, dict[str, Any]]:
        status, code = next(pair for kind, pair in CODES.items() if isinstance(error, kind))
        message = {
            "busy": "too many requests wait; try again in a moment",
            "timeout": f"not done within {limits.seconds:g} seconds; ask for fewer steps or texts",
            "failed": f"the model failed ({error}); the server's log says why",
        }.get(code, str(error))
        return status, refusal(status, code, message)

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) if first["type"] != "json_invalid" else ""
        message = {"extra_forbidden": "no such field", "json_invalid": "the body is no JSON"}.get(
            first["type"], first["msg"]
        )
        message = f"`{field}`: {message}" if field else f"{message}; send an object with `prompt`"
        return JSONResponse(refusal(400, first["type"], message, field or None), 400)

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> JSONResponse:
        what = f"{request.method} {request.url.path}: {error.detail}; there are /v1/models and /v1/completions"
        return JSONResponse(refusal(error.status_code, "no_such_url", what), error.status_code)

    about = {"id": name, "object": "model", "created": started, "owned_by": "zellige", "zellige": identity(model)}

    @app.get("/v1/models")
    async def _() -> dict[str, Any]:
        return {"object": "list", "data": [about]}

    @app.get("/v1/models/{asked:path}")
    async def _(asked: str) -> Response:
        return JSONResponse(about) if asked == name else JSONResponse(*_no_model(asked, name))

    @app.post("/v1/completions")
    async def _(asked: Completion, request: Request) -> Response:
        if asked.model and asked.model != name:
            return JSONResponse(*_no_model(asked.model, name))
        try:
            own = plan(asked, model, limits)
            job = request.app.state.worker.ask(own.job())
        except (InputError, Busy) as error:
            status, content = wrong(error)
            return JSONResponse(content, status, {"retry-after": "1"} if status == 429 else None)
        steps = job.steps(request.is_disconnected)
        if asked.stream:
            return StreamingResponse(stream(asked, own, steps), media_type="text/event-stream")
        last: dict[str, Any] | None = None
        try:
            async for step in steps:
                last = step
        except (InputError, OutOfTime, Failed) as error:
            status, content = wrong(error)
            return JSONResponse(content, status)
        return Response(status_code=499) if last is None else JSONResponse(answer(asked, name, own, last))

    async def stream(asked: Completion, own: Any, steps: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
        head, last = opening(name), None
        try:
            async for step in steps:
                last = step
                for part in parts(asked, head, own, step):
                    yield f"data: {json.dumps(part, ensure_ascii=False)}\n\n"
            if last is not None and (asked.stream_options or {}).get("include_usage"):
                yield f"data: {json.dumps(head | {'choices': [], 'usage': usage(own, last)})}\n\n"
        except (InputError, OutOfTime, Failed) as error:
            yield f"data: {json.dumps(wrong(error)[1])}\n\n"
        yield "data: [DONE]\n\n"

    app.add_middleware(Guard, limits=limits, host=host, token=token, refuse=refusal)
    return app


def _no_model(asked: str, name: str) -> tuple[dict[str, Any], int]:
    return refusal(404, "model_not_found", f"no model '{asked}' here; there is '{name}'", "model"), 404
