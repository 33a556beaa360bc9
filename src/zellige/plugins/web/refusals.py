"""Errors of a request, as one sentence in JSON: what is wrong; what would be right."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from zellige.base.errors import InputError

from .worker import Busy, Failed, OutOfTime

CODES = {Busy: (429, "busy"), OutOfTime: (504, "timeout"), Failed: (500, "failed"), InputError: (400, "invalid_value")}
WRONG = (InputError, OutOfTime, Failed)  # what ends the steps of a job


class Refusals:
    """The answers of an application to what is wrong.

    Args:
        form: (status, code, message, field) -> the JSON of a refusal.
        seconds: that a request may take.
        body: what a body should be; urls: what can be asked for.
    """

    def __init__(self, form: Callable[[int, str, str, str | None], Any], seconds: float, body: str, urls: str):
        self.form, self.seconds, self.body, self.urls = form, seconds, body, urls

    def of(self, error: Exception) -> tuple[int, Any]:
        """Status and JSON of an error that a job, or the check of a request, has raised."""
        status, code = next(pair for kind, pair in CODES.items() if isinstance(error, kind))
        message = {
            "busy": "too many requests wait; try again in a moment",
            "timeout": f"not done within {self.seconds:g} seconds; ask for fewer steps or texts",
            "failed": f"the model failed ({error}); the terminal of the server says why",
        }.get(code, str(error))
        return status, self.form(status, code, message, None)

    def add_to(self, app: FastAPI) -> None:
        """Answer in this form whatever a route raises."""
        app.add_exception_handler(RequestValidationError, self._invalid)
        app.add_exception_handler(HTTPException, self._nowhere)
        app.add_exception_handler(Exception, self._unforeseen)
        for kind in CODES:
            app.add_exception_handler(kind, self._raised)

    async def _raised(self, request: Request, error: Exception) -> JSONResponse:
        status, content = self.of(error)
        return JSONResponse(content, status, {"retry-after": "1"} if status == 429 else None)

    async def _invalid(self, request: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        kind, place = first["type"], first["loc"][1:]
        within = [part for part in place[1:] if isinstance(part, int)]  # the other parts are kinds: `str`, `list[str]`
        field = "" if kind == "json_invalid" else ".".join(map(str, [*place[:1], *within]))
        says = first["msg"].replace("Input should", "it should").replace("String should", "it should")
        message = {
            "extra_forbidden": "no such field; leave it out",
            "missing": "missing; it should be given",
            "json_invalid": "the body is no JSON",
        }.get(kind, says)
        whole = f"`{field}`: {message}" if field else f"{message}; send {self.body}"
        return JSONResponse(self.form(400, kind, whole, field or None), 400)

    async def _nowhere(self, request: Request, error: Any) -> JSONResponse:
        if error.status_code in (404, 405):
            message = f"{request.method} {request.url.path:.100}: {error.detail}; there are {self.urls}"
            return JSONResponse(self.form(error.status_code, "no_such_url", message, None), error.status_code)
        message = f"{error.detail}; send {self.body}"
        return JSONResponse(self.form(error.status_code, "invalid_value", message, None), error.status_code)

    async def _unforeseen(self, request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(self.of(Failed(type(error).__name__))[1], 500)
