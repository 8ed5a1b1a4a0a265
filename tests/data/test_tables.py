"""Files of rows in every form that spreadsheets, pandas and databases write: read alike, or called by their name."""

import csv
import gzip
import io
import json
import pickle
import sqlite3
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import raises_input

from recipe.corpus.excluded import read_excluded, read_id_map
from recipe.data.examples import read_examples
from recipe.data.histories import History, read_histories
from recipe.data.narrations import read_narrations, read_titles
from recipe.data.procedures import read_procedures
from recipe.errors import InputError
from recipe.evaluation.agreement import read_ratings
from recipe.planning.prediction_files import read_predictions
from recipe.planning.predictions import Prediction

ROWS = [
    {"goal": "patch jeans", "steps": ["pin the patch, flat", "sew around", "trim"], "video_id": "v1", "split": None},
    {"goal": "sharpen; hone", "steps": ["soak the stone", 'say "done"'], "video_id": "v2", "split": "test"},
]
WHOLE = [("v1", tuple(ROWS[0]["steps"]), ""), ("v2", tuple(ROWS[1]["steps"]), "test")]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def table(
    delimiter: str = ",", cell: Callable[[list[str]], str] = "\n".join, first: str = "", index: bool = False
) -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow([*([first] if index else []), " Goal", "STEPS", "Video ID", "split"])
    for number, row in enumerate(ROWS):
        cells = [row["goal"], cell(row["steps"]), row["video_id"], row["split"] or ""]
        writer.writerow([*([str(number)] if index else []), *cells])
    return text.getvalue()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    content = pa.Table.from_pylist(rows).append_column("__index_level_0__", pa.array(range(len(rows))))
    pq.write_table(content, sink)
    return sink.getvalue()


def arrow(rows: list[dict[str, Any]], new: Callable[..., Any]) -> bytes:
    sink, content = io.BytesIO(), pa.Table.from_pylist(rows)
    with new(sink, content.schema) as writer:
        writer.write_table(content)
    return sink.getvalue()


FORMS: dict[str, bytes] = {
    "lines": lines(ROWS),
    "lines in UTF-16": lines(ROWS).decode().encode("utf-16"),
    "lines in gzip": gzip.compress(lines(ROWS)),
    "lines in Zstandard": pa.compress(lines(ROWS), "zstd", asbytes=True),
    "one row a time over several lines": "\n".join(json.dumps(row, indent=1) for row in ROWS).encode(),
    "lines that end in commas": lines(ROWS).replace(b"}\n", b"},\n"),
    "list": json.dumps(ROWS, indent=2).encode(),
    "list on one line": json.dumps(ROWS).encode(),
    "data": json.dumps({"schema": {"fields": []}, "data": ROWS}).encode(),
    "data as a value, too": json.dumps({"kind": "data", "others": [{"goal": "no"}], "data": ROWS}, indent=1).encode(),
    "data twice": b'{"data": [{"goal": "no"}], "data": ' + json.dumps(ROWS).encode() + b"}",
    "a list under any name": json.dumps({"procedures": ROWS}, indent=2).encode(),
    "commas": table().encode(),
    "semicolons": table(";").encode("utf-8-sig"),
    "semicolons that are told": b"sep=;\r\n" + table(";").encode(),
    "tabs": table("\t").encode(),
    "bars": table("|").encode(),
    "Unicode text": table("\t").encode("utf-16"),
    "line feeds of old Macs": table(";").replace("\r\n", "\r").encode(),
    "blanks behind commas": table(cell=json.dumps).replace(',"', ', "').encode(),
    "rows that end in delimiters": table(";").replace("v1;", "v1;;;").encode(),
    "Python lists": table(cell=repr).encode(),
    "JSON lists": table(cell=json.dumps).encode(),
    "index": table(cell=repr, index=True).encode(),
    "index that was read": table(cell=repr, first="Unnamed: 0", index=True).encode(),
    "table in gzip": gzip.compress(table(";").encode("utf-16")),
    "parquet": parquet(ROWS),
    "parquet in gzip": gzip.compress(parquet(ROWS)),
    "feather": arrow(ROWS, pa.ipc.new_file),
    "stream": arrow(ROWS, pa.ipc.new_stream),
}


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows"])
@pytest.mark.parametrize("form", FORMS)
def test_the_content_tells_the_form_and_not_the_name(tmp_path: Path, form: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FORMS[form])
    read = read_procedures(path).procedures
    assert [(own.video_id, tuple(step.text for step in own.steps), own.split) for own in read] == WHOLE
    assert [(own.video_id, (*own.history, *own.continuation), own.split) for own in read_examples(path)] == WHOLE
    if form not in ("parquet in gzip", "feather", "stream"):
        assert [(own.video_id, {*own.texts}) for own in read_excluded(path)] == [(own[0], {*own[1]}) for own in WHOLE]


