"""The pictures of README.md and docs/learn: texts and digits of models that come with Zellige.

    .venv/bin/python docs/_tools/learn.py        writes them all into docs/pictures; a minute on one core

`appear.gif` is the moving picture of the README, `writing.png` four of its frames, `masking.png` a text at five noise
levels, `prediction.png` what a network says of two masked tokens, `good-number.svg` a table of docs/learn/bounds.md.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

import zellige
from zellige import Batch
from zellige.core.prediction import posterior

matplotlib.use("Agg")

PICTURES = Path(__file__).parents[1] / "pictures"
STORY = (
    "Once upon a time, there was a little boy named Tim." + "_" * 30 + " Tim was happy, and he went home with his mom."
)
STORY_SEED, DIGIT, DIGIT_SEED = 5, "4", 0  # chosen by eye
GAPS = "Lily went to the_ with her mom, and she saw a big_."
STEPS, FRAMES, HOLD, MILLISECONDS = 64, 44, 22, 90  # steps of the text; frames that move; frames of the end; of a frame
FRESH = 4  # frames for which a token is shown as new

PAPER, INK, GIVEN, NEW, MASK, FAINT = "#18202c", "#e9edf3", "#8fc1ff", "#ffc857", "#3d4c63", "#93a1b5"


def font(size: float, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with Matplotlib."""
    properties = font_manager.FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return ImageFont.truetype(font_manager.findfont(properties), size)


def pieces(tokenizer, tokens: Sequence[int]) -> list[str]:
    """The text of each token."""
    texts = [tokenizer.decode(list(tokens[:end])) for end in range(len(tokens) + 1)]
    return [after[len(before) :] for before, after in pairwise(texts)]


class Page:
    """A text with a fixed layout: each token has its place from the start, and a masked one is a bar as wide as its text."""

    def __init__(self, words: Sequence[str], width: int, size: int):
        self.font, self.height = font(size), round(size * 1.75)
        self.words = words
        space = self.font.getlength(" ")
        starts = [i for i, word in enumerate(words) if i == 0 or word[:1].isspace()] + [len(words)]
        x = y = 0.0
        self.at: list[tuple[float, float, float]] = []  # left, top, width
        for start, end in pairwise(starts):  # a word, of several tokens, is not cut at the end of a line
            widths = [self.font.getlength(word.strip()) for word in words[start:end]]
            if x and x + space + sum(widths) > width:
                x, y = 0.0, y + self.height
            elif x:
                x += space
            for each in widths:
                self.at.append((x, y, each))
                x += each
        self.bottom = y + self.height

    def draw(self, onto: ImageDraw.ImageDraw, left: int, top: int, colours: Sequence[str]) -> None:
        """Each token in its colour; a token of colour MASK as a bar."""
        ascent = sum(self.font.getmetrics())
        for word, (x, y, width), colour in zip(self.words, self.at, colours):
            x, y = left + x, top + y
            if colour == MASK:
                box = (x + 1, y + 0.12 * ascent, x + max(width - 1, 4), y + 0.92 * ascent)
                onto.rounded_rectangle(box, radius=ascent / 6, fill=MASK)
            else:
                onto.text((x, y), word.strip(), font=self.font, fill=colour)


def digit_image(tokens: np.ndarray, masked: np.ndarray, scale: int) -> Image.Image:
    """A digit, (28, 28) levels; masked pixels have the colour of masks."""
    grey = np.repeat(tokens.clip(0, 255).astype(np.uint8)[..., None], 3, -1)
    grey = np.where(masked[..., None], np.array(tuple(bytes.fromhex(MASK[1:])), np.uint8), grey)
    return Image.fromarray(grey).resize((28 * scale, 28 * scale), Image.Resampling.NEAREST)


