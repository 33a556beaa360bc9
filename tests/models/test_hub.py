"""The folder of the Hugging Face hub: uploads and downloads, what AutoTokenizer reads, the model card. No network."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch

import zellige
from zellige import Config, Data, InputError
from zellige.cli import main
from zellige.data import load as load_tokenizer
from zellige.data.tokenizer import Characters, Tokens
from zellige.data.tokenizer_by_name import named_tokenizer as named
from zellige.data.tokenizer_by_name import train_bpe
from zellige.methods import METHODS, build
from zellige.models.config import Train
from zellige.models.hub import card
from zellige.models.model import Model
from zellige.nn.block import Net

TEXT = "the value of the object is returned by the function, and it is the name of a class\n"


def model(name: str = "mdlm", tokenizer=None, **options) -> Model:
    torch.manual_seed(0)
    tokenizer = tokenizer or train_bpe(300, [TEXT * 9])
    config = METHODS[name].Config(**options)
    net = Net(layers=1, hidden=16, heads=2, length=12)
    data = Data(name="wikitext2", tokenizer="bpe:300")
    return Model(
        build(name, tokenizer.size, net, config), tokenizer, Config(name, config, data, net, Train()), {"step": 70}
    )


def same(a: Model, b: Model) -> bool:
    return all(
        torch.equal(x, y) for x, y in zip(a.method.state_dict().values(), b.method.state_dict().values(), strict=True)
    )


# ------------------------------------------------------------------------------------------------------- the verbs
def test_one_format(tmp_path):
    """What `save` writes is what `save_pretrained` writes, which adds a model card; both verbs read both."""
    made = model()
    made.save(tmp_path / "saved")
    assert made.save_pretrained(tmp_path / "hub") is None
    files = {f.name: f.read_bytes() for f in (tmp_path / "saved").iterdir()}
    also = {f.name: f.read_bytes() for f in (tmp_path / "hub").iterdir()}
    weights = files.pop("model.safetensors"), also.pop("model.safetensors")
    sums = [
        b"".join(line for line in of.pop("SHA256SUMS").splitlines() if b"model" not in line) for of in (files, also)
    ]
    assert sums[0] == sums[1]
    assert len(weights[0]) == len(weights[1])  # their metadata has no fixed order; what is in them is compared below
    assert {name: also[name] for name in files} == files
    assert sorted(also.keys() - files.keys()) == ["README.md"]
    for folder in ("saved", "hub"):
        for again in (Model.from_pretrained(tmp_path / folder), zellige.load(tmp_path / folder)):
            assert same(made, again)
            assert again.config == made.config
            assert again.about == made.about
            assert again.tokenizer.fingerprint == made.tokenizer.fingerprint
            assert again.tokenizer.name == "bpe:300"
    made.save_pretrained(tmp_path / "hub", license="mit")  # a second time replaces the first
    assert "\nlicense: mit\n" in (tmp_path / "hub" / "README.md").read_text()


def test_export_to_hub(tmp_path, monkeypatch):
    """The command writes what `save_pretrained` does, of a run with the results of its evaluations."""
    monkeypatch.chdir(tmp_path)
    made = model()
    made.save("saved")
    assert main(["export", "saved", "--to", "hub", "--out", "shared", "--quiet"]) == 0
    assert {f.name for f in (tmp_path / "shared").iterdir()} == {f.name for f in (tmp_path / "saved").iterdir()} | {
        "README.md"
    }
    assert same(made, zellige.load("shared"))


def test_it_is_strict(tmp_path):
    folder = tmp_path / "hub"
    model().save_pretrained(folder)
    plain = json.loads((folder / "config.json").read_text())
    plain["net"]["layers"] = 2
    (folder / "config.json").write_text(json.dumps(plain))
    with pytest.raises(InputError, match=r"config.json' has changed since it was written"):
        Model.from_pretrained(folder)
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(InputError, match=r"checkpoint does not fit: \d+ keys missing"):
        Model.from_pretrained(folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something that is not a model; "):
        model().save_pretrained(tmp_path / "other")
    assert [f.name for f in (tmp_path / "other").iterdir()] == ["notes.txt"]


class Api:
    """A hub in a folder."""

    def __init__(self, folder: Path):
        self.folder, self.asked = folder, {}

    def __call__(self, token=None):
        return self

    def create_repo(self, repo_id, private=None, exist_ok=False):
        self.asked = {"repo_id": repo_id, "private": private}
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, *, repo_id, folder_path, **how):
        Path(folder_path).rename(self.folder / "uploaded")
        return f"https://huggingface.co/{repo_id}/commit/0"


def test_to_the_hub_and_back(tmp_path, monkeypatch):
    api, made = Api(tmp_path), model()
    monkeypatch.setattr(huggingface_hub, "HfApi", api)
    assert made.push_to_hub("me/little", private=True, license="mit") == "https://huggingface.co/me/little"
    assert api.asked == {"repo_id": "me/little", "private": True}
    uploaded = tmp_path / "uploaded"
    page = huggingface_hub.ModelCard.load(uploaded / "README.md")
    assert page.data.to_dict()["license"] == "mit"
    assert page.data.to_dict()["library_name"] == "zellige"
    assert 'zellige.load("me/little")' in page.text
    asked = {}

    def download(name, **how):
        asked.update(how)
        return str(uploaded)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert same(made, Model.from_pretrained("me/little", revision="v2"))
    assert asked["revision"] == "v2"
    assert same(made, zellige.load("me/little"))


def test_what_goes_wrong_is_one_line(monkeypatch, tmp_path):
    with pytest.raises(InputError, match="'little' is not a name on the Hugging Face hub; it must be owner/model"):
        model().push_to_hub("little")

    class Broken(Api):
        def create_repo(self, *_, **__):
            raise ConnectionError("no route to host.\nand more")

    monkeypatch.setattr(huggingface_hub, "HfApi", Broken(tmp_path))
    with pytest.raises(
        InputError, match=r"'me/little' cannot be written on the Hugging Face hub \(no route to host\); log in"
    ):
        model().push_to_hub("me/little")


def test_a_name_that_is_nothing_here_waits_for_nobody(monkeypatch, tmp_path):
    """The hub is asked for owner/model alone, and not where it does not answer: no connection is tried again and again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.utils._http, "get_session", lambda: pytest.fail("the network is asked"))
    for read in (Model.from_pretrained, zellige.load):
        with pytest.raises(
            InputError, match=r"no folder at 'me/none', .* cannot be reached \(HF_HUB_OFFLINE is set\); check"
        ):
            read("me/none")
        with pytest.raises(
            InputError, match=r"no run or model at 'nothere'; .* with Zellige come .*, stories.* owner/model"
        ):
            read("nothere")


