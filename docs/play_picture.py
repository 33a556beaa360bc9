"""The pictures of docs/play.md: the page of `zellige play` in Chromium, with a run of text and one of Sudoku.

    python docs/play_picture.py RUN-OF-TEXT RUN-OF-SUDOKU

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

PICTURES = Path(__file__).parent / "pictures"


def done(page: Page, button: str = "#write") -> None:
    page.click(button)
    expect(page.locator("#status")).to_have_text("done", timeout=300_000)


def part(page: Page, name: str, pane: int = 0):
    return page.locator(f".pane >> nth={pane} >> [data-part={name}]")


def text(page: Page) -> None:
    """A gap filled by two samplers from one seed, an order among the options, both sides of -log p, a word clicked away."""
    page.fill("#words", "the value of the ________ is")
    page.fill("#steps", "16")
    page.check("#beside")
    part(page, "model", 1).select_option("0")
    part(page, "sampler", 1).select_option("fixed_order")
    page.click(".pane >> nth=1 >> .options summary")
    part(page, "options", 1).locator("[name=order]").fill("backward")
    done(page)
    for button in ("bound", "bracket"):
        done(page, f".pane >> nth=0 >> [data-part={button}]")
    part(page, "scrub", 1).fill("5")
    part(page, "text").locator("span >> nth=5").click()
    part(page, "text").locator("span >> nth=20").hover()


def sudoku(page: Page) -> None:
    """Two cells set, the others drawn."""
    part(page, "model").select_option("1")
    cells = part(page, "text").locator("span")
    for cell, digit in ((0, "3"), (6, "1")):
        cells.nth(cell).click()
        page.keyboard.press(digit)
    page.fill("#steps", "32")
    done(page)
    done(page, ".pane [data-part=bound]")
    cells.nth(9).hover()


def main(runs: list[str]) -> None:
    command = [sys.executable, "-m", "zellige", "play", *runs, "--port", "0"]
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
        shots: list[tuple[str, Callable[[Page], None], int, Literal["light", "dark"]]]
        shots = [("text", text, 1280, "light"), ("sudoku", sudoku, 400, "dark")]
        for name, make, width, scheme in shots:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto(address)
            page.wait_for_selector(".pane")
            make(page)
            page.screenshot(path=PICTURES / f"play-{name}.png", full_page=True)


if __name__ == "__main__":
    main(sys.argv[1:])
