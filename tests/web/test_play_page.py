"""`zellige play` in a browser: how it opens, its defaults, link, keys and sizes, and every control on every kind of data.

Nothing leaves the machine, and nothing is said in the console.
"""

import json
import os
import re
import threading
import time
from pathlib import Path

import pytest

import zellige
from zellige.models.decoding import as_watched
from zellige.plugins.kinds.music.notes import SILENT
from zellige.plugins.kinds.music.roll import Roll

from .small_models import small

pytest.importorskip("fastapi", reason="the extra `web` is missing")
uvicorn = pytest.importorskip("uvicorn", reason="the extra `web` is missing")
api = pytest.importorskip("playwright.sync_api", reason="playwright is missing")
listen = pytest.importorskip("zellige.plugins.web.guard").listen
application = pytest.importorskip("zellige.plugins.web.play").application
CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/google-chrome") if Path(path).exists()), None)
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"), pytest.mark.long]

PATIENCE = 120_000  # milliseconds that a state may take to come, on a busy machine; nothing waits for time alone
LONG = "text ar, in a folder whose name is longer than a narrow screen is wide"
PICTURES = os.environ.get("ZELLIGE_PICTURES")  # a folder, to look at what the page looks like


def advised(name: str) -> dict[str, str]:
    """The fields of the page that a model's card sets."""
    advice = as_watched(zellige.load(name).defaults)
    return {field: str(value) for field, value in advice.items() if field != "infill"}


@pytest.fixture(scope="module")
def address():
    models = {
        "text": small(), "text uniform": small(name="udlm"), LONG: small(name="ar"), "sudoku": small("sudoku"),
        "images": small("image", classes=3), "music": small("music"), "molecules": small("molecules"),
        "stories": zellige.load("stories"), "selfies": zellige.load("molecules"), "nine": zellige.load("sudoku"),
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
    """Opens the page, at rest unless `moving`; at the end there was no request to anywhere else, and no error in the console."""
    contexts, asked, wrong, outside = [], [], [], []

    def stopped(route):
        outside.append(route.request.url)
        route.abort()

    def one(width=1280, scheme="light", link="", height=900, moving=False):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            accept_downloads=True,
            reduced_motion="no-preference" if moving else "reduce",  # then nothing is drawn before it is asked for
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.route(lambda url: not url.startswith((address, "data:", "blob:", "file:")), stopped)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address + link)
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
    part(page, "name", pane).click()
    page.locator(".card", has=page.get_by_text(label, exact=True)).locator("input").check()


def sampler(page, name):
    page.select_option("#sampler", name)


def fields(page):
    """The settings that are shown, options that are filled in among them."""
    options = page.locator("#options input:not([type=checkbox])").evaluate_all("all => all.map(i => [i.name, i.value])")
    values = {name: page.locator(f"#{name}").input_value() for name in ("sampler", "steps", "temperature", "top_p")}
    return values | {name: value for name, value in options if value}


def write(page, button="#write", steps="8"):
    if page.locator("#steps").is_enabled():
        page.fill("#steps", steps)
    page.click(button)
    api.expect(page.locator("#status")).to_have_text("done", timeout=PATIENCE)


def shot(page, name):
    if PICTURES:
        page.screenshot(path=f"{PICTURES}/{name}.png", full_page=True)


def test_nothing_stands_behind_the_end_of_a_text(opened):
    """The rest of the sequence is drawn, and hidden at every step once the end is known."""
    page = opened(link="#model=stories&seed=0")
    write(page)
    text = part(page, "text")
    seen = text.locator("xpath=./span[not(@hidden)]").count()
    assert 20 < seen < text.locator("xpath=./span").count()
    assert text.text_content().strip()[-1] in '.!?"'
    assert "<|" not in text.text_content()
    part(page, "scrub").fill("10")
    assert text.locator("xpath=./span[not(@hidden)]").count() == seen