# ------------------------------------------------------------------------------------------------------- AutoTokenizer
@pytest.mark.parametrize(
    ("name", "options"), [("mdlm", {}), ("bd3lm", {"block": 4}), ("udlm", {}), ("ar", {})], ids=str
)
def test_auto_tokenizer(name, options, tmp_path):
    """The same integers, the same text, and the mask token under the number that the noise has for it."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    made = model(name, **options)
    made.save_pretrained(tmp_path / "hub")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "hub"))
    for text in (TEXT, " the  class\n", "naïve ☃ <|endoftext|> x ."):
        ours = made.tokenizer.encode(text)
        assert theirs.encode(text, add_special_tokens=False) == ours
        assert theirs.decode(ours) == made.tokenizer.decode(ours)
    mask = getattr(made.method.process, "mask", None)
    assert theirs.mask_token_id == mask
    assert theirs.eos_token_id == made.tokenizer.separator
    assert theirs.model_max_length == 12
    if mask is not None:
        assert theirs.decode([mask]) == theirs.mask_token


def test_bert_has_a_mask_of_its_own(shared, tmp_path):
    """That one is a word of the vocabulary; the noise's is not, and stands after all others."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    made = model(tokenizer=named(str(shared / "data" / "bert-vocab"), lambda *_: Path()))
    made.save_pretrained(tmp_path / "hub")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "hub"))
    assert theirs.mask_token_id == made.method.process.mask == 30522
    assert theirs.encode("The object [MASK] is.", add_special_tokens=False) == made.tokenizer.encode(
        "The object [MASK] is."
    )


