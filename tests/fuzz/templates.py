"""Chat templates of others that loop, grow or reach for what they must not: a text, or refused in one line, within the limits."""

import random
import resource

from . import world
from .calls import call

VALUES = (
    "range(10**9)", "range(99999)", "'a' * 10**9", "'a' * 9999", "10**10**6", "messages", "messages[0].content", "self",
    "cycler", "namespace(a=1)", "lipsum(n=100000)", "raise_exception('no')", "strftime_now('%Y' * 10**6)", "{}", "[]", "''",
    "().__class__.__base__.__subclasses__()", "messages.__init__.__globals__", "bos_token", "none", "-1", "1.5", "joiner(', ')",
)  # fmt: skip
FILTERS = (
    "", "", "|indent(10**8)", "|wordwrap(1)", "|list", "|join('x' * 9999)", "|tojson", "|center(10**9)", "|batch(10**8)|list",
    "|string", "|length", "|upper", "|replace('a', 'b' * 9999)", "|sort", "|first", "|last", "|random", "|format(1)", "|e",
    "|attr('__class__')", "|xmlattr", "|map('upper')|list", "|select|list", "|sum", "|slice(10**7)|list", "|trim", "[::-1]",
)  # fmt: skip
FORMS = (
    "{{ V }}", "{% for a in V %}{{ a }}{% endfor %}", "{% for a in V %}{% for b in V %}x{% endfor %}{% endfor %}",
    "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}{{ V }}", "{% set x = V %}{{ x }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% if V %}{{ V }}{% endif %}", "{{ V ~ V }}", "{% include V %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}", "{{ V", "{% V %}",
)  # fmt: skip

STARTING = 2.0  # seconds of computing before a template begins


def trial(here: world.World, rng: random.Random) -> str:
    """One template, rendered for a conversation. Raises Wrong."""
    from zellige.data import chat

    source = rng.choice(FORMS)
    while "V" in source:
        source = source.replace("V", rng.choice(VALUES) + rng.choice(FILTERS), 1)
    messages = [{"role": "user", "content": "the value"}]
    form = chat.Template(source, (("bos_token", "<s>"),))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    try:
        with here.trial():
            call(chat.render, [form, [{"messages": messages, "add_generation_prompt": True}], ["line 1"]], {})
            seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            if seconds > chat.SECONDS + STARTING:
                raise world.Wrong(f"computed for {seconds:.1f} s")
    except (world.Wrong, world.Hang) as problem:
        raise world.Wrong(f"{source}\n    {problem}") from None
    return source
