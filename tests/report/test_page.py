"""The one template of every report: nothing from outside, texts inert, and its only script pinned."""

import base64
import hashlib
import re
from dataclasses import replace

import pytest

pytest.importorskip("jinja2")

from markupsafe import Markup

from recipe.report.colours import BLUE, variable
from recipe.report.elements import (
    Cell,
    Figure,
    MarkedStep,
    NamedValues,
    PlanColumn,
    Plans,
    Section,
    Table,
    headings,
    row,
)
from recipe.report.page import render

HOSTILE = "</script><b>x</b>\x00"
TABLE = Table(HOSTILE, HOSTILE, headings(HOSTILE, "n"), (row("base", HOSTILE, Cell(1.0, shade=-40, hint=HOSTILE)),))
PLANS = Plans(
    (PlanColumn("base", (MarkedStep(HOSTILE, kind="valid"),), HOSTILE), PlanColumn(HOSTILE, ())),
    HOSTILE,
    HOSTILE,
    HOSTILE,
)
SECTION = Section(
    "one",
    HOSTILE,
    HOSTILE,
    (HOSTILE,),
    (TABLE, PLANS, NamedValues(((HOSTILE, HOSTILE),)), HOSTILE),
    (HOSTILE,),
    (HOSTILE,),
)


def page(**options: object) -> str:
    sections = [replace(SECTION, name=name) for name in ("one", "two", "three")]
    return render(HOSTILE, HOSTILE, [HOSTILE], sections, folded=[HOSTILE], **options)  # type: ignore[arg-type]


def test_texts_of_every_value_are_inert() -> None:
    text = page(lead=(Figure("<svg></svg>", HOSTILE),), colours={"base": BLUE})
    assert "<b>x" not in text
    assert "<script" not in text
    assert "\x00" not in text
    assert text == page(lead=(Figure("<svg></svg>", HOSTILE),), colours={"base": BLUE})
    assert f"var({variable(BLUE)})" in text
    assert "--down: 40" in text
    defined = set(re.findall(r"(--[\w-]+):", text))
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= defined


def test_only_the_own_script_may_run_and_its_data_cannot_end_it() -> None:
    text = page(
        script="let a = 1 < 2;", data={"plan": HOSTILE}, views="<aside>here</aside>", style="aside { color: red; }"
    )
    pinned = base64.b64encode(hashlib.sha256(b"let a = 1 < 2;").digest()).decode()
    assert f"script-src 'sha256-{pinned}';" in text
    assert "<script>let a = 1 < 2;</script>" in text
    assert text.count("</script>") == 2
    assert "<aside>here</aside>" in text
    assert "script-src" not in page()


def test_markup_of_a_room_stands_in_a_section_as_it_is() -> None:
    section = Section("one", "One", "One", blocks=(Markup("<dl><dt>a</dt></dl>"),))
    assert "<dl><dt>a</dt></dl>" in render("t", "", [], [section])
