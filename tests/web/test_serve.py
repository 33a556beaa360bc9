"""`zellige serve`: the endpoint, asked as OpenAI's clients ask it."""

import asyncio
import itertools
import json
import socket
import threading
import time

import pytest

import zellige
from zellige import cli
from zellige.base.errors import InputError

from .small_models import LENGTH, at_once, small

TestClient = pytest.importorskip("fastapi.testclient", reason="the extra `web` is missing").TestClient
Limits = pytest.importorskip("zellige.plugins.web.guard").Limits
listening_at = pytest.importorskip("zellige.plugins.web.guard")
worker = pytest.importorskip("zellige.plugins.web.worker")
application = pytest.importorskip("zellige.plugins.web.serve").application
completions = pytest.importorskip("zellige.plugins.web.completions")
Meter = pytest.importorskip("zellige.plugins.web.meter").Meter

HERE = "http://127.0.0.1"
JSON = {"content-type": "application/json"}
ASK = {"prompt": "the ", "max_tokens": 8, "seed": 3, "steps": 6}


@pytest.fixture(scope="module")
def model():
    return small()


@pytest.fixture(scope="module")
def client(model):
    with TestClient(application(model, "tiny", Limits(body=5_000, steps=50)), base_url=HERE) as client:
        yield client


def ask(client, **fields):
    return client.post("/v1/completions", json=ASK | fields)


def texts(response) -> list[str]:
    return [choice["text"] for choice in response.json()["choices"]]


def test_a_blank_at_the_end_of_a_prompt_of_subwords_stands_once():
    """The client puts prompt and answer together; the blank is left to the first token and taken off the answer."""
    ask = {"max_tokens": 6, "seed": 1, "steps": 3}
    with TestClient(application(zellige.load("stories-mdlm"), "stories", Limits()), base_url=HERE) as client:
        with_blank, without, whole = (
            texts(client.post("/v1/completions", json=ask | {"prompt": prompt} | more))[0]
            for prompt, more in (("The king ", {}), ("The king", {}), ("The king ", {"echo": True}))
        )
    assert with_blank == without.removeprefix(" ")
    assert whole == f"The king {with_blank}"
    assert not with_blank.startswith(" ")


def test_a_completion_is_what_sample_draws(client, model):
    """Text, seed and steps as in Python: the endpoint adds nothing of its own."""
    drawn = zellige.sample(model, count=2, prompt="the ", length=12, seed=3, steps=6)
    answer = ask(client, n=2)
    assert texts(answer) == [text.removeprefix("the ") for text in drawn]
    body = answer.json()
    assert body["usage"] == {"prompt_tokens": 4, "completion_tokens": 16, "total_tokens": 20}
    assert [choice["finish_reason"] for choice in body["choices"]] == ["length"] * 2
    assert texts(ask(client, echo=True)) == drawn[:1]
    drawn = zellige.sample(model, count=4, prompt=["the ", "a fo"], length=12, seed=3, steps=6)
    answer = ask(client, prompt=["the ", "a fo"], n=2, echo=True)
    assert texts(answer) == drawn
    assert answer.json()["usage"]["prompt_tokens"] == 2 * 4


def test_a_suffix_is_kept_and_the_gap_filled_as_infill_does(client, model):
    (filled,) = zellige.infill(model, "the ________ is", seed=3, steps=6)
    assert texts(ask(client, suffix=" is")) == [filled.removeprefix("the ").removesuffix(" is")]


def test_an_answer_does_not_depend_on_who_else_asks(model):
    """Requests that agree but for text and seed are drawn in one batch; each gets what it gets alone."""
    application_ = application(model, "tiny", Limits(batch=16))
    with TestClient(application_, base_url=HERE) as client:
        asks = [{"prompt": "abcdefgh"[:n] + "x" * (8 - n), "seed": n} for n in range(8)]
        answer = lambda fields: texts(ask(client, **fields))  # noqa: E731
        alone = [answer(fields) for fields in asks]
        assert at_once(answer, asks) == alone


