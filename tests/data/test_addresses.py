"""The address of the page that a narration is from: in files, in corpora and in explanations."""

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import built_corpus

from recipe.artifacts import write_jsonl
from recipe.corpus.layout import NARRATIONS, SHARDS
from recipe.corpus.store import Corpus
from recipe.data.narrations import ReadingReport, read_narrations, to_row
from recipe.errors import InputError
from recipe.explain.records import Links
from recipe.types import Narration, Segment

STEPS = ["Boil the water.", "Warm the pot.", "Pour and wait."]
TEA = Narration("doc-1", tuple(map(Segment, STEPS)), "Make a pot of tea", "web", "https://tea.example/pot?cups=2")


def test_own_lines_keep_the_address(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    write_jsonl(path, [to_row(TEA)])
    assert json.loads(path.read_text())["url"] == TEA.url
    assert list(read_narrations(path)) == [TEA]


def test_an_address_that_is_none_of_the_web_is_left_out_and_counted(tmp_path: Path) -> None:
    path, report = tmp_path / "own.jsonl", ReadingReport()
    urls = ("ftp://tea.example", None, "", "HTTP://tea.example/a b")
    write_jsonl(path, [{"video_id": f"v{n}", "sentences": STEPS, "url": url} for n, url in enumerate(urls)])
    assert [narration.url for narration in read_narrations(path, report=report)] == [None] * 4
    assert report.no_link == 2
    write_jsonl(path, [{"video_id": "v", "sentences": STEPS, "url": ["https://tea.example"]}])
    with pytest.raises(InputError, match="line 1, field 'url'"):
        list(read_narrations(path))


def test_a_zstandard_file_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        for number in range(2000):
            stream.write(json.dumps(to_row(TEA) | {"video_id": f"doc-{number}"}).encode() + b"\n")
    assert sum(1 for _ in read_narrations(path)) == 2000
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"own\.jsonl\.zst"):
        list(read_narrations(path))


def built(folder: Path, narrations: Iterable[Narration]) -> Corpus:
    pytest.importorskip("numba")
    return built_corpus(folder, narrations)


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
    assert Links().of(Narration("a-Z_0123456", (), source="web")) is None


def test_corpora_without_addresses_keep_their_bytes_and_differ_from_those_with(tmp_path: Path) -> None:
    plain = Narration(TEA.video_id, TEA.segments, TEA.title, TEA.source)
    corpora = [built(tmp_path / name, [one]) for name, one in (("plain", plain), ("linked", TEA))]
    tables = [pq.read_table(one.folder / SHARDS / "00000" / NARRATIONS).column_names for one in corpora]
    assert tables == [["video_id", "title", "source", "first_segment", "segments"], [*tables[0], "url"]]
    assert corpora[0].manifest["id"] != corpora[1].manifest["id"]
    line = json.dumps([TEA.video_id, TEA.title, TEA.source, [[step, None, None] for step in STEPS]]) + "\n"
    assert corpora[0].manifest["shards"][0]["content"] == sha256(line.encode()).hexdigest()
