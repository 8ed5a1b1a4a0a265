"""The picture and the page: links end where the matches say, and no text can do anything."""

import base64
import hashlib
import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prompt_scorer import Page

pytest.importorskip("jinja2")

from recipe.config import RewardConfig
from recipe.explain.explain import explain
from recipe.explain.page import AXIS, LINE, TEXT, Picture, barcode, keep_apart, render_page, segment_note
from recipe.explain.records import AlignedNarration, Explanation, Links, Match
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Segment

HISTORY = ["boil some water", "warm up the pot"]
PLAN = ["put tea leaves in the pot", "juggle", "pour the water", "wait"]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)> \" ' & {{ 7 * 7 }} onload="


def aligned_with(segments: list[Segment], matches: list[tuple[int, int]], steps: int) -> AlignedNarration:
    W = tuple(tuple(round(0.1 + 0.01 * (i + k), 4) for k in range(len(segments))) for i in range(steps))
    found = tuple(Match(i, k, W[i][k]) for i, k in matches)
    return AlignedNarration(0, Narration("v", tuple(segments)), 0.5, 0.4, found, W)


def drawn(aligned: AlignedNarration, history: int) -> ElementTree.Element:
    segments = aligned.narration.segments
    notes = [segment_note(aligned, k, [f"step {i}" for i in range(20)]) for k in range(len(segments))]
    return ElementTree.fromstring(Picture.of(aligned, history).draw(aligned, history, notes, [""] * len(segments)))


@st.composite
def alignments(draw: Any) -> tuple[AlignedNarration, int]:
    """Timed and untimed narrations of up to 70 segments, some overlapping, with rising matches."""
    count, steps = draw(st.integers(1, 70)), draw(st.integers(0, 14))
    timed = draw(st.booleans())
    starts = sorted(draw(st.lists(st.floats(0, 4000), min_size=count, max_size=count)))
    lengths = draw(st.lists(st.floats(0, 60), min_size=count, max_size=count))
    segments = [
        Segment(f"s{k}", start if timed else None, start + length if timed else None)
        for k, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]
    number = draw(st.integers(0, min(steps, count)))
    chosen = st.lists(st.integers(0, 10**6), min_size=number, max_size=number, unique=True)
    rows = sorted(draw(st.permutations(range(steps)))[:number])
    columns = sorted({value % count for value in draw(chosen)})
    return aligned_with(segments, list(zip(rows, columns, strict=False)), steps), draw(st.integers(0, steps))


@given(alignments())
def test_links_end_at_the_middles_of_their_step_and_segment(case: tuple[AlignedNarration, int]) -> None:
    aligned, history = case
    picture = Picture.of(aligned, history)
    links = [path for path in drawn(aligned, history).iter("path") if path.get("class", "").startswith("link ")]
    assert [(int(p.get("data-step", "")), int(p.get("data-segment", ""))) for p in links] == [
        match[:2] for match in aligned.matches
    ]
    for path, match in zip(links, aligned.matches, strict=True):
        x0, y0, *_, x1, y1 = map(float, re.findall(r"[\d.]+", path.get("d", "")))
        assert (x0, x1) == (0, AXIS)
        assert y0 == pytest.approx(picture.steps[match.step], abs=0.01)
        assert y1 == pytest.approx(picture.segments[match.segment].middle, abs=0.01)
        assert path.get("style") == f"--s:{match.similarity:g}"
        assert path.get("class") == ("link done" if match.step < history else "link plan")


@given(alignments())
@example((aligned_with([Segment("s0", 0.0, 2.2e-309)], [], 0), 0))  # a length that cannot divide
def test_everything_stands_inside_and_texts_keep_apart(case: tuple[AlignedNarration, int]) -> None:
    aligned, history = case
    picture = Picture.of(aligned, history)
    matched = {match.segment for match in aligned.matches}
    for span in picture.segments:
        assert -1e-6 <= span.top < span.bottom <= picture.height + 1e-6
    assert [span.top for span in picture.segments] == sorted(span.top for span in picture.segments)
    assert matched <= picture.texts.keys()
    ends = sorted(
        (y - size / 2, y + size / 2) for k, y in picture.texts.items() for size in [TEXT if k in matched else LINE]
    )
    assert all(bottom <= top + 1e-6 for (_, bottom), (top, _) in pairwise(ends))
    assert all(top >= -1e-6 and bottom <= picture.height + 1e-6 for top, bottom in ends)
    assert all(-1e-6 <= y <= picture.height + 1e-6 for y, _ in picture.ticks)
    assert ElementTree.fromstring(barcode(aligned, history)) is not None