def story_frames() -> tuple[list[str], list[list[str]]]:
    """The text of each token at the end, and of every step what each token is: masked, new, shown or given."""
    model = zellige.load("stories-mdlm")
    fixed = torch.tensor(fixed_tokens(model, STORY))[None]
    how = {"steps": STEPS, "seed": STORY_SEED, "temperature": 0.4, "top_p": 0.9, "defaults": False}
    frames = list(zellige.watch(model, fixed=fixed, length=fixed.shape[1], **how))
    return pieces(model.tokenizer, frames[-1].x[0].tolist()), [list(map(str, frame.marks(0))) for frame in frames]


def fixed_tokens(model: zellige.Model, text: str) -> list[int]:
    """The tokens of a text; -1 for each `_`."""
    tokens: list[int] = []
    for i, part in enumerate(text.replace("_", "\0_\0").split("\0")):
        tokens += [-1] if part == "_" else list(model.tokenizer.encode(part)) if part or i == 0 else []
    return tokens


def digit_frames() -> list[tuple[np.ndarray, np.ndarray]]:
    model = zellige.load("mnist")
    frames = zellige.watch(model, classes=[DIGIT], count=1, steps=250, seed=DIGIT_SEED, defaults=False)
    return [(frame.x[0].numpy().reshape(28, 28), frame.masked[0].numpy().reshape(28, 28)) for frame in frames]


COLOURS = {"masked": MASK, "new": INK, "shown": INK, "given": GIVEN}


def scenes(scale: int) -> list[Image.Image]:
    """All frames of the moving picture: the story on the left, the digit on the right, how far it is below."""
    (words, story), digits = story_frames(), digit_frames()
    width, height, margin = 760 * scale, 228 * scale, 22 * scale
    page = Page(words, width - 28 * 6 * scale - 3 * margin, 17 * scale)
    small, out = font(11.5 * scale), []
    for number in range(FRAMES + 1):
        done = number / FRAMES
        marks, before = (story[round(max(n, 0) / FRAMES * (len(story) - 1))] for n in (number, number - FRESH))
        new = [now != "masked" and then == "masked" and number < FRAMES for now, then in zip(marks, before)]
        colours = [NEW if fresh else COLOURS[mark] for fresh, mark in zip(new, marks)]
        image = Image.new("RGB", (width, height), PAPER)
        onto = ImageDraw.Draw(image)
        page.draw(onto, margin, margin, colours)
        image.paste(
            digit_image(*digits[round(done * (len(digits) - 1))], 6 * scale), (width - 28 * 6 * scale - margin, margin)
        )
        y = height - 20 * scale
        onto.text((margin, y - 4 * scale), f"noise level {1 - done:.2f}", font=small, fill=FAINT)
        left, right = margin + 110 * scale, width - margin
        onto.rounded_rectangle((left, y, right, y + 5 * scale), radius=2 * scale, fill="#2a3546")
        if done:
            onto.rounded_rectangle((left, y, left + (right - left) * done, y + 5 * scale), radius=2 * scale, fill=NEW)
        out.append(image)
    return out


