"""Histories of Phi's survive the round trip, take the place of annotated ones, and never that of another example's."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.data.histories import History, read_histories, with_histories, write_histories
from recipe.errors import InputError
from recipe.types import Example

RaisesInput = Callable[..., AbstractContextManager[object]]
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool)
rows = st.builds(
    History,
    example_id=texts,
    history=st.lists(texts, max_size=3).map(tuple),
    until=st.none() | st.floats(0, 1e9),
    model=st.text(st.characters(exclude_categories=["Cs"])),
    prompt=st.just("5f1d"),
    seconds=st.floats(0, 1e6),
    tokens_in=st.integers(0, 10**9),
    tokens_out=st.integers(0, 10**9),
)
GOOD = {"example_id": "s/v/1", "history": ["boil"]}


def written(folder: Path, *objects: dict[str, Any]) -> Path:
    path = folder / "histories.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in objects))
    return path


def example(name: str, until: float | None = 4.5) -> Example:
    return Example(name, "s", "v", "brew tea", ("boil", "steep"), ("pour",), 2, "test", until=until)


@given(histories=st.lists(rows, min_size=1, max_size=4, unique_by=lambda history: history.example_id))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, histories: list[History]) -> None:
    path = tmp_path_factory.mktemp("round") / "histories.jsonl"
    assert write_histories(path, histories) == len(histories)
    assert list(read_histories(path).items()) == [(history.example_id, history) for history in histories]


def test_only_the_id_and_the_steps_are_required(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, {"example_id": "s/v/2", "history": []})
    assert read_histories(path) == {"s/v/1": History("s/v/1", ("boil",)), "s/v/2": History("s/v/2", ())}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("example_id", " "),
        ("history", None),
        ("history", "boil"),
        ("history[1]", ["boil", ""]),
        ("until", -1),
        ("model", 3),
        ("prompt", None),
        ("seconds", float("nan")),
        ("tokens_in", 2.5),
        ("tokens_out", -1),
        ("token_out", 3),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, field: str, value: object, raises_input: RaisesInput) -> None:
    name = field.partition("[")[0]
    path = written(tmp_path, GOOD, {**GOOD, "example_id": "s/v/2", name: value})
    with raises_input(path, 2, field):
        read_histories(path)


def test_an_example_twice_is_named_with_its_first_line(tmp_path: Path, raises_input: RaisesInput) -> None:
    path = written(tmp_path, GOOD, GOOD)
    with raises_input(path, 2, "example_id", "line 1"):
        read_histories(path)


def test_phis_history_takes_the_place_of_the_annotated_one_and_nothing_else_changes() -> None:
    given_ = [example("a"), example("b", None)]
    told = {"b": History("b", ()), "other": History("other", ("x",)), "a": History("a", ("heat water",), 4.5, "phi")}
    first, second = with_histories(given_, told)
    assert (first.history, second.history) == (("heat water",), ())
    assert (first.continuation, first.cut, first.until, first.split) == (("pour",), 2, 4.5, "test")


def test_examples_without_a_history_are_counted_and_named() -> None:
    told = {"e0": History("e0", (), 4.5)}
    with pytest.raises(InputError, match=r"7 of 8 .*e1, e2, e3, e4, e5, \.\.\."):
        with_histories([example(f"e{n}") for n in range(8)], told)


@pytest.mark.parametrize(("read", "cut"), [(9.0, 4.5), (None, 4.5), (4.5, None)])
def test_a_history_of_another_cut_is_refused(read: float | None, cut: float | None) -> None:
    with pytest.raises(InputError, match="example 'a'"):
        with_histories([example("a", cut)], {"a": History("a", ("boil",), read)})