def test_a_cache_is_an_option_of_a_request(client, model):
    """Block after block with a cache: the text of `infill`, whoever else asks; what a cache cannot do is said."""
    how = {"block_length": 8, "block_sampler": "any_order", "cache": "dual", "refresh": 3}
    (filled,) = zellige.infill(model, "the ________ is", seed=3, sampler="semi_autoregressive", **how)
    asks = [{"seed": seed} for seed in (3, 4, 5)]

    def answer(fields, **more):
        return ask(client, sampler="semi_autoregressive", options=how | more, suffix=" is", **fields)

    together = at_once(lambda fields: texts(answer(fields))[0], asks)
    assert together == [texts(answer(fields))[0] for fields in asks]
    assert together[0] == filled.removeprefix("the ").removesuffix(" is")
    wrong = answer({}, cache="none")
    assert wrong.status_code == 400
    assert "`refresh` says how long a cache is kept" in wrong.json()["error"]["message"]


@pytest.mark.parametrize(("name", "choices"), [("mdlm", {}), ("mdlm", {"sampler": "p2"}), ("ar", {}), ("udlm", {})])
def test_a_stream_gives_the_same_text_by_frames(name, choices):
    with TestClient(application(small(name=name), "tiny"), base_url=HERE) as client:
        whole = ask(client, **choices).json()
        with client.stream("POST", "/v1/completions", json=ASK | choices | {"stream": True}) as answer:
            lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    parts = [json.loads(line) for line in lines[:-1]]
    assert "".join(part["choices"][0]["text"] for part in parts) == whole["choices"][0]["text"]
    assert parts[-1]["choices"][0]["finish_reason"] == "length"
    assert parts[-1]["zellige"]["frame"] == "the " + whole["choices"][0]["text"]
    shown = [(part["zellige"]["frame"], part["choices"][0]["finish_reason"]) for part in parts]
    assert all(before != after for before, after in itertools.pairwise(shown))  # a part says something new


def test_a_step_that_changes_nothing_sends_no_part(client):
    """Sixteen steps for three tokens: a part at the beginning, one for each step that revealed a token, and the end."""
    for n in (1, 2):
        fields = {"stream": True, "steps": 16, "max_tokens": 3, "n": n, "seed": 5}
        with client.stream("POST", "/v1/completions", json=ASK | fields) as response:
            parts = [json.loads(line[6:]) for line in response.iter_lines() if line and "[DONE]" not in line]
        for index in range(n):
            of_text = [part for part in parts if part["choices"][0]["index"] == index]
            assert 2 <= len(of_text) <= 5
            steps = [part["zellige"]["step"] for part in of_text]
            assert (steps[0], steps[-1]) == (0, 16)
            assert of_text[-1]["choices"][0]["finish_reason"] == "length"
            (whole,) = texts(ask(client, **fields | {"stream": False}))[index : index + 1]
            assert "".join(part["choices"][0]["text"] for part in of_text) == whole


def test_health_metrics_and_a_line_for_each_request(model):
    log: list[str] = []
    served = application(model, "tiny", Limits(steps=50), token="secret", log=log.append)
    with TestClient(served, base_url=HERE) as client:
        assert client.get("/health").json() == {"status": "ok"}  # without the token
        assert client.get("/metrics").status_code == 401
        client.headers["authorization"] = "Bearer secret"
        first, second = ask(client, n=2, max_tokens=7), ask(client, steps=51)
        with client.stream("POST", "/v1/completions", json=ASK | {"stream": True, "max_tokens": 5}) as streamed:
            parts = [json.loads(line[6:])["zellige"] for line in streamed.iter_lines() if "zellige" in line]
        page, looks = client.get("/metrics"), 0
        while "zellige_requests_running 0" not in page.text:  # the worker frees its place after the last part is sent
            page, looks = client.get("/metrics"), looks + 1
    assert (first.status_code, second.status_code, streamed.status_code) == (200, 400, 200)
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert {line.split()[2] for line in page.text.splitlines() if line.startswith("# TYPE")} == {
        "zellige_requests_total", "zellige_request_seconds_total", "zellige_tokens_total", "zellige_network_evaluations_total",
        "zellige_requests_waiting", "zellige_requests_running",
    }  # fmt: skip
    values = dict(line.rsplit(" ", 1) for line in page.text.splitlines() if not line.startswith("#"))
    assert [values[f'zellige_requests_total{{status="{status}"}}'] for status in (200, 400, 401)] == [
        str(3 + looks), "1", "1",
    ]  # fmt: skip
    assert values["zellige_tokens_total"] == str(2 * 7 + 5)
    assert values["zellige_network_evaluations_total"] == str(
        sum(first.json()["zellige"]["calls"]) + parts[-1]["calls"]
    )
    assert (values["zellige_requests_waiting"], values["zellige_requests_running"]) == ("0", "0")
    assert 0 < float(values["zellige_request_seconds_total"]) < 60
    lines = [line.split("  ")[1:4] for line in log]
    assert lines[:2] == [["testclient", "GET /health", "200"], ["testclient", "GET /metrics", "401"]]
    assert [status for _, what, status in lines if what == "POST /v1/completions"] == ["200", "400", "200"]


