"""The planner page in a real Chromium, against a server of prepared plans."""

import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the page's server needs FastAPI: pip install 'recipe-planner[serve]'")
pytest.importorskip("jinja2", reason="the page is a template: pip install 'recipe-planner[report]'")
sync_api = pytest.importorskip("playwright.sync_api", reason="pip install 'recipe-planner[browser]'")

from mock_api import PLANS, MockServer  # noqa: E402
from playwright.sync_api import Browser, Page, expect  # noqa: E402
from pydantic import SecretStr  # noqa: E402

from recipe.config import SearchConfig  # noqa: E402
from recipe.planning.planner import Planner  # noqa: E402
from recipe.planning.search import PlanSearch  # noqa: E402

from .conftest import SALAD, TEA, SteppedEngine, plan_text  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; install the system's package"),
]
WAIT = 60_000
"""Milliseconds that a page may take on a busy machine."""
expect.set_options(timeout=WAIT)
GOAL = "make a pot of tea"
BEST = PLANS[1]
NASTY = (
    "<script>fired=1</script><img src=x onerror=fired=1>\x00\x1b[31m\u202egnitirw\u202c\u2067\"'><svg onload=fired=1>"
)


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    server = MockServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Page:
    """The tab that the tests share: a new one takes as long as most of them."""
    page = browser.new_context().new_page()
    page.set_default_timeout(WAIT)
    return page


@pytest.fixture
def page(tab: Page, server: MockServer) -> Iterator[Page]:
    """The page, opened anew; at the end nothing has fired, and the console holds no fault but of the network."""
    tab.goto(f"{server.url}static/planner.css")
    tab.evaluate("() => { sessionStorage.clear(); localStorage.clear(); }")
    tab.set_viewport_size({"width": 1100, "height": 900})
    server.reset(delay=0.002)
    faults: list[str] = []
    crashed, logged = (
        lambda error: faults.append(str(error)),
        lambda message: faults.append(message.text) if message.type == "error" else None,
    )
    tab.on("pageerror", crashed)
    tab.on("console", logged)
    tab.goto(server.url)
    yield tab
    server.hold = None
    tab.remove_listener("pageerror", crashed)
    tab.remove_listener("console", logged)
    assert tab.evaluate("typeof fired") == "undefined"
    assert [fault for fault in faults if "Failed to load resource" not in fault and "net::ERR" not in fault] == []


def write(page: Page, goal: str = GOAL, *history: str) -> None:
    page.get_by_label("Goal", exact=True).fill(goal)
    lines(page).first.click()
    for index, text in enumerate(history):
        if index:
            page.keyboard.press("Enter")
        page.keyboard.insert_text(text)


def plan(page: Page, goal: str = GOAL, *history: str) -> None:
    write(page, goal, *history)
    page.get_by_role("button", name="Plan", exact=True).click()


def finished(page: Page, text: str = "Done:") -> None:
    expect(page.locator("#status")).to_contain_text(text)


def lines(page: Page) -> Any:
    return page.locator("#history textarea")


def history(page: Page) -> list[str]:
    return [box.input_value() for box in lines(page).all()]


def has_history(page: Page, expected: Sequence[str]) -> None:
    """The lines are these, at once or after a moment."""
    expect(lines(page)).to_have_count(len(expected))
    for box, text in zip(lines(page).all(), expected, strict=True):
        expect(box).to_have_value(text)


def has_steps(page: Page, expected: Sequence[str]) -> None:
    """The plan that is shown has these steps, at once or after a moment."""
    expect(page.locator("[role=tabpanel]:not([hidden]) .steps .words")).to_have_text(list(expected))


def steps(page: Page) -> list[str]:
    return page.locator("[role=tabpanel]:not([hidden]) .steps .words").all_inner_texts()


def until(holds: Callable[[], bool]) -> None:
    """Wait for something of the server."""
    end = time.monotonic() + WAIT / 1000
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def paste(page: Page, target: Any, text: str) -> None:
    target.evaluate(
        """(box, text) => {
          const data = new DataTransfer();
          data.setData("text/plain", text);
          box.focus();
          const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
          if (box.dispatchEvent(event)) box.setRangeText(text);
        }""",
        text,
    )


