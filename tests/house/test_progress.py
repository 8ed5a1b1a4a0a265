"""Long work is seen to go on, also where nothing but lines of text can be shown."""

import io

import pytest

from recipe.progress import LogLines


def test_lines_tell_how_far_a_task_is_and_when_it_ends() -> None:
    stream = io.StringIO()
    with LogLines(stream, every=0).task("embedding", total=4) as advance:
        advance(3)
    began, half, done = stream.getvalue().splitlines()
    assert (began, half) == ("embedding ...", "embedding: 3 of 4, 0 s")
    assert done.startswith("embedding: done in ")


def test_lines_are_not_more_frequent_than_asked_for() -> None:
    stream = io.StringIO()
    with LogLines(stream, every=60).task("embedding", total=9) as advance:
        for _ in range(9):
            advance(1)
    assert len(stream.getvalue().splitlines()) == 2


def test_hours_of_work_leave_some_dozens_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100_000))
    monkeypatch.setattr("recipe.progress.time.monotonic", lambda: float(next(clock)))
    stream = io.StringIO()
    with LogLines(stream).task("training", total=7200) as advance:
        for _ in range(7200):
            advance(1)
    lines = stream.getvalue().splitlines()
    assert lines[1:3] == ["training: 6 of 7200, 6 s", "training: 12 of 7200, 12 s"]
    assert 30 < len(lines) < 80


def test_a_note_has_one_line_and_is_never_done() -> None:
    stream = io.StringIO()
    with LogLines(stream, every=0).task("3 prompts left out", total=0):
        pass
    assert stream.getvalue() == "3 prompts left out\n"