@pytest.mark.parametrize(("name", "config"), [("mdlm", {}), ("ar", {}), ("bd3lm", {"block": 4})])
def test_of_a_stream_that_is_left_the_tokens_that_were_sampled_are_counted(name, config):
    model, meter = small(name=name, **config), Meter()

    async def left():
        completion = completions.plan(
            completions.Completion(prompt="the ", max_tokens=9, n=2, seed=3, steps=12), model, Limits()
        )
        works = worker.Worker("test", Limits(lanes=1))
        try:
            steps = meter.counted(works.ask(completion.job()).steps())
            async for step in steps:
                if step.step and step.texts[0].tokens:
                    await steps.aclose()
                    return step
        finally:
            works.close()
        raise AssertionError

    step = asyncio.run(left())
    sampled = [len(text.frame.replace("·", "")) - len("the ") for text in step.texts]
    assert meter.tokens == sum(sampled) < 2 * 9
    assert sampled == [text.tokens for text in step.texts]


def test_a_path_in_the_log_is_one_short_line(model):
    log: list[str] = []
    with TestClient(application(model, "tiny", log=log.append), base_url=HERE) as client:
        client.get("/a%0A2026-01-01%20FORGED%1b[31m%E2%80%A8" + "b" * 999)
    (line,) = log
    assert line.isprintable()
    assert "GET /a\\n2026-01-01 FORGED\\x1b[31m\\u2028bbb" in line
    assert len(line) < 300


def test_all_texts_of_a_request_count_and_a_batch_has_a_limit(model):
    """Tokens of all n texts; and of requests that agree no more texts are sampled at once than `batch`."""
    with TestClient(application(model, "tiny", Limits(tokens=40)), base_url=HERE) as client:
        assert ask(client, n=3).status_code == 200
        answer = ask(client, n=4)  # 12 tokens each
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "48 tokens in all texts together; at most 40 are allowed here"
    with TestClient(application(model, "tiny", Limits(batch=2)), base_url=HERE) as client:
        assert len(texts(ask(client, n=2))) == 2
        answer = ask(client, n=3)
        assert answer.json()["error"]["message"] == "3 texts (`prompt` times `n`); at most 2 are allowed here"
    sizes: list[int] = []

    def start(jobs):
        sizes.append(sum(job.rows for job in jobs))
        yield 0

    async def people() -> None:
        works = worker.Worker("test", Limits(batch=5, lanes=1))
        try:
            jobs = [worker.Job("alike", start, lambda job, step: step, rows=2) for _ in range(5)]
            with works.changed:  # nobody is served until all have asked
                for job in jobs:
                    job.deadline = time.monotonic() + 60
                works.jobs += jobs
                works.changed.notify()
            for job in jobs:
                assert [step async for step in job.steps()] == [0]
        finally:
            works.close()

    asyncio.run(people())
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "\ud800"}, {"prompt": "a\udfff"}, {"prompt": ["a", "\ud800"], "echo": True}, {"suffix": "\ud800"},
        {"stop": "\ud800"}, {"sampler": "\ud800"}, {"options": {"\ud800": 1}}, {"class": "\ud800"}, {"user": "\ud800"},
    ],
)  # fmt: skip
def test_half_a_character_is_refused(client, fields):
    answer = client.post("/v1/completions", content=json.dumps(ASK | fields), headers=JSON)
    assert answer.status_code == 400
    code = "\\udfff" if "a\udfff" in fields.values() else "\\ud800"
    assert answer.json()["error"]["message"].startswith(f"a text holds {code}, which is half a character; ")