def test_steps_and_evidence_appear_as_they_come(page: Page, server: MockServer) -> None:
    server.hold = 5
    plan(page, GOAL, "fill the kettle", "switch it on")
    step = page.locator(".steps > li").first
    expect(step).to_contain_text("13 of the 20 videos about this say so")
    has_steps(page, [PLANS[0][0]])
    expect(page.locator("#status")).to_contain_text("4 plans: writing")
    expect(page.locator("#coverage")).to_contain_text("✓ Known. The corpus knows this task.")
    quotes = step.locator(".grounds")
    expect(quotes.first).to_have_text("so now we warm the pot, slowly v0 · 1:02–1:10 · similarity 0.83")
    expect(quotes.first).to_be_visible()
    expect(quotes.last).to_be_hidden()
    step.locator("summary").click()
    expect(quotes.last.get_by_role("listitem")).to_have_count(3)
    assert step.get_by_role("link").count() == 2
    link = step.get_by_role("link").first
    assert [link.get_attribute(name) for name in ("href", "target", "rel")] == [
        "https://videos.example/v0?t=62", "_blank", "noopener noreferrer",
    ]  # fmt: skip
    server.hold = None
    finished(page)
    # Who reads in a plan stays there when another one ranks higher.
    has_steps(page, PLANS[0])
    assert step.locator("details").get_attribute("open") is not None
    expect(step).to_contain_text("adds +0.031")
    second = page.locator("[role=tabpanel]:not([hidden]) .steps > li").nth(1)
    expect(second).to_contain_text("the reward is the same without it")
    expect(second).not_to_contain_text("0.000")
    sent = server.bodies("POST", "/runs")
    assert [(one["goal"], one["history"], one["plans"], one["kind"]) for one in sent] == [
        (GOAL, ["fill the kettle", "switch it on"], 4, "plan")
    ]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", sent[0]["key"])


def test_plans_are_ranked_and_their_differences_marked(page: Page) -> None:
    plan(page)
    finished(page)
    tabs = page.get_by_role("tab")
    assert [" ".join(text.split()) for text in tabs.all_inner_texts()] == [
        "Rank 1 0.448", "Rank 2 0.412", "Rank 3 0.371", "Rank 4 0.193",
    ]  # fmt: skip
    has_steps(page, BEST)
    tabs.nth(3).click()
    rows = page.locator("[role=tabpanel]:not([hidden]) .steps > li")
    assert [row.get_by_text("not in the best plan").is_visible() for row in rows.all()] == [False, True, False]
    expect(rows.nth(1)).to_contain_text("○ 0 of the 20 videos about this say so")
    expect(rows.nth(2)).to_contain_text("○ not supported: 1 of the 20 videos about this says something like it")
    expect(rows.nth(2).get_by_text("pour the coffee")).to_be_visible()
    expect(rows.nth(2).locator("summary")).to_be_hidden()
    expect(page.locator(".lacks:visible")).to_contain_text("3 steps of the best plan are not here:")
    assert page.locator(".lacks:visible li").all_inner_texts() == [BEST[0], BEST[1], BEST[3]]


