"""lm-evaluation-harness end to end on local tasks: its numbers are those of `evaluate --pairs`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from zellige import Config, Data, InputError
from zellige.data.tokenizer_by_name import train_bpe
from zellige.evaluation.conditional import bound
from zellige.methods import METHODS, build
from zellige.models.config import Train
from zellige.models.model import Model, identity, load
from zellige.nn.block import Net
from zellige.plugins.evaluations.pairs.choices import Question
from zellige.plugins.evaluations.pairs.request import EvaluatePairs

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install lm_eval")

WORDS = "the sky is blue and the sea is blue and the grass is green and the snow is white\n"
QUESTIONS = [
    {"question": "the sky is", "choices": ["blue", "a green grass"], "gold": 0},
    {"question": "the snow is", "choices": ["blue", "white", "the"], "gold": 1},
    {"question": "and the grass", "choices": ["is green", "is"], "gold": 0},
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A small MDLM with random weights, on 300 tokens."""
    return model("mdlm").save(tmp_path_factory.mktemp("harness") / "model")


def model(name: str, length: int = 24) -> Model:
    torch.manual_seed(0)
    tokenizer, options = train_bpe(300, [WORDS * 20]), METHODS[name].Config()
    net = Net(layers=1, hidden=16, heads=2, length=length)
    method = build(name, tokenizer.size, net, options)
    with torch.no_grad():
        for p in method.parameters():
            p.normal_(std=0.15)
    return Model(method, tokenizer, Config(name, options, Data(), net, Train()), {"step": 1})


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    """Three tasks on local files: multiple choice, a text's perplexity, generation."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))
    head = f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {folder}/questions.jsonl\ntest_split: test\n"
    (folder / "choice.yaml").write_text(
        f"task: local_choice\n{head}output_type: multiple_choice\ndoc_to_text: '{{{{question}}}}'\ndoc_to_choice: choices\n"
        "doc_to_target: gold\nmetric_list:\n  - metric: acc\n  - metric: acc_norm\n"
    )
    (folder / "rolling.yaml").write_text(
        f"task: local_rolling\n{head}output_type: loglikelihood_rolling\ndoc_to_text: ''\n"
        'doc_to_target: \'{{ (question ~ " " ~ choices[0] ~ ". ") * 6 }}\'\n'
        "metric_list:\n  - metric: byte_perplexity\n"
    )
    (folder / "write.yaml").write_text(
        f"task: local_write\n{head}output_type: generate_until\ndoc_to_text: '{{{{question}}}}'\n"
        "doc_to_target: '{{choices[gold]}}'\ngeneration_kwargs:\n  until: ['e']\n  max_gen_toks: 6\n"
        "metric_list:\n  - metric: exact_match\n"
    )
    return folder


@pytest.fixture(scope="module")
def results(saved, tasks, tmp_path_factory):
    import lm_eval
    from lm_eval.tasks import TaskManager

    import zellige.plugins.adapters.harness  # noqa: F401

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        manager = TaskManager(include_path=str(tasks), include_defaults=False)
        return lm_eval.simple_evaluate(
            model="zellige", model_args=f"path={saved},draws=8,seed=3", batch_size=2, device="cpu",
            tasks=["local_choice", "local_rolling", "local_write"], task_manager=manager, bootstrap_iters=0,
        )  # fmt: skip


def test_its_likelihood_is_that_of_evaluate(results, saved):
    """Each choice of each question, and both accuracies."""
    records = [Question(q["question"], tuple(f" {c}" for c in q["choices"]), q["gold"]) for q in QUESTIONS]
    judged = EvaluatePairs(records, draws=8, seed=3).run(str(saved))
    samples = sorted(results["samples"]["local_choice"], key=lambda s: s["doc_id"])
    theirs = [-float(likelihood) for sample in samples for likelihood, _ in sample["filtered_resps"]]
    assert theirs == pytest.approx(judged.nats.tolist(), rel=1e-6, abs=1e-5)
    found = results["results"]["local_choice"]
    assert judged.accuracy is not None
    assert found["acc,none"] == judged.accuracy.value
    assert len({round(n, 6) for n in theirs}) == len(theirs)


def test_rolling_is_the_bound_of_the_text(results, saved):
    for sample in results["samples"]["local_rolling"]:
        text = sample["target"]
        found = bound(str(saved), [("", text)], 8, 3)
        assert found.tokens > 24  # more than the network takes
        assert -sample["filtered_resps"][0] == pytest.approx(float(found.nats), abs=1e-4)


def test_the_results_say_which_model_it_was_and_what_it_was_told(results, saved, tmp_path):
    from zellige.plugins.adapters.harness import Zellige

    assert results["config"]["identity"]["weights_sha256"] == identity(load(str(saved)))["weights_sha256"]
    assert "class" not in results["config"]
    net = Net(layers=1, hidden=16, heads=2, length=24, classes=2)
    plain = model("mdlm")
    method = build("mdlm", plain.tokenizer.size, net, METHODS["mdlm"].Config())
    Model(method, plain.tokenizer, Config("mdlm", METHODS["mdlm"].Config(), Data(), net, Train())).save(tmp_path / "m")
    assert Zellige(str(tmp_path / "m")).get_model_info()["class"] == "without the class"


def test_what_is_written_ends_where_it_should(results):
    for sample in results["samples"]["local_write"]:
        (text,) = sample["filtered_resps"]
        assert "e" not in text
        assert len(text) < 6 * 12


@pytest.mark.parametrize("name", ["mdlm", pytest.param("udlm", marks=pytest.mark.long), "ar", "bd3lm"])
def test_texts_do_not_depend_on_the_others(name, tmp_path):
    """Nor on the batch; a request that comes twice gives two texts where it asks to sample; all at temperature 0 are one."""
    from zellige.plugins.adapters.harness import Zellige

    path = str(model(name, 32).save(tmp_path / "model"))
    ask = lambda text, **how: SimpleNamespace(args=(text, {"until": ["\n"], "max_gen_toks": 7} | how))  # noqa: E731
    requests = [
        ask("the sky"),
        ask("the sea is blue"),
        ask("the sky", do_sample=True),
        ask("the sky", do_sample=True),
        ask(""),
    ]
    one, many = Zellige(path, batch_size=1, seed=5), Zellige(path, batch_size=4, seed=5)
    texts = one.generate_until(requests, disable_tqdm=True)
    assert texts == many.generate_until(requests, disable_tqdm=True)
    assert texts[1] == one.generate_until(requests[1:2], disable_tqdm=True)[0]
    assert texts[2] != texts[3]
    assert all("\n" not in text for text in texts)
    longest = max(len(one.model.tokenizer.decode([t])) for t in range(300))
    assert all(len(text) <= 7 * longest for text in texts)
    long = one.generate_until([ask(WORDS * 4)], disable_tqdm=True)  # a prompt longer than the network
    assert isinstance(long[0], str)


def test_a_cache_is_an_option_of_the_model(saved):
    """Block after block: the texts do not depend on the batch; read anew in each evaluation, a cache changes none."""
    from zellige.plugins.adapters.harness import Zellige

    requests = [
        SimpleNamespace(args=(text, {"max_gen_toks": 7, "do_sample": True})) for text in ("the sky", "the sea is", "a")
    ]
    how = {"sampler": "semi_autoregressive", "block_sampler": "any_order", "block_length": 4}
    texts = {
        (cache, refresh, batch): Zellige(
            str(saved), batch_size=batch, **how | {"cache": cache} | ({"refresh": refresh} if refresh else {})
        ).generate_until(requests, disable_tqdm=True)
        for cache, refresh, batch in (("none", 0, 1), ("dual", 1, 2), ("dual", 0, 1), ("dual", 0, 2))
    }
    assert texts["dual", 1, 2] == texts["none", 0, 1]
    assert texts["dual", 0, 2] == texts["dual", 0, 1]


def test_a_text_ends_at_the_first_of_the_stop_strings():
    """Whatever their order, also where they overlap."""
    from zellige.plugins.adapters.harness import _cut

    for until in (["\n\n", ".\n"], [".\n", "", "\n\n"], ".\n"):
        assert _cut("Hi.\n\nfoo", until) == "Hi"
    assert _cut("Hi.", ["x"]) == _cut("Hi.", None) == "Hi."


def test_a_continuation_is_greedy_if_it_is_what_ar_writes(tmp_path):
    from zellige.plugins.adapters.harness import Zellige

    lm = Zellige(str(model("ar").save(tmp_path / "model")))
    (text,) = lm.generate_until([SimpleNamespace(args=("the sky is", {"max_gen_toks": 4}))], disable_tqdm=True)
    tokens = lm.model.tokenizer.encode("the sky is" + text)
    if (
        len(tokens) == len(lm.model.tokenizer.encode("the sky is")) + 4
    ):  # the text reads back as the tokens that were drawn
        asked = [SimpleNamespace(args=("the sky is", text)), SimpleNamespace(args=("the sky is", " white blue"))]
        assert [greedy for _, greedy in lm.loglikelihood(asked, disable_tqdm=True)] == [True, False]


def test_wrong_input(saved, tmp_path):
    from zellige.plugins.adapters.harness import Zellige

    for arguments, error in [
        ({}, "the harness needs a model; "),
        ({"path": str(tmp_path / "none")}, "no run or model at "),
        ({"path": str(saved), "draws": 0}, "`draws` is 0; "),
        ({"path": str(saved), "sampler": "ancestrl"}, "unknown sampler 'ancestrl'; did you mean 'ancestral'"),
    ]:
        with pytest.raises(InputError, match=error):
            Zellige(**arguments)


@pytest.fixture
def few_tasks(monkeypatch):
    """The harness without the index of its own 14,000 tasks, which takes a minute."""
    from lm_eval.tasks import TaskManager

    monkeypatch.setattr(TaskManager.__init__, "__defaults__", (None, None, False, None))


def words(saved, tasks) -> list[str]:
    command = f"--model zellige --model_args path={saved},draws=8,seed=3 --tasks local_choice"
    return [*command.split(), "--include_path", str(tasks)]


def shows(out: str, err: str) -> None:
    """What the command prints: the table; where no device is named, which one it found."""
    assert "Traceback" not in err
    assert "no GPU that torch can use here; the tasks run on the CPU" in err
    assert "local_choice|" in out.replace(" ", "")


def test_the_command(saved, tasks, few_tasks, monkeypatch, capsys, caplog):
    """`lm_eval` with one model more."""
    from zellige.plugins.adapters.harness import main

    monkeypatch.setattr(sys, "argv", ["lm_eval", *words(saved, tasks)])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main() == 0
    out, err = capsys.readouterr()
    shows(out, err + caplog.text)


@pytest.mark.long
def test_the_command_as_it_is_typed(saved, tasks, tmp_path):
    offline = {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "zellige.plugins.adapters.harness", *words(saved, tasks)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | offline, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    shows(done.stdout, done.stderr)


def test_wrong_input_is_one_line(tmp_path, tasks, few_tasks, monkeypatch, capsys):
    from zellige.plugins.adapters.harness import main

    for more, message in [
        ([f"path={tmp_path}/none"], "error: no run or model at "),
        (["path=stories-mdlm", "--device", "tpu9"], "error: `device` is 'tpu9'; it must be cpu"),
    ]:
        words = ["lm_eval", "--model", "zellige", "--include_path", str(tasks), "--tasks", "local_choice"]
        monkeypatch.setattr(sys, "argv", [*words, "--model_args", *more])
        assert main() == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith(message)
