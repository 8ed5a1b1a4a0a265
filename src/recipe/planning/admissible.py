"""Free-form steps to the actions of a closed taxonomy: each goes to the action that is nearest by embedding.

So the paper compares plans in free words with work on a closed set (section on Visual Planning for Assistance).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError, InputError

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to unit-norm float32 [n, d]."""
# Texts compared with the actions in one product.
_AT_ONCE = 4096
# Of a cosine: what lies beyond is rounding, which differs with the size of a batch.
_DIGITS = 6


class ActionMatch(NamedTuple):
    """The admissible action that a text is taken for."""

    action: str
    similarity: float
    """Cosine of the text and the action."""
    margin: float
    """That cosine minus the second best action's; the cosine itself where there is no second."""


class AdmissibleActions:
    """Maps texts to the nearest of some actions; each text is embedded once, and no result depends on the batch.

    A text that is an action maps to itself. Ties, up to the sixth digit of the cosine, go to the action that stands
    first in `actions`.
    """

    def __init__(self, embed: Embed, actions: Sequence[str]) -> None:
        self._embed = embed
        self.actions = tuple(dict.fromkeys(actions))
        if not self.actions:
            raise InputError("there are no actions to map steps to; give at least one.")
        self._vectors = _embedded(embed, self.actions)
        own = (self._vectors @ self._vectors.T).round(_DIGITS)
        # An action is itself, also where another one has the same vector.
        np.fill_diagonal(own, 1.0)
        self._known = dict(zip(self.actions, self._mapped(own, range(len(self.actions))), strict=True))

    def map(self, texts: Sequence[str]) -> list[ActionMatch]:
        """The nearest action of each text; new texts are embedded in one call. Raises ComputeError."""
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        for start in range(0, len(new), _AT_ONCE):
            batch = new[start : start + _AT_ONCE]
            cosines = (_embedded(self._embed, batch) @ self._vectors.T).round(_DIGITS)
            self._known.update(zip(batch, self._mapped(cosines, cosines.argmax(axis=1)), strict=True))
        return [self._known[text] for text in texts]

    def _mapped(self, cosines: NDArray[np.float64], chosen: Iterable[int]) -> list[ActionMatch]:
        matches = []
        for row, best in zip(cosines, chosen, strict=True):
            # Not the second of a sorted row: where two actions have one vector, the chosen one is not always the first.
            others = np.delete(row, best)
            similarity = float(row[best])
            margin = similarity - float(others.max()) if others.size else similarity
            matches.append(ActionMatch(self.actions[best], similarity, round(margin, _DIGITS)))
        return matches


def _embedded(embed: Embed, texts: Sequence[str]) -> NDArray[np.float64]:
    """Vectors in double precision: sums in another order differ only in digits that `_DIGITS` drops."""
    vectors = np.asarray(embed(texts), dtype=np.float64)
    if len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ComputeError(f"the encoder gave no usable vectors for {len(texts)} texts; check its model.")
    return vectors
