"""Texts that are near-copies of others, by the words that they share; none is missed.

A text counts as its set of words: case, punctuation, white space, word order and repetitions make no difference. Two
texts are near-copies where the words that they share are at least 80 % of the words of either (Jaccard), and both have
at least `WORDS` words. Two sets this similar share two of their few rarest words, so only texts listed under such a
pair are compared (prefix filtering: Chaudhuri, Ganti and Kaushik, ICDE 2006; Bayardo, Ma and Srikant, WWW 2007).
Nothing is hashed to a signature and no near-copy is missed.
"""

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

NEAR_COPY_PERCENT = 80
"""Percentage of shared words from which two texts are near-copies; whole numbers keep the comparison exact."""
WORDS = 8
"""Fewest words of a text that can be a near-copy: shorter ones recur in videos that have nothing in common."""
MOST_PAIRED = 64
"""Most words of a text that is listed under pairs; longer ones have many pairs and rarer words."""
_WORD = re.compile(r"[^\W_]+")


class NearCopy(NamedTuple):
    """A text that another is a near-copy of, and the share of their words that both have."""

    text: str
    similarity: float


def words_of(text: str) -> frozenset[str]:
    """The words of a text in lower case, without punctuation.

    >>> sorted(words_of("Stir, don't shake - STIR!"))
    ['don', 'shake', 'stir', 't']
    """
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return frozenset(_WORD.findall(plain.casefold()))


def is_comparable(text: str) -> bool:
    """Whether a text has enough words to be a near-copy."""
    return len(words_of(text)) >= WORDS


def without_copies(texts: Sequence[str]) -> list[int]:
    """The places of texts that are no near-copy of one before, in order.

    >>> without_copies(["one two three four five six seven eight", "Eight seven six five four three two: one!", "one"])
    [0, 2]
    """
    kept, originals = list[int](), list[frozenset[str]]()
    for place, words in enumerate(map(words_of, texts)):
        if len(words) >= WORDS:
            if any(100 * len(words & own) >= NEAR_COPY_PERCENT * len(words | own) for own in originals):
                continue
            originals.append(words)
        kept.append(place)
    return kept


class NearCopies:
    """Texts indexed by their rarest words; safe to share between threads."""

    def __init__(self, texts: Iterable[str]) -> None:
        kept: dict[frozenset[str], str] = {}
        for text in texts:
            if len(words := words_of(text)) >= WORDS:
                # Texts with the same words are copies of each other: the first stands for all.
                kept.setdefault(words, text)
        counts = Counter(word for words in kept for word in words)
        # Rare words first, because lists under common ones would be long; then by the word, so that the index is the
        # same in each process.
        rarest_first = sorted(counts, key=lambda word: (counts[word], word))
        self._ranks = {word: rank for rank, word in enumerate(rarest_first)}
        self._texts = list(kept.values())
        self._sets = [self._ranked(words) for words in kept]
        keys, members = array("q"), array("q")
        for index, ranks in enumerate(self._sets):
            listed = list(self._keys(len(ranks), ranks, paired=len(ranks) <= MOST_PAIRED))
            keys.extend(listed)
            members.extend([index] * len(listed))
        order = np.argsort(keys, kind="stable")
        self._members = np.asarray(members, dtype=np.int32)[order]
        self._listed, self._starts = np.unique(np.asarray(keys, dtype=np.int64)[order], return_index=True)
        self._ends = np.append(self._starts[1:], len(self._members))

    def __len__(self) -> int:
        return len(self._texts)

    def find(self, texts: Sequence[str]) -> list[NearCopy | None]:
        """For each text the one that it is nearest to a copy of, the first of equals; None where there is none."""
        copies: list[NearCopy | None] = [None] * len(texts)
        words = [words_of(text) for text in texts]
        sizes, queries = list(map(len, words)), list(map(self._ranked, words))

        # The keys under which each text's near-copies would be listed, of all texts in one array.
        keys, owners = array("q"), array("q")
        for owner, (size, ranks) in enumerate(zip(sizes, queries, strict=True)):
            # More words that no indexed text has than a near-copy may lack.
            if size < WORDS or size - len(ranks) > _spare(size):
                continue
            # A near-copy may have fewer words or more: those of up to `MOST_PAIRED` are listed under pairs, others not.
            lookups: list[int] = []
            # From t |A| to |A| / t words (Jaccard, t = NEAR_COPY_PERCENT %).
            if NEAR_COPY_PERCENT * size <= 100 * MOST_PAIRED:
                lookups += self._keys(size, ranks, paired=True)
            if 100 * size > NEAR_COPY_PERCENT * MOST_PAIRED:
                lookups += self._keys(size, ranks, paired=False)
            keys.extend(lookups)
            owners.extend([owner] * len(lookups))
        if len(self._listed) == 0 or not keys:
            return copies

        candidates: dict[int, set[int]] = {}
        slots = np.minimum(np.searchsorted(self._listed, keys), len(self._listed) - 1)
        hits = np.flatnonzero(self._listed[slots] == keys)
        starts, ends = self._starts[slots[hits]].tolist(), self._ends[slots[hits]].tolist()
        for hit, start, end in zip(hits.tolist(), starts, ends, strict=True):
            candidates.setdefault(owners[hit], set()).update(self._members[start:end].tolist())

        for owner, members in candidates.items():
            shared_with = frozenset(queries[owner]).intersection
            best = (0.0, 0)
            for index in members:
                shared = len(shared_with(self._sets[index]))
                union = sizes[owner] + len(self._sets[index]) - shared
                if 100 * shared >= NEAR_COPY_PERCENT * union:
                    # The first of equals, by its negative place.
                    best = max(best, (shared / union, -index))
            copies[owner] = NearCopy(self._texts[-best[1]], best[0]) if best[0] else None
        return copies

    def _ranked(self, words: Iterable[str]) -> tuple[int, ...]:
        """The ranks of those words that the indexed texts have, rarest first."""
        return tuple(sorted(rank for word in words if (rank := self._ranks.get(word)) is not None))

    def _keys(self, size: int, ranks: tuple[int, ...], paired: bool) -> Iterator[int]:
        """Where a text of `size` words is listed or looked up: by pairs of its rarest words, or by each of them.

        A near-copy lacks at most `spare` of the words, so at least two (one) of the spare + 2 (spare + 1) rarest
        are shared. Words that no indexed text has are the rarest of all and take their places among these.
        """
        rarest = ranks[: _spare(size) + 1 + paired - (size - len(ranks))]
        if paired:
            return (first * len(self._ranks) + second for first, second in combinations(rarest, 2))
        return (-1 - rank for rank in rarest)


def _spare(size: int) -> int:
    """Most words of a set of this size that a near-copy can lack."""
    # |A and B| >= t |A or B| >= t |A|, so that B lacks at most (1 - t) |A| of the words of A, rounded down.
    return size + (-NEAR_COPY_PERCENT * size // 100)
