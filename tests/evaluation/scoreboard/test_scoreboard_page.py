"""The page: self-contained, the same bytes again, closed to hostile texts, and usable by keyboard and on a phone."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.data.examples import write_examples
from recipe.evaluation.judge.verdicts import read_verdicts, write_verdicts
from recipe.evaluation.scores import rows_path
from recipe.report.html import script_json, shown

from .conftest import EXAMPLES, PROXY, Report, example, flat, write_judged

Play = Callable[..., object]
HOSTILE = (
    "</script><script>document.title='broken'</script>",
    "<!--<script>",
    "<img src=x onerror=\"document.title='broken'\">",
    "]]></template>&lt;b&gt;",
    "a\u2028b\u2029c\u202ed",
    "null \x00 escape \x1b[31m bell \x07",
    "混ぜる البخار смешать 🍵",
)


class Elements(HTMLParser):
    """Start tags with their attributes, and tags left open."""

    VOID = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.tags.append((tag, dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_needs_nothing_but_itself(page: str) -> None:
    elements = Elements(page)
    assert elements.open == []
    ids = [attrs["id"] for _, attrs in elements.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in elements.tags:
        assert tag not in ("link", "img", "iframe", "object")
        for name in ("src", "href", "xlink:href"):
            assert not (attrs.get(name) or "#").startswith(("http", "//")), (tag, attrs)
    assert "default-src 'none'" in page
    assert "innerHTML" not in page
    assert EXAMPLES[0].example_id in page[page.index("<noscript>") : page.index("</noscript>")]


@pytest.mark.thorough
def test_tables_and_landmarks_can_be_read_aloud(page: str) -> None:
    elements = Elements(page).tags
    tags = [tag for tag, _ in elements]
    assert tags.count("main") == 1
    assert tags.count("h1") == 1
    assert all("scope" in attrs for tag, attrs in elements if tag == "th")
    assert any(attrs.get("class") == "skip" and attrs.get("href") == "#content" for _, attrs in elements)
    assert all("aria-label" in attrs for tag, attrs in elements if tag == "nav")


def test_the_same_files_give_the_same_bytes(
    page: str, judged_files: list[Path], other_files: list[Path], examples_file: Path
) -> None:
    # Written anew, read from another folder.
    assert Report([*judged_files, *other_files], [examples_file], "--title", "Two systems").page == page


@pytest.mark.thorough
@settings(max_examples=40)
@given(
    st.recursive(
        st.text() | st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_in_a_script_reads_back_and_holds_nothing_that_ends_it(value: object) -> None:
    told = script_json(value)
    assert json.loads(told) == value
    assert not re.search("[<>&\u2028\u2029\x00-\x1f\x7f-\x9f]", told)
    told.encode("utf-8")


@given(st.text(st.characters(codec=None)), st.integers(1, 50))
def test_shown_texts_are_bounded_and_can_be_written(text: str, limit: int) -> None:
    told = shown(text, limit)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", told)
    told.encode("utf-8")
    assert len(told) <= limit + 40
    assert len(text) > limit or len(told) == len(text)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A page on which every name and text is hostile."""
    tmp_path = tmp_path_factory.mktemp("hostile")
    nasty = " ".join(HOSTILE)
    examples = [replace(example(n), goal=f"{nasty} {n}", history=HOSTILE, continuation=HOSTILE) for n in range(3)]
    write_examples(tmp_path / "nasty.jsonl", examples)
    judge = replace(PROXY, name=f"judge {nasty}")
    path = write_judged(tmp_path, "plain", [1, None, 3], judge, examples, HOSTILE)
    rows = [replace(row, text=nasty) for row in read_verdicts(rows_path(path))]
    repeats = [replace(row, repeat=1, outcome=flat(2)) for row in rows if not row.control]
    write_verdicts(rows_path(path), [*rows, *repeats])
    scores = path.read_text("utf-8").replace('"plain"', json.dumps(f"$x_$ {nasty}"))
    path.write_text(scores, "utf-8")
    title = f"Title {nasty}".replace("\x00", "")  # no shell passes it on
    return Report([path], [tmp_path / "nasty.jsonl"], "--title", title)


def test_hostile_texts_break_out_of_nothing(hostile: Report) -> None:
    elements = Elements(hostile.page)
    assert elements.open == []
    tags = [tag for tag, _ in elements.tags]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert not re.search("[\x00-\x08\x0b-\x1f\ud800-\udfff]", hostile.page)
    steps = hostile.data["examples"][0]["p"][0]["t"]
    assert steps[:3] == list(HOSTILE[:3])
    assert steps[5] == "null ␀ escape ␛[31m bell ␇"


@pytest.mark.thorough
def test_hostile_texts_stay_text_in_a_browser(hostile: Report, played: Play) -> None:
    told = played(
        hostile.page,
        "#/example/crosstask-1",
        "return [document.images.length, document.scripts.length, "
        "[...document.querySelectorAll('.card .marked li')].map((one) => one.lastChild.textContent), "
        "document.querySelector('.verdict').textContent, "
        "[...document.querySelectorAll('.card > details > summary')].map((one) => one.textContent.slice(-3))]",
    )
    assert told[:2] == [0, 2]  # type: ignore[index]
    assert told[2][0] == HOSTILE[0]  # type: ignore[index]
    assert "unscored" in told[3]  # type: ignore[index]
    assert told[4] == [" 12"]  # type: ignore[index]