def test_a_stop_ends_a_text_streamed_or_not(client):
    (text,) = texts(ask(client))
    stop = text[3:5]
    cut = text[: text.index(stop)]
    answer = ask(client, stop=stop).json()["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == (cut, "stop")
    with client.stream("POST", "/v1/completions", json=ASK | {"stream": True, "stop": [stop]}) as response:
        lines = [json.loads(line[6:]) for line in response.iter_lines() if line and "[DONE]" not in line]
    assert "".join(part["choices"][0]["text"] for part in lines) == cut
    later = text[text.index(stop) + 2 :][:3]  # of several the one that comes first
    assert text.index(later) > text.index(stop)
    for stops in ([stop, later], [later, stop]):
        assert ask(client, stop=stops).json()["choices"][0]["text"] == cut


# ---------------------------------------------------------------------------------------------- conversations
TOLD = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "who "}, {"type": "text", "text": "are you"}]},
    {"role": "assistant", "content": "a fox"},
    {"role": "user", "content": "why"},
]
WRITTEN = "System: be brief\nUser: who are you\nAssistant: a fox\nUser: why\nAssistant:"
TALK = {"messages": TOLD, "max_tokens": 20, "seed": 3, "steps": 6}


def talker(template: str = "", name: str = "mdlm"):
    """A model of 120 characters, of which a q ends an answer by `template`."""
    model = small(name=name, length=120, letters=WRITTEN + "abcdefghijklmnopqrstuvwxyz")
    model.tokenizer.chat = {"chat_template": template, "bos_token": "b"} if template else {}  # pyright: ignore
    return model


OWN = (
    "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}{{ m.content }}q{% endfor %}"
    "{% if add_generation_prompt %}a{% endif %}"
)


@pytest.mark.parametrize(("template", "prompt"), [("", WRITTEN), (OWN, "bsbe briefquwho are youqaa foxquwhyqa")])
def test_a_conversation_is_answered_as_sample_continues_it(template, prompt):
    """Several turns and a system's, through the template; the answer is what is sampled after it, up to its end, without the
    white space around it; streamed in pieces the same."""
    model = talker(template)
    ends = 0
    with TestClient(application(model, "tiny"), base_url=HERE) as client:
        for seed in range(12):
            (drawn,) = zellige.sample(model, prompt=prompt, length=len(prompt) + 20, seed=seed, steps=6)
            text = drawn.removeprefix(prompt)
            wanted = text.partition("q" if template else "\nUser:")[0].strip()
            answer = client.post("/v1/chat/completions", json=TALK | {"seed": seed}).json()
            (choice,) = answer["choices"]
            assert choice["message"] == {"role": "assistant", "content": wanted}
            ended = "q" in text and bool(template)
            assert choice["finish_reason"] == ("stop" if ended else "length")
            ends += ended
            with client.stream("POST", "/v1/chat/completions", json=TALK | {"seed": seed, "stream": True}) as response:
                lines = [json.loads(line[6:]) for line in response.iter_lines() if line and "[DONE]" not in line]
            deltas = [line["choices"][0]["delta"] for line in lines]
            assert deltas[0]["role"] == "assistant"
            assert "".join(delta.get("content", "") for delta in deltas) == wanted
    assert ends > 2 or not template
    assert (answer["object"], lines[0]["object"]) == ("chat.completion", "chat.completion.chunk")
    assert answer["zellige"]["template"] == ("own" if template else "'User: ...' and 'Assistant: ...', a line each")
    assert answer["usage"]["prompt_tokens"] == len(prompt)


