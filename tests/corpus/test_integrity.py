"""A damaged corpus is noticed or harmless: no wrong answer, no crash."""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexed import unit, write_corpus
from tests.corpus.conftest import hide_damage, rewrite_manifest

from recipe.corpus.index import Index
from recipe.corpus.layout import FILES
from recipe.corpus.store import Corpus
from recipe.errors import CorpusError

QUERY = unit(np.random.default_rng(1), 3, 16)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    vectors = [unit(generator, int(rows), 16) for rows in generator.integers(1, 9, 30)]
    return write_corpus(tmp_path_factory.mktemp("whole") / "c", vectors, shard_size=12)


def answers(folder: Path) -> tuple[Any, ...]:
    """Everything that a corpus is asked for, by both ways of reading it."""
    corpus = Corpus.open(folder)
    texts = tuple(corpus.narration(number) for number in range(len(corpus)))
    found = [Index.open(folder, streamed=streamed).search([QUERY], 5)[0].hits for streamed in (False, True)]
    return texts, found, corpus.coverage(QUERY).tobytes(), corpus.find("v7"), corpus.manifest["id"]


def flip(data: bytearray, at: int, value: int) -> bytearray:
    data[at % len(data)] ^= 1 << value % 8
    return data


def overwrite(data: bytearray, at: int, value: int) -> bytearray:
    at %= len(data)
    data[at : at + 8] = bytes([value % 256]) * min(8, len(data) - at)
    return data


def cut(data: bytearray, at: int, value: int) -> bytearray:
    return data[: at % len(data)]


def lengthen(data: bytearray, at: int, value: int) -> bytearray:
    return data + bytes(1 + at % 4096)


def exchange(data: bytearray, at: int, value: int) -> bytearray:
    half = len(data) // 2
    return data[half:] + data[:half]


DAMAGED = int(os.environ.get("RECIPE_DAMAGED", "30"))
"""Corpora that each of two tests damages."""
PLACES = st.integers(0, 1 << 20)
VALUES = st.integers(0, 99)
DAMAGES = [flip, overwrite, cut, lengthen, exchange]
Damage = Callable[[bytearray, int, int], bytearray]


