"""Files of examples, procedures and histories: they survive the round trip, and a bad row is named."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import raises_input

from recipe.data.examples import read_examples, read_training_examples, write_examples
from recipe.data.histories import History, read_histories, with_histories, write_histories
from recipe.data.procedures import read_procedures, write_procedures
from recipe.data.supervision import cut_procedures
from recipe.errors import InputError
from recipe.step_lines import unmarked
from recipe.types import Example, Procedure, Step

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool)


def without_marks(steps: Any) -> bool:
    return unmarked(steps) == tuple(" ".join(step.split()) for step in steps)


def step_lists(least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    """Steps that do not begin as numbers and bullets do, which are read without these."""
    return st.lists(texts, min_size=least, max_size=3).map(tuple).filter(without_marks)


lists = step_lists()
examples = st.builds(
    Example,
    example_id=texts,
    source=texts,
    video_id=texts,
    goal=texts,
    history=lists,
    continuation=step_lists(1),
    cut=st.integers(1, 9),
    split=st.sampled_from(["", "train", "test"]),
    supervision=st.sampled_from(["annotated", "weak"]),
    until=st.none() | st.floats(0, 1e9),
    told_history=st.none() | lists,
)
histories = st.builds(
    History,
    example_id=texts,
    history=lists,
    until=st.none() | st.floats(0, 1e9),
    model=st.text(st.characters(exclude_categories=["Cs"])),
    prompt=st.just("5f1d"),
    seconds=st.floats(0, 1e6),
    tokens_in=st.integers(0, 10**9),
    tokens_out=st.integers(0, 10**9),
)


@st.composite
def procedures(draw: st.DrawFn) -> Procedure:
    starts = sorted(draw(st.lists(st.floats(0, 1e4), min_size=1, max_size=4)))
    told = draw(st.lists(texts, min_size=len(starts), max_size=len(starts)).filter(without_marks))
    ends = (draw(st.sampled_from([None, start + 1.0])) for start in starts)
    steps = tuple(map(Step, told, starts, ends))
    split = draw(st.sampled_from(["", "train", "val", "test"]))
    return Procedure(draw(texts), draw(texts), draw(texts), steps, split)


EXAMPLE: dict[str, Any] = {
    "example_id": "s/v/1", "goal": "brew tea", "history": ["boil"], "continuation": ["pour", "drink"],
}  # fmt: skip
PROCEDURE: dict[str, Any] = {
    "source": "mine",
    "video_id": "v1",
    "goal": "brew tea",
    "split": "train",
    "steps": [{"text": "boil", "start": 1, "end": 2.5}, {"text": "pour", "start": 2, "end": None}],
}
HISTORY: dict[str, Any] = {"example_id": "s/v/1", "history": ["boil"]}
KINDS: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    "example": (read_examples, EXAMPLE, "example_id"),
    "procedure": (read_procedures, PROCEDURE, "video_id"),
    "history": (read_histories, HISTORY, "example_id"),
}


def written(folder: Path, *objects: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in objects))
    return path


@pytest.mark.thorough
@settings(max_examples=30)
@given(st.lists(examples, min_size=1, max_size=4, unique_by=lambda example: example.example_id),
       st.lists(histories, min_size=1, max_size=4, unique_by=lambda history: history.example_id),
       st.lists(procedures(), min_size=1, max_size=3, unique_by=lambda p: (p.source, p.video_id)))  # fmt: skip
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, first: list[Example], second: list[History], third: list[Procedure]
) -> None:
    path = str(tmp_path_factory.mktemp("round") / "new" / "rows.jsonl")
    assert write_examples(path, first) == len(first)
    assert read_examples(path) == first
    assert write_histories(path, second) == len(second)
    assert list(read_histories(path).items()) == [(history.example_id, history) for history in second]
    assert write_procedures(path, third) == len(third)
    assert read_procedures(path) == (third, [])
    assert read_procedures(written(Path(path).parent, PROCEDURE | {"steps": [{"text": "a|b", "start": 1}]}))[0]


@pytest.mark.parametrize(
    ("kind", "field", "value", "facts"),
    [
        ("example", "example_id", "a\ud800", ()),
        ("example", "goal", None, ()),
        ("example", "continuation[1]", ["pour", " "], ()),
        ("example", "continuation", [], ()),
        ("example", "cut", 0, ()),
        ("example", "cut", -1, ()),
        ("example", "supervision", "strong", ()),
        ("example", "until", -0.5, ()),
        ("example", "until", "0:41", ()),
        ("example", "worded", 1, ()),
        ("example", "continuaton", ["x"], ("continuation",)),
        ("procedure", "steps", [], ()),
        ("procedure", "steps[1].txt", [{"text": "a"}, {"txt": "b"}], ("text",)),
        ("procedure", "steps[0].start", [{"text": "a", "start": float("nan")}], ("nan",)),
        ("procedure", "steps[0].end", [{"text": "a", "start": 3, "end": 2}], ("3", "2")),
        ("procedure", "steps[1].start", [{"text": "a", "start": 3}, {"text": "c", "start": 2}], ("3", "2")),
        ("procedure", "split", "training", ("train", "val", "test")),
        ("procedure", "splits", "train", ("'split'",)),
        ("history", "history", None, ()),
        ("history", "until", -1, ()),
        ("history", "seconds", float("nan"), ()),
        ("history", "tokens_out", -1, ()),
    ],
)  # fmt: skip
def test_a_bad_field_is_named(tmp_path: Path, kind: str, field: str, value: object, facts: tuple[str, ...]) -> None:
    read, good, key = KINDS[kind]
    name = field.partition("[")[0]
    path = written(tmp_path, good, {**good, key: "second", name: value}, {**good, key: "third"})
    with raises_input(path, 2, field, *facts):
        read(path)
    if kind == "procedure":
        content = read_procedures(path, on_bad="skip")
        assert [procedure.video_id for procedure in content.procedures] == ["v1", "third"]
        [(line, reason)] = content.skipped
        assert (line, field in reason) == (2, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_is_missing_and_a_row_that_occurs_twice_are_named(tmp_path: Path, kind: str) -> None:
    read, good, key = KINDS[kind]
    needed = {"history": good.keys(), "example": {"goal", "history", "continuation"}, "procedure": {"goal", "steps"}}
    for field in needed[kind]:
        path = written(tmp_path, {name: value for name, value in good.items() if name != field})
        with raises_input(path, 1, field):
            read(path)
    path = written(tmp_path, good, {**good, key: "other"}, good)
    with raises_input(path, 3, key, "line 1"):
        read(path)


def test_broken_json_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    path = written(tmp_path, PROCEDURE)
    path.write_text(path.read_text() + '{"source": \n')
    with raises_input(path, 2):
        read_procedures(path, on_bad="skip")


def test_optional_fields_have_defaults(tmp_path: Path) -> None:
    [example] = read_examples(written(tmp_path, {**EXAMPLE, "history": ["boil", "steep"]}))
    assert (example.cut, example.split, example.source, example.supervision) == (2, "", "", "annotated")
    assert (example.until, example.told_history) == (None, None)
    row = {"source": "mine", "video_id": "v", "goal": "g", "steps": [{"text": " boil "}]}
    assert read_procedures(written(tmp_path, row)).procedures == [Procedure("mine", "v", "g", (Step("boil"),))]
    path = written(tmp_path, HISTORY, {"example_id": "s/v/2", "history": []})
    assert read_histories(path) == {"s/v/1": History("s/v/1", ("boil",)), "s/v/2": History("s/v/2", ())}


ROWS: list[dict[str, Any]] = [
    {"goal": "brew tea", "steps": ["boil", {"text": "pour, slowly", "start": 2}, "drink"]},
    {"goal": "mend a tyre", "history": ["find the hole"], "continuation": ["patch it", "pump it up"]},
    {"goal": "knit", "history": [], "continuation": ["cast on"], "split": "test", "until": 1.5},
]


def in_form(path: Path, rows: list[dict[str, Any]], indent: int | None = None) -> Path:
    """The rows in the form that the file's name says."""
    if path.suffix == ".csv":
        names = list(dict.fromkeys(name for row in rows for name in row))
        with path.open("w", newline="", encoding="utf-8") as stream:
            table = csv.DictWriter(stream, names)
            table.writeheader()
            cells = [
                {name: value if isinstance(value, str) else json.dumps(value) for name, value in row.items()}
                for row in rows
            ]
            table.writerows(cells)
    else:
        lines = "\n".join(map(json.dumps, rows))
        path.write_text(lines if path.suffix == ".jsonl" else json.dumps(rows, indent=indent), encoding="utf-8")
    return path