def test_stops_and_several_answers_of_a_conversation():
    """`stop` beside the template's own ends, `n`, and as many tokens as there is room for."""
    model = talker(OWN)
    prompt = "bsbe briefquwho are youqaa foxquwhyqa"
    drawn = zellige.sample(model, prompt=prompt, count=3, seed=5, steps=6)
    wanted = []
    for text in drawn:
        text = text.removeprefix(prompt)
        cuts = [at for at in map(text.find, ("q", "e")) if at >= 0]
        wanted.append(text[: min(cuts, default=len(text))].strip())
    ask = {"messages": TOLD, "seed": 5, "steps": 6, "stop": "e", "n": 3}
    with TestClient(application(model, "tiny"), base_url=HERE) as client:
        answer = client.post("/v1/chat/completions", json=ask).json()
        assert [choice["message"]["content"] for choice in answer["choices"]] == wanted
        few = client.post("/v1/chat/completions", json=ask | {"max_completion_tokens": 7}).json()
    assert answer["usage"]["total_tokens"] == 3 * 120 - 2 * len(prompt)
    assert few["usage"]["completion_tokens"] == 3 * 7


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": 49}, "the conversation has 72 tokens, and 49 are to be drawn; the model takes 120 in all, "
            "use `max_tokens` 48 or less"),
        (
            {"messages": [*TOLD, {"role": "user", "content": "why " * 20}], "max_tokens": None},
            "the conversation has 159 tokens, and 1 are to be drawn; the model takes 120 in all, shorten the conversation",
        ),
        ({"messages": []}, "`messages` has no question at its end; the last message must not be the assistant's"),
        ({"messages": TOLD[:3]}, "`messages` has no question at its end; the last message must not be the assistant's"),
        ({"messages": [{"role": "user"}]}, "the request has a message with a content that is no text; give texts alone"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "unknown role 'robot'; all of them: system, developer, user, "),
        ({"messages": "hi"}, "`messages`: it should be a valid list"),
        ({"messages": [{"role": "user", "content": "a" * 300}]}, "300 characters in a conversation; at most 200"),
        ({"tools": [{"type": "function"}]}, "`tools` is not supported; leave it out"),
        ({"prompt": "a"}, "`prompt`: no such field; leave it out"),
        ({"stop": ["a"] * 5}, "`stop` has an empty text or more than 4; give up to 4 texts"),
    ],
)  # fmt: skip
def test_a_conversation_that_cannot_be_answered_is_one_sentence(fields, words):
    with TestClient(application(talker(), "tiny", Limits(text=200)), base_url=HERE) as client:
        answer = client.post("/v1/chat/completions", json=TALK | fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(words)


def test_a_template_that_refuses_or_never_ends_is_a_400(monkeypatch):
    monkeypatch.setattr("zellige.data.chat.SECONDS", 0.5)
    twice = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    for template, words in (
        ("{{ raise_exception('no system') }}", "`messages`: the chat template refuses the messages (no system)"),
        (twice, "`messages`: the chat template computes for more than 0.5 seconds; give a tokenizer with another"),
    ):
        with TestClient(application(talker(template), "tiny"), base_url=HERE) as client:
            answer = client.post("/v1/chat/completions", json=TALK)
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, words)


def test_a_body_that_does_not_say_its_length_has_the_same_limit(client):
    body = json.dumps(ASK).encode()
    for more, status in ((0, 200), (6_000, 413)):
        parts = iter([body, *[b" " * 1_000] * (more // 1_000)])
        assert client.post("/v1/completions", content=parts, headers=JSON).status_code == status


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"text": "a"}, 400, "`text`: no such field; leave it out"),
        ({"model": "m" * 3000}, 404, f"no model '{'m' * 100}' here"),
        ({"max_tokens": 400}, 400, "use `max_tokens` 20 or less"),
        ({"temperature": -1}, 400, "`temperature`"),
        ({"sampler": "ancestrall"}, 400, "did you mean 'ancestral'?"),
        ({"model": "gpt-4"}, 404, "no model 'gpt-4' here; there is 'tiny'"),
        ({"prompt": "Ж"}, 400, "not in the model's vocabulary"),
        ({"logprobs": 3}, 400, "`logprobs` is not supported"),
        ({"steps": 51}, 400, "51 steps; at most 50 are allowed here"),
        ({"n": 17}, 400, "at most 16"),
        ({"prompt": []}, 400, "empty list"),
        (
            {"prompt": ["a", "the ", "is"]},
            400,
            "the prompts have 1 to 4 tokens; send each length in a request of its own",
        ),
        ({"prompt": "a" * 6_000}, 413, "send less"),
        ({"class": "cat"}, 400, "trained without classes"),
        ({"options": {"caches": "dual"}}, 400, "did you mean 'cache'?"),
        ({"options": {"cache": "dual"}}, 400, "'ancestral' takes no `cache`"),
    ],
)
def test_a_wrong_request_is_answered_in_one_sentence(client, fields, status, words):
    answer = ask(client, **fields)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert words in error["message"]
    assert {"message", "type", "param", "code"} == error.keys()


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"prompt": [1, 2, 3]}, "prompt"), ({"prompt": None}, "prompt"), ({"stop": 5}, "stop"), ({"class": 1.5}, "class")],
)
def test_a_value_of_another_kind_names_its_field_alone(client, fields, param):
    """`prompt.str`, which no request has."""
    answer = ask(client, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["message"].startswith(f"`{param}`: it should be ")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, {"content-type": "x"}])
