"""Requests to `zellige serve`: wrong bodies, fields and addresses, answered by a status below 500 with one sentence."""

import json
import random
from functools import cache
from typing import Any

from . import world
from .configs import ODD

BASE = {"model": "tiny", "prompt": "the ", "max_tokens": 4, "steps": 2, "seed": 1}
FIELDS = (
    *BASE, "n", "suffix", "stream", "stop", "temperature", "top_p", "echo", "logprobs", "sampler", "best_of", "user", "messages",
    "presence_penalty", "missing", "\ud800",
)  # fmt: skip
PATHS = (
    "/v1/completions", "/v1/completions", "/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/tiny", "/health",
    "/metrics", "/", "/../etc/passwd", "/v1/%00", "/v1/models/" + "a" * 3000,
)  # fmt: skip


@cache
def client(here: world.World) -> Any:
    """A client of a server in this process, of a tiny model."""
    from fastapi.testclient import TestClient

    import zellige
    from zellige.web.guard import Limits
    from zellige.web.serve import application

    served = application(zellige.load(here.template / "runs" / "a"), "tiny", Limits(body=5_000, steps=50))
    found = TestClient(served, base_url="http://127.0.0.1", raise_server_exceptions=False)
    found.__enter__()
    return found


def trial(here: world.World, rng: random.Random) -> str:
    """One request. Raises Wrong."""
    fields: dict[Any, Any] = dict(BASE)
    for _ in range(rng.choice((1, 1, 2, 3))):
        fields[rng.choice(FIELDS)] = rng.choice(
            (*ODD, [{"role": "user", "content": "the"}], [{"role": 1}], "tiny", 10**6)
        )
    body = json.dumps(fields).encode()
    kind = rng.randrange(8)
    if kind == 0:
        body = body[: rng.randrange(len(body))]
    elif kind == 1:
        body = rng.choice((b"", b"[" * 4000, b"\xff\xfe", b"null", b"[]", b"{" + b"a" * 6000))
    path, method = rng.choice(PATHS), rng.choice(("POST", "POST", "POST", "GET", "PUT", "DELETE"))
    headers = {"content-type": rng.choice(("application/json", "application/json", "text/plain", "x"))}
    headers |= rng.choice(
        ({}, {}, {"host": "evil.example"}, {"content-length": "9" * 19}, {"origin": "http://evil.example"})
    )
    name = f"{method} {path[:60]} {headers} {body[:200]!r}"
    try:
        with here.trial():
            answer = client(here).request(method, path, content=body, headers=headers)
            if answer.status_code >= 500 and answer.status_code != 503:
                raise world.Wrong(f"{answer.status_code}: {world.short(answer.text)}")
            if "traceback" in answer.text.lower():
                raise world.Wrong(f"a traceback: {world.short(answer.text)}")
    except (world.Wrong, world.Hang) as problem:
        raise world.Wrong(f"{name}\n    {problem}") from None
    return name
