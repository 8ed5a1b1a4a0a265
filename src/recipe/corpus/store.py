"""A corpus on disk: search, texts, vectors, and a summary in figures.

`examples/one_file.py` keeps its corpus in two lists. Left to others here: what files there are to `layout.py`, making
and changing them to `build.py` and `change.py`, the search itself to `index.py`, on GPUs to `gpu/`, on machines to
`cluster/`, their checksums to `integrity.py`, the encoder to `encoders.py`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from functools import cached_property, lru_cache, partial
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recipe.config.corpus import EncoderConfig
from recipe.config.reward import RewardConfig
from recipe.corpus.encoder_identity import licence_note, settings_for
from recipe.corpus.encoders import Encoder, open_recorded_encoder
from recipe.corpus.index import Index
from recipe.corpus.integrity import verify_shards
from recipe.corpus.layout import (
    BOUNDS,
    CODES,
    EMBEDDINGS,
    NARRATIONS,
    OFFSETS,
    SEGMENTS,
    SHARDS,
    Manifest,
    live_counts,
    live_rows,
    open_manifest,
    read_live,
    read_narrations,
    removed_rows,
)
from recipe.corpus.scan import kernels
from recipe.corpus.scan.certificate import Certificate, SearchResult
from recipe.errors import InputError, MissingExtra
from recipe.progress import SILENT, Progress
from recipe.report.html import notebook_table
from recipe.text import as_steps
from recipe.types import Hit, Narration

# Ids that an unknown one is compared with.
_COMPARED = 100_000
# Hits that a repr names.
_SHOWN = 3
_SEGMENT = ("start", "end", "text")
# Shards whose texts stay decoded, for lookups in random order.
_DECODED_SHARDS = 8


class Searcher(Protocol):
    """Answers queries given as vectors: an `Index`, a `GpuIndex` or a `ShardedIndex`."""

    def search(self, queries: Sequence[NDArray[np.float32]], k: int = 25) -> list[SearchResult]:
        """For each query [M_i, d] the k narrations of the highest A_mono."""
        ...


class Corpus:
    """Narrations, their embeddings and the encoder that made them; safe to share between threads.

    Open one with `Corpus.open`. Searching it is stage 1 (paper, section 3.2). The vectors are mapped into memory and
    read when they are used.
    """

    def __init__(self, local: Index, encoder: EncoderConfig, index: Searcher | None = None) -> None:
        self.folder = local.folder
        self.manifest = local.manifest
        self.index: Searcher = local if index is None else index
        # d, the length of the vectors.
        self.dimension = local.dimension
        self._local = local
        # The settings that its encoder is opened with.
        self.encoder_config = encoder
        # The first narration of each open shard, and of each shard on disk: one with removed narrations is opened as
        # several (`open_shards`), and its texts are read as one.
        self._first = np.array([shard.first for shard in local.shards])
        self._first_of_shards = np.cumsum([0, *(live_counts(shard)["narrations"] for shard in self.manifest["shards"])])
        self._decoded = lru_cache(_DECODED_SHARDS)(partial(_decode, self.folder, self.manifest))

    @classmethod
    def open(cls, path: Path | str, encoder: EncoderConfig | None = None, *, devices: Sequence[str] = ()) -> "Corpus":
        """The corpus in the folder `path`, with the encoder that it was built with; `devices`: GPUs to search on.

        Raises CorpusError for a folder without a finished corpus or with a damaged shard, EncoderMismatch where
        `encoder` asks for another one than the corpus was built with, ConfigError for devices that are not there.
        """
        folder = Path(path)
        if encoder is not None:  # asked before vectors are copied to devices
            settings_for(folder, open_manifest(folder)["encoder"], encoder)
        local = kernels("gpu.index").GpuIndex.open(folder, devices=devices) if devices else Index.open(folder)
        return cls(local, settings_for(folder, local.manifest["encoder"], encoder))

    def __len__(self) -> int:
        return len(self._local)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Row of each narration's first segment among all segments, int64 [N + 1]."""
        counts = [np.diff(shard.offsets) for shard in self._local.shards]
        return np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))

    @cached_property
    def encoder(self) -> Encoder:
        """The corpus's encoder, loaded on first use; a text's vector does not depend on the texts encoded with it.

        Raises EncoderMismatch where the model found under its name is not the one that the corpus was built with.
        """
        return open_recorded_encoder(self.folder, self.manifest["encoder"], self.encoder_config, fixed_shape=True)

    def search(self, steps: Sequence[str], k: int = 25) -> "Hits":
        """The k narrations of the highest A_mono with `steps`, best first, ties in corpus order.

        Raises InputError where there are no steps, or where one is blank, no text or holds half a character, and what
        the index raises.
        """
        queries = as_steps(steps)
        if not queries:
            raise InputError("there are no steps to search with; give at least one.")
        if blank := [step for step in queries if not step.strip()]:
            raise InputError(f"a step is blank ({blank[0]!r}); give every step some text.")
        vectors = self.encoder.encode(queries)
        return Hits(self, self.search_vectors(vectors, k), (queries, vectors))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit-norm float32 [n, d] of texts by the corpus's encoder, in their order. Raises InputError."""
        return self.encoder.encode(as_steps(texts))

    def search_vectors(self, queries: NDArray[np.float32], k: int = 25) -> list[Hit]:
        """The same for one query given as unit-norm vectors, float32 [M, d]. Raises what the index raises."""
        return self.search_batch([queries], k)[0]

    def search_batch(self, queries: Sequence[NDArray[np.float32]], k: int = 25) -> list[list[Hit]]:
        """The same for many queries, in one scan; steps that recur are multiplied once. Raises as `search_vectors`."""
        return [result.hits for result in self.index.search(queries, k)]

    def coverage(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """A_mono of the steps, float32 [M, d], with every narration: float32 [N]. Raises InputError."""
        return self._local.coverage(queries)

    def narration(self, index: int | str) -> Narration:
        """The narration at `index` in corpus order, or of the video with this id.

        Raises IndexError, InputError for an id that the corpus does not hold, and CorpusError for a damaged shard.
        """
        number = self.find(index) if isinstance(index, str) else index
        self._require(number)
        # An open shard may be a part of one on disk; texts are decoded for the whole one.
        shard = int(np.searchsorted(self._first_of_shards, number, side="right")) - 1
        return self._decoded(shard)[number - int(self._first_of_shards[shard])]

    def narrations(self, numbers: Sequence[int]) -> list[Narration]:
        """The narrations of these indices, in their order; each shard that holds some of them is read once.

        Raises IndexError, and CorpusError for a damaged shard.
        """
        for number in numbers:
            self._require(number)
        owners = np.searchsorted(self._first_of_shards, numbers, side="right") - 1
        read: dict[int, Narration] = {}
        for owner in np.unique(owners):
            shard, first = self.manifest["shards"][owner], self._first_of_shards[owner]
            own = np.unique(np.asarray(numbers)[owners == owner])
            rows = live_rows(shard)[own - first]
            read |= zip(own.tolist(), read_narrations(self.folder / SHARDS / shard["name"], shard, rows), strict=True)
        return [read[number] for number in numbers]

    def find(self, video_id: str) -> int:
        """The index of a video's narration; the first call reads all ids. Raises InputError where there is none."""
        index = self._videos.get(video_id)
        if index is None:
            near = get_close_matches(video_id, islice(self._videos, _COMPARED), n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "recipe corpus info says what the corpus was built from."
            raise InputError(f"{self.folder}: no narration is of video {video_id!r}; {remedy}")
        return index

    @property
    def video_ids(self) -> Collection[str]:
        """The ids of the videos, in corpus order; the first use reads them all."""
        return self._videos.keys()

    @cached_property
    def _videos(self) -> dict[str, int]:
        shards = self.manifest["shards"]
        tables = (read_live(self.folder / SHARDS / shard["name"], shard, NARRATIONS, ("video_id",)) for shard in shards)
        return {video_id: n for n, video_id in enumerate(chain.from_iterable(table[0].to_pylist() for table in tables))}

    def __repr__(self) -> str:
        counts = f"{len(self):,} narrations, {self.manifest['segments']:,} segments"
        return f"<Corpus {self.folder}: {counts}, encoder {self.manifest['encoder']['name']}>"

    def _repr_html_(self) -> str:
        """The corpus in figures, for notebooks."""
        summary = summarise(self)
        rows = [(name, summary[name]) for name in ("narrations", "timed", "segments", "shards")]
        rows += [("mean length", f"{summary['mean_length']:.1f} segments"), ("encoder", summary["encoder"]["name"])]
        rows += [("note", summary["too_small"])] if summary["too_small"] else []
        return notebook_table(str(self.folder), (), [(name, str(value)) for name, value in rows])

    def embeddings(self, index: int) -> NDArray[np.float32]:
        """Unit-norm float32 [L, d] of a narration's segments: the stored float16, widened."""
        self._require(index)
        shard = self._local.shards[int(np.searchsorted(self._first, index, side="right")) - 1]
        row = index - shard.first
        return shard.embeddings.rows(shard.offsets[row], shard.offsets[row + 1]).astype(np.float32)

    def similarities(
        self, narrations: Sequence[int], steps: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The dot products of all segments of P narrations with steps [n, d], float32 [S, n], and offsets [P + 1].

        The stored vectors are widened on the way, so that no copy of them is made. A product is the same number
        whatever is computed with it. Raises IndexError, and MissingExtra without Numba.
        """
        floats, shards = kernels("scan.floats"), self._local.shards
        numbers = np.array(narrations, np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(f"narrations {numbers.min()} to {numbers.max()} of a corpus with {len(self)}")
        owners = np.searchsorted(self._first, numbers, side="right") - 1
        members = [(shards[owner], np.flatnonzero(owners == owner)) for owner in np.unique(owners)]
        lengths = np.zeros(len(numbers) + 1, np.int64)
        for shard, own in members:
            rows = numbers[own] - shard.first
            lengths[own + 1] = shard.offsets[rows + 1] - shard.offsets[rows]
        starts = np.cumsum(lengths)

        padded = np.zeros((-(-len(steps) // floats.STEPS) * floats.STEPS, self.dimension), np.float32)
        padded[: len(steps)] = steps
        W = np.empty((starts[-1], len(padded)), np.float32)
        for shard, own in members:
            vectors, offsets, rows = shard.embeddings.spans(shard.offsets, numbers[own] - shard.first)
            floats.products_of_narrations(vectors.view(np.uint16), offsets, rows, starts[own], padded, W)
        return W[:, : len(steps)], starts

    def to_pandas(self) -> Any:
        """A table of pandas with a row a segment, in corpus order.

        Columns: narration (its index in the corpus), video_id, title, source, url, segment (its index in the
        narration), start, end, text. Raises CorpusError, and MissingExtra without pandas.
        """
        if find_spec("pandas") is None:
            raise MissingExtra("tables of a corpus", "", "pip install pandas")
        tables = []
        for first, shard in zip(self._first_of_shards, self.manifest["shards"], strict=False):
            folder = self.folder / SHARDS / shard["name"]
            own = read_live(folder, shard, NARRATIONS, ("video_id", "title", "source", "url", "segments"))
            said = read_live(folder, shard, SEGMENTS, _SEGMENT)
            counts = own["segments"].to_numpy()
            owners = np.repeat(np.arange(len(own)), counts)
            own, numbers = own.drop_columns("segments").take(owners), [np.arange(count) for count in counts]
            columns = {"narration": first + owners, **dict(zip(own.column_names, own.columns, strict=True))}
            columns |= {"segment": np.concatenate(numbers), **dict(zip(said.column_names, said.columns, strict=True))}
            tables.append(pa.table(columns))
        return pa.concat_tables(tables).to_pandas()

    def reopened(self) -> "Corpus":
        """The corpus that the folder holds now, with this one's encoder where it is the same. Raises CorpusError."""
        opened = Corpus.open(self.folder)
        if opened.manifest["encoder"] == self.manifest["encoder"]:
            opened.encoder_config = self.encoder_config
            if "encoder" in self.__dict__:
                opened.__dict__["encoder"] = self.encoder
        return opened

    def verify(self, progress: Progress = SILENT) -> None:
        """Compare every file with its checksum and record that they agree. Raises CorpusError for one that differs."""
        verify_shards(self.folder, self.manifest["shards"], progress)

    def _require(self, index: int) -> None:
        if not 0 <= index < len(self):
            raise IndexError(f"narration {index} of a corpus with {len(self)}")


def _decode(folder: Path, manifest: Manifest, number: int) -> list[Narration]:
    shard = manifest["shards"][number]
    return read_narrations(folder / SHARDS / shard["name"], shard)


def certified_hits(corpus: "Corpus", steps: Sequence[str], k: int) -> tuple[Certificate, list[dict[str, Any]]]:
    """The k best narrations with `steps` as plain values (`Hits.rows`), and the proof that they are the best.

    Raises as `Corpus.search`.
    """
    queries = corpus.encoder.encode(steps)
    (result,) = corpus.index.search([queries], k)
    return result.certificate, Hits(corpus, result.hits, (steps, queries)).rows()


class Hits(list[Hit]):
    """The hits of a search, best first; a list that shows the videos that were found."""

    def __init__(
        self,
        corpus: Corpus,
        hits: Iterable[Hit],
        steps: tuple[Sequence[str], NDArray[np.float32]] | None = None,
    ) -> None:
        """`steps` are those that were searched for, and their vectors."""
        super().__init__(hits)
        self._corpus, self._steps = corpus, steps

    @property
    def narrations(self) -> list[Narration]:
        """The narrations that were found, the best first: video ids, titles, texts. Raises CorpusError."""
        return self._corpus.narrations([hit.narration for hit in self])

    def rows(self) -> list[dict[str, Any]]:
        """Each hit as plain values: narration, score, video_id, title, source, url, and for each step its match.

        A match is the segment that covers the step best, in the order of the steps: step, segment, similarity, start,
        end, text. Raises CorpusError.
        """
        steps, queries = self._steps or ((), np.zeros((0, self._corpus.dimension), np.float32))
        rows = []
        for hit, narration in zip(self, self.narrations, strict=True):
            W = queries @ self._corpus.embeddings(hit.narration).T
            rows.append(
                {
                    "narration": hit.narration,
                    "video_id": narration.video_id,
                    "title": narration.title,
                    "source": narration.source,
                    "url": narration.url,
                    "score": hit.score,
                    "matches": [
                        {
                            "step": step,
                            "segment": k,
                            "similarity": float(similarities[k]),
                            **{name: getattr(narration.segments[k], name) for name in _SEGMENT},
                        }
                        for step, similarities, k in zip(steps, W, best_segments(W), strict=True)
                    ],
                }
            )
        return rows

    def __reduce__(self) -> tuple[type, tuple[list[Hit]]]:
        return list, (list(self),)  # a copy in another process has no corpus

    def __repr__(self) -> str:
        best = (f"{self._corpus.narration(hit.narration).video_id} {hit.score:.3f}" for hit in self[:_SHOWN])
        more = ", ..." if len(self) > _SHOWN else ""
        return f"<{len(self)} hit{'s' * (len(self) != 1)}: {', '.join(best)}{more}>"

    def _repr_html_(self) -> str:
        """Rank, score, video and title of each, for notebooks."""
        rows = []
        for rank, hit in enumerate(self, start=1):
            narration = self._corpus.narration(hit.narration)
            rows.append((str(rank), f"{hit.score:.3f}", narration.video_id, narration.title or ""))
        return notebook_table(f"{len(self)} hits", ("", "similarity", "video", "title"), rows)


def summarise(corpus: Corpus) -> dict[str, Any]:
    """Counts, lengths, encoder, how the input was read, bytes on disk and in memory, as plain values."""
    manifest = corpus.manifest
    lengths = np.diff(corpus.offsets)
    bins = Counter(int(length).bit_length() for length in lengths)
    sizes: Counter[str] = Counter()
    for shard in manifest["shards"]:
        sizes.update({name: file["bytes"] for name, file in shard["files"].items()})
    located = sizes[BOUNDS] + sizes[OFFSETS]
    codes, vectors = sizes[CODES] + located, sizes[EMBEDDINGS] + located
    return {
        "id": manifest["id"],
        "format": manifest["format"],
        "narrations": manifest["narrations"],
        "timed": manifest["timed"],
        "untimed": manifest["narrations"] - manifest["timed"],
        "segments": manifest["segments"],
        "mean_length": manifest["segments"] / manifest["narrations"],
        # Narrations by length in segments, in bins that double: 1, 2-3, 4-7, ...
        "lengths": {(f"{1 << (n - 1)}-{(1 << n) - 1}" if n > 1 else "1"): bins[n] for n in sorted(bins)},
        "encoder": manifest["encoder"],
        "licence": licence_note(manifest["encoder"]),
        # Why it is too small for the grounded reward with its own settings; None where it is not.
        "too_small": RewardConfig(verifier="grounded").contrast_problem(manifest["narrations"]),
        "reading": manifest["reading"],
        "read": manifest["read"],
        "exclusions": manifest["exclusions"],
        "shards": len(manifest["shards"]),
        # Narrations that were removed and that the files hold until their shards are compacted.
        "removed": sum(len(removed_rows(shard)) for shard in manifest["shards"]),
        "shard_size": manifest["shard_size"],
        "disk_bytes": sizes.total(),
        # Memory that a search reads; a survivor is a narration whose score is computed exactly.
        "search_bytes": {
            "cpu_int8": codes,
            "longest_survivor": 2 * int(lengths.max()) * corpus.dimension,
            "gpu_int8": codes,
            "gpu_float16": vectors,
        },
    }


def best_segments(W: NDArray[np.float32]) -> list[int]:
    """The segment of each step in the monotone assignment of the highest sum, W [M, L]; of equal ones, the earliest.

    >>> best_segments(np.float32([[0.5, 1.0, 0.0], [1.0, 0.0, 0.75]]))
    [1, 2]
    """
    D = np.array(W, dtype=np.float64)
    # D[i, k] = W[i, k] + max of D[i - 1, k'] over k' <= k (Eq. 3 of the paper).
    for i in range(1, len(D)):
        D[i] += np.maximum.accumulate(D[i - 1])
    chosen: list[int] = []
    end = D.shape[1]
    # Back from the last step: among the segments up to that of the step after it, the first of the highest D.
    for row in D[::-1]:
        chosen.append(int(np.argmax(row[:end])))
        end = chosen[-1] + 1
    return chosen[::-1]