@pytest.mark.parametrize("content", ["[]", '{"prompt": "the "}', '{"prompt"'])
def test_a_body_that_is_not_sent_as_json_is_a_400(client, path, headers, content):
    answer = client.post(path, content=content, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(
        "the header content-type is not application/json; send an object"
    )


def test_a_missing_field_and_a_long_address_are_one_sentence(client):
    answer = client.post("/v1/chat/completions", json={})
    assert answer.json()["error"]["message"] == "`messages`: missing; it should be given"
    assert len(client.put("/v1/models/" + "a" * 3000).json()["error"]["message"]) < 300


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e400"])
@pytest.mark.parametrize("field", ["temperature", "top_p"])
def test_a_number_that_is_none_is_refused(client, field, number):
    answer = client.post("/v1/completions", content=f'{{"prompt": "the ", "{field}": {number}}}', headers=JSON)
    assert answer.status_code == 400
    assert f"`{field}`: it should be" in answer.json()["error"]["message"]


def test_no_other_page_no_other_name_and_no_wrong_token_gets_in(client, model):
    for host, status in (
        ("elsewhere.example", 403), ("10.0.0.2:80", 403), ("127.0.0.1.example", 403), ("", 403), ("localhost:8000", 200),
        ("127.0.0.2:8000", 200), ("[::1]:8000", 200),
    ):  # fmt: skip
        assert client.get("/v1/models", headers={"host": host}).status_code == status, host
    assert client.post("/v1/completions", json=ASK, headers={"origin": "http://elsewhere.example"}).status_code == 403
    with TestClient(application(model, "tiny", token="secret"), base_url=HERE) as other:
        assert other.get("/v1/models").status_code == 401
        for value in ("secret", "Basic secret", "Bearer", "Bearer  secret", "Bearer secre", "bearersecret"):
            assert other.get("/v1/models", headers={"authorization": value}).status_code == 401, value
        for value in ("Bearer secret", "bearer secret"):
            assert other.get("/v1/models", headers={"authorization": value}).status_code == 200


def test_out_of_time_and_too_many_say_so(model):
    with TestClient(application(model, "tiny", Limits(seconds=0.0)), base_url=HERE) as client:
        answer = ask(client)
        assert (answer.status_code, answer.json()["error"]["type"]) == (504, "timeout")
    with TestClient(application(model, "tiny", Limits(waiting=0)), base_url=HERE) as client:
        answer = ask(client)
        assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")


def test_images_are_not_completed():
    with pytest.raises(InputError, match="this model makes images; zellige play shows it"):
        application(small("image"), "tiny")


@pytest.mark.parametrize("words", [["--steps", "0"], ["--port", "70000"], ["--seconds", "0"], ["--batch", "0"]])
def test_wrong_options_end_with_2(words, capsys):
    assert cli.main(["serve", "x", *words]) == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize("token", ["", "schlüssel", "two words", "line\n", "\x1b"])
def test_a_token_that_no_request_can_send_is_refused(token, monkeypatch, capsys):
    """From the environment too; and of a right one nothing is said."""
    wrong = "--token (or ZELLIGE_TOKEN) is empty or not printable ASCII without blanks; correct it"
    assert cli.main(["serve", "./no-run", "--token", token]) == 2
    assert wrong in capsys.readouterr().err
    monkeypatch.setenv("ZELLIGE_TOKEN", token)
    assert cli.main(["serve", "./no-run"]) == 2
    assert wrong in capsys.readouterr().err
    assert cli.main(["serve", "./no-run", "--token", "a-Z_9~!"]) == 2
    assert "./no-run" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["serve", "runs/demo"]) == 2
    assert "pip install 'zellige[web]'" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------- a real server
