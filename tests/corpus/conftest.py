"""Made narrations, and what their builds are compared by."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import hub_server

from recipe.corpus.layout import corpus_id, file_records
from recipe.types import Narration, Segment


@pytest.fixture
def compacted_above(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Shards are compacted where more percent of them than this were removed."""
    return lambda percent: monkeypatch.setattr("recipe.corpus.change.REMOVED_PERCENT", percent)


@pytest.fixture
def as_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Corpora are opened as those whose vectors are too large to be hashed at every opening."""
    monkeypatch.setattr("recipe.corpus.integrity.HASHED_AT_OPENING", 0)
    monkeypatch.setenv("RECIPE_CACHE", str(tmp_path / "cache"))


WORDS = ["chop", "fry", "pour", "boil", "stir", "salt", "onion", "pan", "water", "kettle"]


def narrations(count: int, seed: int = 0) -> list[Narration]:
    """Narrations of 1 to 5 segments, every other one with times."""
    generator = np.random.default_rng(seed)
    made = []
    for number in range(count):
        texts = [" ".join(generator.choice(WORDS, size=3)) for _ in range(generator.integers(1, 6))]
        times = [(2.0 * k, 2.0 * k + 1.5) if number % 2 else (None, None) for k in range(len(texts))]
        segments = tuple(Segment(text, *span) for text, span in zip(texts, times, strict=True))
        made.append(Narration(f"v{number}", segments, title=f"t{number}" if number % 3 else None, source="made"))
    return made


def write_narrations(path: Path, made: list[Narration]) -> Path:
    """A file of JSON lines that holds them."""
    path.write_text("".join(json.dumps(asdict(narration)) + "\n" for narration in made))
    return path


def digest(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def rewrite_manifest(folder: Path, **changed: Any) -> None:
    """Change values of a corpus's manifest; it gets the id that fits them."""
    manifest = json.loads((folder / "manifest.json").read_text()) | changed
    manifest["id"] = corpus_id(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def hide_damage(folder: Path) -> None:
    """Give the manifest the sizes and checksums that the files of the shards have now."""
    shards = json.loads((folder / "manifest.json").read_text())["shards"]
    for shard in shards:
        shard["files"] = file_records(folder / "shards" / shard["name"])
    rewrite_manifest(folder, shards=shards)


@pytest.fixture
def narration_file(tmp_path: Path) -> Path:
    """Twelve narrations."""
    return write_narrations(tmp_path / "narrations.jsonl", narrations(12))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for the hub, to which this process sends."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with hub_server() as server:
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "x")
        yield server