def test_a_gallery_of_models_each_with_the_defaults_of_its_card(opened):
    page = opened()
    assert page.locator(".card b").all_text_contents() == [
        "text", "text uniform", LONG, "sudoku", "images", "music", "molecules", "stories", "selfies", "nine",
    ]  # fmt: skip
    assert page.locator("#sentence").text_content().startswith("Trained on ")
    assert fields(page) == {"sampler": "ancestral", "steps": "64", "temperature": "1", "top_p": "1"}
    page.fill("#temperature", "0.3")
    page.fill("#steps", "7")
    page.click("#more summary")
    page.locator("#options [name=top_k]").fill("3")
    page.locator("#options [name=drop_crossing]").check()
    choose(page, "nine")
    assert page.locator("#sentence").text_content() == "Solved Sudokus of 9 x 9; solves yours."
    card = advised("sudoku")
    page.click("#clear")  # of the example's givens
    assert fields(page) == {"top_p": "1"} | card
    assert not page.locator("#options [name=drop_crossing]").is_checked()
    choose(page, "stories")
    assert fields(page) == {"sampler": "blockwise", "steps": "64"} | advised("stories")
    choose(page, "text")  # nothing stays of the ones before, nor of what was typed
    assert fields(page) == {"sampler": "ancestral", "steps": "64", "temperature": "1", "top_p": "1"}
    sampler(page, "first_hitting")
    assert page.locator("#steps").is_disabled()  # as many as positions


def test_a_link_holds_models_seed_and_settings_and_brings_them_back(opened, address):
    page = opened()
    page.check("#chat")
    page.click("#share")
    assert "chat=1" in page.evaluate("location.hash")
    page.uncheck("#chat")
    page.fill("#words", "the ____ is <was>")
    page.fill("#seed", "41")
    page.fill("#steps", "9")
    page.fill("#temperature", "0.8")
    sampler(page, "confidence")
    page.click("#more summary")
    page.locator("#options [name=confidence]").fill("margin")
    page.locator("#options [name=top_k]").fill("5")
    page.check("[name=colour][value=entropy]")
    page.check("#beside")
    choose(page, "sudoku", 1)
    part(page, "text", 1).locator("span >> nth=5").click()
    page.keyboard.press("3")
    page.click("#share")
    link = page.evaluate("location.hash")
    choose(page, "images", 1)
    other = opened(link=link)
    api.expect(other.locator("#status")).to_have_text("done", timeout=PATIENCE)  # a link is drawn at once
    part(other, "name").click()
    assert fields(other) == {
        "sampler": "confidence",
        "steps": "9",
        "temperature": "0.8",
        "top_p": "1",
        "confidence": "margin",
        "top_k": "5",
    }
    assert [other.locator(field).input_value() for field in ("#words", "#seed")] == ["the ____ is <was>", "41"]
    assert other.locator("[name=colour]:checked").input_value() == "entropy"
    assert part(other, "name", 1).text_content().endswith("sudoku")
    assert part(other, "text", 1).locator("span >> nth=5").text_content() == "3"
    other.click("#share")
    assert other.evaluate("location.hash") == link
    shown = part(other, "text").text_content()
    assert (shown[:4], shown[8:18]) == ("the ", " is <was>")
    assert part(other, "text", 1).locator("span >> nth=5").text_content() == "3"
    bare = opened(link="#model=stories")  # as its card samples, its options too
    advice = advised("stories")
    assert advice.keys() >= {"block_sampler", "confidence", "temperature"}
    assert advice.items() <= fields(bare).items()
    assert bare.locator("#steps-word").text_content() == "Steps per block"
    lost = opened(link="#model=elsewhere&steps=banana&kept=x")
    assert "elsewhere" in lost.locator("#status.wrong").text_content()
    assert fields(lost)["steps"] == "64"


def test_the_first_model_writes_by_itself_unless_the_reader_wants_no_motion(opened):
    page = opened(moving=True)
    api.expect(part(page, "play")).to_have_text("Pause")
    api.expect(page.locator("#status")).to_have_text("done", timeout=PATIENCE)
    api.expect(part(page, "play")).to_have_text("Play", timeout=PATIENCE)
    assert part(page, "where").text_content().startswith("step 64/64")  # played to its end
    assert part(page, "marks").locator(":scope > span").all_text_contents() == [
        "a bar is a masked token: not written yet", "written in this step",
    ]  # fmt: skip
    still = opened()
    assert still.locator("#status").text_content() == ""
    assert part(still, "where").text_content().startswith("step 0/0")