@pytest.fixture(scope="module")
def server(model):
    """A server with uvicorn; its address, and its application."""
    app = application(model, "tiny", Limits())
    listening = listening_at.listen("127.0.0.1", 0)
    server = listening_at.server_of(app)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", app
    server.should_exit = True
    thread.join(10)
    listening.close()


def test_the_client_of_openai(server, model):
    """Models, a completion, a stream, infilling, a conversation, an error, 50 at once, a body of 100 MB."""
    openai = pytest.importorskip("openai", reason="the client is missing")
    client = openai.OpenAI(base_url=f"{server[0]}/v1", api_key="none", max_retries=0)
    assert [each.id for each in client.models.list()] == ["tiny"]
    more = {"model": "tiny", "prompt": "the ", "max_tokens": 8, "seed": 3, "extra_body": {"steps": 6}}
    whole = client.completions.create(**more)
    (drawn,) = zellige.sample(model, prompt="the ", length=12, seed=3, steps=6)
    assert "the " + whole.choices[0].text == drawn
    parts = list(client.completions.create(**more, stream=True))
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    assert parts[-1].model_extra["zellige"]["step"] == 6
    assert len(client.completions.create(**more, suffix=" is").choices[0].text) == 8
    talk = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "seed": 3, "extra_body": {"steps": 6}}
    (told,) = zellige.sample(model, prompt="user hi assistant", seed=3, steps=6)
    reply = client.chat.completions.create(**talk)
    assert reply.choices[0].message.content == told.removeprefix("user hi assistant").partition(" user")[0].strip()
    chunks = list(client.chat.completions.create(**talk, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == reply.choices[0].message.content
    assert chunks[-1].usage == reply.usage
    with pytest.raises(openai.BadRequestError, match="`max_tokens` 20 or less"):
        client.completions.create(**more | {"max_tokens": LENGTH})
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.completions.create(**more | {"model": "other"})
    with pytest.raises(openai.APIStatusError) as large:
        client.completions.create(**more | {"prompt": "a" * 100_000_000})
    assert large.value.status_code == 413

    async def at_once() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server[0]}/v1", api_key="none", max_retries=0) as many:
            asked = [many.completions.create(**more | {"seed": seed}) for seed in range(50)]
            return [answer.choices[0].text for answer in await asyncio.gather(*asked)]

    answers = asyncio.run(at_once())
    assert answers[3] == whole.choices[0].text
    assert len(answers) == 50


@pytest.mark.parametrize("stream", [True, False])
def test_who_hangs_up_is_no_longer_drawn_for(server, stream):
    """A request of very many steps, whose asker goes away: the worker is free again long before it would be done."""
    address, app = server
    host, port = address.removeprefix("http://").split(":")
    body = json.dumps(ASK | {"steps": 2_000, "stream": stream, "max_tokens": 20}).encode()
    with socket.create_connection((host, int(port))) as wire:
        wire.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            + b"Content-Length: %d\r\n\r\n" % len(body)
            + body
        )
        if stream:
            assert b"200 OK" in wire.recv(200)
        while not app.state.worker.groups:
            time.sleep(0.01)
        ((job,),) = [group.jobs for group in app.state.worker.groups]
        see, steps = job.see, []
        job.see = lambda job, frame: (steps.append(frame.step), see(job, frame))[1]
    began = time.monotonic()
    while app.state.worker.load and time.monotonic() - began < 60:
        time.sleep(0.02)
    assert app.state.worker.load == 0
    assert all(step < 2_000 for step in steps)  # it was given up, not drawn to its end


@pytest.mark.parametrize("sent", [b"", b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_headers_that_dribble_are_cut(server, monkeypatch, sent):
    """On a new connection, and after an answer on one that is kept; what comes at once is answered as ever."""
    monkeypatch.setattr(listening_at, "SLOW_HEADERS", 0.5)
    host, port = server[0].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as wire:
        wire.sendall(sent)
        if sent:
            assert b"200 OK" in wire.recv(10_000)
        began, cut = time.monotonic(), False
        while not cut and time.monotonic() - began < 15:
            try:
                wire.sendall(b"G")
                wire.settimeout(0.05)
                cut = wire.recv(100) == b""
            except TimeoutError:
                pass
            except OSError:
                cut = True
    assert cut
    assert 0.4 < time.monotonic() - began < 10
