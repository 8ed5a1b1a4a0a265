"""The index of a corpus: exact search over all of it or some of its shards, certified."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recipe.corpus.layout import HeldManifest, Manifest
from recipe.corpus.scan import kernels
from recipe.corpus.scan.certificate import BoundedScores, Certificate, SearchResult, certify
from recipe.corpus.scan.shards import Shard, open_shards
from recipe.errors import InputError
from recipe.types import Hit

if TYPE_CHECKING:
    from recipe.corpus.scan.quantise import Queries

__all__ = ["Certificate", "Index", "SearchResult"]

# Queries scanned together: the sums of a million narrations with as many take 256 MB.
_BATCH = 64
# Sums of the integer scan stay below, so that no addition overflows.
_LARGEST_SUM = 1 << 30


class Index:
    """Shards of a corpus, searched exactly; safe to share between threads. Open one with `Index.open`."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        shards: Sequence[Shard],
        isa: str | None = None,
        threads: int | None = None,
        held: HeldManifest | None = None,
    ) -> None:
        """`held` keeps the files of the shards while the index lives."""
        self.folder = folder
        self.manifest = manifest
        self.shards = shards
        self._isa, self._threads, self.held = isa, threads, held
        self._starts = np.cumsum([0, *map(len, shards)])
        self._shifts = np.array([shard.first for shard in shards]) - self._starts[:-1]
        # d, the length of the vectors.
        self.dimension: int = manifest["encoder"]["dimension"]
        # Whether every file that is searched is known to match its checksum (`recipe.corpus.integrity`).
        self.verified = all(shard.verified for shard in shards)

    @classmethod
    def open(
        cls,
        folder: Path | str,
        shards: Sequence[int] | None = None,
        *,
        isa: str | None = None,
        streamed: bool | None = None,
        threads: int | None = None,
    ) -> "Index":
        """The index of the corpus in `folder`, or of those of its shards that have these numbers.

        isa: `vnni`, `avx2` or `portable` in place of the best that the processor has; streamed: read vectors from disk
        at every search in place of mapping them, the default where they exceed memory; threads: in place of one a core.
        Raises CorpusError for a folder without a finished corpus or with a damaged shard, and InputError.
        """
        folder = Path(folder)
        held = HeldManifest(folder)
        manifest = held.manifest
        count = len(manifest["shards"])
        for number in shards or ():
            if not 0 <= number < count:
                raise InputError(f"{folder}: there is no shard {number}; give numbers below {count}.")
        return cls(folder, manifest, open_shards(folder, manifest, shards, streamed), isa, threads, held)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @cached_property
    def _bounds(self) -> Any:
        return kernels("scan.scores").Bounds.of(self.shards)

    def search(self, queries: Sequence[NDArray[np.float32]], k: int = 25) -> list[SearchResult]:
        """For each query of unit-norm vectors, float32 [M_i, d], the k narrations of the highest A_mono.

        Best first, equal scores in corpus order: stage 1 (paper, section 3.2), in float64, for every narration that the
        certificate does not exclude. Steps that recur among the queries are multiplied once. Raises InputError,
        MissingExtra without Numba, and ConfigError for an instruction set that the processor does not have.
        """
        if k < 1:
            raise InputError(f"k = {k} narrations cannot be searched for; give at least 1.")
        for query in queries:
            self._check(query)
        # A pool of 25 from 10 narrations is those 10: what a search returns says how many there are.
        k = min(k, len(self))
        results: list[SearchResult] = []
        for first in range(0, len(queries), _BATCH):
            batch = queries[first : first + _BATCH]
            isa = kernels("scan.scores").choose(self._isa)
            quantised = kernels("scan.quantise").Queries.quantised(batch, isa)
            exact = kernels("scan.scores").exact_scorer(self.shards, quantised, self._threads)
            scores = self._scores(quantised)
            certified: Sequence[SearchResult | None] = [None] * len(batch)
            if scores is not None:
                # Beyond an eighth of the corpus a scan in float32 costs less than scoring the survivors one by one.
                certified = certify(scores, exact, k, max(8 * k, len(self) // 8), self.verified)
            for query, result in zip(batch, certified, strict=True):
                hits, certificate = result or self._scan(query, k)
                if self._shifts.any():  # not all shards are open: narrations have other numbers in the corpus
                    shard = np.searchsorted(self._starts, [hit.narration for hit in hits], side="right") - 1
                    shift = self._shifts[shard].tolist()
                    hits = [Hit(hit.narration + by, hit.score) for hit, by in zip(hits, shift, strict=True)]
                results.append(SearchResult(hits, certificate))
        return results

    def coverage(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """A_mono of one query, float32 [M, d], with every narration: float32 [N]. Raises InputError."""
        self._check(query)
        scores: NDArray[np.float32] = kernels("scan.scores").float_scores(self.shards, query, self._threads).sums[:, 0]
        return scores

    def _scores(self, queries: "Queries") -> BoundedScores | None:
        """Approximate scores of all narrations; None where the queries are too long for the sums."""
        # M steps of D products of two codes, 127 each at most.
        if queries.steps.shape[1] * queries.codes.shape[1] * 127**2 >= _LARGEST_SUM:
            return None
        scores: BoundedScores = kernels("scan.scores").integer_scores(self.shards, self._bounds, queries, self._threads)
        return scores

    def _scan(self, query: NDArray[np.float32], k: int) -> SearchResult:
        """The same without codes: for scores too close, or queries too long, for 8 bits."""
        # The codes are not read, so that any instruction set will do: exact scoring takes the steps' vectors.
        search, quantised = kernels("scan.scores"), kernels("scan.quantise").Queries.quantised([query], "portable")
        scores = search.float_scores(self.shards, query, self._threads)
        exact = search.exact_scorer(self.shards, quantised, self._threads)
        result: SearchResult
        (result,) = certify(scores, exact, k, len(self), self.verified)  # type: ignore[assignment]  # none exceeds this limit
        return result

    def _check(self, query: NDArray[np.float32]) -> None:
        # Kernels do not check shapes, and no comparison with NaN holds: every narration would be excluded.
        if query.ndim != 2 or query.shape[0] == 0 or query.shape[1] != self.dimension:
            raise InputError(f"the query vectors have shape {query.shape}; give rows of {self.dimension} numbers.")
        if not np.isfinite(query).all():
            raise InputError("the query vectors hold a number that is not finite; encode the steps again.")