@given(st.lists(st.floats(0, 500), max_size=8).map(sorted))
def test_texts_are_the_nearest_that_keep_apart(wanted: list[float]) -> None:
    size, height = 50.0, 500.0
    x = [middle - i * size for i, middle in enumerate(wanted)]
    n = len(x)
    isotonic = [max(min(np.mean(x[j : k + 1]) for k in range(i, n)) for j in range(i + 1)) for i in range(n)]
    bounded = np.clip(isotonic, size / 2, height - size / 2 - (n - 1) * size)
    np.testing.assert_allclose(
        keep_apart(wanted, size, height), [y + i * size for i, y in enumerate(bounded)], atol=1e-6
    )


def test_time_runs_down_the_axis() -> None:
    segments = [Segment("a", 30.0, 60.0), Segment("b", 60.0, 90.0), Segment("c", 120.0, 150.0)]
    picture = Picture.of(aligned_with(segments, [(0, 0), (2, 2)], 9), 1)
    tops = [span.top / picture.height for span in picture.segments]
    assert tops == pytest.approx([0, 0.25, 0.75])
    assert picture.divide == pytest.approx(picture.height / 9)
    assert picture.history_end == pytest.approx(picture.height / 4)
    assert [text for _, text in picture.ticks][:2] == ["0:30", "1:00"]
    assert picture.ticks[-1][0] == pytest.approx(picture.height)
    untimed = Picture.of(aligned_with([Segment("a"), Segment("b")], [], 0), 0)
    assert (untimed.ticks, untimed.divide, untimed.history_end) == ((), None, None)
    assert untimed.segments[0].middle == pytest.approx(untimed.height / 4)


def explained(corpus: Any, history: list[str], plan: list[str]) -> Explanation:
    return explain(Verifier(corpus, RewardConfig(pool_size=4)), goal="make tea", history=history, continuation=plan)


def test_the_page_shows_everything(corpus: Any) -> None:
    explanation = explained(corpus, HISTORY, PLAN)
    page = Page(render_page(explanation, Links("https://h.example/{video_id}?t={start}"), 2))
    text = " ".join(page.texts)
    for shown in (*HISTORY, *PLAN, "make tea", "the history ends here", "Tea", "2 more in the pool"):
        assert shown in text
    for step in explanation.plan_evidence:
        assert f"{abs(step.contribution or 0):.3f}" in text
    assert len(page.of_class("picture")) == 2
    hrefs = {attributes.get("href") for tag, attributes in page.elements if tag == "a"}
    assert {"https://h.example/tea?t=20", "https://h.example/tea"} <= hrefs
    shown = sum(len(aligned.matches) for aligned in explanation.narrations[:2])
    assert len(page.of_class("link")) == shown
    hollow = sum(len(aligned.unmatched_steps) for aligned in explanation.narrations[:2])
    assert len(page.of_class("unmatched")) == hollow > 0


@pytest.mark.parametrize(("history", "plan"), [(HISTORY, []), ([], PLAN), ([], []), (["boil"], ["stir"])])
def test_pages_of_little(corpus: Any, history: list[str], plan: list[str]) -> None:
    text = " ".join(Page(render_page(explained(corpus, history, plan), Links(), 5)).texts)
    assert ("The plan holds no steps." in text) == (not plan)
    assert ("the history ends here" in text) == bool(history)
    assert ("Nothing was aligned" in text) == (not history and not plan)


def test_hostile_texts_are_inert(corpus: Any) -> None:
    segments = (Segment(HOSTILE, 0.0, 1.0), Segment("boil some water", 1.0, 2.0))
    corpus.narrations[:] = [Narration(HOSTILE, segments, HOSTILE, HOSTILE)] * len(corpus)
    corpus.vectors[:] = [corpus.encoder.encode([one.text for one in segments])] * len(corpus)
    explanation = explain(Verifier(corpus), goal=HOSTILE, history=[HOSTILE], continuation=[HOSTILE, "boil some water"])
    html = render_page(explanation, Links("https://h.example/{video_id}?t={start}"), 3)
    page = Page(html)
    names = {tag for tag, _ in page.elements}
    attributes = {name for _, found in page.elements for name in found}
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert names.isdisjoint({"img", "iframe", "object", "embed", "link", "form"})
    assert not [name for name in attributes if name.startswith("on") or name == "src"]
    assert HOSTILE in " ".join(page.texts)
    hrefs = [href for tag, found in page.elements if tag == "a" and not (href := found["href"] or "").startswith("#")]
    assert hrefs
    assert all(href.startswith("https://h.example/%3C%2Fscript%3E") for href in hrefs)


def test_the_page_needs_nothing_but_itself(corpus: Any) -> None:
    html = render_page(explained(corpus, HISTORY, PLAN), Links(), 5)
    page = Page(html)
    script = html[html.index("<script>") + len("<script>") : html.index("</script>")]
    pinned = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = [found["content"] for _, found in page.elements if "http-equiv" in found]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{pinned}'" in policy
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|\bsrc=", html)
