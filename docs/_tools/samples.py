"""docs/evidence/samples.md: samples of every included model, none chosen, with the commands and seeds that make them.

    python docs/_tools/samples.py            sample everything again (about 10 minutes), and write the page and its pictures
    python docs/_tools/samples.py --page     write the page again around the samples that stand in it

`samples.csv` holds what a reader said of each text by the rubric below. A line belongs to a text by its checksum, so a text that
changes loses its line, and has to be read again before the page can be written.
"""

import argparse
import contextlib
import csv
import hashlib
import html
import io
import os
import re
import shlex
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from zellige import cli, infill
from zellige.evaluation.interval import Proportion
from zellige.models.model import load
from zellige.plugins.kinds.molecules.smiles import is_molecule
from zellige.show.kinds import of
from zellige.show.numbers import counted

DOCS = Path(__file__).parents[1]
PAGE, RATINGS, PICTURES = (
    DOCS / "evidence" / "samples.md",
    DOCS / "evidence" / "samples.csv",
    DOCS / "pictures" / "samples",
)
SEEDS = range(16)
TEXTS = {
    "stories": (
        "Stories, block after block",
        "Method `bd3lm`: blocks of 4 tokens, from left to right, until the story ends; the likeliest of eight candidates. "
        "The words after each command say whether the story is grammatical.",
    ),
}
RUBRIC = {
    "grammatical": "every sentence could be printed. Subject and verb agree, no word is missing or doubled by mistake, pronouns "
    "refer to somebody in the text. Comma errors are allowed.",
    "one subject": "at least three sentences in a row are about the same person, thing or conversation, and fit together.",
    "no invented word": "every word is English, or a name with a capital letter.",
    "one story": "all sentences are about the same persons and things, none contradicts an earlier one, and each makes sense "
    "after the one before. (Grammar does not count here.)",
}
SHOWN = 3  # stories that a reader sees without a click
# the first ten validation stories of at most 520 characters whose middle sentence can be left out
GAPS = (
    (
        "Once upon a time, there was a wealthy man named Tom. He had a big house near a cliff. Tom liked to sort his many"
        " toys into different boxes. One sunny day, Tom went outside to play with his toys.__*. He had fun "
        "playing with his cars, dolls, and balls. When it was time to go home, Tom sorted his toys back into their boxes."
        " He was happy to live in his big house near the cliff. And every day, he played with his toys and sorted them "
        "again and again."
    ),
    (
        "Once upon a time, there was a cool cat named Tom. Tom loved to go for a jog in the park. Every day, he would put"
        " on his cool hat and go for a run. One sunny day, as Tom was jogging, he saw a big tree. He decided to turn "
        "right and run around it.__*. Sam was also going for a jog in the park. Tom and Sam jogged together "
        "every day. They would turn around the big tree, then sit under it to rest. They became best friends and had lots"
        " of fun in the cool park."
    ),
    (
        "Once upon a time, there was a long string. This string was very special. It lived in a big, pretty box. The "
        "string was very happy in the box. One day, a little boy found the box. He wanted to study the long "
        "string.__*. The string was very happy to be with the little boy. The little boy and the string became "
        "best friends. They played all day and had lots of fun. The long string was very happy to have a friend. And they"
        " lived happily ever after."
    ),
    (
        "Once upon a time, there was a gifted bird named Blue. Blue could whistle the best songs in the forest. All the "
        "other animals loved to hear Blue whistle. One day, Blue found a shiny black rock. It was coal.__*. Bunny"
        " liked the coal and used it to draw pictures on the ground. Blue and Bunny had a fun day playing with the coal "
        "and whistling songs. All the animals in the forest came to see the pictures and hear Blue whistle. They all had "
        "a great time together."
    ),
    (
        "Once upon a time, there was an adorable little dog named Max. Max loved to play with his gear. He had a ball, a "
        'bone, and a rope. Max played with his gear all day long. One day, Max saw a big cat. The cat said, "Bow to me, '
        "little dog.\"__*. The cat laughed and took Max's gear. Max went home without his gear. He was very "
        "sad. His owner tried to make him happy, but Max missed his gear too much. The cat never gave Max his gear back, "
        "and Max stayed sad."
    ),
    (
        "One day, a popular cat named Tom went for a walk. He saw a jar on the side of the road. Tom was curious, so he "
        'stepped closer to look at it. "Hey, Tom," said a bird named Sue. "What\'s in the jar?" Tom didn\'t know, so he '
        'opened the jar. Out jumped a tiny frog!__*. "Thank you for letting me out," said the frog. "I will give you a '
        'wish." Tom and Sue looked at each other. They wished to be friends forever. The frog smiled and their wish came '
        "true. They were all very happy."
    ),
    (
        "Once upon a time, in a peaceful town, there was a big square. In the square, there were many kids who liked to "
        "play. They were very happy. One day, a little girl saw a puzzle on the ground. It had many square pieces. She "
        "wanted to solve it.__*. They all worked together to solve the puzzle. They put the square pieces in the "
        "right place. Soon, the puzzle was done. The kids were so happy and proud. They had a fun day in the peaceful "
        "town."
    ),
    (
        "One day, a cat and a dog were in a park. The cat was comfortable on a bench. The dog was near a grill. The dog "
        'said, "I want to play!" The cat looked at the dog and said, "Okay, let\'s play!" They played near the grill. The '
        'dog ran fast and the cat jumped high.__*. Then, the dog\'s tail hit the grill. "Ouch!" said the dog. The cat ran '
        "to help. The cat gave the dog a soft slap on the back. The dog felt better. They went back to play and had a "
        "great day."
    ),
    (
        "Once upon a time, there was a little boat. The boat liked to go to the shore. One day, the boat saw a big load. "
        "The load was heavy and uncomfortable. The boat wanted to help.__*. The load made the boat very "
        "uncomfortable. The boat felt slow and tired. In the end, the boat could not carry the load anymore. The boat "
        "stopped moving and stayed on the shore. The boat was sad and uncomfortable forever."
    ),
    (
        "Once upon a time, a kind girl named Lily went for a walk. She saw a pretty purse on the ground. Lily liked the "
        'purse and wanted to find who it belonged to. Lily asked her friends, "Do you know who lost this purse?" Her '
        "friends did not know, but they all admired the purse.__*. Finally, Lily found a sad lady who had lost her "
        'purse. The lady was so happy when Lily gave it back to her. The lady said, "Thank you, kind girl!" Lily smiled '
        "and felt good for being helpful."
    ),
)
DIGITS = "zellige sample mnist --class 0 1 2 3 4 5 6 7 8 9 --count 10 --steps 64 --seed 0 --out digits.png"
NOUNS = (
    "zellige sample nouns --class banana bear robot whale --count 4 --seed 0 --out heads.png",
    "zellige sample nouns --count 16 --seed 0 --out nouns.png",
)
MOLECULES = "zellige sample molecules --count 20 --seed 0"
CHORALES = [f"zellige sample chorales --count 3 --seed 0 --out chorales.{suffix}" for suffix in ("png", "mid")]
RECOGNISED = (10, 10, 8, 8, 8, 5, 10, 10, 7, 8)  # of each ten of digits.png, by eye
PUZZLES = (  # the first ten of the test split of sudoku9_pairs.csv
    ".48176..2....2.........4...1.....86.6.3...7..2.9..81.4............849.....2761..8",
    "...8..1...4.61...91....2..6.........2...4.8...3....62....428....631.74..9...6....",
    "1.....4......4.976.9...3...6.....2...71.....8..3.8.....4..9.8..28.1....97....23..",
    "6...3.....2..78.....342..86........473.....628..79...3.86.4..2...931....1........",
    ".2....49.9....5..8...7..2.167..2.....1.....29.........26..4.8.77.5...9...4.....5.",
    "...4127..48.6...9...2..........9...4...7....2..6.48...6......831...394..9....7...",
    "......7....6135..9..9............4..91...8.6.7.5..6.91.3..54.......97......6....7",
    "..7...9.2.......7....6......29..138...3.2.1.7.1......4..8....3.6..4.7..1.4..18..9",
    "..8..9.7....2...3..5..6.............8.......6..9..428...5.93.4.682.5.9......8....",
    "..2...81.3.9....2..8.4.....7...62..1.2..17346...9.......1.....26.......9...643...",
)

