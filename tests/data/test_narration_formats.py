"""Each published form on a small file in its exact layout, and telling the forms apart."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.data.narration_forms import FORMS

import recipe
from recipe.config import parse_config
from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations
from recipe.errors import ConfigError, InputError
from recipe.types import Narration, Segment

# The layout of the example in HowToCaption's readme, with other texts.
CAPTIONS: dict[str, Any] = {
    "---39MFGZ-k": {
        "start": [19, 12, 29],
        "end": [27, 20, 37],
        "text": [["Fold the paper"], ["Show the paper"], ["Cut along the fold", "A way to cut well"]],
    }
}
SCORED: dict[str, Any] = {
    "---39MFGZ-k": {
        "start": [12, 19],
        "end": [20, 27],
        "text": [[("Show the paper", 0.5699)], [("Fold the paper", 0.3127), ("Fold it twice", 0.4805)]],
    },
    "_b": {"start": [0], "end": [8], "text": [[("A person talks", 0.3018)]]},
}


def texts(narration: Narration) -> list[str]:
    return [segment.text for segment in narration.segments]


def read(path: Path, report: ReadingReport | None = None, **options: Any) -> list[Narration]:
    return list(read_narrations(path, options=ReadingOptions(**options), report=report))


def packed(value: dict[str, Any]) -> dict[str, bytes]:
    return {video: zlib.compress(json.dumps(entry).encode(), 9) for video, entry in value.items()}


@pytest.mark.parametrize("zipped", [False, True])
def test_howtocaption_spans_and_scores(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "unfiltered"
    path.write_bytes(pickle.dumps(packed(SCORED) if zipped else SCORED))
    assert [texts(narration) for narration in read(path)] == [
        ["Show the paper", "Fold the paper", "Fold it twice"],
        ["A person talks"],
    ]
    assert texts(read(path, captions="joined")[0]) == ["Show the paper", "Fold the paper. Fold it twice"]
    assert texts(read(path, captions="first")[0]) == ["Show the paper", "Fold the paper"]
    report = ReadingReport()
    (narration,) = read(path, report, min_score=0.4805, captions="first")
    assert texts(narration) == ["Show the paper", "Fold it twice"]
    assert report.below_score == 2
    assert report.skipped_narrations == {"no caption reaches the smallest score": 1}


def test_a_smallest_score_needs_scores(tmp_path: Path) -> None:
    path = tmp_path / "captions.pickle"
    path.write_bytes(pickle.dumps(CAPTIONS))
    with pytest.raises(InputError, match=r"field '---39MFGZ-k\.text\[0\]': .*no score"):
        read(path, min_score=0.4)


HTM = {
    "nVbIUDjzWY4": {"text": ["wheel off", "bolt"], "start": [4.5, 1.25], "end": [9, 4.49]},
    "b": {"text": ["x"], "start": [0], "end": [1.5]},
}
OFF = Narration("nVbIUDjzWY4", (Segment("bolt", 1.25, 4.49), Segment("wheel off", 4.5, 9.0)), source="howto100m")
ALIGN = {"-3CEg4y7mQM": [[0, 1.5, 2.0, "hello everyone"], [1, 10.739, 17.535, "add oil"]], "b": [[1, 0, 1, "hi"]]}
HELLO = Narration(
    "-3CEg4y7mQM", (Segment("hello everyone", 1.5, 2.0), Segment("add oil", 10.739, 17.535)), source="htm-align"
)
FOLDED = Narration(
    "---39MFGZ-k",
    (
        Segment("Show the paper", 12.0, 20.0),
        Segment("Fold the paper", 19.0, 27.0),
        Segment("Cut along the fold", 29.0, 37.0),
        Segment("A way to cut well", 29.0, 37.0),
    ),
    source="howtocaption",
)
AA = b"vid,timestamp,text\n6yooogsTG8k,284,knead it\nz,3,stir\n6yooogsTG8k,12,weigh it\n"
KNEAD = Narration("6yooogsTG8k", (Segment("weigh it", 12.0, 12.0), Segment("knead it", 284.0, 284.0)), source="htm-aa")
PUBLISHED: list[tuple[str, bytes, Narration, int]] = [
    *((f"captions.{name}", pickle.dumps(CAPTIONS, n), FOLDED, 1) for name, n in (("pkl", 0), ("bin", 2), ("x", 5))),
    ("caption.json", json.dumps(HTM).encode(), OFF, 2),
    ("sentencified_htm_370k.json", json.dumps(HTM).encode(), replace(OFF, source="sentencified-htm"), 2),
    ("htm_align.json", json.dumps(ALIGN).encode(), HELLO, 2),
    ("htm_aa_v1.csv", AA, KNEAD, 2),
]
"""A published file, the first narration in it, and how many there are: sorted by time, and named by the release."""


@pytest.mark.parametrize(("name", "content", "first", "count"), PUBLISHED)
def test_a_published_file_is_read(tmp_path: Path, name: str, content: bytes, first: Narration, count: int) -> None:
    (tmp_path / name).write_bytes(content)
    found = read(tmp_path / name)
    assert (found[0], len(found)) == (first, count)


def test_the_whole_release_of_howto100m_as_one_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "HowTo100M.zip", "w") as archive:
        archive.writestr("README.txt", "start, end and text")
        archive.writestr("HowTo100M_v1.csv", "video_id,category_1,category_2,rank,task_id\nb,Cars,Tyres,1,52907\n")
        archive.writestr("task_ids.csv", "52907\tChange a Tyre\n")
        archive.writestr("caption.json", json.dumps(HTM))
    report = ReadingReport()
    assert [n.video_id for n in read(tmp_path / "HowTo100M.zip", report)] == ["nVbIUDjzWY4", "b"]
    (reason, labels), *others = report.passed_over_names.items()
    names = ["HowTo100M_v1.csv", "README.txt", "task_ids.csv"]
    assert ([Path(name).name for name in labels], others) == (names, [])
    assert report.passed_over == {reason: 3}
    (line,) = report.lines()
    assert line.startswith("3 files passed over")
    assert all(name in line for name in names)
    assert report.files == {"howto100m": 1}


def test_sentences_that_are_not_alignable_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "htm_align.json").write_text(json.dumps(ALIGN | {"c": [[0, 0, 1, "hi"]]}))
    report = ReadingReport()
    assert [texts(n) for n in read(tmp_path / "htm_align.json", report, alignable=True)] == [["add oil"], ["hi"]]
    assert (report.not_alignable, report.skipped_narrations) == (2, {"no sentence is alignable": 1})


def test_archives_in_a_folder_are_read_as_they_lie(tmp_path: Path) -> None:
    told = [Narration(f"{part}xlbuJzlZgE", (Segment("Mix.", 1.0, 2.5),)) for part in "12"]
    (tmp_path / "packed").mkdir()
    for one in told:
        (folder := tmp_path / one.video_id).mkdir()
        FORMS["whisperx"].write(folder, [one]).rename(tmp_path / "packed" / f"{one.video_id}.tar.gz")
    assert read(tmp_path / "packed") == [replace(one, source="whisperx") for one in told]


def test_parquet_of_segments_must_keep_a_video_together(tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    table = {"video_id": ["a", "a", "b", "a"], "text": list("wxyz"), "start": [1, 0, 0, 3], "end": [1, 1, 1, 3]}
    pq.write_table(pa.table(table).slice(0, 3), path)
    assert [(n.video_id, texts(n)) for n in read(path)] == [("a", ["x", "w"]), ("b", ["y"])]
    pq.write_table(pa.table(table), path)
    for duplicates in ("error", "keep-first"):
        with pytest.raises(InputError, match=r"field 'row 4': .*'a'.* row 1;"):
            list(read_narrations(path, duplicates))  # type: ignore[arg-type]


def test_parquet_without_times_and_with_lists_of_captions(tmp_path: Path) -> None:
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"video_id": ["a"], "text": [["x", "y"]], "title": ["Tea"], "source": ["mine"]}), path)
    assert read(path) == [Narration("a", (Segment("x"), Segment("y")), "Tea", "mine")]
    columns = {"video_id": ["a"], "text": [[["x", "y"], ["z"]]], "start": [[5, 0]], "end": [[6, 1]]}
    pq.write_table(pa.table(columns), path)
    assert texts(read(path, captions="joined", source="own")[0]) == ["z", "x. y"]
    assert read(path, source="own")[0].source == "own"


def test_one_folder_may_hold_several_formats(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.en.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:02.000\nhello\n")
    (tmp_path / "b.csv").write_text("start,end,text\n0,1,x\n")
    (tmp_path / "sub" / "c.jsonl").write_text('{"video_id": "c", "sentences": ["x"]}\n')
    report = ReadingReport()
    assert [n.video_id for n in read(tmp_path, report)] == ["a", "b", "c"]
    assert report.files == {"subtitles": 1, "howto100m-csv": 1, "jsonl": 1}
    assert [n.video_id for n in read(tmp_path, format="subtitles")] == ["a"]


HEADS: list[tuple[str, bytes, str | None]] = [
    ("x", b'\xef\xbb\xbf  {"v": {"start"', "howto100m"),
    ("x.json", b"{}", "howto100m"),
    ("x.json", b'{"a\\"b": [[1, 2', "htm-align"),
    ("x.json", b'{"video_id": "a"', "jsonl"),
    ("x.json", b'{"segments": [{"start"', "whisperx"),
    ("x.json", b'{"text": " Hello", "segments": [', "whisperx"),
    ("x.jsonl", b'{"segments": [{"start"', "jsonl"),
    ("x", b"Start,End,Text\n", "howto100m-csv"),
    ("x", b'"vid","timestamp","text"\n', "htm-aa"),
    ("x", b"WEBVTT - title\n", "subtitles"),
    ("x.txt", b"1\r\n00:00:01,000 --> 00:00:02,000\r\n", "subtitles"),
    ("x", b"PAR1\x15\x04", "parquet"),
    ("x", b"\x80\x04\x95", "howtocaption"),
    ("x.pkl", b"(dp0\n", "howtocaption"),
    ("x.md", b"# Start at the end of the text\n", None),
    ("x.csv", b"video_id,category_1,category_2,rank,task_id\n", None),
    ("x.json", b'{"vid": {"start" :', "howto100m"),
    ("x.json", b'{"vid": {}, "w": 3}', "howto100m"),
    ("x.json", b'{"encoder": {"name": "minilm"}}', "whisperx"),
    ("x.json", b'{"title": "Tea", "segments": [{"text": "x"}]}', "jsonl"),
    ("x.json", b'{"source": "x", "recognizedPhrases": []}', "whisperx"),
    ("x.json", b'[{"video_id": "a", "segments": []}]', "jsonl"),
    ("x.txt", b'{"a": 1}\n{"a": 2}\n', "jsonl"),
]


STEPS = [{"text": "boil"}]
ROWS: list[tuple[dict[str, Any], str]] = [
    ({"video_id": "v", "goal": "tea", "steps": STEPS}, "procedures"),
    ({"steps": STEPS, "goal": None, "video_id": "v"}, "procedures"),
    ({"video_id": "v", "segments": STEPS, "goal": "g", "steps": []}, "jsonl"),
    ({"video_id": "v", "sentences": ["a"], "goal": "g", "steps": STEPS}, "jsonl"),
]
"""Rows of procedures and of narrations."""
HEADS += [
    (name, b"\xef\xbb\xbf\n" + json.dumps(row).encode() + b"\n", expected)
    for name in ("n.jsonl", "n.ndjson", "n", "n.json")
    for row, expected in ROWS
]


@pytest.mark.parametrize(("name", "head", "expected"), HEADS)
def test_the_format_is_told_from_name_and_first_bytes(
    tmp_path: Path, name: str, head: bytes, expected: str | None
) -> None:
    (tmp_path / name).write_bytes(head)
    report = ReadingReport()
    with suppress(InputError):  # most of these end in the middle
        read(tmp_path / name, report)
    assert [*report.files] == ([] if expected is None else [expected])


def test_other_json_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "build.json").write_text('{"encoder": {"name": "minilm"}}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "more.json").write_text('{"title": "Tea", "video_id": "a", "sentences": ["x"]}')
    report = ReadingReport()
    assert [n.video_id for n in read(tmp_path, report)] == ["a"]
    assert report.passed_over.total() == 2


def test_a_file_of_no_known_layout_is_told_the_formats(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\n")
    with pytest.raises(InputError, match=r"notes\.txt: .*jsonl, procedures, howto"):
        read(tmp_path / "notes.txt")
    with pytest.raises(InputError, match="this is a folder"):
        read(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: the folder is empty; "):
        read(tmp_path / "empty")
    (tmp_path / "notes.zip").write_bytes(b"PK\5\6" + bytes(18))
    with pytest.raises(InputError, match=r"notes\.zip: the file holds no narrations"):
        read(tmp_path / "notes.zip")


def test_a_format_may_be_forced_and_is_then_the_only_one(tmp_path: Path) -> None:
    (tmp_path / "captions.bin").write_bytes(pickle.dumps(CAPTIONS, 0))
    assert read(tmp_path / "captions.bin", format="howtocaption") == [FOLDED]
    (tmp_path / "n.csv").write_text("start,end,text\n0,1,x\n")
    with pytest.raises(InputError, match=r"line 1: .*'vid'"):
        read(tmp_path / "n.csv", format="htm-aa")


READER = """
from recipe.data.narrations.drafts import Caption, Draft, Place