def test_a_model_opens_with_its_example_and_its_first_class(opened):
    page = opened()
    choose(page, "images")
    assert page.locator("[name=class]:checked").input_value() == page.locator("[name=class]").nth(1).input_value()
    choose(page, "stories")
    assert page.locator("#words").input_value() == page.locator("#examples button").first.text_content()
    choose(page, "text")  # which has no example
    assert page.locator("#words").input_value() == ""
    page.fill("#words", "mine")
    choose(page, "stories")
    assert page.locator("#words").input_value() == "mine"
    choose(page, "nine")
    assert part(page, "text").locator(".locked").count() == 30  # the givens of the example


def test_write_leaves_the_controls_to_the_sample_that_they_belong_to(opened):
    page = opened()
    page.check("#beside")
    choose(page, "sudoku", 1)
    write(page)
    assert page.locator(".which").first.text_content() == "for B"


def test_a_molecule_is_saved_as_smiles_and_as_a_drawing(opened):
    page = opened()
    choose(page, "selfies")
    write(page)
    files = {}
    for name in ("smi", "svg"):
        with page.expect_download() as download:
            part(page, "files").get_by_text(f".{name}", exact=True).click()
        files[name] = Path(download.value.path()).read_text()
    assert files["smi"] == part(page, "numbers").locator(".spelling").text_content() + "\n"
    assert files["svg"].startswith("<svg")
    assert "var(" not in files["svg"]
    assert files["svg"].count('class="bond"') == part(page, "molecule").locator(".bond").count() > 0


def test_keys_write_play_step_and_help(opened):
    page = opened(moving=True)
    api.expect(page.locator("#status")).to_have_text("done", timeout=PATIENCE)
    page.fill("#steps", "8")
    page.focus("#words")
    page.keyboard.press("Enter")
    api.expect(part(page, "where")).to_contain_text("step 8/8", timeout=PATIENCE)
    step = lambda: int(part(page, "where").text_content().split()[1].partition("/")[0])  # noqa: E731
    page.locator("body").evaluate("() => document.activeElement.blur()")
    assert step() == 8
    page.keyboard.press("ArrowLeft")
    assert step() == 7
    page.keyboard.press("Home")
    assert step() == 0
    page.keyboard.press("ArrowRight")
    assert step() == 1
    page.keyboard.press(" ")
    assert part(page, "play").text_content() == "Pause"
    page.keyboard.press(" ")
    assert part(page, "play").text_content() == "Play"
    page.keyboard.press("End")
    assert step() == 8
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    assert page.locator("#help").get_by_text("play, pause").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.focus("#words")
    page.keyboard.press("?")
    assert page.locator("#words").input_value() == "?"  # in a text it is a letter
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"  # the focus is seen


def test_it_fits_one_screen_and_narrow_ones_need_no_sideways_scrolling(opened):
    wide, narrow = opened(height=800), opened(400)
    overflow = """() => ["html", "#controls", ".pane"].map(query => document.querySelector(query))
        .map(e => Math.max(e.scrollHeight - e.clientHeight, e.scrollWidth - e.clientWidth))"""
    for model in ("stories", "nine", "images", "music", "molecules", "text"):
        choose(wide, model)
        assert wide.evaluate(overflow) == [0, 0, 0], model
        choose(narrow, model)
        assert narrow.evaluate("document.documentElement.scrollWidth <= innerWidth"), model
        part(narrow, "text").evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    write(wide)
    assert wide.evaluate(overflow) == [0, 0, 0]
    board = part(wide, "text").locator("xpath=..").bounding_box()
    assert board["width"] > 0.45 * 1280
    assert board["height"] > 0.45 * 800  # large, in the middle
    assert abs(board["x"] + board["width"] / 2 - 640) < 40
    for page in (wide, narrow):
        page.check("#beside")
    boxes = lambda page: [part(page, "text", i).bounding_box() for i in (0, 1)]  # noqa: E731
    assert boxes(wide)[0]["x"] < boxes(wide)[1]["x"]
    assert boxes(narrow)[0]["x"] == boxes(narrow)[1]["x"]
    assert boxes(narrow)[0]["y"] < boxes(narrow)[1]["y"]
    assert narrow.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_symbols_of_a_molecule_stand_above_its_smiles(opened):
    page = opened()
    choose(page, "selfies")
    assert "Each symbol is a token" in page.locator("#hint").text_content()
    page.fill("#words", page.locator("#words").get_attribute("placeholder"))  # what the page proposes can be written
    write(page)
    symbols = part(page, "text").locator("span:visible")
    tokenizer = zellige.load("molecules").tokenizer
    spelling = tokenizer.decode(tokenizer.encode("".join(symbols.all_text_contents())))
    assert part(page, "numbers").locator(".spelling").text_content() == spelling
    assert "sampled by first_hitting (exact)" in part(page, "numbers").text_content()
    symbols.nth(2).click()
    assert part(page, "text").locator(".away").count() == 1  # a symbol, not the whole molecule