QUOTE = re.compile(r"<blockquote>(.*?)</blockquote>", re.DOTALL)
PUZZLE = re.compile(r"!\[\d+: ([^\]]*)\]\(../pictures/samples/puzzle-\d+\.png\)")


# ------------------------------------------------------------------------------------------------------------ the samples
def sample() -> dict[str, Any]:
    """Run every command of the page, in an empty folder; its pictures are put into PICTURES."""
    PICTURES.mkdir(exist_ok=True)
    texts = {name: [printed(text_command(name, seed)) for seed in SEEDS] for name in TEXTS}
    filled = [printed(infill_command(gap)) for gap in GAPS]
    molecules = printed(MOLECULES).split("\n")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for command in (*NOUNS, DIGITS, *CHORALES):
            printed(command)
        for file in Path(folder).iterdir():
            (PICTURES / file.name).write_bytes(file.read_bytes())
    return {"texts": texts, "filled": filled, "molecules": molecules, "puzzles": solve()}


def text_command(name: str, seed: int) -> str:
    return f"zellige sample {name} --seed {seed}"


def infill_command(text: str) -> str:
    return f"zellige infill stories {shlex.quote(text)} --best-of 128 --seed 0"


def printed(command: str) -> str:
    """What a command prints, without its notes."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(open(os.devnull, "w")):
        if code := cli.main([*shlex.split(command)[1:], "--quiet"]):
            raise SystemExit(f"{command} ended with {code}")
    return out.getvalue().removesuffix("\n")


def solve() -> list[str]:
    """Fill in each puzzle, draw it, and say whether it is right: a filling without a conflict is the solution."""
    model = load("sudoku")
    kind: Any = of(model.tokenizer)
    verdicts = []
    for number, puzzle in enumerate(PUZZLES, 1):
        filled = kind.tokens(infill(model, puzzle, seed=0)).reshape(1, -1)
        conflicts = int(kind.clashes(filled).sum())
        verdicts.append("right" if not conflicts else f"wrong, {counted(conflicts, 'cell')} in conflict")
        fixed = kind.read(puzzle) >= 0
        figure = kind.figure(filled, fixed, [f"{number}: {verdicts[-1]}"])
        figure.savefig(PICTURES / f"puzzle-{number}.png", dpi=100)
    return verdicts


# --------------------------------------------------------------------------------------------------------------- the page
def page(samples: dict[str, Any]) -> str:
    """The page of these samples. SystemExit: a text that nobody has read."""
    parts = [INTRODUCTION, *nouns(), *digits(), *sudokus(samples), *chorales(), *molecules(samples), *texts(samples)]
    return "\n\n".join(map(folded, parts)) + "\n"


def nouns() -> list[str]:
    return [
        "## Characters: `nouns`", shell("\n".join(NOUNS)),
        "![Four rows of four characters, the heads of a row by one name](../pictures/samples/heads.png)\n"
        "![16 characters](../pictures/samples/nouns.png)",
        "First four characters for each name of a head, then characters without a name. Of 254 names, each once, 230 "
        "get their head; the whale does not. Of 100 characters without a name "
        "[86](../../studies/nouns/README.md#the-included-model) are right at every pixel.",
    ]  # fmt: skip


def digits() -> list[str]:
    right = Proportion(sum(RECOGNISED), 100)
    worst = min(range(10), key=RECOGNISED.__getitem__)
    return [
        "## Digits: `mnist`", shell(DIGITS),
        "![Ten rows of ten digits, one class a row](../pictures/samples/digits.png)",
        "Each row has ten digits of one class. Guidance 2 and temperature 0.9 are the model's defaults. Judged "
        f"strictly by eye, {right.right} of 100 show the requested digit ({bounds(right)}). The worst class is {worst}, with "
        f"{RECOGNISED[worst]} of 10. Without guidance, at temperature 1, 65 of 100 do (55 to 74%). A classifier [is more "
        "generous](../../studies/images/README.md#digits-by-class).",
    ]  # fmt: skip


def sudokus(samples: dict[str, Any]) -> list[str]:
    solved = Proportion(samples["puzzles"].count("right"), len(PUZZLES))
    pictures = "\n".join(
        f"![{number}: {verdict}](../pictures/samples/puzzle-{number}.png)"
        for number, verdict in enumerate(samples["puzzles"], 1)
    )
    return [
        "## Sudokus: `sudoku`",
        "The first ten puzzles of the test split. Bold digits were given, blue ones are the model's, and cells that break a "
        f"rule are orange. {solved.right} of {solved.total} are right ({bounds(solved)}); of all 307 held-out puzzles, "
        "[88.9%](../../studies/sudoku/README.md#more-training-on-puzzles) are.",
        pictures,
        *hidden("The ten commands", [shell("\n".join(f"zellige infill sudoku {puzzle}" for puzzle in PUZZLES))]),
    ]


def chorales() -> list[str]:
    files = ", ".join(f"[chorale {n}](../pictures/samples/chorales-{n}.mid)" for n in (1, 2, 3))
    return [
        "## Chorales: `chorales`", shell("\n".join(CHORALES) + "     # pip install '.[music]'"),
        "![Three chorales, four voices as horizontal bars over time](../pictures/samples/chorales.png)",
        f"Four bars each. To listen: {files}.",
    ]  # fmt: skip


def molecules(samples: dict[str, Any]) -> list[str]:
    valid = Proportion(sum(map(is_molecule, samples["molecules"])), len(samples["molecules"]))
    marked = "".join(f"{text:<24}{'valid' if is_molecule(text) else 'not valid'}\n" for text in samples["molecules"])
    return [
        "## Molecules: `molecules`",
        f"{valid.right} of {valid.total} lines are valid SMILES, a notation of molecules as text ({bounds(valid)}); of "
        "1,000 samples, [99.4%](../../studies/molecules/README.md#molecules-smiles-or-selfies) are. The model writes "
        "SELFIES, another such notation, one symbol at a time.",
        f"```text\n$ {MOLECULES}\n{marked}```",
    ]


def texts(samples: dict[str, Any]) -> list[str]:
    """How the texts were judged, the stories, and the missing sentences."""
    said = ratings()
    parts = rubric(samples, said)
    for name, (title, about) in TEXTS.items():
        verdicts = zip(*(read_by(said, text) for text in samples["texts"][name]))
        asked = [what for what, answers in zip(RUBRIC, verdicts) if len({*answers}) > 1]
        stories = []
        for seed, text in zip(SEEDS, samples["texts"][name], strict=True):
            verdict = ", ".join(
                f"{'' if yes else 'not '}{what}" for what, yes in zip(RUBRIC, read_by(said, text)) if what in asked
            )
            lines = "<br>\n".join(textwrap.fill(escaped(line), 112) for line in text.strip().split("\n"))
            stories += [f"`zellige sample {name} --seed {seed}`: {verdict}", f"<blockquote>{lines}</blockquote>"]
        parts += [f"### {title}: `{name}`", about, *stories[: 2 * SHOWN]]
        parts += hidden(f"The other {len(SEEDS) - SHOWN} stories", stories[2 * SHOWN :])
    sentences = []
    for gap, text in zip(GAPS, samples["filled"], strict=True):
        before, after = gap.split("__*.")
        middle = text.removeprefix(before).removesuffix(after)
        fits, *_ = read_by(said, text)
        shown = textwrap.fill(f"{escaped(before)}<b>{escaped(middle)}</b>{escaped(after)}", 112)
        sentences += [f"{'Fits' if fits else 'Does not fit'}:", f"<blockquote>{shown}</blockquote>"]
    fitting = sum(read_by(said, text)[0] for text in samples["filled"])
    return [
        *parts,
        "### A missing sentence: `stories`",
        "One sentence was removed from each of ten stories of the validation split. The model wrote 128 candidates of up "
        "to 32 tokens after the text before the gap; what is likeliest together with the rest of the story stands in bold. "
        "Two language models read these sentences and the real ones, shuffled and without their source. Does the sentence fit "
        f"the text before and after it? Both say that {fitting} of {len(GAPS)} fit, and that all real ones do. "
        "(`GAPS` in `docs/_tools/samples.py` has the ten texts.)",
        shell("zellige infill stories TEXT --best-of 128 --seed 0     # with __*. for the sentence"),
        *sentences[: 2 * SHOWN],
        *hidden(f"The other {len(GAPS) - SHOWN} sentences", sentences[2 * SHOWN :]),
    ]


def hidden(title: str, parts: list[str]) -> list[str]:
    """Parts that a click on the title opens."""
    return [f"<details>\n<summary>{title}</summary>", *parts, "</details>"]


def escaped(text: str) -> str:
    return html.escape(text, quote=False)


def folded(part: str) -> str:
    """A paragraph in lines of a page; anything that has lines already as it is."""
    return part if "\n" in part else textwrap.fill(part, 118, break_long_words=False, break_on_hyphens=False)


INTRODUCTION = """# Samples