def test_a_plan_of_ten_megabytes_is_shortened_for_display(tmp_path: Path, examples_file: Path) -> None:
    long = ("x" * 10_000_000, *[f"step {n}" for n in range(500)])
    path = write_judged(tmp_path, "long", [1] * 12, examples=EXAMPLES)
    rows = read_verdicts(rows_path(path))
    rows[0] = replace(rows[0], steps=long, text="y" * 1_000_000)
    write_verdicts(rows_path(path), rows)
    report = Report([path], [examples_file])
    plan = report.data["examples"][0]["p"][0]
    assert len(report.page) < 300_000
    assert len(plan["t"]) == 60
    assert plan["t"][0].endswith("(10,000,000 characters, shortened)")
    assert len(plan["t"][0]) < 400 + 50
    assert len(plan["v"][0]["x"]) < 1500 + 50
    assert "501 steps, the first 60 shown" in plan["n"]


BROWSED = {
    "addresses": """
        const ids = ["report", "examples-view", "example-view"];
        const here = () => ids.find((id) => !document.getElementById(id).hidden);
        const told = [here()], list = () => document.querySelectorAll("#list li").length;
        location.hash = "#/examples?q=niv"; await wait(); told.push(here(), list());
        document.querySelector("#list a").click(); await wait(); told.push(here(), location.hash);
        history.back(); await wait(); told.push(here(), location.hash);
        location.hash = "#/example/nobody"; await wait(); told.push(here());
        location.hash = "#/example/%E0%A4%A"; await wait(); told.push(here());
        return told;
    """,
    "filters": """
        const links = () => [...document.querySelectorAll("#list a")];
        const ids = () => links().map((one) => decodeURIComponent(one.hash.slice(10)));
        const told = [];
        for (const query of ["show=unscored", "sort=apart", "sort=low&system=1", "dataset=1&sort=high&system=0",
          "q=tea+PRESENT", "measure=1&sort=high"]) {
          location.hash = `#/examples?${query}`; await wait(); told.push(ids());
        }
        return told;
    """,
    "widths": """
        document.body.style.width = "360px"; document.body.style.maxWidth = "360px";
        const told = [];
        for (const hash of ["#report", "#/examples", "#/example/crosstask-0", "#/example/v%3A2"]) {
          location.hash = hash; await wait();
          for (const one of document.querySelectorAll("details")) one.open = true;
          told.push(document.body.scrollWidth);
        }
        return told;
    """,
}


@pytest.mark.thorough
def test_addresses_filters_and_a_phone(page: str, played: Play) -> None:
    """One browser for all, because each takes seconds to start."""
    parts = ", ".join(f"{name}: await (async () => {{ {script} }})()" for name, script in BROWSED.items())
    wait = "const wait = () => new Promise((done) => setTimeout(done, 30));"
    told: dict[str, list[Any]] = played(page, "", f"{wait} return {{ {parts} }};")  # type: ignore[assignment]
    assert told["addresses"] == [
        "report", "examples-view", 6, "example-view", "#/example/niv-0", "examples-view", "#/examples?q=niv",
        "report", "report",
    ]  # fmt: skip
    unscored, apart, low, high, nothing, vpa = told["filters"]
    assert unscored == ["crosstask-5", "niv-1"]
    assert apart[0] == "crosstask-4"  # 1 against 5
    assert low[0] == "crosstask-2"
    assert low[-2:] == ["niv-1", "v:2"]  # without a verdict for RL, so behind all others
    assert high[0] == "niv-2"
    assert nothing == []
    assert vpa[0] == "v:2"
    assert all(width <= 360 for width in told["widths"])  # no view scrolls sideways


@pytest.mark.thorough
def test_the_keyboard_is_enough(page: str, played: Play) -> None:
    script = """
    const wait = () => new Promise((done) => setTimeout(done, 30));
    const press = async (key) => {
      const pressed = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
      (document.activeElement || document.body).dispatchEvent(pressed);
      await wait();
    };
    const told = [];
    await press("/"); told.push(document.activeElement.name);
    await press("Escape"); await press("j"); await press("j"); await press("ArrowDown"); await press("k");
    told.push(document.activeElement.getAttribute("href"));
    document.activeElement.click(); await wait(); told.push(location.hash);
    await press("j"); told.push(location.hash);
    await press("ArrowLeft"); await press("k"); told.push(location.hash);
    await press("Escape"); told.push(location.hash, document.activeElement.getAttribute("href"));
    await press("Escape"); told.push(location.hash);
    return told;
    """
    assert played(page, "", script) == [
        "q", "#/example/crosstask-1", "#/example/crosstask-1", "#/example/crosstask-2", "#/example/crosstask-0",
        "#/examples", "#/example/crosstask-0", "#report",
    ]  # fmt: skip
