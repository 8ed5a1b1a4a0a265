"""A corpus in figures."""

from collections import Counter
from typing import Any

from recipe.corpus.encoding.jina import licence_note
from recipe.corpus.layout import BOUNDS, CODES, EMBEDDINGS, OFFSETS
from recipe.corpus.store import Corpus


def summarise(corpus: Corpus) -> dict[str, Any]:
    """Counts, lengths, encoder, how the input was read, bytes on disk and in memory, as plain values."""
    manifest = corpus.manifest
    return {
        "id": manifest["id"],
        "format": manifest["format"],
        "narrations": manifest["narrations"],
        "timed": manifest["timed"],
        "untimed": manifest["narrations"] - manifest["timed"],
        "segments": manifest["segments"],
        "mean_length": manifest["segments"] / manifest["narrations"],
        "lengths": histogram(corpus),
        "encoder": manifest["encoder"],
        "licence": licence_note(manifest["encoder"]),
        "reading": manifest["reading"],
        "read": manifest["read"],
        "exclusions": manifest["exclusions"],
        "shards": len(manifest["shards"]),
        "shard_size": manifest["shard_size"],
        "disk_bytes": sum(_bytes(corpus, name) for name in manifest["shards"][0]["files"]),
        "search_bytes": search_bytes(corpus),
    }


def search_bytes(corpus: Corpus) -> dict[str, int]:
    """Memory that a search reads, by how it is done; a survivor is a narration whose score is computed exactly."""
    index = _bytes(corpus, BOUNDS) + _bytes(corpus, OFFSETS)
    longest = int((corpus.offsets[1:] - corpus.offsets[:-1]).max())
    return {
        "cpu_int8": _bytes(corpus, CODES) + index,
        "longest_survivor": 2 * longest * corpus.dimension,
        "gpu_int8": _bytes(corpus, CODES) + index,
        "gpu_float16": _bytes(corpus, EMBEDDINGS) + index,
    }


def histogram(corpus: Corpus) -> dict[str, int]:
    """Narrations by length in segments, in bins that double: 1, 2-3, 4-7, ..."""
    lengths = (corpus.offsets[1:] - corpus.offsets[:-1]).tolist()
    bins = Counter(int(length).bit_length() for length in lengths)
    return {(f"{1 << (power - 1)}-{(1 << power) - 1}" if power > 1 else "1"): bins[power] for power in sorted(bins)}


def _bytes(corpus: Corpus, name: str) -> int:
    return sum(shard["files"][name]["bytes"] for shard in corpus.manifest["shards"])