@settings(max_examples=30)
@given(
    # A cell NULL or NA holds no value.
    st.lists(st.tuples(texts.map("t{}".format), lists, lists.filter(bool), st.booleans()), min_size=1, unique=True),
    st.none() | st.integers(0, 3),
)
def test_lines_an_array_and_a_table_are_read_alike(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[str, tuple[str, ...], tuple[str, ...], bool]],
    indent: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("forms")
    rows = [
        {"goal": goal, "steps": [*history, *rest]}
        if whole
        else {"goal": goal, "history": history, "continuation": rest}
        for goal, history, rest, whole in drawn
    ]
    read = [
        read_procedures(in_form(folder / name, rows, indent), on_bad="skip").procedures
        for name in ("rows.jsonl", "rows.json", "rows.csv")
    ]
    assert read[0] == read[1] == read[2]
    assert read[0]


def test_rows_without_ids_are_named_by_what_they_say(tmp_path: Path) -> None:
    first = read_examples(in_form(tmp_path / "a.jsonl", ROWS))
    again = read_examples(in_form(tmp_path / "b.json", [dict(reversed(row.items())) for row in reversed(ROWS)], 2))
    assert first == again[::-1]
    assert len({example.example_id for example in first}) == 3
    assert [(example.source, example.cut, example.until) for example in first[1:]] == [
        ("own", 1, None),
        ("own", 0, 1.5),
    ]
    other = read_examples(in_form(tmp_path / "a.jsonl", [row | {"goal": f"{row['goal']}!"} for row in ROWS]))
    assert not {example.example_id for example in first} & {example.example_id for example in other}
    steps_as_lines = 'goal,history,continuation\nmend a tyre,find the hole,"patch it\npump it up"\nknit,,cast on\n'
    (tmp_path / "c.csv").write_text(steps_as_lines)
    assert [example.example_id for example in read_examples(tmp_path / "c.csv")] == [
        one.example_id for one in first[1:]
    ]