def damaged(whole: Path, folder: Path, name: str, damage: Damage, at: int, value: int) -> bool:
    """Copy a corpus and damage a file, of a shard unless it is the manifest; whether its bytes are others now."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    path = folder / name if name == "manifest.json" else folder / "shards" / f"{at % 3:05d}" / name
    before = path.read_bytes()
    path.write_bytes(damage(bytearray(before), at, value))
    return path.read_bytes() != before


@settings(max_examples=DAMAGED, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["manifest.json", *FILES]), st.sampled_from(DAMAGES), PLACES, VALUES)
def test_damage_is_noticed_or_harmless(
    whole: Path, tmp_path: Path, name: str, damage: Damage, at: int, value: int
) -> None:
    damaged(whole, tmp_path / "c", name, damage, at, value)
    try:
        found = answers(tmp_path / "c")
    except CorpusError:
        return
    assert found == answers(whole)


@settings(max_examples=DAMAGED, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FILES), st.sampled_from(DAMAGES), PLACES, VALUES)
@pytest.mark.usefixtures("as_large")
def test_a_corpus_too_large_to_be_hashed_at_every_opening_says_so(
    whole: Path, tmp_path: Path, name: str, damage: Damage, at: int, value: int
) -> None:
    folder = tmp_path / "c"
    changed = damaged(whole, folder, name, damage, at, value)
    try:
        index = Index.open(folder)
        found = index.search([QUERY], 5)[0]
        corpus = Corpus.open(folder)
        texts = [corpus.narration(number) for number in range(len(corpus))]
    except CorpusError:
        return
    assert texts == [Corpus.open(whole).narration(number) for number in range(len(corpus))]
    assert not found.certificate.verified
    if changed:
        with pytest.raises(CorpusError):
            corpus.verify()
    else:
        corpus.verify()
        assert Index.open(folder).search([QUERY], 5)[0].certificate.verified


@pytest.mark.usefixtures("as_large")
def test_a_verification_holds_until_a_file_changes(whole: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    folder = write_corpus(tmp_path / "built", [unit(generator, 4, 16) for _ in range(9)], shard_size=3)
    assert Index.open(folder).verified  # by its build
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert not Index.open(copy).verified
    Corpus.open(copy).verify()
    assert Index.open(copy).verified
    assert Index.open(copy, [1]).verified
    codes = copy / "shards" / "00001" / "codes.npy"
    times = codes.stat()
    data = bytearray(codes.read_bytes())
    data[-1] ^= 1
    codes.write_bytes(data)
    os.utime(codes, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not Index.open(copy).verified
    assert Index.open(copy, [0, 2]).verified
    next((tmp_path / "cache" / "verified").iterdir()).write_text("{")
    assert not Index.open(folder).verified or not Index.open(copy, [0]).verified


@pytest.mark.usefixtures("as_large")
def test_a_build_that_makes_a_shard_again_has_not_hashed_the_others(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    vectors = [unit(generator, 4, 16) for _ in range(9)]
    folder = write_corpus(tmp_path / "c", vectors, shard_size=3)
    codes = folder / "shards" / "00000" / "codes.npy"
    codes.write_bytes(flip(bytearray(codes.read_bytes()), -1, 0))  # its size stays
    shutil.rmtree(folder / "shards" / "00001")
    write_corpus(folder, vectors, shard_size=3)
    assert [shard.verified for shard in Index.open(folder).shards] == [False, True, True]


@pytest.mark.usefixtures("as_large")
def test_a_build_ends_where_what_it_verified_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, the folder of caches may be read-only."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("RECIPE_CACHE", str(tmp_path / "file"))
    folder = write_corpus(tmp_path / "c", [unit(np.random.default_rng(0), 4, 16)])
    assert not (folder / "build.json").exists()
    Corpus.open(folder).verify()
    assert not Index.open(folder).verified


@pytest.mark.parametrize("table", ["narrations.parquet", "segments.parquet"])
def test_a_table_of_fewer_rows_is_refused(whole: Path, tmp_path: Path, table: str) -> None:
    pytest.importorskip("pandas")
    folder = Path(shutil.copytree(whole, tmp_path / "c"))
    path = folder / "shards" / "00001" / table
    pq.write_table(pq.read_table(path).slice(1), path)
    hide_damage(folder)
    with pytest.raises(CorpusError, match=rf"{table} has \d+ rows, not"):
        Corpus.open(folder).to_pandas()


@pytest.mark.parametrize(
    "offsets", [[0, 3, 2, 5], [-4, 1, 2, 5], [0, 1, 2, 1 << 40], [1, 2, 3, 5], [0, 1, 1, 5], [0, 1, 2, 4]]
)
def test_first_segments_that_lead_out_of_the_vectors_are_refused(tmp_path: Path, offsets: list[int]) -> None:
    """Even where the checksum has been made again, so that only the values tell."""
    generator = np.random.default_rng(0)
    folder = write_corpus(tmp_path / "c", [unit(generator, rows, 16) for rows in (1, 1, 3)])
    path = folder / "shards" / "00000" / "offsets.npy"
    np.save(path, np.array(offsets, np.int64))
    hide_damage(folder)
    with pytest.raises(CorpusError, match=r"offsets\.npy does not divide 5 segments among 3 narrations"):
        Index.open(folder)


def test_every_key_of_the_manifest_counts(whole: Path, tmp_path: Path) -> None:
    """Each key missing, and with each other kind of value; `read` belongs to the id."""
    folder = Path(shutil.copytree(whole, tmp_path / "c"))
    manifest = json.loads((folder / "manifest.json").read_text())
    for key, value in manifest.items():
        others = [manifest | {key: other} for other in ({}, [], "x", 7, True, {"kept": 1}) if other != value]
        for changed in [{name: kept for name, kept in manifest.items() if name != key}, *others]:
            (folder / "manifest.json").write_text(json.dumps(changed))
            with pytest.raises(CorpusError):
                Corpus.open(folder)


STRANGE = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "negative": -1.0, "largest": float(np.finfo(np.float16).max)}


@pytest.mark.thorough
@pytest.mark.parametrize("value", STRANGE)
def test_bounds_that_bound_nothing_are_refused(whole: Path, tmp_path: Path, value: str) -> None:
    """Even where checksum and id have been made again; a bound that is too large costs time alone."""
    folder, right = Path(shutil.copytree(whole, tmp_path / "c")), Index.open(whole).search([QUERY], 5)[0].hits
    path = folder / "shards" / "00001" / "bounds.npy"
    bounds = np.load(path)
    for column, rows, streamed in itertools.product((0, 1, 2), (slice(None), 3), (False, True)):
        changed = bounds.copy()
        changed[rows, column] = STRANGE[value]
        np.save(path, changed)
        hide_damage(folder)
        if value == "largest":
            hits = Index.open(folder, streamed=streamed).search([QUERY], 5)[0].hits
            assert column == 0 or hits == right
        else:
            with pytest.raises(CorpusError, match=r"00001.*bounds\.npy"):
                Index.open(folder, streamed=streamed)


@pytest.mark.thorough
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_vectors_that_are_not_finite_are_no_answer(whole: Path, tmp_path: Path, value: str) -> None:
    """Even where checksum and id have been made again: scores that are not finite are refused, never ranked."""
    folder = Path(shutil.copytree(whole, tmp_path / "c"))
    path = folder / "shards" / "00001" / "embeddings.npy"
    vectors = np.load(path)
    for everywhere, streamed in itertools.product((False, True), (False, True)):
        changed = vectors.copy()
        changed[slice(None) if everywhere else 7] = STRANGE[value]
        np.save(path, changed)
        hide_damage(folder)
        index = Index.open(folder, streamed=streamed)
        for search in (
            lambda index=index: [hit.score for hit in index.search([QUERY], len(index))[0].hits],
            lambda index=index: [hit.score for hit in index._scan(QUERY, len(index)).hits],
            lambda index=index: index.coverage(QUERY),
        ):
            with pytest.raises(CorpusError, match=r"00001.*embeddings\.npy") if everywhere else suppress(CorpusError):
                assert np.isfinite(search()).all()


NUMBERS = [np.nan, -np.inf, -1, 0, 0.5, 1 << 31, -(1 << 63), 1 << 64, 1e308, True]


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of all numbers in a JSON value."""
    if isinstance(value, int | float):
        yield place
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _leaves(inner, (*place, key))