What the included models make, good and bad. No person selected them: these are the first samples of each model, with seed 0 or
with seeds 0 to 15. The settings are the model's defaults, unless the command sets others. Run a command to get its samples
again. The models are small: 0.8 to 6 million parameters, 0.9 to 5.1 hours of training on a CPU
([their likelihoods](results.md))."""


def rubric(samples: dict[str, Any], said: dict[str, tuple[bool, ...]]) -> list[str]:
    """How the texts were judged, and the counts."""
    judged = {f"`{name}`": [read_by(said, text) for text in samples["texts"][name]] for name in TEXTS}
    judged["real text"] = [verdict for key, verdict in said.items() if key.startswith("test")]
    columns = [[*zip(*verdicts), tuple(all(verdict[:3]) for verdict in verdicts)] for verdicts in judged.values()]
    questions = [f"*{what}*: {rule}" for what, rule in RUBRIC.items()] + ["all of the first three"]
    table = ["| | " + " | ".join(judged) + " |", "|---" * (1 + len(judged)) + "|"]
    for question, *answers in zip(questions, *columns, strict=True):
        cells = [
            f"{sum(answer)} of {len(answer)} ({bounds(Proportion(sum(answer), len(answer)))})" for answer in answers
        ]
        table.append(f"| {question} | " + " | ".join(cells) + " |")
    return [
        "## Texts",
        "The stories sound like stories, but hardly any holds together as one. A language model judged 16 of them, each the "
        "likeliest of eight candidates, and 16 real stories of the same length, shuffled and without their source:",
        "\n".join(table),
        "The intervals are 95%. The real stories are from the validation split.",
    ]


def bounds(share: Proportion) -> str:
    low, high = share.interval
    return f"{100 * low:.0f} to {100 * high:.0f}%"


def shell(commands: str) -> str:
    return f"```sh\n{commands}\n```"


# ------------------------------------------------------------------------------------------------------------- what was said
def checksum(text: str) -> str:
    """Checksum of the words of a text; where its lines break makes no difference."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12]


