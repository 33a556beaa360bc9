"""`zellige play` in a browser: every control, at two widths, light and dark; nothing leaves the machine."""

import os
import re
import threading
import time
from pathlib import Path

import pytest

import zellige
from zellige.data.levels import SILENT
from zellige.show.kinds import Roll

from .small_models import small

pytest.importorskip("fastapi", reason="the extra `web` is missing")
uvicorn = pytest.importorskip("uvicorn", reason="the extra `web` is missing")
api = pytest.importorskip("playwright.sync_api", reason="playwright is missing")
listen = pytest.importorskip("zellige.web.guard").listen
application = pytest.importorskip("zellige.web.play").application
CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/google-chrome") if Path(path).exists()), None)
pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]

PATIENCE = 120_000  # milliseconds that a state may take to come, on a busy machine; nothing waits for time alone
LONG = "text ar, in a folder whose name is longer than a narrow screen is wide"
PICTURES = os.environ.get("ZELLIGE_PICTURES")  # a folder, to look at what the page looks like


@pytest.fixture(scope="module")
def address():
    models = {
        "text": small(), "text uniform": small(name="udlm"), LONG: small(name="ar"), "sudoku": small("sudoku"),
        "images": small("image", classes=3), "music": small("music"), "molecules": small("molecules"),
        "tales": zellige.load("tales"),
    }  # fmt: skip
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(application(models), log_level="warning", ws="none"))
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)
    listening.close()


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, address):
    """Opens the page; at the end there was no request to anywhere else, and no error in the console."""
    contexts, asked, wrong, outside = [], [], [], []

    def stopped(route):
        outside.append(route.request.url)
        route.abort()

    def one(width=1280, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.route(lambda url: not url.startswith((address, "data:", "blob:", "file:")), stopped)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        page.wait_for_selector(".pane")
        return page

    yield one
    for context in contexts:
        context.close()
    assert asked
    assert outside == []
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)
    assert [text for text in wrong if "400" not in text] == []


def part(page, name, pane=0):
    return page.locator(f".pane >> nth={pane} >> [data-part={name}]")


def choose(page, label, pane=0):
    select = part(page, "model", pane)
    select.select_option(
        select.locator("option", has_text=re.compile(f"^{re.escape(label)} \\(")).get_attribute("value")
    )


def write(page, button="#write", steps="8"):
    page.fill("#steps", steps)
    page.click(button)
    api.expect(page.locator("#status")).to_have_text("done", timeout=PATIENCE)