def test_everything_is_done_by_keyboard(page: Page, server: MockServer) -> None:
    keys = page.keyboard
    while page.evaluate("document.activeElement.id") != "goal":
        keys.press("Tab")
    keys.type(GOAL)
    keys.press("Enter")
    keys.type("switch on the kettle")
    keys.press("Enter")
    keys.type("fill the kettle")
    keys.press("Alt+ArrowUp")
    has_history(page, ["fill the kettle", "switch on the kettle"])
    keys.press("Enter")
    expect(lines(page)).to_have_count(3)
    keys.press("Backspace")
    has_history(page, ["fill the kettle", "switch on the kettle"])
    keys.press("Control+Enter")
    finished(page)
    keys.press("Digit3")
    assert history(page)[0].endswith("3"), "a digit in a text field is text"
    page.locator("#plans").focus()
    while page.evaluate("document.activeElement.getAttribute('role')") != "tab":
        keys.press("Tab")
    keys.press("ArrowRight")
    has_steps(page, PLANS[0])
    keys.press("3")
    has_steps(page, PLANS[3])
    keys.press("Home")
    has_steps(page, BEST)
    while page.evaluate("document.activeElement.ariaLabel") != "Done: step 1":
        keys.press("Tab")
    keys.press("Space")
    expect(lines(page).last).to_have_value(BEST[0])
    while page.evaluate("document.activeElement.textContent") != "Plan the rest":
        keys.press("Tab")
    keys.press("Enter")
    until(lambda: len(server.bodies("POST", "/runs")) == 2)
    assert server.bodies("POST", "/runs")[1]["history"] == ["fill the kettle3", "switch on the kettle", BEST[0]]
    finished(page)


def test_steps_that_are_done_move_into_the_history_and_back(page: Page) -> None:
    plan(page, GOAL, "fill the kettle")
    finished(page)
    boxes = page.get_by_role("checkbox", name="Done: step")
    boxes.nth(1).check()
    boxes.nth(0).check()
    has_history(page, ["fill the kettle", BEST[1], BEST[0]])
    expect(page.get_by_text("2 steps moved into the history.")).to_be_visible()
    boxes.nth(1).uncheck()
    has_history(page, ["fill the kettle", BEST[0]])


def test_nothing_that_is_written_anywhere_executes(page: Page, server: MockServer) -> None:
    long = NASTY + "x" * 1_000_000
    server.plans = [[NASTY, long], ["\u202eevil", NASTY]]
    server.same = [[1, None], [None, 1]]
    server.rewards = [0.1, 0.2]
    server.coverage = {"state": "partly", "value": 0.5, "sentence": NASTY}
    server.reading = [NASTY, long]
    server.info |= {
        "default": NASTY,
        "model": {"name": long, "sees_video": False},
        "phi": {"name": NASTY},
        "corpus": {"id": NASTY, "narrations": 1, "segments": 1, "too_small": NASTY},
        "verifier": {"name": NASTY, "scale": NASTY},
        "examples": [{"goal": NASTY, "history": [long, NASTY]}],
        "criteria": {"<img src=x onerror=fired=1>": NASTY},
    }
    page.goto(server.url)
    page.locator("#examples button").click()
    assert history(page)[0] == long[:500]
    expect(page.locator("#history-note")).to_contain_text("at most 500 characters")
    page.get_by_role("button", name="Plan", exact=True).click()
    finished(page)
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.locator(".plan:not([hidden]) .evidence summary").first.click()
    assert max(len(text) for text in steps(page)) < 2_100
    page.get_by_text("Rate this plan").locator("visible=true").click()
    page.get_by_text("What happened?").locator("visible=true").click()
    page.get_by_role("button", name="Compare with the plan").click()
    expect(page.locator(".states:visible")).to_be_visible()
    server.refusals = [(422, "bad_input", long)]
    page.get_by_role("button", name="Plan", exact=True).click()
    finished(page, "onerror")
    text = page.locator("body").inner_text()
    assert "<script>fired=1</script>" in text
    assert "␀␛" in text
    assert not re.search("[\x00\x1b\u202e\u2067]", text)
    assert len(text) < 60_000
    assert page.evaluate("document.querySelectorAll('script, img, svg').length") == 1


def test_a_link_is_one_only_where_it_leads_to_the_web(page: Page, server: MockServer) -> None:
    from unittest.mock import patch

    import mock_api

    bad = {**mock_api.ground("x", 0), "link": "javascript:fired=1"}
    with patch.object(mock_api, "ground", lambda *_: bad):
        plan(page)
        finished(page)
    page.locator(".plan:not([hidden]) .evidence summary").first.click()
    expect(page.locator(".plan:not([hidden]) .grounds").first).to_contain_text("v0 · 1:02")
    assert page.locator("#results .evidence a").count() == 0


