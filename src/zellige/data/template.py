"""Render chat templates: Jinja in its sandbox.

A template that comes with a folder of others is rendered by this file as a program, in a process of its own that
imports nothing of Zellige (`chat`): a template may loop for ever, or ask for a text of gigabytes in one call of C code,
where no other thread gets to stop it. The system ends such a process at its limits.
"""

import datetime
import json
import sys
from collections.abc import Mapping
from typing import Any

MOST = 1_000_000  # characters of a text


class TooLong(Exception):
    """A template writes more than `MOST` characters."""


def compiled(source: str) -> Any:
    """A template, compiled; with the functions that transformers gives to chat templates. Raises what Jinja raises."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}...{% endgeneration %}` marks the answers for transformers; here it is its body."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    def refuse(message: object) -> None:
        raise TemplateError(str(message))

    def as_json(value: object, ensure_ascii: bool = False, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **how)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(source)


def render(template: Any, words: Mapping[str, Any]) -> str:
    """The text of a compiled template. Raises what the template raises, or TooLong."""
    parts, length = [], 0
    for part in template.generate(tools=None, documents=None, **words):
        parts.append(part)
        length += len(part)
        if length > MOST:
            raise TooLong
    return "".join(parts)


def _limit(seconds: float, memory: int) -> None:
    """Have the system end this process after so many seconds of computing, and refuse it more memory (on Linux)."""
    try:
        import resource
        import signal
    except ImportError:  # Windows: the other process waits for so long, and ends this one
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def main() -> None:
    """Render what stands on stdin: {template, seconds, memory}, then the variables of each rendering, a line each.

    To stdout {"text"}, {"problem"} or {"limit"} of each.
    """
    import jinja2.ext
    import jinja2.sandbox  # noqa: F401  before the limits, which are of the template alone

    how = json.loads(sys.stdin.readline())
    template = None
    for line in sys.stdin:
        _limit(how["seconds"], how["memory"])
        try:
            template = template or compiled(how["template"])
            answer = {"text": render(template, json.loads(line))}
        except TooLong:
            answer = {"limit": "length"}
        except MemoryError:
            answer = {"limit": "memory"}
        except Exception as problem:  # whatever the template raises, or Jinja of it
            answer = {"problem": " ".join(str(problem).split())[:120].rstrip(".") or type(problem).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
