"""The pictures of docs/guides/play.md: the page of `zellige play` in Chromium, with the models that come with Zellige.

    python docs/_tools/play_picture.py

Needs `playwright` and Chromium.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, expect, sync_playwright

PICTURES = Path(__file__).parents[1] / "pictures"


def done(page: Page, button: str = "#write") -> None:
    page.click(button)
    expect(page.locator("#status")).to_have_text("done", timeout=300_000)


def part(page: Page, name: str, pane: int = 0):
    return page.locator(f".pane >> nth={pane} >> [data-part={name}]")


def scrub(page: Page, fraction: float, pane: int = 0) -> None:
    frames = int(part(page, "scrub", pane).get_attribute("max") or 0)
    part(page, "scrub", pane).fill(str(round(frames * fraction)))


def text(page: Page) -> None:
    """A story half written; the distribution of one of its words."""
    page.click("#examples button >> nth=0")
    done(page)
    scrub(page, 0.55)
    part(page, "text").locator("span >> nth=11").hover()


def nouns(page: Page) -> None:
    """A character half drawn; its head is named."""
    page.check("[name=class][value=panda]")
    done(page)
    scrub(page, 0.4)


def two(page: Page) -> None:
    """Digits of one class and seed, in 16 steps and in 250."""
    page.check("[name=class][value='3']")
    page.check("#beside")
    page.fill("#steps", "16")
    done(page)
    scrub(page, 0.7)


def music(page: Page) -> None:
    """A chorale, colours by the step in which notes were written, how likely it is."""
    page.fill("#steps", "64")
    done(page)
    done(page, "#bound")
    part(page, "text").locator("span >> nth=40").hover()


def molecules(page: Page) -> None:
    page.fill("#seed", "6")
    done(page)
    part(page, "text").locator("span >> nth=4").hover()


def sudoku(page: Page) -> None:
    """The example puzzle, solved, on a narrow screen."""
    page.click("#examples button")
    done(page)
    part(page, "text").locator("span >> nth=2").hover()


SHOTS: list[tuple[str, str, Callable[[Page], None], int, Literal["light", "dark"]]] = [
    ("text", "stories", text, 1280, "light"), ("nouns", "nouns", nouns, 1280, "light"),
    ("two", "mnist", two, 1280, "light"), ("music", "chorales", music, 1280, "dark"),
    ("molecules", "molecules", molecules, 1280, "light"), ("sudoku", "sudoku", sudoku, 400, "dark"),
]  # fmt: skip


def main() -> None:
    command = [sys.executable, "-m", "zellige", "play", "--port", "0"]
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            shoot(re.findall(r"http://\S+", server.stdout.readline())[0], chromium)
        finally:
            server.terminate()


def shoot(address: str, chromium: str | None) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, model, make, width, scheme in SHOTS:
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            page.goto(f"{address}/#model={model}")
            page.wait_for_selector(".pane")
            make(page)
            page.screenshot(path=PICTURES / f"play-{name}.png", full_page=width < 1000)


if __name__ == "__main__":
    main()
