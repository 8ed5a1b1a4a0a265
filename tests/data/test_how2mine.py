"""Web procedures of How2Everything: both layouts, every kind of file, addresses, and what cannot be used."""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from recipe.artifacts import write_jsonl
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.layout import NARRATIONS, SHARDS
from recipe.corpus.leaks import ExclusionReport, Exclusions
from recipe.corpus.store import Corpus
from recipe.data.benchmarks import BENCHMARKS, find_benchmark, require_benchmarks
from recipe.data.doctor import examine
from recipe.data.how2bench import incomplete_rows, read_how2bench
from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations, to_row
from recipe.data.supervision import cut_procedures
from recipe.errors import InputError
from recipe.evaluation.measures import role_of
from recipe.explain.records import Links
from recipe.types import Narration, Procedure, Segment, Step

Row = dict[str, Any]
STEPS = ["Boil the water.", "Warm the pot.", "Pour and wait."]
FLAT: Row = {
    "source_example_id": "doc-1",
    "topic": "Food & Dining",
    "goal": "Make a pot of tea",
    "resources": ["pot", "leaves"],
    "steps": STEPS,
    "url": "https://tea.example/pot?cups=2",
    "source_text": "A long page about tea.",
}
EXPORT: Row = {
    "source_example": {"id": "doc-1", "topic": FLAT["topic"], "url": FLAT["url"], "text": "A long page. " * 9000},
    "final_procedure": {"goal": FLAT["goal"], "steps": STEPS, "resources": ["pot"]},
}
TEA = Narration("doc-1", tuple(map(Segment, STEPS)), "Make a pot of tea", "how2mine", FLAT["url"])


def as_lines(path: Path, rows: Iterable[Row]) -> Path:
    write_jsonl(path.with_suffix(".jsonl"), rows)
    return path.with_suffix(".jsonl")


def as_gzip(path: Path, rows: Iterable[Row]) -> Path:
    target = path.with_suffix(".jsonl.gz")
    target.write_bytes(gzip.compress(as_lines(path, rows).read_bytes()))
    return target


def as_zstandard(path: Path, rows: Iterable[Row]) -> Path:
    target = path.with_suffix(".jsonl.zst")
    with pa.CompressedOutputStream(str(target), "zstd") as stream:
        stream.write(as_lines(path, rows).read_bytes())
    return target


def as_parquet(path: Path, rows: Iterable[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows)), path.with_suffix(".parquet"), row_group_size=2)
    return path.with_suffix(".parquet")