def test_no_number_of_the_manifest_leads_astray(whole: Path, tmp_path: Path) -> None:
    """Each number replaced by strange ones, with an id that fits: refused, or the same answers."""
    folder, right = Path(shutil.copytree(whole, tmp_path / "c")), answers(whole)[:-1]
    text = (folder / "manifest.json").read_text()
    for place in _leaves(json.loads(text)):
        for number in NUMBERS:
            manifest = json.loads(text)
            *outer, last = place
            holder = manifest
            for key in outer:
                holder = holder[key]
            holder[last] = number
            rewrite_manifest(folder, **manifest)
            with suppress(CorpusError):
                assert answers(folder)[:-1] == right, (place, number)


ODD = [None, -1, 1, 1 << 40, (1 << 63) - 1, -(1 << 63)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("narrations.parquet", "first_segment", ODD),
        ("narrations.parquet", "segments", [*ODD, 0]),
        ("narrations.parquet", "video_id", [None, "", "v0"]),
        ("segments.parquet", "narration", ODD),
        ("segments.parquet", "text", [None, "", " "]),
        ("segments.parquet", "start", [np.nan, np.inf, -np.inf, -1.0, 1e308]),
    ],
)
def test_tables_that_lie_are_refused_or_harmless(
    whole: Path, tmp_path: Path, table: str, column: str, values: list[Any]
) -> None:
    """One value of a column, or all, or the column as another type or absent, with checksum and id that fit."""
    folder = Path(shutil.copytree(whole, tmp_path / "c"))
    path = folder / "shards" / "00001" / table
    rows = pq.read_table(path)
    kept = rows.column(column).to_pylist()
    kind = rows.schema.field(column).type
    at = rows.column_names.index(column)
    changes = [pa.array([*kept[:3], value, *kept[4:]], kind) for value in values]
    changes += [pa.array([value] * len(kept), kind) for value in values]
    changes += [pa.array(kept, kind).cast(pa.string()), pa.array([[1]] * len(kept)), pa.nulls(len(kept)), None]
    tables = [rows.remove_column(at) if change is None else rows.set_column(at, column, change) for change in changes]
    for changed in [*tables, rows.slice(0, 0), pa.concat_tables([rows, rows])]:
        pq.write_table(changed, path)
        hide_damage(folder)
        with suppress(CorpusError):
            assert len(Corpus.open(folder).video_ids) <= 30
        with suppress(CorpusError):
            texts, *_ = answers(folder)
            assert all(text.video_id is not None and text.segments for text in texts), changed.schema