def test_a_megabyte_is_cut_in_every_field(page: Page) -> None:
    goal = page.get_by_label("Goal", exact=True)
    paste(page, goal, "y" * 1_000_000)
    assert goal.input_value() == "y" * 500
    expect(page.locator("#goal-note")).to_contain_text("at most 500 characters")
    paste(page, lines(page).first, "z" * 1_000_000)
    has_history(page, ["z" * 500])
    expect(page.locator("#history-note")).to_contain_text("at most 500 characters")
    page.get_by_role("button", name="Clear").click()
    paste(page, lines(page).first, "1. fill it\r\n2) switch on\n- wait\n\n" + "stir\n" * 200_000)
    assert history(page)[:4] == ["fill it", "switch on", "wait", "stir"]
    expect(lines(page)).to_have_count(100)
    expect(page.locator("#history-note")).to_contain_text("only the first 100 lines")
    page.get_by_role("button", name="Add a step").click()
    expect(lines(page)).to_have_count(100)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_lost_connection_is_resumed_and_no_event_counts_twice(page: Page, server: MockServer) -> None:
    server.drops, server.skips, server.replays = {5}, {12}, True
    plan(page)
    expect(page.locator("#lost")).to_be_visible()
    finished(page)
    expect(page.locator("#lost")).to_be_hidden()
    assert server.continued == [0, 5, 11]
    assert len(server.bodies("POST", "/runs")) == 1
    for place, number in enumerate((1, 0, 3, 2)):
        page.get_by_role("tab").nth(place).click()
        has_steps(page, PLANS[number])
    assert page.get_by_text("sent again").count() == 0


def test_a_server_that_comes_back_without_the_run_is_named(page: Page, server: MockServer) -> None:
    server.hold = 6
    plan(page, GOAL, "fill the kettle")
    expect(page.locator(".steps > li").first).to_contain_text("about this say so")
    server.stop()
    expect(page.locator("#lost")).to_contain_text("The connection to the server is lost.")
    server.start()
    page.get_by_role("button", name="Try now").click()
    finished(page, "The server was restarted and no longer knows this run.")
    has_steps(page, [PLANS[0][0]])
    has_history(page, ["fill the kettle"])
    server.hold = None
    page.get_by_role("button", name="Plan again").click()
    finished(page)
    has_steps(page, BEST)
    expect(page.get_by_role("button", name="Plan again")).to_be_hidden()


def test_a_request_outlives_a_server_that_is_away(page: Page, server: MockServer) -> None:
    write(page)
    server.stop()
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.locator("#lost")).to_be_visible()
    server.start()
    page.get_by_role("button", name="Try now").click()
    finished(page)


def test_stop_cancels_and_the_page_goes_on(page: Page, server: MockServer) -> None:
    server.hold = 6
    plan(page)
    expect(page.locator(".steps > li").first).to_be_visible()
    page.get_by_role("button", name="Plan", exact=True).click(force=True)
    expect(page.locator("#status")).to_contain_text("Stop it first")
    page.get_by_role("button", name="Stop").click()
    finished(page, "Stopped.")
    until(lambda: len(server.bodies("DELETE", "")) == 1)
    assert len(server.bodies("POST", "/runs")) == 1
    expect(page.locator(".head:visible")).to_contain_text("Not finished: 1 step.")
    server.hold = None
    page.get_by_role("button", name="Plan", exact=True).click()
    finished(page)


def test_leaving_cancels_and_reloading_does_not(page: Page, server: MockServer) -> None:
    server.hold = 6
    plan(page, GOAL, "fill the kettle")
    expect(page.locator(".steps > li").first).to_be_visible()
    page.reload()
    expect(page.locator(".steps > li").first).to_contain_text(PLANS[0][0])
    assert page.get_by_label("Goal", exact=True).input_value() == GOAL
    has_history(page, ["fill the kettle"])
    assert server.bodies("DELETE", "") == []
    page.get_by_role("checkbox", name="Done: step 1").check()
    server.hold = None
    finished(page)
    page.reload()
    finished(page)
    has_history(page, ["fill the kettle", PLANS[0][0]])
    assert page.get_by_role("checkbox", name="Done: step 1").locator("visible=true").is_checked()
    assert len(server.bodies("POST", "/runs")) == 1
    assert GOAL not in page.url
    server.hold = 6
    page.get_by_role("button", name="Plan", exact=True).click()
    until(lambda: len(server.bodies("POST", "/runs")) == 2)
    expect(page.locator("#status")).to_contain_text("writing")
    page.goto("about:blank")
    until(lambda: len(server.bodies("DELETE", "")) == 1)


