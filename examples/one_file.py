"""RECIPE in one file: the reward of the paper (section 3.2) and its hook for TRL. Only NumPy is needed.

    python examples/one_file.py                                          # rewards of four plans
    reward = Reward(narrations, encode)                                  # lists of texts; texts -> unit rows [n, d]
    GRPOTrainer(model, reward_funcs=[reward.trl], train_dataset=dataset) # with the columns prompt and history

The package computes these numbers on millions of narrations: an exact index stands for the loop in `pool`, compiled
kernels for the two recursions. tests/reward/test_one_file.py compares the two.
"""

import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np

GAP, TAU, ALPHA, EPSILON, POOL = -0.05, 0.1, 2.0, 1e-6, 25
"""g of equation 5, tau, alpha and epsilon of equations 7 and 8, and K, the narrations of a pool."""


def monotone_coverage(W: np.ndarray) -> float:
    """A_mono of similarities W [M, L]: each step takes a segment, never one before that of the step before."""
    total = W[0]
    for similarities in W[1:]:
        total = similarities + np.maximum.accumulate(total)
    return float(total.max()) / len(W)


def needleman_wunsch(W: np.ndarray) -> float:
    """A_NW of W [M, L]: the best global alignment with gaps, divided by the length of its path, in [1e-6, 1]."""
    M, L = W.shape
    F = np.zeros((M + 1, L + 1))
    F[:, 0], F[0] = GAP * np.arange(M + 1), GAP * np.arange(L + 1)
    length = np.add.outer(np.arange(M + 1), np.arange(L + 1))
    for i in range(1, M + 1):
        for k in range(1, L + 1):
            # match, skipped step, skipped segment: of equal scores the first counts, because the length divides
            scores = F[i - 1, k - 1] + W[i - 1, k - 1], F[i - 1, k] + GAP, F[i, k - 1] + GAP
            F[i, k] = max(scores)
            length[i, k] = 1 + (length[i - 1, k - 1], length[i - 1, k], length[i, k - 1])[scores.index(F[i, k])]
    return float(np.clip(F[M, L] / length[M, L], 1e-6, 1))


def steps_of(completion: str) -> list[str]:
    """The lines of a numbered list."""
    return re.findall(r"^\s*\d+[.)]\s*(\S.*?)\s*$", completion, re.MULTILINE)


class Reward:
    """What a plan c adds to the agreement of a history h with what people narrate."""

    def __init__(self, narrations: Sequence[Sequence[str]], encode: Callable[[Sequence[str]], np.ndarray]) -> None:
        self.encode, self.narrations = encode, [encode(segments) for segments in narrations]

    def pool(self, steps: np.ndarray) -> list[np.ndarray]:
        """The K narrations with the highest A_mono; where scores are equal, the earlier ones."""
        scores = [-monotone_coverage(steps @ segments.T) for segments in self.narrations]
        return [self.narrations[index] for index in np.argsort(scores, kind="stable")[:POOL]]

    def __call__(self, history: Sequence[str], plan: Sequence[str]) -> float:
        """R in [-1, 1]: A(h + c) where the progress rho reaches tau, else a penalty."""
        if not [*history, *plan]:
            return -ALPHA * TAU
        rows = self.encode([*history, *plan])
        h = rows[: len(history)]
        pool = self.pool(h if len(h) else rows)
        before, after = (max((needleman_wunsch(q @ V.T) for V in pool if len(q)), default=0.0) for q in (h, rows))
        rho = (after - before) / max(1 - before, EPSILON)
        return after if rho >= TAU else float(np.clip(ALPHA * (rho - TAU), -1, 0))

    def trl(self, completions: Sequence[str], history: Sequence[Sequence[str]], **columns: object) -> list[float]:
        """The reward function of TRL's GRPOTrainer, which subtracts from each reward the mean of its prompt's group."""
        return [self(done, steps_of(text)) for done, text in zip(history, completions, strict=True)]


def encode_words(texts: Sequence[str]) -> np.ndarray:
    """Unit rows [n, 256] by the words of each text: for trials; a sentence encoder knows what words mean."""
    rows = np.zeros((len(texts), 256))
    for row, text in zip(rows, texts, strict=True):
        for word in re.findall(r"\w+", text.lower()):
            row[zlib.crc32(word.encode()) % 256] += 1
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), EPSILON)


if __name__ == "__main__":
    said = [["boil the water", "warm the pot", "add the tea leaves", "pour the water over the leaves", "let it steep"]]
    said += [["pump up the tyre", "turn the wheel", "find the hole", "glue a patch on the hole"]]
    written = {"right": "1. add the leaves\n2. pour the water over them\n3. let it steep", "half": "1. add the leaves"}
    written |= {"another goal": "1. glue a patch\n2. pump up a tyre", "nothing": ""}
    rewards = Reward(said, encode_words).trl([*written.values()], [["boil the water", "warm the pot"]] * len(written))
    for name, reward in zip(written, rewards, strict=True):
        print(f"{name:14}{reward:+.3f}")
