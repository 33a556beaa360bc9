"""Requests to `zellige serve`: wrong bodies, fields and addresses, answered by a status below 500 with one sentence."""

import json
import random
from functools import cache
from typing import Any

from . import world
from .configs import ODD

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BASE = {"model": "tiny", "max_tokens": 4, "steps": 2, "seed": 1}
MESSAGES = (
    [{"role": "user", "content": "the"}], [{"role": "user", "content": "the"}, {"role": "assistant", "content": "value"}],
    [{"role": 1}], [{"role": "user"}], [{"role": "user", "content": [{"type": "text", "text": "the"}]}], [{}], [[]],
)  # fmt: skip
OPTIONS = ({"steps": 3}, {"sampler": "remasking"}, {"eta": "x"}, {"missing": 1}, {"top_k": [[1]]}, {"temperature": {}})
NESTED: Any = 1
for _ in range(300):
    NESTED = [NESTED]
TEXTS = ("tiny", "the value", "remasking", "left-to-right", "é", "🦜", ["the", "value"], ["the", ""], ["e"] * 40)
VALUES = (
    *ODD,
    *MESSAGES,
    *OPTIONS,
    *TEXTS,
    10**6,
    2**31,
    2**63,
    NESTED,
    {"include_usage": True},
    {"type": "json_object"},
)
BODIES = (b"", b"[" * 4000, b"\xff\xfe", b"null", b"[]", b"{}", b"{" + b"a" * 6000, b'{"prompt": "the ", "prompt": 1}')
HEADERS = (
    {"host": "evil.example"}, {"content-length": "9" * 19}, {"content-length": "-1"}, {"origin": "http://evil.example"},
    {"content-type": "text/plain"}, {"content-type": "x"}, {"content-type": "application/json; charset=utf-16"},
    {"content-type": "application/json" * 300}, {"authorization": "Bearer x"}, {"accept": "text/event-stream"},
)  # fmt: skip
PATHS = (
    COMPLETIONS, CHAT, "/v1/models", "/v1/models/tiny", "/health", "/metrics", "/", "/../etc/passwd", "/v1/%00",
    "/v1/models/" + "a" * 3000, "/v1/models/%ff", "//", "/v1/completions/", "/v1/completions?n=2",
)  # fmt: skip


@cache
def client(here: world.World) -> Any:
    """A client of a server in this process, of a tiny model."""
    from fastapi.testclient import TestClient

    import zellige
    from zellige.plugins.web.guard import Limits
    from zellige.plugins.web.serve import application

    served = application(zellige.load(here.template / "runs" / "a"), "tiny", Limits(body=5_000, steps=50))
    found = TestClient(served, base_url="http://127.0.0.1", raise_server_exceptions=False)
    found.__enter__()
    return found


@cache
def fields() -> dict[str, list[str]]:
    """The fields of the body at each address, and one that there is not."""
    from zellige.plugins.web.completions import Chat, Completion

    bodies = {COMPLETIONS: Completion, CHAT: Chat}
    return {
        path: [*(field.alias or name for name, field in body.model_fields.items()), "missing", "\ud800"]
        for path, body in bodies.items()
    }


def trial(here: world.World, rng: random.Random) -> str:
    """One request. Raises Wrong."""
    path = rng.choice((COMPLETIONS, CHAT))
    asked: dict[str, Any] = BASE | ({"prompt": "the "} if path == COMPLETIONS else {"messages": MESSAGES[0]})
    for _ in range(rng.choice((1, 1, 2, 3))):
        asked[rng.choice(fields()[path])] = rng.choice(VALUES)
    method, body, headers = "POST", json.dumps(asked).encode(), {"content-type": "application/json"}
    kind = rng.randrange(12)
    if kind == 0:
        body = body[: rng.randrange(len(body))]
    elif kind == 1:
        body = rng.choice(BODIES)
    elif kind == 2:
        headers |= rng.choice(HEADERS)
    elif kind == 3:
        path, method = rng.choice(PATHS), rng.choice(("POST", "GET", "PUT", "DELETE", "HEAD", "OPTIONS"))
    name = f"{method} {path[:60]} {str(headers)[:200]} {body[:300]!r}"
    try:
        with here.trial():
            judge(client(here).request(method, path, content=body, headers=headers))
    except (world.Wrong, world.Hang) as problem:
        raise world.Wrong(f"{name}\n    {problem}") from None
    return name


def judge(answer: Any) -> None:
    """An answer below 500, and whatever was wrong in one line that says what would be right."""
    said = f"{answer.status_code}: {world.short(answer.text)}"
    if answer.status_code >= 500 or "traceback" in answer.text.lower() or "server_error" in answer.text:
        raise world.Wrong(said)
    if answer.status_code >= 400 and answer.request.method != "HEAD":
        message = answer.json()["error"]["message"]
        if "\n" in message or len(message) > 900:  # every option by name
            raise world.Wrong(f"not one line: {said}")
        if not any(sign in message for sign in ("; ", "(", " should ")):
            raise world.Wrong(f"does not say what would be right: {said}")