def test_a_refusal_is_told_and_the_next_try_works(page: Page, server: MockServer) -> None:
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.locator("#goal-note")).to_contain_text("Say what is to be done.")
    full, no_token = "The queue is full; try again in a minute.", "This server needs a token."
    refusals = [(429, "too_many_runs", full), (503, "queue_full", full), (401, "unauthorized", "It is absent.")]
    for refusal, told in zip(refusals, (full, full, no_token), strict=True):
        server.refusals = [refusal]
        plan(page)
        finished(page, told)
    assert len(server.bodies("POST", "/runs")) == 3
    page.get_by_role("button", name="Plan", exact=True).click()
    finished(page)


def test_a_task_that_the_corpus_does_not_know_is_a_guess_in_words(page: Page, server: MockServer) -> None:
    server.coverage = {"state": "unknown", "value": 0.01, "sentence": "The nearest narrations are of other tasks."}
    plan(page)
    finished(page)
    expect(page.locator("#coverage")).to_contain_text("? Not known. The nearest narrations are of other tasks.")
    expect(page.locator(".head:visible")).to_contain_text("? A guess")
    # Narrations of other tasks support nothing.
    expect(page.locator(".evidence:visible").first).to_contain_text("of other tasks")
    expect(page.locator(".sign.yes:visible")).to_have_count(0)


def test_without_a_corpus_nothing_is_claimed(page: Page, server: MockServer) -> None:
    server.info |= {"corpus": None, "verifier": None, "phi": None, "keep": False}
    server.coverage = {"state": "none", "value": None, "sentence": "There is no corpus."}
    page.goto(server.url)
    expect(page.locator("#clip-off")).to_contain_text("This server reads no clips")
    plan(page)
    finished(page)
    expect(page.locator("#coverage")).to_contain_text("Not checked. There is no corpus.")
    expect(page.get_by_role("tab").first).to_contain_text("Plan 1")
    assert (
        page.get_by_text(re.compile("narrations? says? so|looking for|reward|best plan", re.I))
        .locator("visible=true")
        .count()
        == 0
    )
    expect(page.get_by_text("Feedback is not kept: start the server with --keep FOLDER.")).to_be_visible()
    assert page.get_by_role("button", name="Reject").count() == 0


def test_what_happened_is_compared_with_the_plan(page: Page, server: MockServer) -> None:
    plan(page, GOAL, "fill the kettle")
    finished(page)
    page.get_by_role("checkbox", name="Done: step 1").locator("visible=true").check()
    page.get_by_text("What happened?").locator("visible=true").click()
    area = page.locator("[data-compare]")
    boxes = area.locator("textarea")
    expect(boxes).to_have_count(2)  # opening is an event, which comes a little after the click
    assert [box.input_value() for box in boxes.all()] == ["fill the kettle", BEST[0]]
    boxes.last.focus()
    page.keyboard.press("End")
    for text in ("sing a song", BEST[2]):
        page.keyboard.press("Enter")
        page.keyboard.insert_text(text)
    page.keyboard.press("Control+Enter")
    expect(area).to_contain_text("2 done, 1 skipped, 2 still open; 1 unexpected step.")
    done = ["fill the kettle", BEST[0], "sing a song", BEST[2]]
    assert server.bodies("POST", "/deviation") == [{"plan": 1, "history": done}]
    rows = page.locator(".states:visible li")
    assert [row.split(" ")[:2] for row in rows.all_inner_texts()] == [
        ["✓", "done"], ["!", "skipped"], ["✓", "done"], ["○", "still"], ["○", "still"],
    ]  # fmt: skip
    order = page.get_by_text("7 of the 9 videos about this say").locator("visible=true")
    expect(order).to_have_text(
        f"7 of the 9 videos about this say: {BEST[1]} comes before {BEST[2]}; 1 says the opposite."
    )
    order.click()
    expect(page.locator(".result .grounds").first).to_contain_text("1:03–1:11")
    page.get_by_role("button", name="Plan the rest from here").click()
    until(lambda: len(server.bodies("POST", "/runs")) == 2)
    assert server.bodies("POST", "/runs")[1]["history"] == done == history(page)
    finished(page)