def ratings() -> dict[str, tuple[bool, ...]]:
    """The verdicts of the rubric by the checksum of a text; of real text by its number, `test 0`."""
    with RATINGS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    key = lambda row: f"test {row['number']}" if row["of"] == "test" else row["text"]  # noqa: E731
    return {key(row): tuple(row[name] == "1" for name in ("grammatical", "subject", "words", "story")) for row in rows}


def read_by(said: dict[str, tuple[bool, ...]], text: str) -> tuple[bool, ...]:
    if checksum(text) not in said:
        raise SystemExit(f"not read yet, {checksum(text)} has no line in {RATINGS.name}: {text[:60]!r}")
    return said[checksum(text)]


def standing(text: str) -> dict[str, Any]:
    """The samples that stand in a page."""
    quotes = [
        "\n".join(" ".join(html.unescape(re.sub("</?b>", "", line)).split()) for line in quote.split("<br>"))
        for quote in QUOTE.findall(text)
    ]
    size, whole = len(SEEDS), len(SEEDS) * len(TEXTS)
    block = text.partition(f"$ {MOLECULES}\n")[2].partition("```")[0]
    return {
        "texts": {name: quotes[size * i : size * (i + 1)] for i, name in enumerate(TEXTS)},
        "filled": quotes[whole : whole + len(GAPS)],
        "molecules": [line.split(" ")[0] for line in block.splitlines()],
        "puzzles": PUZZLE.findall(text),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--page", action="store_true", help="of the samples that stand in the page")
    samples = standing(PAGE.read_text(encoding="utf-8")) if parser.parse_args().page else sample()
    PAGE.write_text(page(samples), encoding="utf-8")


if __name__ == "__main__":
    main()
