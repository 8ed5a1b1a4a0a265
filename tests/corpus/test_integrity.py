"""A damaged corpus is noticed or harmless: no wrong answer, no crash."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexed import unit, write_corpus

from recipe.artifacts import file_sha256
from recipe.corpus import integrity
from recipe.corpus.index import Index
from recipe.corpus.layout import FILES, corpus_id
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


DAMAGED = int(os.environ.get("RECIPE_DAMAGED", "60"))
"""Corpora that each of two tests damages."""
PLACES = st.integers(0, 1 << 20)
VALUES = st.integers(0, 99)
DAMAGES = [flip, overwrite, cut, lengthen, exchange]


@settings(max_examples=DAMAGED, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["manifest.json", *FILES]), st.sampled_from(DAMAGES), st.integers(0, 1 << 20), st.integers(0, 99)
)
def test_damage_is_noticed_or_harmless(
    whole: Path,
    tmp_path: Path,
    name: str,
    damage: Callable[[bytearray, int, int], bytearray],
    at: int,
    value: int,
) -> None:
    folder = tmp_path / "c"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    path = folder / name if name == "manifest.json" else folder / "shards" / f"{at % 3:05d}" / name
    path.write_bytes(damage(bytearray(path.read_bytes()), at, value))
    try:
        found = answers(folder)
    except CorpusError:
        return
    assert found == answers(whole)


@settings(max_examples=DAMAGED, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FILES), st.sampled_from(DAMAGES), PLACES, VALUES)
def test_a_corpus_too_large_to_be_hashed_at_every_opening_says_so(
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    damage: Callable[[bytearray, int, int], bytearray],
    at: int,
    value: int,
) -> None:
    monkeypatch.setattr(integrity, "HASHED_AT_OPENING", 0)
    monkeypatch.setenv("RECIPE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "c"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    path = folder / "shards" / f"{at % 3:05d}" / name
    before = path.read_bytes()
    path.write_bytes(damage(bytearray(before), at, value))
    try:
        index = Index.open(folder)
        found = index.search([QUERY], 5)[0]
        corpus = Corpus.open(folder)
        texts = [corpus.narration(number) for number in range(len(corpus))]
    except CorpusError:
        return
    assert texts == [Corpus.open(whole).narration(number) for number in range(len(corpus))]
    assert not found.certificate.verified
    if path.read_bytes() == before:
        corpus.verify()
        assert Index.open(folder).search([QUERY], 5)[0].certificate.verified
    else:
        with pytest.raises(CorpusError):
            corpus.verify()


def test_a_verification_holds_until_a_file_changes(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "HASHED_AT_OPENING", 0)
    monkeypatch.setenv("RECIPE_CACHE", str(tmp_path / "cache"))
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


@pytest.mark.parametrize(
    "offsets",
    [[0, 3, 2, 5], [-4, 1, 2, 5], [0, 1, 2, 1 << 40], [1, 2, 3, 5], [0, 1, 1, 5], [0, 1, 2, 4]],
)
def test_first_segments_that_lead_out_of_the_vectors_are_refused(tmp_path: Path, offsets: list[int]) -> None:
    """Even where the checksum has been made again, so that only the values tell."""
    generator = np.random.default_rng(0)
    folder = write_corpus(tmp_path / "c", [unit(generator, rows, 16) for rows in (1, 1, 3)])
    path = folder / "shards" / "00000" / "offsets.npy"
    np.save(path, np.array(offsets, np.int64))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["shards"][0]["files"]["offsets.npy"]["sha256"] = file_sha256(path)
    manifest["id"] = corpus_id(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorpusError, match=r"offsets\.npy does not divide 5 segments among 3 narrations"):
        Index.open(folder)


def test_every_key_of_the_manifest_counts(whole: Path, tmp_path: Path) -> None:
    """Each key missing, and with each other kind of value; `read` belongs to the id."""
    folder = Path(shutil.copytree(whole, tmp_path / "c"))
    manifest = json.loads((folder / "manifest.json").read_text())
    for key, value in manifest.items():
        others = [manifest | {key: other} for other in ({}, [], "x", 7, True, {"kept": 1}) if other != value]
        for changed in [{name: one for name, one in manifest.items() if name != key}, *others]:
            (folder / "manifest.json").write_text(json.dumps(changed))
            with pytest.raises(CorpusError):
                Corpus.open(folder)


def test_a_corpus_of_the_format_before_is_read(whole: Path, tmp_path: Path) -> None:
    """Format 2, of version 0.1.0: its id does not cover `read`."""
    folder = Path(shutil.copytree(whole, tmp_path / "c"))
    manifest = json.loads((folder / "manifest.json").read_text()) | {"format": 2}
    manifest["id"] = corpus_id(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"read": {"kept": 30}}))
    assert answers(folder)[:-1] == answers(whole)[:-1]