def test_the_tokenizer_file_is_the_librarys(tmp_path):
    from tokenizers import Tokenizer

    made = train_bpe(300, [TEXT * 9])
    made.save(tmp_path / "new")
    plain = Tokenizer.from_file(str(tmp_path / "new" / "tokenizer.json"))
    assert plain.encode(TEXT, add_special_tokens=False).ids == made.encode(TEXT)
    again = load_tokenizer(tmp_path / "new")
    assert (again.name, again.fingerprint) == (made.name, made.fingerprint)
    (tmp_path / "plain").mkdir()  # of another library: called as its folder
    plain.save(str(tmp_path / "plain" / "tokenizer.json"))
    found = load_tokenizer(tmp_path / "plain")
    assert isinstance(found, Tokens)
    assert found.name == "plain"


def test_characters_have_no_such_file(tmp_path):
    model(tokenizer=Characters("ab c")).save_pretrained(tmp_path / "hub")
    assert not (tmp_path / "hub" / "tokenizer_config.json").exists()
    assert zellige.load(tmp_path / "hub").tokenizer.alphabet == " abc"  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------- the card
def test_the_card_has_what_is_known(tmp_path):
    """Results lie beside the model; they come along, and stand in the card with their intervals."""
    model().save(tmp_path / "run")
    result = {
        "result": {"value": 5.25, "about": {"data": "wikitext2", "split": "test"}}, "interval": {"low": 5.0, "high": 5.5},
        "unit": "nats/token", "kind": "bound", "seed": 3, "protocol": {"name": "zellige-1", "draws": 4},
    }  # fmt: skip
    (tmp_path / "run" / "evaluate-wikitext2-test.json").write_text(json.dumps(result))
    (tmp_path / "run" / "evaluate-broken.json").write_text("{}")
    zellige.load(tmp_path / "run").save_pretrained(tmp_path / "hub", repo_id="me/little")
    assert (tmp_path / "hub" / "evaluate-wikitext2-test.json").is_file()
    text = (tmp_path / "hub" / "README.md").read_text()
    assert "| wikitext2 test | ≤ 5.250 ± 0.250 nats/token | zellige-1, 4 draws, seed 3 |" in text
    assert (
        "| System | MDLM: Simple and effective masked diffusion language models (Sahoo et al. 2024, arXiv 2406.07524) |"
        in text
    )
    assert "[arXiv 2406.07524](https://arxiv.org/abs/2406.07524)" in text
    assert "| Tokenizer | bpe:300, 300 tokens, mask 300 |" in text
    assert "| Training | 70 steps |" in text
    assert "wikitext2: " in text
    assert "licence of the data: CC BY-SA" in text
    assert "not stated by their author" in text
    page = huggingface_hub.ModelCard.load(tmp_path / "hub" / "README.md")
    assert page.data.to_dict()["tags"] == ["discrete-diffusion", "mdlm", "arxiv:2406.07524"]
    assert "Not evaluated yet" in card(model())
    assert 'evaluate(model, "wikitext2")' in text


@pytest.mark.parametrize("files", [{"path": "own.txt"}, {"mix": "own.txt=1,other.txt=2"}])
def test_the_program_of_a_card_runs(files, tmp_path):
    """Also for a model of files that only its author has."""
    made = model()
    made.config = dataclasses.replace(made.config, data=Data("text", **files))
    made.save_pretrained(tmp_path / "hub", repo_id=str(tmp_path / "hub"))
    exec((tmp_path / "hub" / "README.md").read_text().split("```python")[1].split("```")[0], {})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_card(name):
    text = card(model(name), license="apache-2.0")
    page = huggingface_hub.ModelCard(text)
    assert page.data.to_dict()["license"] == "apache-2.0"
    assert name in page.data.to_dict()["tags"]
    assert "| System |  |" not in text