def test_noise_without_masks_says_that_a_prediction_is_not_what_was_drawn_from(opened):
    page = opened(1280)
    for model, said in (("text uniform", 0), ("text", 1)):
        choose(page, model)
        write(page)
        assert part(page, "numbers").text_content().count("-log p of the tokens as they were sampled") == said
        part(page, "text").locator("span >> nth=2").hover()
        assert "%" in page.locator("#distribution").text_content()
        assert page.locator("#distribution").text_content().count("product with the noise") == 1 - said


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 400, 360])
@pytest.mark.parametrize("model", ["text", "sudoku", "images", "music", "molecules"])
def test_each_kind_is_drawn_looked_at_and_saved(opened, model, width, scheme):
    page = opened(width, scheme)
    choose(page, model)
    if model == "images":
        page.check("[name=class][value='1']")
    write(page)
    assert part(page, "where").text_content().startswith("step 8/8")
    assert part(page, "text").locator(".new").count() == 0  # what is finished has no marks of its last step
    assert part(page, "text").evaluate("e => e.scrollWidth <= e.clientWidth + 1")  # and is seen whole
    if width in (768, 360):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        return
    part(page, "text").locator("span >> nth=2").hover()
    assert page.locator("#distribution .chosen").count() == 1  # the token under the pointer, among its rivals
    assert "%" in page.locator("#distribution").text_content()
    part(page, "first").click()
    assert part(page, "where").text_content().startswith("step 0/8")
    part(page, "scrub").fill("2")
    assert re.match("step [2-4]/8", part(page, "where").text_content())
    marked = part(page, "scrub").evaluate("""scrub => [...Array(Number(scrub.max)).keys()].map(k => {
        scrub.value = k; scrub.dispatchEvent(new Event("input"));
        return document.querySelectorAll(".pane [data-part=text] .new").length; })""")
    assert sum(marked) > 0  # at the steps before the last
    part(page, "last").click()
    page.click("#bound")
    api.expect(part(page, "numbers")).to_contain_text("-log p ≤", timeout=PATIENCE)
    api.expect(page.locator("#stop")).to_be_hidden(timeout=PATIENCE)
    if model == "text":
        page.click("#both")
        api.expect(part(page, "numbers")).to_contain_text("≤ -log p ≤", timeout=PATIENCE)
        api.expect(page.locator("#stop")).to_be_hidden(timeout=PATIENCE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing runs out of the page
    for button in part(page, "files").locator("button:enabled").all():
        with page.expect_download() as download:
            button.click()
        content = Path(download.value.path()).read_bytes()
        start = {"html": b"<!doctype", "gif": b"GIF8", "mp4": b"ftyp", "png": b"\x89PNG", "mid": b"MThd"}
        start |= {"svg": b"<svg", "smi": b""}
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
    assert page.locator("#fill").is_hidden()
    text.locator("span >> nth=0").click()
    assert text.locator(".away").count() == 3  # the word, not the space behind it
    write(page, "#fill")
    assert shown()[3:] == before[3:]
    page.check("[name=click][value=lock]")
    assert page.locator("#unlock").is_hidden()
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
    options = lambda: page.locator("#options input").evaluate_all("all => all.map(i => i.name)")  # noqa: E731
    sampler(page, "fixed_order")
    assert {"top_k", "drop_crossing", "per_step", "order"} <= {*options()}
    assert "guidance" not in options()  # this model has no classes
    page.click("#more summary")
    shot(page, "options")
    page.locator("#options [name=order]").fill("backward")
    page.locator("#options [name=per_step]").fill("6")
    write(page)
    api.expect(part(page, "where")).to_contain_text("step 4/4")  # 24 tokens, 6 a step
    part(page, "first").click()
    part(page, "on").click()
    standing = part(page, "text").locator("span:not(.masked)")
    assert standing.count() == 6
    assert part(page, "text").locator("span:nth-last-child(-n+6).new").count() == 6  # from the end
    page.locator("#options [name=order]").fill("sideways")
    page.click("#write")
    page.wait_for_selector("#status.wrong")
    assert "sideways" in page.locator("#status").text_content()
    sampler(page, "blockwise")
    page.locator("#options [name=block_sampler]").fill("remasking")
    page.locator("#options [name=block_sampler]").dispatch_event("change")
    assert {"block_sampler", "stride", "eta"} <= set(options())  # its own, and those of the one inside
    choose(page, "images")
    page.locator("#classes input").first.check(force=True)
    page.locator("#options [name=guidance]").fill("3")
    write(page)  # of no class there is no guidance
    api.expect(part(page, "numbers")).not_to_contain_text("guidance")
    page.locator("#classes input >> nth=-1").check(force=True)
    write(page)
    api.expect(part(page, "numbers")).to_contain_text("guidance change the distribution")


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


def test_a_file_that_needs_an_extra_has_no_button(opened):
    page = opened()
    page.route("**/api/models", lambda route: route.fulfill(json=lacking(route.fetch().json())))
    page.reload()
    page.wait_for_selector(".pane")
    assert part(page, "files").locator("button").all_text_contents() == [".html", ".gif"]


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


def test_given_cells_bring_their_own_defaults(opened):
    """They come with the first cell and go with the last; a setting that was changed, or that a link holds, stays."""
    page = opened()
    choose(page, "nine")
    page.click("text=an example puzzle")
    assert fields(page)["temperature"] == "0"
    page.click("#clear")
    assert fields(page)["temperature"] == "0.7"
    page.fill("#temperature", "0.5")
    page.click("text=an example puzzle")
    assert fields(page)["temperature"] == "0.5"
    page.fill("#temperature", "0.7")
    api.expect(page).to_have_url(re.compile(r"temperature=0\.7&.*kept="), timeout=PATIENCE)
    again = opened(link=page.evaluate("location.hash"))
    assert fields(again)["temperature"] == "0.7"
    again.click("#clear")
    assert fields(again)["temperature"] == "0.7"


def test_two_side_by_side_from_one_seed_and_long_work_is_stopped(opened):
    page = opened()
    page.check("#beside")
    page.fill("#temperature", "0.5")
    write(page)
    part(page, "name").click()
    assert page.locator("#temperature").input_value() == "1"  # each has its own settings
    page.fill("#temperature", "0.5")
    write(page)
    assert part(page, "text").text_content() == part(page, "text", 1).text_content()  # the same settings and seed
    part(page, "name", 1).click()
    sampler(page, "first_hitting")
    choose(page, LONG, 0)
    write(page)
    shot(page, "beside")
    choose(page, "text", 0)
    page.fill("#steps", "2000")
    page.click("#write")
    api.expect(page.locator("#status")).to_contain_text("of 2000", timeout=PATIENCE)
    page.click("#stop")
    api.expect(page.locator("#status")).to_have_text("stopped", timeout=PATIENCE)
    page.fill("#steps", "0")
    page.click("#write")
    assert page.locator("#status").text_content().startswith("Steps: ")


def test_a_side_has_its_interval_when_it_is_whole_and_determined(opened):
    page = opened()
    choose(page, "text")
    write(page)
    answer, answers = {"nats": 10.0, "below": 9.5, "exact": False, "distribution": "x"}, list[str]()
    page.route("**/api/bound", lambda route: route.fulfill(body=answers.pop()))
    for count, determined, said in (
        (3, True, "9.5 ≤ -log p ≤ 10.0 nats (of x)"),
        (8, True, "9.5 ± 0.0 ≤ -log p ≤ 10.0 ± 0.0 nats (of x; 95% over the draws)"),
        (8, False, "? ≤ -log p ≤ 10.0 ± 0.0 nats (of x; 95% over the draws)"),
    ):
        answers.append((json.dumps(answer | {"determined": determined}) + "\n") * count)
        page.click("#both")
        api.expect(part(page, "numbers")).to_contain_text(said, timeout=PATIENCE)
        api.expect(page.locator("#stop")).to_be_hidden(timeout=PATIENCE)


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