def test_feedback_is_sent_as_the_interface_says(page: Page, server: MockServer) -> None:
    plan(page)
    finished(page)
    shown = page.locator(".plan:not([hidden])")
    shown.get_by_role("button", name="Reject step 2").click()
    expect(shown.get_by_text("Kept as rejected.")).to_be_visible()
    expect(shown.get_by_role("button", name="Reject step 2")).to_have_attribute("aria-pressed", "true")
    shown.get_by_role("button", name="Correct step 3").click()
    shown.get_by_label("What step 3 should say").fill("pour the hot water")
    shown.get_by_role("button", name="Save the correction").locator("visible=true").click()
    expect(shown.get_by_text("Corrected: pour the hot water")).to_be_visible()
    shown.get_by_role("checkbox", name="Done: step 3").check()
    has_history(page, ["pour the hot water"])
    shown.get_by_text("Rate this plan").click()
    shown.get_by_role("group", name="clarity").get_by_label("4").check()
    shown.get_by_role("group", name="continuation").get_by_label("0").check()
    shown.get_by_label("Comment").fill("good")
    shown.get_by_label("Your name").fill("Ada")
    shown.get_by_role("button", name="Send the rating").click()
    expect(shown.get_by_text("Thank you.")).to_be_visible()
    assert server.bodies("POST", "/feedback") == [
        {"plan": 1, "step": 2, "verdict": "reject"},
        {"plan": 1, "step": 3, "verdict": "correct", "text": "pour the hot water"},
        {"plan": 1, "rater": "Ada", "scores": {"clarity": 4, "continuation": 0}, "comment": "good"},
    ]
    assert page.evaluate("localStorage.getItem('recipe-rater')") == "Ada"


def test_a_clip_is_read_into_lines_that_can_be_edited(page: Page, server: MockServer, tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"no video" * 1000)
    write(page, "fry eggs")
    page.locator("#clip-file").set_input_files(tmp_path / "clip.mp4")
    expect(page.locator("#clip-note")).to_contain_text("clip.mp4 (8 kB): 12.5 s, 640 × 360.")
    page.get_by_label("Seconds").fill("7.5")
    assert page.get_by_label("Cut: what is before it is done").input_value() == "7.5"
    page.get_by_role("button", name="Read the clip").click()
    finished(page, "The clip is read up to 7.5 s: 2 steps")
    has_history(page, server.reading)
    expect(page.get_by_label("Seconds")).to_have_value("7.5")
    assert page.locator("#history .read").all_inner_texts() == ["read by mock-phi; check it"] * 2
    sent = server.bodies("POST", "/runs")[0]
    assert (sent["kind"], sent["clip"], sent["until"], sent["goal"]) == ("reading", "clip-1", 7.5, "fry eggs")
    lines(page).first.press("End")
    page.keyboard.type(" now")
    assert page.locator("#history .read").count() == 1
    page.get_by_role("button", name="Plan", exact=True).click()
    finished(page)
    assert "clip" not in server.bodies("POST", "/runs")[1], "a planner that sees no video gets the words"
    page.get_by_role("button", name="Remove the clip").click()
    until(lambda: len(server.bodies("DELETE", "/clips/clip-1")) == 1)


