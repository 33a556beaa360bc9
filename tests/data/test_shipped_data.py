"""The data sets that come with Zellige: read without a download, with their licences, and nothing held out is learnt."""

import lzma

import pytest

from zellige import Data
from zellige.data import DATASETS
from zellige.data.catalogue import SHIPPED, SPLITS
from zellige.data.prepare import prepare
from zellige.data.readers import read_records

LONGEST = 100  # characters in a row that a held-out story may not share with the training stories


@pytest.fixture(scope="module")
def stories() -> dict[str, list[str]]:
    return {
        split: [record["text"] for _, record in read_records(SHIPPED / "stories" / f"{split}.jsonl.xz")]
        for split in SPLITS
    }


def windows(story: str) -> set[str]:
    return {story[i : i + LONGEST] for i in range(len(story) - LONGEST + 1)}


def test_no_held_out_story_is_learnt(stories):
    held_out = [*stories["validation"], *stories["test"]]
    assert len({*held_out}) == len(held_out)
    passages = set().union(*map(windows, held_out))
    assert not any(passages & windows(story) for story in stories["train"])


def test_no_held_out_name_is_learnt():
    with lzma.open(SHIPPED / "names" / "names.txt.xz", "rt", encoding="ascii") as file:
        names = file.read().splitlines()
    assert len({*names}) == len(names) == 29_494


def test_a_row_is_a_whole_story(stories, tmp_path):
    corpus = prepare(Data("stories", pack="document", cache=str(tmp_path)), 224)
    assert corpus.tokenizer.size == 1024
    for split in SPLITS:
        rows = corpus.split(split)
        first = rows.collate([rows[0]])
        assert len(rows) == len(stories[split])
        tokens = first.tokens[first.mask].tolist()
        assert corpus.tokenizer.decode(tokens) == f"{stories[split][0]}<|endoftext|>"


def test_a_row_is_a_name(tmp_path):
    corpus = prepare(Data("names", pack="document", cache=str(tmp_path)), 16)
    assert sum(len(corpus.split(split)) for split in SPLITS) == 29_494
    assert len(corpus.split("test")) == round(0.05 * 29_494)


@pytest.mark.parametrize("name", ["stories", "names", "nouns"])
def test_the_licence_stands_beside_it(name):
    page = (SHIPPED / name / "README.md").read_text(encoding="utf-8")
    assert DATASETS[name].licence.partition("-")[0] in page
    assert DATASETS[name].needs == "nothing"