def moving_picture() -> None:
    """appear.gif and writing.png."""
    frames = scenes(1)
    palette = frames[len(frames) // 2].quantize(48, method=Image.Quantize.MEDIANCUT)
    first, *others = [
        frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in [*frames, *frames[-1:] * HOLD]
    ]
    first.save(
        PICTURES / "appear.gif", save_all=True, append_images=others, duration=MILLISECONDS, loop=0, optimize=True
    )
    large = scenes(2)
    parts = [large[round(share * FRAMES)] for share in (0, 0.33, 0.67, 1)]
    stacked(parts).save(PICTURES / "writing.png", optimize=True)


def stacked(parts: Sequence[Image.Image], gap: int = 12) -> Image.Image:
    """Images below one another."""
    image = Image.new("RGBA", (parts[0].width, sum(part.height + gap for part in parts) - gap), (0, 0, 0, 0))
    y = 0
    for part in parts:
        image.paste(part, (0, y))
        y += part.height + gap
    return image


def masking() -> None:
    """masking.png: one text at five noise levels, masked by the method itself."""
    model = zellige.load("stories-mdlm")
    text = "Lily took her red ball to the park, and in the evening she met a little dog there."
    tokens = torch.tensor(model.tokenizer.encode(text))[None]
    words, scale = pieces(model.tokenizer, tokens[0].tolist()), 2
    page = Page(words, 560 * scale, 16 * scale)
    rows = (0.0, 0.25, 0.5, 0.75, 1.0)
    step = round(page.bottom) + 16 * scale
    image = Image.new("RGB", (740 * scale, step * len(rows) + 22 * scale), PAPER)
    onto, label = ImageDraw.Draw(image), font(13 * scale, bold=True)
    for i, t in enumerate(rows):
        noisy = model.method.corrupt(Batch(tokens), t, torch.Generator().manual_seed(3))
        colours = [MASK if masked else INK for masked in (noisy != tokens)[0].tolist()]
        y = 20 * scale + i * step
        onto.text((24 * scale, y + 3 * scale), f"t = {t:.2f}", font=label, fill=FAINT)
        page.draw(onto, 120 * scale, y, colours)
    image.save(PICTURES / "masking.png", optimize=True)


def prediction() -> None:
    """prediction.png: the most likely tokens at two masks, and their probabilities."""
    model = zellige.load("stories-mdlm")
    tokens = torch.tensor(fixed_tokens(model, GAPS))
    masked = tokens < 0
    noisy = tokens.where(~masked, model.method.process.K - 1)[None]
    with torch.no_grad():
        p = posterior(model.method.predict(noisy, 0.5, at=masked[None]))
    words = pieces(model.tokenizer, tokens.clamp_min(0).tolist())
    words = [" ______" if token < 0 else word for token, word in zip(tokens.tolist(), words)]
    scale = 2
    page = Page(words, 700 * scale, 18 * scale)
    image = Image.new("RGB", (740 * scale, 250 * scale), PAPER)
    onto, name, number = ImageDraw.Draw(image), font(13 * scale), font(11.5 * scale)
    page.draw(onto, 24 * scale, 20 * scale, [MASK if token < 0 else INK for token in tokens.tolist()])
    for row, position in enumerate(masked.nonzero().flatten().tolist()):
        x = 24 * scale + page.at[position][0]
        top = p[row].topk(5)
        for i, (value, token) in enumerate(zip(top.values.tolist(), top.indices.tolist())):
            y = (72 + 34 * i) * scale
            box = (x, y + 18 * scale, x + 250 * value * scale + 2, y + 25 * scale)
            onto.rounded_rectangle(box, radius=2 * scale, fill=NEW)
            onto.text((x, y), model.tokenizer.decode([token]).strip(), font=name, fill=INK)
            onto.text((x + 110 * scale, y + 1 * scale), f"{100 * value:.1f}%", font=number, fill=FAINT)
    image.save(PICTURES / "prediction.png", optimize=True)


def good_number() -> None:
    """good-number.svg: the table of models of the stories in docs/learn/bounds.md, on one axis."""
    page = (Path(__file__).parents[1] / "learn" / "bounds.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| ([=≤]) ([\d.]+)(?: ± ([\d.]+))? \|", page, re.MULTILINE)
    figure, axes = plt.subplots(figsize=(8, 3.6))
    for y, (name, sign, value, _) in enumerate(reversed(rows)):
        diffusion = sign == "≤"
        axes.plot(float(value), y, "<" if diffusion else "o", color="#c77800" if diffusion else "#2b5f9e")
        axes.text(float(value) + 0.08, y, f"{name.replace('`', '')}  {sign} {value}", va="center", fontsize=9)
    axes.set_yticks([])
    axes.set_xlim(1, 8.2)
    axes.set_xlabel("bits per character; lower is better. Triangles are upper bounds")
    axes.spines[["left", "right", "top"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURES / "good-number.svg", metadata={"Date": None})


if __name__ == "__main__":
    good_number()
    masking()
    prediction()
    moving_picture()