def test_a_planner_that_sees_gets_the_clip_in_place_of_the_words(
    page: Page, server: MockServer, tmp_path: Path
) -> None:
    server.info |= {"model": {"name": "m", "sees_video": True}, "phi": None}
    page.goto(server.url)
    (tmp_path / "clip.mp4").write_bytes(b"no video" * 1000)
    write(page, "fry eggs", "heat the pan")
    page.locator("#clip-file").set_input_files(tmp_path / "clip.mp4")
    page.get_by_label("Seconds").fill("0")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.locator("#clip-note")).to_contain_text("nothing of the clip is before it")
    page.get_by_label("Seconds").fill("99")
    page.get_by_role("button", name="Plan", exact=True).click()
    finished(page)
    page.get_by_label("The planner sees the clip").uncheck()
    page.get_by_role("button", name="Plan", exact=True).click()
    until(lambda: len(server.bodies("POST", "/runs")) == 2)
    assert [(one.get("clip"), one.get("until"), one["history"]) for one in server.bodies("POST", "/runs")] == [
        ("clip-1", 12.5, []),
        (None, None, ["heat the pan"]),
    ]
    finished(page)


def test_a_clip_that_is_refused_says_why(page: Page, server: MockServer, tmp_path: Path) -> None:
    (tmp_path / "notes.mp4").write_bytes(b"no video")
    server.clip_refusal = (422, "bad_clip", "The file is no video that can be read.")
    page.locator("#clip-file").set_input_files(tmp_path / "notes.mp4")
    expect(page.locator("#clip-note")).to_contain_text("notes.mp4 (1 kB): The file is no video that can be read.")
    expect(page.get_by_role("button", name="Read the clip")).to_be_hidden()
    with (tmp_path / "long.mp4").open("wb") as file:
        file.truncate(50_000_001)
    page.locator("#clip-file").set_input_files(tmp_path / "long.mp4")
    expect(page.locator("#clip-note")).to_contain_text("is too large: at most 50 MB are taken")
    (tmp_path / "empty.mp4").touch()
    page.locator("#clip-file").set_input_files(tmp_path / "empty.mp4")
    expect(page.locator("#clip-note")).to_contain_text("empty.mp4 (0 kB) is empty")
    assert server.bodies("POST", "/clips") == [8]


def test_a_phone_needs_no_scrolling_sideways(page: Page, server: MockServer) -> None:
    server.plans = [["w" * 400, "pour the tea"], ["a " * 200]]
    server.same, server.rewards = [[1, 2], [None]], [0.2, 0.1]
    page.set_viewport_size({"width": 390, "height": 844})
    write(page, "g" * 300, "h" * 300, "i")
    expect(page.get_by_role("button", name="Move step 2 up")).to_be_in_viewport()
    place = page.get_by_role("button", name="Plan", exact=True).bounding_box()
    page.evaluate("document.activeElement.blur()")
    assert page.get_by_role("button", name="Plan", exact=True).bounding_box() == place, "it moves under the finger"
    page.get_by_role("button", name="Plan", exact=True).click()
    finished(page)
    page.get_by_role("tab").nth(1).click()
    page.get_by_text("Rate this plan").locator("visible=true").click()
    page.get_by_text("What happened?").locator("visible=true").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    small = page.evaluate(
        """[...document.querySelectorAll("button, select, summary, .acts label")]
          .filter((node) => node.checkVisibility() && !node.closest(".tools"))
          .filter((node) => node.getBoundingClientRect().height < 44)
          .map((node) => node.textContent)"""
    )
    assert small == []