def shot(page, name):
    if PICTURES:
        page.screenshot(path=f"{PICTURES}/{name}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 400, 360])
@pytest.mark.parametrize("model", ["text", "sudoku", "images", "music", "molecules"])
def test_each_kind_is_drawn_looked_at_and_saved(opened, model, width, scheme):
    page = opened(width, scheme)
    choose(page, model)
    if model == "images":
        page.select_option("#class", "1")
    write(page)
    assert part(page, "where").text_content().startswith("step 8/8")
    assert part(page, "text").locator(".new").count() == 0  # what is finished has no marks of its last step
    assert part(page, "text").evaluate("e => e.scrollWidth <= e.clientWidth + 1")  # and is seen whole
    if width in (768, 360):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        return
    part(page, "text").locator("span >> nth=2").hover()
    assert part(page, "distribution").locator(".chosen").count() == 1  # the token under the pointer, among its rivals
    assert "%" in part(page, "distribution").text_content()
    part(page, "first").click()
    assert part(page, "where").text_content().startswith("step 0/8")
    part(page, "scrub").fill("5")
    assert part(page, "where").text_content().startswith("step 5/8")
    marked = part(page, "scrub").evaluate("""scrub => [...Array(8).keys()].map(k => {
        scrub.value = k; scrub.dispatchEvent(new Event("input"));
        return document.querySelectorAll(".pane [data-part=text] .new").length; })""")
    assert sum(marked) > 0  # at the steps before the last
    part(page, "last").click()
    page.click(".pane [data-part=bound]")
    api.expect(part(page, "numbers")).to_contain_text("-log p ≤", timeout=PATIENCE)
    api.expect(page.locator("#stop")).to_be_disabled(timeout=PATIENCE)
    if model == "text":
        page.click(".pane [data-part=bracket]")
        api.expect(part(page, "numbers")).to_contain_text("≤ -log p ≤", timeout=PATIENCE)
        api.expect(page.locator("#stop")).to_be_disabled(timeout=PATIENCE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing runs out of the page
    for button in part(page, "files").locator("button").all():
        with page.expect_download() as download:
            button.click()
        content = Path(download.value.path()).read_bytes()
        start = {"html": b"<!doctype", "gif": b"GIF8", "mp4": b"ftyp", "png": b"\x89PNG", "mid": b"MThd"}
        assert start[button.text_content().rpartition(".")[2]] in content[:9]
    if model == "music":
        part(page, "listen").click()
        assert part(page, "listen").text_content() == "Silence"
        part(page, "listen").click()
        assert part(page, "listen").text_content() == "Listen"
    shot(page, f"{model}-{width}-{scheme}")


def test_words_are_clicked_away_and_filled_in_and_locked_ones_stay(opened):
    page = opened()
    page.fill("#words", "the ________ is")
    write(page)
    text = part(page, "text")
    shown = lambda: text.locator("span").all_text_contents()  # noqa: E731 - a control character is shown as several
    before = shown()
    assert before[:4] + before[12:] == list("the  is")
    assert page.locator("#fill").is_disabled()
    text.locator("span >> nth=0").click()
    assert text.locator(".away").count() == 3  # the word, not the space behind it
    write(page, "#fill")
    assert shown()[3:] == before[3:]
    page.check("[name=click][value=lock]")
    text.locator("span >> nth=13").click()
    assert text.locator(".locked").count() == 2
    page.fill("#seed", "5")
    write(page)
    assert shown()[13:15] == ["i", "s"]
    assert shown()[:13] != before[:13]
    text.locator("span >> nth=13").click()
    assert text.locator(".locked").count() == 0
    text.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("l")
    assert text.locator(".locked").count() > 0
    page.click("#unlock")
    assert text.locator(".locked").count() == 0
    page.click("#clear")
    assert set(shown()) == {"·"}


def test_the_sampler_has_its_options_on_the_page(opened):
    page = opened()
    options = lambda: part(page, "options").locator("input").evaluate_all("all => all.map(i => i.name)")  # noqa: E731
    part(page, "sampler").select_option("fixed_order")
    assert options() == ["top_k", "drop_crossing", "per_step", "order"]
    page.click(".options summary")
    shot(page, "options")
    part(page, "options").locator("[name=order]").fill("backward")
    part(page, "options").locator("[name=per_step]").fill("6")
    write(page)
    api.expect(part(page, "where")).to_contain_text("step 4/4")  # 24 tokens, 6 a step
    part(page, "first").click()
    part(page, "on").click()
    standing = part(page, "text").locator("span:not(.masked)")
    assert standing.count() == 6
    assert part(page, "text").locator("span:nth-last-child(-n+6).new").count() == 6  # from the end
    part(page, "options").locator("[name=order]").fill("sideways")
    page.click("#write")
    page.wait_for_selector("#status.wrong")
    assert "sideways" in page.locator("#status").text_content()
    part(page, "sampler").select_option("blockwise")
    part(page, "options").locator("[name=block_sampler]").fill("remasking")
    part(page, "options").locator("[name=block_sampler]").dispatch_event("change")
    assert {"block_sampler", "stride", "eta"} <= set(options())  # its own, and those of the one inside


def test_a_model_that_comes_along_begins_as_its_card_draws(opened):
    page, card = opened(), zellige.load("tales").defaults
    choose(page, "tales")
    assert part(page, "sampler").input_value() == "blockwise"
    inputs = (
        part(page, "options")
        .locator("input:not([type=checkbox])")
        .evaluate_all("all => all.map(i => [i.name, i.value])")
    )
    shown = {name: value for name, value in inputs if value} | {
        "temperature": page.locator("#temperature").input_value()
    }
    assert shown | {"top_p": page.locator("#top_p").input_value()} == {name: str(value) for name, value in card.items()}
    page.click(".options summary")
    write(page, steps="32")
    shot(page, "tales")


def test_another_model_brings_its_own_options_and_none_of_the_last_one(opened):
    page = opened()
    choose(page, "tales")
    fields = {"#steps": "7", "#temperature": "0.3", "#top_p": "0.5"}
    for field, value in fields.items():
        page.fill(field, value)
    choose(page, "text")
    assert [page.locator(field).input_value() for field in fields] == ["64", "1", "1"]
    part(page, "sampler").select_option("fixed_order")
    page.click(".options summary")
    part(page, "options").locator("[name=top_k]").fill("3")
    part(page, "options").locator("[name=drop_crossing]").check()
    choose(page, "molecules")
    part(page, "sampler").select_option("fixed_order")
    assert part(page, "options").locator("[name=top_k]").input_value() == ""
    assert not part(page, "options").locator("[name=drop_crossing]").is_checked()
    assert "Trained on" in part(page, "about").text_content()
    choose(page, "tales")
    assert "tales" in part(page, "about").text_content()


def test_a_roll_has_a_line_for_each_pitch_and_sounds_as_it_is_drawn(opened):
    page = opened()
    page.evaluate("""() => {
        globalThis.heard = [];
        const start = OscillatorNode.prototype.start;
        OscillatorNode.prototype.start = function (at) { heard.push([this.frequency.value, at]); start.call(this, at); };
    }""")
    choose(page, "music")
    write(page)
    notes = small("music").tokenizer
    roll = Roll(notes)
    pitch = dict(zip(roll.pieces(range(notes.size)), roll.pitch.tolist()))
    spans = (
        part(page, "text")
        .locator(":scope > span")
        .evaluate_all(
            "all => all.map(s => [s.textContent, s.getBoundingClientRect().left, s.getBoundingClientRect().bottom])"
        )
    )
    drawn = [pitch[name] for name, _, _ in spans]
    for (_, _, bottom), a in zip(spans, drawn):
        for (_, _, other_bottom), b in zip(spans, drawn):
            if SILENT < a < b:
                assert bottom > other_bottom  # up is higher
    lefts = [left for _, left, _ in spans]
    assert lefts[::4] == sorted(set(lefts))  # a column a step, all four voices in it
    part(page, "listen").click()
    heard = page.evaluate("heard")
    expected = [440 * 2 ** ((number - 69) / 12) for voice in roll.notes([[*pitch].index(name) for name, _, _ in spans])
                for _, _, number in voice]  # fmt: skip
    assert [hertz for hertz, _ in heard] == pytest.approx(expected, rel=1e-4)
    choose(page, "text")
    assert part(page, "listen").text_content() == "Listen"  # nothing sounds on


def test_a_file_that_needs_an_extra_is_disabled_and_says_which(opened):
    page = opened()
    page.route("**/api/models", lambda route: route.fulfill(json=lacking(route.fetch().json())))
    page.reload()
    page.wait_for_selector(".pane")
    button = part(page, "files").get_by_text("save .mp4")
    assert button.is_disabled()
    assert part(page, "missing").text_content() == "a film needs 'av'; pip install 'zellige[video]'"
    assert part(page, "files").get_by_text("save .gif").is_enabled()


def lacking(models):
    for model in models:
        for format in model["formats"]:
            format["missing"] = "a film needs 'av'; pip install 'zellige[video]'" if format["name"] == "mp4" else None
    return models


def test_a_theme_is_chosen(opened):
    page = opened(scheme="light")
    paper = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    light = paper()
    page.click(".theme >> text=dark")
    assert paper() != light
    assert page.locator(".theme [aria-pressed=true]").text_content() == "dark"
    page.click(".theme >> text=auto")
    assert paper() == light


def test_a_sudoku_is_set_and_solved(opened):
    page = opened()
    choose(page, "sudoku")
    board = part(page, "text")
    board.locator("span >> nth=0").click()
    page.keyboard.press("3")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("1")
    write(page)
    cells = board.locator("span").all_text_contents()
    assert cells[:2] == ["3", "1"]
    assert set(cells) <= set("1234")
    assert re.search("valid", part(page, "numbers").text_content())


def test_two_side_by_side_from_one_seed_and_long_work_is_stopped(opened):
    page = opened()
    page.check("#beside")
    choose(page, "text", 1)
    write(page)
    assert part(page, "text").text_content() == part(page, "text", 1).text_content()  # the same model, sampler and seed
    part(page, "sampler", 1).select_option("first_hitting")
    choose(page, LONG, 0)
    write(page)
    shot(page, "beside")
    page.fill("#steps", "2000")
    choose(page, "text", 0)
    page.click("#write")
    api.expect(page.locator("#status")).to_contain_text("of 2000", timeout=PATIENCE)
    page.click("#stop")
    api.expect(page.locator("#status")).to_have_text("stopped", timeout=PATIENCE)
    page.fill("#steps", "0")
    page.click("#write")
    assert "steps" in page.locator("#status").text_content()


def test_two_people_at_once_get_what_they_get_alone(opened):
    first, second = opened(), opened()
    for page, seed in ((first, "1"), (second, "2")):
        page.fill("#seed", seed)
        write(page, steps="40")
    alone = [part(page, "text").text_content() for page in (first, second)]
    first.click("#write")
    second.click("#write")
    for page in (first, second):
        api.expect(page.locator("#status")).to_have_text("done", timeout=PATIENCE)
    assert [part(page, "text").text_content() for page in (first, second)] == alone
    assert alone[0] != alone[1]


def test_hostile_text_shows_as_text(opened, tmp_path):
    page = opened()
    page.fill("#words", "<script>x()</script>\u200f\x07")
    write(page)
    assert part(page, "text").text_content().startswith("<script>x()</script>\\u200f\\x07")
    assert page.locator(".pane script").count() == 0
    shot(page, "hostile")
    page.fill("#words", "Ж")
    page.click("#write")
    page.wait_for_selector("#status.wrong")
    assert "not in the model's vocabulary" in page.locator("#status").text_content()
    with page.expect_download() as download:
        part(page, "files").locator("button >> nth=0").click()
    saved = tmp_path / "run.html"
    download.value.save_as(saved)
    alone = page.context.new_page()
    alone.goto(saved.as_uri())
    assert alone.locator("#text").text_content().startswith("<script>x()</script>\\u200f\\x07")
    alone.click("#first")
    assert "step 0/" in alone.locator("#where").text_content()
    assert alone.locator(".player script").count() == 0
