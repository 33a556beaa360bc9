"""Conversations as texts: templates as transformers renders them, the plain one, and templates that loop, grow and never end."""

import json
import re
import resource
from importlib.resources import files

import pytest

from zellige.base.errors import InputError
from zellige.data import chat
from zellige.data.chat import PLAIN, SMALL, Template
from zellige.data.tokenizer import TEXT8, Bytes, Characters, load

TOLD = [
    {"role": "system", "content": "Be <b>brief</b>."},
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "  A fox.\n\nÄh."},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "Ask {{ me }}."},
]
TOKENS = {
    "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False, "normalized": False, "special": True},
    "eos_token": "</s>",
    "pad_token": {"content": "<pad>"},
    "unk_token": None,
}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}\n  {%- if m['role'] == 'user' %}[INST] {{ m['content'] | trim }} [/INST]"
    "{% elif m['role'] == 'assistant' %} {{ m['content'] }} {{ eos_token }}"
    "{% else %}{{ '<<' + m['content'] + '>>' }}{% endif %}{% endfor %}"
)
OTHERS = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}"
    "   {% set ns.n = ns.n + 1 %}\n{{ ns.n }} {{ m | tojson }} {{ m.content.split('.')[0] }}{{ pad_token }}{{ unk_token }}\n"
    "{% endfor %}"
    "{% if tools %}{{ tools }}{% endif %}{% for d in documents or [] %}{{ d }}{% endfor %}"
    "{% macro f(x) %}({{ x }}){% endmacro %}{{ f(eos_token) }}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
    "{% else %}{{ m.role }}: {{ m.content }}{% endif %}{% endfor %}",
)


def template(folder, source: str) -> Template:
    """A template as it lies in a tokenizer's folder, beside its special tokens."""
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS | {"chat_template": source}))
    tokenizer = Bytes()
    tokenizer.chat = chat.chat_of(folder, chat.tokenizer_config(folder))  # pyright: ignore[reportAttributeAccessIssue]
    return chat.template_of(tokenizer)


@pytest.mark.parametrize("source", [CHATML, LLAMA, *OTHERS])
def test_a_template_is_rendered_as_transformers_renders_it(tmp_path, source):
    """Tokens that are objects are their content, and each name is its own token; what is none is absent."""
    theirs = pytest.importorskip("transformers.utils.chat_template_utils").render_jinja_template
    form = template(tmp_path, source)
    assert dict(form.tokens) == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    renderings = [{"messages": TOLD[:n], "add_generation_prompt": asks} for n in (2, 5) for asks in (False, True)]
    got = chat.render(form, renderings, ["x"] * 4)
    want = [
        theirs(
            [of["messages"]],
            chat_template=form.source,
            add_generation_prompt=of["add_generation_prompt"],
            **dict(form.tokens),
        )
        for of in renderings
    ]
    assert got == [texts[0] for texts, _ in want]


def test_a_template_of_its_own_file_comes_first(tmp_path):
    """chat_template.jinja, then the entry; of several by name the default."""
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    assert template(tmp_path, named).source == "D"  # pyright: ignore[reportArgumentType]
    (tmp_path / "chat_template.jinja").write_text("F")
    assert template(tmp_path, "E").source == "F"
    assert chat.chat_of(tmp_path / "none", {}) == {}


def test_a_tokenizer_without_one_has_a_plain_one_that_its_alphabet_can_write():
    assert chat.template_of(Bytes()) is chat.template_of(Characters("SystemUserAiant: \n")) is PLAIN
    assert chat.template_of(Characters(TEXT8)) is SMALL
    pair = chat.pairs(Bytes(), [("x", TOLD[1:])])
    assert pair == [("User: Who are you?\nAssistant:   A fox.\n\nÄh.\nUser: Why?\nAssistant:", " Ask {{ me }}.\n")]
    told = [{"role": "user", "content": "who"}, {"role": "assistant", "content": "a fox"}]
    assert chat.pairs(Characters(TEXT8), [("x", told)]) == [("user who assistant", " a fox ")]
    assert chat.written(TOLD[1:3]) == "User: Who are you?\nAssistant:   A fox.\n\nÄh.\n"
    assert "plain one writes conversations: 'User: ...'" in chat.note(Bytes())


def test_an_answer_ends_as_its_template_ends_it(tmp_path):
    """And with the token that ends a text, of a tokenizer that has one."""
    tokens = load(files("zellige.models") / "shipped" / "stories-mdlm")  # pyright: ignore[reportArgumentType]
    tokenizer = Bytes()
    assert chat.ends_of(Bytes()) == ("\nUser:",)
    assert chat.ends_of(Characters(TEXT8)) == (" user",)
    assert chat.ends_of(tokens) == ("\nUser:", "<|endoftext|>")
    for source, ends in (
        (CHATML, ("<|im_end|>", "<|im_end|>\n<|im_start|>user")),
        (LLAMA, ("</s>", " </s>[INST]")),
        ("{{ raise_exception('no') }}", ()),
    ):
        template(tmp_path, source)
        tokenizer.chat = chat.chat_of(tmp_path, chat.tokenizer_config(tmp_path))  # pyright: ignore[reportAttributeAccessIssue]
        assert chat.ends_of(tokenizer) == ends


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ messages.__class__.__mro__ }}", r"refuses the messages \(access to attribute '__class__'"),
        ("{{ raise_exception('roles must alternate') }}", r"refuses the messages \(roles must alternate\)$"),
        ("{% for %}", r"refuses the messages \("),
        ("{{ messages | length }}", "writes the prompt otherwise once an answer follows; give 'prompt' and 'answer'"),
        ("{{ messages.append(1) }}", r"refuses the messages \("),
        ("{% include '/etc/passwd' %}", r"refuses the messages \(no loader"),
        ("{{ cycler.__init__.__globals__.os.environ }}", r"refuses the messages \("),
    ],
)
def test_what_a_template_refuses_is_one_line(tmp_path, source, why):
    tokenizer = Bytes()
    tokenizer.chat = {"chat_template": source}  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InputError, match=f"^line 7: the chat template {why}"):
        chat.pairs(tokenizer, [("line 7", TOLD[1:3])])


