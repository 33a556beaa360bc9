"""The picture at the top of the README: a text as it appears, from a run of the demo.

    make demo
    .venv/bin/python docs/picture.py runs/demo --write

prints it, and with --write puts it into README.md, with the seed and the figures of that run.
"""

import argparse
import re
from pathlib import Path

import zellige

README = Path(__file__).resolve().parents[1] / "README.md"
LENGTH, STEPS, LINES, TEMPERATURE = 64, 60, 10, 0.7


def picture(model: zellige.Model, seed: int) -> list[str]:
    """Every sixth step, with what there is to say on the right."""
    beside = [
        f"MDLM, {LENGTH} characters,",
        f"{STEPS} ancestral steps,",
        f"every {STEPS // LINES}th shown,",
        f"temperature {TEMPERATURE},",
        f"seed {seed}, chosen by eye;",
        "the model of",
        "make demo",
    ]
    frames = zellige.watch(model, count=1, steps=STEPS, seed=seed, length=LENGTH, temperature=TEMPERATURE)
    lines = [f"t = {frame.t:.1f}   {frame.text[0]}" for frame in frames if frame.step % (STEPS // LINES) == 0]
    lines = [f"{line}   {note}".rstrip() for line, note in zip(lines, beside + [""] * len(lines))]
    return [*lines, "          · is a masked token; any position may come next, none waits for the left"]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("run", nargs="?", default="runs/demo")
    ask.add_argument("--seed", type=int, default=9)
    ask.add_argument("--write", action="store_true", help="put it into README.md")
    options = ask.parse_args()
    model = zellige.load(options.run)
    text = "\n".join(picture(model, options.seed))
    print(text)
    if options.write:
        result = zellige.evaluate(model, split="test", draws=16)
        page = README.read_text(encoding="utf-8")
        page = re.sub(r"(?s)```text\n.*?\n```", lambda _: f"```text\n{text}\n```", page, count=1)
        page = re.sub(r"(split=\"test\", draws=16\)\) +# )≤.*", lambda m: f"{m[1]}{result}", page)
        README.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