def as_arrow(path: Path, rows: Iterable[Row]) -> Path:
    table = pa.Table.from_pylist(list(rows))
    with pa.ipc.new_file(path.with_suffix(".arrow"), table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    return path.with_suffix(".arrow")


Write = Callable[[Path, Iterable[Row]], Path]
KINDS: list[Write] = [as_lines, as_gzip, as_zstandard, as_parquet, as_arrow]


def read(path: Path, report: ReadingReport | None = None, **options: Any) -> list[Narration]:
    return list(read_narrations(path, options=ReadingOptions(**options), report=report))


@pytest.mark.parametrize("write", KINDS)
@pytest.mark.parametrize("row", [FLAT, EXPORT], ids=["flat", "export"])
@pytest.mark.parametrize("name", ["auto", "how2mine"])
def test_both_layouts_are_recognised_in_every_kind_of_file(tmp_path: Path, write: Write, row: Row, name: str) -> None:
    path = write(tmp_path / "how2mine_00000", [row])
    assert read(path, format=name) == [TEA]
    assert read(path, format=name, source="web")[0].source == "web"


def test_shards_in_a_folder_are_read_one_after_the_other(tmp_path: Path) -> None:
    for number, write in enumerate(KINDS):
        write(tmp_path / f"all_valid_{number:05d}", [FLAT | {"source_example_id": f"doc-{number}"}])
    for left in ("all_valid_00001.jsonl", "all_valid_00002.jsonl"):
        (tmp_path / left).unlink()
    assert [one.video_id for one in read(tmp_path)] == [f"doc-{number}" for number in range(5)]


@pytest.mark.parametrize("write", KINDS)
def test_what_may_be_missing_is(tmp_path: Path, write: Write) -> None:
    report = ReadingReport()
    path = write(
        tmp_path / "few",
        [
            {"id": 7, "goal": "Tea", "steps": ["Boil."], "url": "ftp://tea.example"},
            {"id": None, "goal": "Tea", "steps": ["Boil."], "url": None},
            {"id": None, "goal": "Tea", "steps": ["Boil.", "Pour."], "url": ""},
            {"id": 9, "goal": None, "steps": ["Wait."], "url": "HTTP://tea.example/a b"},
        ],
    )
    first, second, third, last = read(path, report)
    assert (first.video_id, first.url, first.title) == ("7", None, "Tea")
    assert second.video_id.startswith("how2mine-")
    assert second.video_id != third.video_id
    assert (last.video_id, last.title, last.url) == ("9", None, None)
    assert (report.no_link, report.no_goal, report.narrations) == (2, 1, 4)
    assert read(path)[1].video_id == second.video_id


BAD: list[tuple[Row, str, str]] = [
    (FLAT | {"steps": []}, "steps", "no captions"),
    (FLAT | {"steps": "Boil."}, "steps", "no captions"),
    (FLAT | {"steps": ["Boil.", " "]}, r"steps\[1\]", ""),
    (FLAT | {"steps": ["Boil.", 3]}, r"steps\[1\]", ""),
    (FLAT | {"goal": 3}, "goal", "bad goal"),
    (FLAT | {"url": ["https://tea.example"]}, "url", "bad address"),
    (EXPORT | {"final_procedure": None}, "final_procedure", "not a procedure"),
    (EXPORT | {"source_example": 3}, "source_example", "not a procedure"),
    (EXPORT | {"final_procedure": {"goal": "Tea"}}, r"final_procedure\.steps", "no captions"),
    (EXPORT | {"final_procedure": {"goal": "Tea", "steps": [""]}}, r"final_procedure\.steps\[0\]", "no usable caption"),
]


@pytest.mark.parametrize(("row", "field", "reason"), BAD)
def test_a_bad_row_is_refused_with_its_place_or_skipped_and_counted(
    tmp_path: Path, row: Row, field: str, reason: str
) -> None:
    path = as_lines(tmp_path / "rows", [EXPORT if "final_procedure" in row else FLAT | {"id": 0}, row])
    options: Row = {"format": "how2mine"}
    with pytest.raises(InputError, match=rf"rows\.jsonl, line 2, field '{field}': .*--bad skip"):
        list(read_narrations(path, "keep-first", ReadingOptions(**options)))
    report = ReadingReport()
    list(read_narrations(path, "keep-first", ReadingOptions(bad="skip", **options), report))
    assert dict(report.skipped_narrations) == ({reason: 1} if reason else {})
    assert sum(report.skipped_captions.values()) == (not reason or reason == "no usable caption")


@pytest.mark.parametrize("write", [as_parquet, as_arrow])
def test_a_bad_row_of_a_table_is_named_by_its_number(tmp_path: Path, write: Write) -> None:
    rows = [FLAT | {"source_example_id": f"doc-{number}"} for number in range(5)]
    path = write(tmp_path / "rows", [*rows, FLAT | {"steps": ["Boil.", ""]}])
    with pytest.raises(InputError, match=r"row 6, steps\[1\]"):
        read(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged"):
        read(path)


def test_a_damaged_zstandard_file_is_refused(tmp_path: Path) -> None:
    rows = [FLAT | {"source_example_id": f"doc-{number}"} for number in range(2000)]
    path = as_zstandard(tmp_path / "rows", rows)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"rows\.jsonl\.zst"):
        read(path)


@pytest.mark.thorough
def test_rows_are_read_as_a_stream(tmp_path: Path) -> None:
    rows = ({**FLAT, "source_example_id": f"doc-{n}", "source_text": "tea " * 2000} for n in range(3000))
    path = as_parquet(tmp_path / "many", rows)
    tracemalloc.start()
    assert sum(1 for _ in read_narrations(path)) == 3000
    assert tracemalloc.get_traced_memory()[1] < 4e6
    tracemalloc.stop()


def test_own_lines_keep_the_address(tmp_path: Path) -> None:
    path = as_lines(tmp_path / "own", [to_row(TEA)])
    assert json.loads(path.read_text())["url"] == TEA.url
    assert read(path) == [TEA]


def built(folder: Path, narrations: Iterable[Narration]) -> Corpus:
    pytest.importorskip("numba")
    return Corpus.open(build_corpus(narrations, folder, CorpusConfig(encoder=EncoderConfig(name="hash:64"))))


def test_a_corpus_keeps_addresses_and_explanations_link_them(tmp_path: Path) -> None:
    video = Narration("a-Z_0123456", (Segment("Boil.", 62.0, 63.0),), source="youtube")
    corpus = built(tmp_path / "corpus", [TEA, video])
    assert [corpus.narration(n) for n in range(2)] == [TEA, video]
    assert Links().of(TEA, TEA.segments[0]) == TEA.url
    assert Links("https://host.example/{video_id}").of(corpus.narration(0)) == TEA.url
    assert Links("none").of(TEA) is None
    assert Links().of(video, video.segments[0]) == "https://www.youtube.com/watch?v=a-Z_0123456&t=62s"
    (hit, _) = corpus.search(["Boil the water.", "Warm the pot."])
    assert corpus.narration(hit.narration).url == TEA.url


@pytest.mark.parametrize("url", ["javascript:alert(1)", 'https://a"onclick=', "https://a\u202eb", "//a.example"])
def test_what_is_no_address_of_the_web_is_never_a_link(url: str) -> None:
    assert Links().of(Narration("a-Z_0123456", (), url=url)) is None
    assert Links().of(Narration("a-Z_0123456", (), source="how2mine")) is None


def test_corpora_without_addresses_keep_their_bytes_and_differ_from_those_with(tmp_path: Path) -> None:
    plain = Narration(TEA.video_id, TEA.segments, TEA.title, TEA.source)
    corpora = [built(tmp_path / name, [one]) for name, one in (("plain", plain), ("linked", TEA))]
    tables = [pq.read_table(one.folder / SHARDS / "00000" / NARRATIONS).column_names for one in corpora]
    assert tables == [["video_id", "title", "source", "first_segment", "segments"], [*tables[0], "url"]]
    assert corpora[0].manifest["id"] != corpora[1].manifest["id"]
    line = json.dumps([TEA.video_id, TEA.title, TEA.source, [[step, None, None] for step in STEPS]]) + "\n"
    assert corpora[0].manifest["shards"][0]["content"] == sha256(line.encode()).hexdigest()


def test_a_benchmark_is_kept_out_by_id_and_by_text(tmp_path: Path) -> None:
    long = [f"Stir the {word} mixture slowly over a low flame until smooth and thick" for word in ("red", "blue")]
    bench = as_lines(tmp_path / "how2bench", [FLAT, FLAT | {"source_example_id": "doc-2", "steps": [*long, "Serve."]}])
    exclusions = Exclusions.read([bench])
    assert exclusions.video_ids == {"doc-1", "doc-2"}
    again = Narration("doc-3", (Segment(long[0].upper()), Segment("Eat."), Segment("Rest.")))
    report = ExclusionReport()
    kept = list(exclusions.filter([TEA, again], report))
    assert [segment.text for one in kept for segment in one.segments] == ["Eat.", "Rest."]
    assert (report.narrations_by_id, report.captions_by_text) == (1, 1)


def test_the_benchmark_is_read_as_a_test_set(how2bench: Path) -> None:
    procedures = [
        Procedure("how2bench", "doc-1", "Sew", (Step("Cut."),), "test"),
        Procedure("how2bench", "doc-2", "Make tea", (Step("Boil."), Step("Pour.")), "test"),
    ]
    assert read_how2bench(how2bench) == procedures
    assert [name.rpartition(", ")[2] for name in incomplete_rows(how2bench)] == ["line 3", "line 4", "line 5"]
    whole, cut = (cut_procedures(procedures, test=count) for count in ("start", "all"))
    assert [(one.example_id, one.history, one.continuation) for one in whole.examples] == [
        ("how2bench/doc-1/0", (), ("Cut.",)), ("how2bench/doc-2/0", (), ("Boil.", "Pour."))
    ]  # fmt: skip
    assert [one.example_id for one in cut.examples] == ["how2bench/doc-2/1"]
    assert role_of("how2bench") == ""


@pytest.mark.parametrize("write", KINDS)
def test_the_benchmark_is_found_in_every_kind_of_file(tmp_path: Path, write: Write) -> None:
    (tmp_path / "how2bench").mkdir()
    path = write(tmp_path / "how2bench" / "how2bench_00000", [FLAT])
    for other in path.parent.iterdir():
        if other != path:
            other.unlink()
    assert require_benchmarks(tmp_path) == {"how2bench": tmp_path / "how2bench"}
    assert find_benchmark(tmp_path / "how2bench", "how2bench") == tmp_path / "how2bench"
    assert [one.video_id for one in BENCHMARKS["how2bench"].read(tmp_path / "how2bench")] == ["doc-1"]
    [found] = [one for one in examine(tmp_path).diagnoses if one.name == "how2bench"]
    assert (found.state, found.missing) == ("complete", ())


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (FLAT | {"source_example_id": ["x"]}, "id"),
        (FLAT | {"goal": 3}, "goal"),
        (FLAT | {"steps": ["Boil.", 3]}, r"steps\[1\]"),
        (FLAT | {"steps": "Boil."}, "steps"),
        (FLAT, "id"),
    ],
)
def test_a_bad_row_of_the_benchmark_is_refused(tmp_path: Path, row: Row, field: str) -> None:
    as_lines(tmp_path / "how2bench", [FLAT, row])
    with pytest.raises(InputError, match=rf"how2bench\.jsonl, line 2, field '{field}'"):
        read_how2bench(tmp_path)