# ---------------------------------------------------------------------------------------------------- templates that never end
DOUBLED = (
    "{%% set ns = namespace(x=%s) %%}{%% for i in range(60) %%}{%% set ns.x = ns.x %s ns.x %%}{%% endfor %%}{{ ns.x }}"
)
TWICE = "{% for i in range(99999) %}{% for j in range(99999) %}"
LONG = "{% set a = 'a' * 99999 %}"
BAD = {
    "ranges of ranges": TWICE + "{% endfor %}{% endfor %}",
    "indent": "{{ ('a\n' * 99999) | indent(99999) }}",
    "wordwrap": "{{ ('a ' * 9999999) | wordwrap(1) }}",
    "lipsum": "{{ lipsum(n=99999, min=9000, max=9999) }}",
    "strftime": "{{ strftime_now('%c' * 99999999) }}",
    "slices": "{{ [1] | slice(999999999, 'x') | list }}",
    "batches": "{{ [1] | batch(999999999, 'x') | list }}",
    "a text times a number": "{{ 'a' * 9999999999 }}",
    "a list times a number": "{{ [1] * 9999999999 }}",
    "powers": DOUBLED % ("3", "*"),
    "a text that doubles": DOUBLED % ("'ab'", "~"),
    "a list that doubles": DOUBLED % ("[1]", "+"),
    "the filter format": "{{ '%9999999999d' | format(1) }}",
    "the method format": "{{ '{:>9999999999}'.format(1) }}",
    "center": "{{ 'a' | center(9999999999) }}",
    "ljust": "{{ 'a'.ljust(9999999999) }}",
    "the method replace": LONG + "{{ a.replace('a', a) }}",
    "the filter replace": LONG + "{{ a | replace('a', a) }}",
    "join": LONG + "{{ range(99999) | join(a) }}",
    "expandtabs": "{{ ('\t' * 99999).expandtabs(99999) }}",
    "translate": LONG + "{{ a.translate({97: a}) }}",
    "encode": "{{ ('a' * 199999999).encode('utf-32') | length }}",
    "tojson": "{{ [1] | tojson(indent=1999999999) }}",
    "xmlattr": "{{ {'a': 'b' * 999999999} | xmlattr }}",
    "urlize": "{{ ('http://a.b ' * 999999) | urlize }}",
    "sums": "{{ ([[1]] * 99999) | sum(start=[]) | length }}",
    "sort": "{% for i in range(99999) %}{% if range(99999) | sort(reverse=true) %}{% endif %}{% endfor %}",
    "groupby": "{% for i in range(99999) %}{% if range(99999) | groupby('real') | list %}{% endif %}{% endfor %}",
    "split": "{% for i in range(99999) %}{% if ('a ' * 99999).split() %}{% endif %}{% endfor %}",
    "cyclers": "{% set c = cycler('a') %}" + TWICE + "{{ c.next() }}{% endfor %}{% endfor %}",
    "a macro that calls itself": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "macros in a tree": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "a loop in itself": "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "brackets": "{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}",
    "blocks": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "folded while it is compiled": "{% if 'a' * 9999999999 %}{% endif %}",
    "a long text": "{% for i in range(99) %}{{ 'a' * 99999 }}{% endfor %}",
}  # fmt: skip
ENDED = (  # at a limit, or where Jinja itself stops it
    r"^x: the chat template (computes for more than 0\.1 seconds|needs more than 160 MB|writes more than 1,000,000 characters); "
    r"give a tokenizer with another$|^x: the chat template refuses the messages \(maximum recursion depth exceeded"
)


def test_a_template_that_never_ends_is_ended(monkeypatch):
    """Each in one line, in bounded time and memory, whatever it does in one call of C code."""
    monkeypatch.setattr(chat, "SECONDS", 0.1)
    monkeypatch.setattr(chat, "MEMORY", 160 << 20)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for name, source in BAD.items():
        with pytest.raises(InputError) as problem:
            chat.render(Template(source), [{"messages": TOLD}], ["x"])
        assert re.search(ENDED, str(problem.value)), (name, str(problem.value))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime - before.ru_utime) / len(BAD) < 1.5  # seconds of computing, with the start of Python
    assert after.ru_maxrss <= max(before.ru_maxrss, 160 << 10)  # kilobytes


def test_a_limit_is_of_each_text_and_names_it(monkeypatch):
    """Many texts take longer than one may; the first that passes the limit is named, and what came before it was rendered."""
    monkeypatch.setattr(chat, "SECONDS", 0.3)
    source = "{% for i in range(messages[0].content | int) %}{% for j in range(9999) %}{% endfor %}{% endfor %}x"
    renderings = [{"messages": [{"role": "user", "content": n}]} for n in ["40"] * 16 + ["99999", "1"]]
    assert chat.render(Template(source), renderings[:16], [""] * 16) == ["x"] * 16
    with pytest.raises(InputError, match=r"^line 17: .* more than 0.3 seconds"):
        chat.render(Template(source), renderings, [f"line {i}" for i in range(1, 19)])
