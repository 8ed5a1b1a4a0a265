"""The k best narrations with a proof: every narration that was not scored exactly cannot be among them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from recipe.types import Hit

Exact = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
"""A_mono in float64 of pairs given as narrations [P] and queries [P]."""

METHODS = ("int8", "float16", "exact")
"""What was scanned for approximate scores: codes; vectors by a GPU; vectors in float32 by the processor."""

SLACK = 1e-9
"""Far above the rounding of float64 in a score or in its bound, far below any difference that matters."""


class Certificate(NamedTuple):
    """Why the hits are the best: each narration outside `survivors` has score + bound below `threshold`."""

    method: str
    """One of `METHODS`, or several of them for the parts of a corpus, joined by `+`."""
    threshold: float
    """The exact score of the last hit."""
    bound: float
    """The largest error that an approximate score of this query can have."""
    survivors: int
    """Narrations scored again in float64, because their bounds could not exclude them."""
    verified: bool
    """The files that were searched are known to match their checksums; else damage could have changed the result."""


class SearchResult(NamedTuple):
    """The best narrations for one query, best first, equal scores in corpus order, and why they are."""

    hits: list[Hit]
    certificate: Certificate

    @classmethod
    def merged(cls, parts: Sequence["SearchResult"], k: int) -> "SearchResult":
        """The k best over the parts of a corpus, each the k best of its part, and the certificate of the whole."""
        # Each part's k best contain the whole's: a narration that is not among the k best of its part has k before it.
        hits = sorted((hit for part in parts for hit in part.hits), key=lambda hit: (-hit.score, hit.narration))[:k]
        certificates = [part.certificate for part in parts]
        methods = sorted({certificate.method for certificate in certificates}, key=METHODS.index)
        bound = max(certificate.bound for certificate in certificates)
        survivors = sum(certificate.survivors for certificate in certificates)
        verified = all(certificate.verified for certificate in certificates)
        return cls(hits, Certificate("+".join(methods), hits[-1].score, bound, survivors, verified))


class BoundedScores(Protocol):
    """Approximate scores of Q queries with N narrations, each within a known bound of the exact one."""

    @property
    def method(self) -> str:
        """How they were computed, as a certificate names it."""
        ...

    @property
    def bounds(self) -> NDArray[np.float64]:
        """[Q]: the largest error bound over all narrations."""
        ...

    def best(self, k: int) -> NDArray[np.int64]:
        """[Q, k]: the narrations of the k highest approximate scores, k <= N, in any order."""
        ...

    def reaching(self, thresholds: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Narrations [P] and queries [P] of all pairs whose score + bound is not below the query's threshold [Q]."""
        ...


def certify(
    scores: BoundedScores, exact: Exact, k: int, limit: int, verified: bool = True
) -> list[SearchResult | None]:
    """The k best of each query, or None for one with more than `limit` survivors; `verified` as in the certificate.

    The k-th of the exact scores of any k narrations is a threshold below which no hit can be; those of the highest
    approximate scores make it a high one.
    """
    # Two rounds: k exact scores give a threshold, and only what may reach it is scored exactly too.
    first = scores.best(k)
    known = exact(first.ravel(), np.repeat(np.arange(len(first)), k)).reshape(first.shape)
    # The k-th best of all is at least the worst of these k, whatever the approximate order was.
    thresholds = known.min(axis=1)
    bounds = scores.bounds
    # An exact score is at most score + bound: a narration for which this is below the threshold is no hit.
    # Ties with the threshold stay in: equal scores are decided by corpus order, which needs both.
    narrations, queries = scores.reaching(thresholds - SLACK)
    counts = np.bincount(queries, minlength=len(first))
    fits = counts <= limit
    kept = fits[queries]
    narrations, queries = narrations[kept], queries[kept]

    # Exact scores of the survivors; those of `first` are known.
    span = int(narrations.max(initial=first.max())) + 1
    keys = (np.arange(len(first))[:, None] * span + first).ravel()
    sorting = np.argsort(keys)
    survivors = queries * span + narrations
    nearest = sorting[np.minimum(np.searchsorted(keys, survivors, sorter=sorting), len(keys) - 1)]
    reused = keys[nearest] == survivors
    values = np.empty(len(survivors))
    values[reused] = known.ravel()[nearest[reused]]
    values[~reused] = exact(narrations[~reused], queries[~reused])

    # By query, then score, then corpus order: the same hits whatever was scanned first.
    order = np.lexsort((narrations, -values, queries))
    starts = np.cumsum([0, *np.where(fits, counts, 0)])
    results: list[SearchResult | None] = []
    for query, fitting in enumerate(fits):
        best = order[starts[query] : starts[query + 1]][:k]
        hits = [Hit(*pair) for pair in zip(narrations[best].tolist(), values[best].tolist(), strict=True)]
        if fitting:
            proof = Certificate(scores.method, hits[-1].score, float(bounds[query]), int(counts[query]), verified)
            results.append(SearchResult(hits, proof))
        else:
            results.append(None)
    return results