def test_a_whole_procedure_is_cut_as_data_prepare_cuts_it(tmp_path: Path) -> None:
    rows = [
        {"source": "s", "video_id": f"v{n}", "goal": "g", "split": split, "steps": [f"step {k}" for k in range(7)]}
        for n, split in enumerate(("train", "test", "val"))
    ]
    path = in_form(tmp_path / "p.jsonl", rows)
    assert read_examples(path) == cut_procedures(read_procedures(path).procedures).examples
    assert [len(read_examples(path, split)) for split in ("train", "test")] == [4, 1]
    with raises_input(in_form(tmp_path / "p.jsonl", [{"goal": "g", "steps": ["one"]}]), 1, "steps"):
        read_examples(tmp_path / "p.jsonl")


def test_cuts_of_one_video_are_one_procedure(tmp_path: Path) -> None:
    whole = {"goal": "g", "steps": ["a", "b", "c"], "source": "s", "video_id": "v", "split": "train"}
    examples = read_examples(in_form(tmp_path / "p.jsonl", [whole]))
    assert len(examples) == 2
    write_examples(tmp_path / "e.jsonl", examples)
    [procedure] = read_procedures(tmp_path / "e.jsonl").procedures
    assert [step.text for step in procedure.steps] == ["a", "b", "c"]
    rows = [{"goal": "g", "history": ["a"], "continuation": [last], "video_id": "v"} for last in "bc"]
    path = in_form(tmp_path / "e.jsonl", rows)
    with raises_input(path, 2, "video_id", "line 1"):
        read_procedures(path)