def read_tea(file, options, report):
    for number, line in enumerate(file.lines(options.encoding), start=1):
        name, *said = line.removeprefix("TEA ").strip().split(" / ")
        place = Place(file.label, number)
        yield Draft(place, name, [Caption(text) for text in said], lambda index, part, place=place: place)
"""


@pytest.mark.parametrize(
    ("line", "files", "words"),
    [
        ('Format("tea.read_tea", (".tea",))', {"a.tea": "v1 / boil / pour\n", "b.tea": "v2 / stir\n"}, []),
        (
            'Format("tea.read_tea", (".txt",), begins="TEA ")',
            {"a.txt": "TEA v1 / boil\n", "b.txt": "TEA v2 / stir"},
            [],
        ),
        ('Format("tea.read_tea", (".json",), begins="TEA ")', {"a": "TEA v1 / boil\nv2 / stir\n"}, []),
        ('Format("tea.read_tea", (".csv",))', {"a": "v1 / boil\nv2 / stir\n"}, ["--format", "tea"]),
    ],
)
def test_a_reader_of_ones_own_is_one_line(tmp_path: Path, line: str, files: dict[str, str], words: list[str]) -> None:
    package = Path(recipe.__file__).parent
    shutil.copytree(package, tmp_path / "recipe", ignore=shutil.ignore_patterns("__pycache__"))
    narrations = tmp_path / "recipe" / "data" / "narrations"
    table = (narrations / "formats.py").read_text(encoding="utf-8")
    head = "FORMATS: dict[str, Format] = {\n"
    assert head in table
    (narrations / "formats.py").write_text(table.replace(head, f'{head}    "tea": {line},\n'), encoding="utf-8")
    (narrations / "tea.py").write_text(READER, encoding="utf-8")
    told = tmp_path / "told"
    told.mkdir()
    for name, text in files.items():
        (told / name).write_text(text, encoding="utf-8")
    given = [told / "a"] if "a" in files else [told]
    command = [sys.executable, "-m", "recipe", "corpus", "build", *given, "--output", "c", "--encoder", "hash:64"]
    paths = os.pathsep.join([str(tmp_path), str(package.parent)])
    ended = subprocess.run(
        [*map(str, command), *words, "--json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["read"]["files"] == {"tea": len(files)}


def test_an_encoding_must_be_one() -> None:
    assert ReadingOptions(encoding="Latin-1").encoding == ReadingOptions(encoding="iso8859-1").encoding
    for name in ("latin-99", "zlib"):
        with pytest.raises(ConfigError, match="encoding"):
            parse_config({"encoding": name}, ReadingOptions, "reading")


def test_the_documentation_names_every_format_and_option() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page, reference = ((docs / name).read_text(encoding="utf-8") for name in ("data.md", "reference.md"))
    _, *formats = get_args(ReadingOptions.model_fields["format"].annotation)
    for name in formats:
        assert f"| `{name}` |" in page
    for name in ReadingOptions.model_fields:
        assert f"| `--{name.replace('_', '-')}" in reference