def test_the_page_works_with_the_service_itself(browser: Browser, serve: Any, tmp_path: Path) -> None:
    texts = [plan_text(TEA), plan_text([TEA[0], "sing a song", TEA[4]]), plan_text([step.upper() for step in TEA])]
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(WAIT)
    page = context.new_page()
    (tmp_path / "clip.mp4").write_bytes(b"no video" * 1000)
    with serve(texts, pause=0.002, keep=tmp_path / "kept", sees_video=True) as service:
        page.goto(service.url)
        page.locator("#clip-file").set_input_files(tmp_path / "clip.mp4")
        expect(page.locator("#clip-note")).to_contain_text("clip.mp4 (8 kB): This is no video that can be read")
        page.get_by_label("Number of plans").select_option("3")
        plan(page, "make tea", "boil the water")
        finished(page, "Done: 2 plans in")
        has_steps(page, list(TEA))
        expect(page.get_by_role("tab")).to_have_count(2)
        expect(page.locator(".plan:not([hidden]) .head")).to_contain_text("2 of 3 samples")
        shown = page.locator(".plan:not([hidden])")
        shown.get_by_role("button", name="Copy").click()
        expect(shown.get_by_text("Copied.")).to_be_visible()
        numbered = [f"{number}. {step}" for number, step in enumerate(TEA, start=1)]
        assert page.evaluate("navigator.clipboard.readText()").split("\n") == ["make tea", *numbered]
        for name, ending in (("Markdown", "md"), ("JSON", "json")):
            with page.expect_download() as download:
                shown.get_by_role("link", name=name).click()
            assert download.value.suggested_filename.endswith(f".{ending}")
            assert TEA[1] in download.value.path().read_text()
        page.emulate_media(media="print")
        expect(page.locator("#paper")).to_be_visible()
        expect(page.locator("#paper")).to_contain_text("boil the water")
        for hidden in ("header", "#ask", ".plan .head", ".plan .keep", ".acts", "footer", "#for"):
            for node in page.locator(hidden).all():
                expect(node).to_be_hidden()
        page.emulate_media(media="screen")
        expect(page.locator(".plan:not([hidden]) .steps > li").first).to_contain_text(
            "the only video about this says so"
        )
        page.keyboard.press("2")
        expect(page.locator(".plan:not([hidden]) .steps > li").nth(1)).to_contain_text("not in the best plan")
        page.keyboard.press("1")
        page.get_by_text("What happened?").locator("visible=true").click()
        area = page.locator("[data-compare]")
        area.locator("textarea").last.press("End")
        for text in (TEA[0], TEA[2]):
            page.keyboard.press("Enter")
            page.keyboard.insert_text(text)
        page.keyboard.press("Control+Enter")
        expect(area).to_contain_text("2 done, 1 skipped, 2 still open; 0 unexpected steps.")
        expect(page.locator(".result:visible")).to_contain_text(
            f"The only video about this says: {TEA[1]} comes before {TEA[2]}"
        )
        page.get_by_role("button", name="Reject step 2").locator("visible=true").click()
        expect(page.get_by_text("Kept as rejected.")).to_be_visible()
    assert (tmp_path / "kept" / "steps.jsonl").exists()
    context.close()


def test_composed_plans_are_shown_as_their_steps_are_chosen(browser: Browser, serve: Any, evidence: Any) -> None:
    planner = Planner(SteppedEngine((TEA, SALAD)))
    search = PlanSearch(planner, evidence.verifier, SearchConfig(search="recombine", width=2, samples=2))
    page = browser.new_page()
    with serve(planner=planner, search=search) as site:
        page.goto(site.url)
        expect(page.locator("#about")).to_contain_text("It chooses the plans step by step.")
        plan(page, "make tea", "boil the water")
        expect(page.locator("#status")).to_contain_text("composed of 10 steps that the verifier compared", timeout=WAIT)
        has_steps(page, list(TEA))
        # Of the four plans that were asked for, there are as many tabs as the search has found.
        plans = int(page.locator("#status").inner_text().split()[1])
        assert page.get_by_role("tab").count() == page.locator("[role=tabpanel]").count() == plans
        assert page.locator("[role=tabpanel]:not([hidden]) .steps > li").all_inner_texts()[0].count("says so") == 1
    page.close()


def test_a_browser_gives_the_token_as_a_password(browser: Browser, serve: Any) -> None:
    with serve(pause=0.002, token=SecretStr("sesame")) as service:
        for password, status in (("wrong", 401), ("sesame", 200)):
            context = browser.new_context(http_credentials={"username": "anyone", "password": password})
            context.set_default_timeout(WAIT)
            page = context.new_page()
            answer = page.goto(service.url)
            assert answer is not None
            assert answer.status == status
            if status == 200:
                plan(page, "make tea", "boil the water")
                finished(page)
            context.close()