@pytest.mark.parametrize(
    ("name", "text", "line", "field"),
    [
        ("a.json", '[\n {"goal": "g",\n "steps": ["a", "b"]},\n\n {"goal": "h", "steps": ["a", " "]}]', 5, "steps[1]"),
        ("a.json", '[{"goal": "g", "steps": ["a", "b"]},\n 3]', 2, None),
        ("a.json", '[{"goal": "g"},\n {"goal" "h"}]', 2, None),
        ("a.json", "[]", None, None),
        ("a.json", '[{"goal": "g", "steps": ["a", "b"]}, {"goal": "g", "steps": ["a", "b"]}]', 1, "video_id"),
        ("a.jsonl", '{"goal": "g", "steps": ["a"], "history": ["b"]}', 1, "history"),
        ("a.jsonl", '{"goal": "g", "steps": ["a"], "cut": 1}', 1, "cut"),
        ("a.jsonl", '{"goal": "g", "continuation": ["a"]}', 1, "history"),
        ("a.jsonl", '{"goal": "g"}', 1, "steps"),
        ("a.jsonl", '{"goal": "g", "history": ["a"]}', 1, "continuation"),
        ("a.jsonl", '{"goal": "g", "steps": ["a", "b"]}\n{"goal": "g", "steps": ["a", "b"]}', 2, "video_id"),
        ("a.csv", 'goal,steps\n"make\ntea","boil\npour"\ntea,a,b\n', 5, None),
        ("a.csv", 'goal,steps,until\ntea,"[""a"", 3]",\n', 2, "steps[1]"),
        ("a.csv", "goal,history,continuation,cut\ntea,a,b,two\n", 2, "cut"),
        ("a.csv", 'goal,steps\ntea,"boil\n', 2, None),
        ("a.csv", "goal,steps\n", None, None),
        ("a.csv", "goal,steps,steps\ng,a,b\n", 1, "steps"),
    ],
)
def test_a_bad_row_of_any_form_is_named(
    tmp_path: Path, name: str, text: str, line: int | None, field: str | None
) -> None:
    (tmp_path / name).write_text(text)
    for read in (read_procedures, read_examples):
        with raises_input(tmp_path / name, line, field):
            read(tmp_path / name)


def test_a_board_gives_out_questions_without_continuations(tmp_path: Path) -> None:
    path = written(tmp_path, {name: value for name, value in EXAMPLE.items() if name != "continuation"})
    assert read_examples(path, questions=True)[0].continuation == ()
    path = written(tmp_path, {**EXAMPLE, "continuation": []})
    with raises_input(path, 1, "continuation"):
        read_examples(path, questions=True)


def test_nothing_may_have_been_done_yet_but_not_in_training(tmp_path: Path) -> None:
    path = written(tmp_path, EXAMPLE, {**EXAMPLE, "example_id": "s/v/0", "history": []})
    _, example = read_examples(path)
    assert (example.history, example.cut) == ((), 0)
    with raises_input(path, None, "history", "1 of 2 examples", "s/v/0"):
        read_training_examples(path)


def test_a_split_selects(tmp_path: Path) -> None:
    path = written(tmp_path, {**EXAMPLE, "split": "train"}, {**EXAMPLE, "example_id": "s/v/2", "split": "test"})
    assert [example.example_id for example in read_examples(path, "test")] == ["s/v/2"]
    with pytest.raises(InputError, match=r"'val'.*1 in 'test', 1 in 'train'"):
        read_examples(path, "val")
    path = written(tmp_path, EXAMPLE)
    with pytest.raises(InputError, match=r"1 in none.* set split"):
        read_examples(path, "train")


def example(name: str, until: float | None = 4.5) -> Example:
    return Example(name, "s", "v", "brew tea", ("boil", "steep"), ("pour",), 2, "test", until=until)


def test_phis_history_takes_the_place_of_the_annotated_one_and_nothing_else_changes() -> None:
    told = {"b": History("b", ()), "other": History("other", ("x",)), "a": History("a", ("heat water",), 4.5, "phi")}
    first, second = with_histories([example("a"), example("b", None)], told)
    assert (first.history, second.history) == (("heat water",), ())
    assert (first.continuation, first.cut, first.until, first.split) == (("pour",), 2, 4.5, "test")
    with pytest.raises(InputError, match=r"7 of 8 .*e1, e2, e3, e4, e5, \.\.\."):
        with_histories([example(f"e{n}") for n in range(8)], {"e0": History("e0", (), 4.5)})


@pytest.mark.parametrize(("read", "cut"), [(9.0, 4.5), (None, 4.5), (4.5, None)])
def test_a_history_of_another_cut_is_refused(read: float | None, cut: float | None) -> None:
    with pytest.raises(InputError, match="example 'a'"):
        with_histories([example("a", cut)], {"a": History("a", ("boil",), read)})


@pytest.mark.real_data
def test_youcook2(shared_data: Path) -> None:
    path = shared_data / "youcook2" / "procedures.jsonl"
    with raises_input(path, 1430, "goal"):
        read_procedures(path)
    content = read_procedures(path, on_bad="skip")
    assert (len(content.procedures), len(content.skipped)) == (1790 - 19, 19)
    assert sum(procedure.split == "train" for procedure in content.procedures) == 1333
    assert len({procedure.goal for procedure in content.procedures}) == 89
