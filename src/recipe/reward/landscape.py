"""What a corpus says of any text at all: the level that a similarity must rise above to mean something.

Sentence embeddings share a large common part, and some texts are near everything. All vectors are therefore centred by
the mean of the corpus, and a step's similarity counts from the level that it reaches with 5% of the corpus.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recipe.reward.embeddings import Vectors
from recipe.reward.method import NarrationIndex
from recipe.reward.pools import Lengths
from recipe.reward.relevance import centred

_NARRATIONS = 1024
"""Narrations that are looked at, at most."""
_SEGMENTS = 6000
"""Segments that stand for the corpus, at most."""
FLOOR = 0.95
"""Quantile of a step's similarities to the corpus from which on they count."""


@dataclass(frozen=True, slots=True)
class Landscape:
    """A corpus seen from afar."""

    mean: NDArray[np.float32]
    """[d], of its segments."""
    sample: Vectors
    """[n, d], centred segments of unit norm."""
    lengths: Lengths

    @classmethod
    def of(cls, corpus: NarrationIndex) -> "Landscape":
        """Look at a corpus, at narrations drawn the same way every time."""
        draw = np.random.default_rng(len(corpus))
        seen = np.sort(draw.permutation(len(corpus))[:_NARRATIONS])
        segments = np.concatenate([corpus.embeddings(int(number)) for number in seen])
        mean = segments.mean(axis=0)
        drawn = np.sort(draw.permutation(len(segments))[:_SEGMENTS])
        return cls(mean, centred(segments[drawn], mean), Lengths.of(np.diff(corpus.offsets)))

    def similarities(self, segments: Vectors, steps: Vectors) -> NDArray[np.float32]:
        """Cosines [S, C] of segments of unit norm [S, d], centred on the way, with centred steps [C, d].

        <y - m, x> / |y - m| takes one product; moving and scaling all segments would cost more than that.
        """
        raw = segments @ np.vstack([steps, self.mean]).T
        norms = np.sqrt(np.maximum(1.0 - 2.0 * raw[:, -1] + self.mean @ self.mean, 1e-12))
        return np.asarray((raw[:, :-1] - steps @ self.mean) / norms[:, None], dtype=np.float32)

    def floors(self, steps: Vectors) -> NDArray[np.float32]:
        """b [n] of centred steps [n, d]: the FLOOR quantile of their similarities to the corpus."""
        return np.asarray(np.quantile(self.sample @ steps.T, FLOOR, axis=0), dtype=np.float32)