def workbook(member: str) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as packed:
        packed.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet" if member == "ods" else "")
        packed.writestr(member, "goal,steps")
    return sink.getvalue()


def database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE rows (goal TEXT)")
    return connection.serialize()


REFUSED: dict[str, tuple[bytes, str]] = {
    "xlsx": (workbook("xl/workbook.xml"), "Excel.*CSV"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Excel.*CSV"),
    "ods": (workbook("ods"), "LibreOffice.*CSV"),
    "numbers": (workbook("Index/Document.iwa"), "Numbers.*CSV"),
    "docx": (workbook("word/document.xml"), "text document"),
    "pdf": (b"%PDF-1.7\n", "text document"),
    "zip": (workbook("rows.csv"), "zip.*unpack"),
    "7z": (b"7z\xbc\xaf\x27\x1c\0\4", "7z.*unpack"),
    "rar": (b"Rar!\x1a\x07\x01\0", "RAR.*unpack"),
    "sqlite": (database(), "SQLite.*JSON lines"),
    "pickle": (pickle.dumps(ROWS), "pickle"),
    "html": (b"<!DOCTYPE html><table><tr><td>goal", "web page"),
    "gzip that is cut off": (FORMS["lines in gzip"][:-20], "damaged"),
    "Parquet that is cut off": (FORMS["parquet"][:-20], "damaged"),
    "UTF-16 without a mark": (table().encode("utf-16-le"), "UTF-8"),
    "another encoding": ("goal,steps\nJalape\u00f1o,a\n".encode("cp1252"), "line 2.*UTF-8"),
    "a text": (b"1. boil water\n2. pour\n", "line 1.*goal, steps"),
    "no cells": (b",,\n,,\n", "names"),
    "a date for a goal": (parquet([{"goal": date(2026, 1, 1), "steps": ["a", "b"]}]), "line 1.*date"),
    "lists within": (json.dumps({"data": [["a", "b"]]}).encode(), "line 1.*field"),
}


@pytest.mark.parametrize("form", REFUSED)
@pytest.mark.parametrize("read", [read_procedures, read_examples, read_predictions, read_histories, read_ratings])
def test_a_form_that_is_not_read_is_called_by_its_name(
    tmp_path: Path, form: str, read: Callable[[Path], object]
) -> None:
    content, because = REFUSED[form]
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    expected = because if read in (read_procedures, read_examples) or "line" not in because else ""
    with pytest.raises(InputError, match=f"(?s)rows.csv.*{expected}") as raised:
        read(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("form", ["xlsx", "ods", "7z", "pdf", "sqlite"])
@pytest.mark.parametrize("read", [read_titles, lambda path: [*read_narrations(path)]])
def test_narrations_and_titles_name_such_forms_too(tmp_path: Path, form: str, read: Callable[[Path], object]) -> None:
    content, because = REFUSED[form]
    (tmp_path / "rows").write_bytes(content)
    with pytest.raises(InputError, match=because):
        read(tmp_path / "rows")


@pytest.mark.parametrize(
    "cell",
    [
        *("sand it; oil it; wipe it", "sand it | oil it", r"sand it\noil it", r"1. sand it\n2. oil it", "sand<br>oil"),
        *("a|b|c", "sand it|oil it\nwipe it|dry it", "sand it > oil it > dry it", "sand -- oil -- dry"),
        *("1. sand it 2. oil it", "1) sand 2) oil", "sand it -> oil it", "sand it → oil it", "• sand it • oil it"),
        *("['sand it' 'oil it']", "array(['sand it', 'oil it'], dtype=object)", "[sand it, oil it]", "砂；油"),
    ],
)
@pytest.mark.parametrize("field", ["steps", "history", "continuation"])
def test_steps_on_one_line_are_no_step(tmp_path: Path, field: str, cell: str) -> None:
    row = {"goal": "g", "steps": "a\nb"} if field == "steps" else {"goal": "g", "history": "a", "continuation": "b"}
    with (tmp_path / "r.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, row)
        writer.writeheader()
        writer.writerows([row | {"goal": "first"}, row | {field: cell}])
    read = read_procedures(tmp_path / "r.csv", on_bad="skip")
    assert (len(read.procedures), [line for line, _ in read.skipped]) == (1, [4 if field == "steps" else 3])
    for reader in (read_procedures, read_examples):
        with raises_input(tmp_path / "r.csv", 4 if field == "steps" else 3, field, "line"):
            reader(tmp_path / "r.csv")


@pytest.mark.parametrize("cell", ["sand it, oil it", "Sand it. Oil it.", "sand it/oil it/dry it", "sand then oil"])
def test_a_whole_procedure_on_one_line_is_asked_about(tmp_path: Path, cell: str) -> None:
    (tmp_path / "r.csv").write_text(f'goal,steps\ng,"{cell}"\n')
    with raises_input(tmp_path / "r.csv", 2, "steps", "line"):
        read_procedures(tmp_path / "r.csv")
    (tmp_path / "h.csv").write_text(f'goal,history,continuation\ng,"{cell}",dry it\n')
    assert [example.history for example in read_examples(tmp_path / "h.csv")] == [(cell,)]


@pytest.mark.parametrize("text", ['["a|b|c"]', '["sand it | oil it"]', '[{"text": "sand it|oil it"}]'])
def test_an_only_step_that_may_be_several_is_asked_about_in_any_form(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.jsonl").write_text(f'{{"goal": "g", "steps": {text}}}')
    (tmp_path / "r.json").write_text(f'[{{"goal": "g", "steps": {text}}}]')
    (tmp_path / "r.csv").write_text('goal,steps\ng,"' + text.replace('"', '""') + '"\n')
    for name, line in (("r.jsonl", 1), ("r.json", 1), ("r.csv", 2)):
        with raises_input(tmp_path / name, line, "steps", "step"):
            read_procedures(tmp_path / name)


@pytest.mark.parametrize("absent", ["", "NA", "NaN", "None", "NULL", "null", r"\N", "#N/A", "<NA>"])
def test_a_cell_without_a_value_is_absent(tmp_path: Path, absent: str) -> None:
    (tmp_path / "r.csv").write_text(
        f"goal,history,continuation,steps,video_id,until,cut,worded\ng,a,b,{absent},v,{absent},1.0,TRUE\n"
        f"h,{absent},b,{absent},{absent},2.5,{absent},{absent}\n"
    )
    first, second = read_examples(tmp_path / "r.csv")
    assert (first.history, first.video_id, first.until, first.cut, first.worded) == (("a",), "v", None, 1, True)
    assert (second.history, second.until, second.cut, second.worded) == ((), 2.5, 0, False)


def test_plans_histories_and_ratings_are_tables_too(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text('example_id;steps;sample;reward\na;"pour, slowly\nstir";1.0;0.5\nb;[];;\n')
    one, two = read_predictions(tmp_path / "p.csv")
    assert (one, two) == (Prediction("a", ("pour, slowly", "stir"), 1, reward=0.5), Prediction("b", ()))
    (tmp_path / "h.tsv").write_text("Example ID\tHistory\tuntil\na\tboil\t2\nb\t\t\n")
    assert read_histories(tmp_path / "h.tsv") == {"a": History("a", ("boil",), 2.0), "b": History("b", ())}
    (tmp_path / "r.tsv").write_bytes("Example ID\tClarity\na\t4\n".encode("utf-16"))
    assert [*read_ratings(tmp_path / "r.tsv")["human: r"].values()] == [{"clarity": 4.0}]
    (tmp_path / "ids.csv").write_text("a;b\na;c\n")
    assert read_id_map(tmp_path / "ids.csv") == {"a": ("b", "c")}
    (tmp_path / "t.csv").write_text("video_id;title\nv;Tea, in short\n")
    assert read_titles(tmp_path / "t.csv") == {"v": "Tea, in short"}
    (tmp_path / "t.jsonl").write_text('{"id": "v", "title": null}\n{"id": "w", "title": "Tea"}\n')
    assert read_titles(tmp_path / "t.jsonl") == {"w": "Tea"}


OPTIONAL: dict[str, tuple[Callable[[Path], Any], dict[str, Any], tuple[str, ...]]] = {
    "whole": (
        read_procedures,
        {"goal": "g", "steps": [{"text": "a", "start": None, "end": None}, "b"]},
        ("history", "continuation", "example_id", "source", "video_id", "split", "cut", "supervision", "until",
         "told_history", "worded"),
    ),
    "cut": (
        read_examples,
        {"goal": "g", "history": ["a"], "continuation": ["b"]},
        ("steps", "example_id", "source", "video_id", "split", "cut", "supervision", "until", "told_history", "worded"),
    ),
    "history": (read_histories, {"example_id": "a", "history": []}, ("until", "model", "prompt", "tokens_in")),
    "prediction": (read_predictions, {"example_id": "a", "steps": []}, ("sample", "text", "cut", "reward", "search")),
    "rating": (read_ratings, {"example_id": "a", "clarity": 3}, ("sample", "control", "semantic_alignment")),
    "excluded": (read_excluded, {"goal": "g", "steps": ["a"]}, ("source", "video_id", "split")),
}  # fmt: skip


@pytest.mark.parametrize("kind", OPTIONAL)
@given(data=st.data())
def test_an_optional_field_that_is_null_is_not_given(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    read, row, optional = OPTIONAL[kind]
    path = tmp_path_factory.mktemp("null") / "r.jsonl"
    path.write_bytes(lines([row]))
    expected = read(path)
    absent = data.draw(st.dictionaries(st.sampled_from(optional), st.sampled_from([None, float("nan")]), min_size=1))
    absent |= {name: None for name in ("until", "reward") if name in absent}  # numbers, which NaN is not
    path.write_bytes(lines([absent | row]))
    assert read(path) == expected


@pytest.mark.parametrize("kind", OPTIONAL)
def test_a_required_field_that_is_null_and_an_unknown_one_are_named(tmp_path: Path, kind: str) -> None:
    read, row, _ = OPTIONAL[kind]
    name = "steps" if kind == "excluded" else next(iter(row))
    (tmp_path / "r.jsonl").write_bytes(lines([row | {name: None}]))
    with raises_input(tmp_path / "r.jsonl", 1, name):
        read(tmp_path / "r.jsonl")


@pytest.mark.parametrize(("text", "line"), [("goal,steps\ng,a,b\n", 2), ("goal;steps;\ng;[];x\n", 2)])
def test_cells_without_a_column_are_no_row(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "r.csv").write_text(text)
    with raises_input(tmp_path / "r.csv", line, *([None] if ",a," in text else ["column 3"])):
        read_procedures(tmp_path / "r.csv")
