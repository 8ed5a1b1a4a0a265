"""Plans from a corpus without a planner: what trained planners have to beat.

The narrations nearest to a prompt are those of the highest A_mono with its goal plus A_mono with its history (stage 1,
paper, section 3.2), among the first of both rankings. A narration that is in one of them alone counts in the other as
the last there.

    retrieve and copy   the nearest narration in which lines are left after the history: these lines
    consensus labels    lines of the k nearest narrations, each taken for the nearest wording of a vocabulary from a
                        cosine of `threshold` on; wordings that a share `support` of the narrations has, in the order
                        of their median place

Each wording counts once a narration, at its first place there. Wordings are kept in the order of their support; one
that is alike a step that is done, or a wording that is kept already, is left out. So more support never adds a step.

The narration of an example's own video gives it nothing. It is known by its id alone: the caller builds the corpus
without the measured videos, and without near-copies of their texts (`recipe corpus build --exclude`, `corpus.leaks`).
Settings are chosen on examples of other videos than those that are measured, and so is the vocabulary.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from statistics import median

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.reference import free_matching
from recipe.corpus.store import Corpus
from recipe.data.video_ids import VideoIds
from recipe.errors import ComputeError, InputError
from recipe.planning.predictions import Prediction
from recipe.reward.embeddings import StepEmbeddings, Vectors, stacked
from recipe.stats import video_of
from recipe.types import Example, Narration

COPY, CONSENSUS = "retrieve and copy", "consensus labels"
ALIKE = 0.75
"""Cosine from which on two wordings are one step."""
SAID = 0.6
"""Cosine from which on a line of a narration may be a step of the history."""
# Narrations of each ranking, at least.
_CANDIDATES = 100
# Narrations among which one with lines left is looked for.
_COPIED_FROM = 24
# Fewest examples that settings are chosen on, and most.
_CHOSEN_ON = 10, 200
# Of a cosine: what lies beyond differs with the texts of a batch and with the precision of stored vectors.
_DECIMALS = 3


# Of a list of steps: lines at most, and words of a line on average at most.
_LIST_LINES, _LIST_WORDS = 20, 12


def is_step_list(narration: Narration) -> bool:
    """Whether a narration reads as a written list of steps: a few short lines without times."""
    lines = narration.segments
    words = sum(len(line.text.split()) for line in lines)
    return (
        0 < len(lines) <= _LIST_LINES
        and words <= _LIST_WORDS * len(lines)
        and all(line.start is None for line in lines)
    )


@dataclass(frozen=True, slots=True)
class ConsensusSettings:
    """How consensus labels are made."""

    narrations: int = 16
    """k, the nearest narrations that are read; all of a smaller corpus."""
    threshold: float = 0.7
    """Least cosine of a line to the wording that it is taken for."""
    support: float = 0.3
    """Least share of the narrations that have a wording."""

    def __str__(self) -> str:
        return f"{self.narrations} narrations, threshold {self.threshold:g}, support {self.support:g}"


DEFAULTS = ConsensusSettings()
GRID = tuple(ConsensusSettings(*values) for values in product((8, 16, 24), (0.6, 0.7, 0.8), (0.2, 0.3, 0.4)))
"""The settings that are tried."""


class RetrievalPlanner:
    """Plans from the narrations nearest to a prompt; opened once over a corpus, whose stored vectors it reads."""

    def __init__(self, corpus: Corpus, vocabulary: Iterable[str] | None = None) -> None:
        """`vocabulary` holds the wordings that consensus labels are made of, such as the annotators'; None for copies.

        Raises InputError for an empty corpus, an empty vocabulary, and a wording without text.
        """
        if not len(corpus):
            raise InputError(f"{corpus.folder}: the corpus holds no narration; build it from some.")
        self._corpus = corpus
        self._embeddings = StepEmbeddings(corpus.encoder)
        self.vocabulary = tuple(sorted(set(vocabulary or ())))
        if vocabulary is not None:
            self._require_vocabulary()
            self._wordings = self._embeddings.stacked(self.vocabulary)
        self._kept: dict[int, tuple[NDArray[np.intp], Vectors]] = {}
        self._video_ids = tuple(corpus.video_ids)

    def copies(self, examples: Sequence[Example]) -> list[Prediction]:
        """For each example the lines after its history in the nearest narration that has some; no steps where none has.

        The history ends at the last line of its best monotone one-to-one matching; where no line matches, all lines
        are copied. Raises InputError for an example without goal and history.
        """
        pairs = zip(examples, self._nearest(examples, _COPIED_FROM), strict=True)
        rests = ((example, (self._rest(example.history, number) for number in nearest)) for example, nearest in pairs)
        return [Prediction(example.example_id, next(filter(None, own), ())) for example, own in rests]

    def consensus(self, examples: Sequence[Example], settings: ConsensusSettings = DEFAULTS) -> list[Prediction]:
        """Consensus labels for each example; no steps where no wording has enough support.

        Raises InputError without a vocabulary, and for an example without goal and history.
        """
        return [Prediction(example.example_id, steps[0]) for example, steps in self._plans(examples, [settings])]

    def choose(
        self,
        examples: Sequence[Example],
        measure: Callable[[Example, Sequence[str]], float],
        grid: Sequence[ConsensusSettings] = GRID,
    ) -> tuple[ConsensusSettings, float]:
        """The settings of the highest mean measure over the examples, the first of equals, and that mean.

        No example that they are chosen on may be measured later. Raises InputError without examples, settings or a
        vocabulary, and ComputeError for a value that is not finite.
        """
        if not examples or not grid:
            raise InputError("settings of consensus labels need examples and settings to choose from; give some.")
        planned = self._plans(examples, grid)
        means = np.mean([[measure(example, steps) for steps in plans] for example, plans in planned], axis=0)
        if not np.isfinite(means).all():
            raise ComputeError("the measure that settings are chosen by gave a value that is no finite number.")
        return grid[int(means.argmax())], float(means.max())

    def _plans(
        self, examples: Sequence[Example], grid: Sequence[ConsensusSettings]
    ) -> list[tuple[Example, list[tuple[str, ...]]]]:
        """The plan of each example by each of the settings."""
        self._require_vocabulary()
        narrations = self._nearest(examples, max(settings.narrations for settings in grid))
        return [
            (example, [self._labels(example, nearest[: settings.narrations], settings) for settings in grid])
            for example, nearest in zip(examples, narrations, strict=True)
        ]

    def _labels(self, example: Example, nearest: Sequence[int], settings: ConsensusSettings) -> tuple[str, ...]:
        places: dict[int, list[float]] = defaultdict(list)
        for number in nearest:
            labels, cosines = self._mapped(number)
            lines = np.flatnonzero(cosines >= settings.threshold)[::-1]
            # From the last line to the first, so that the first line of a wording stays.
            for label, line in dict(zip(labels[lines].tolist(), lines.tolist(), strict=True)).items():
                places[label].append(line / len(labels))
        place = {label: median(own) for label, own in places.items() if len(own) / len(nearest) >= settings.support}
        taken, kept = list(example.history), list[int]()
        vectors = [*self._embeddings.by_text(taken).values()]
        for label in sorted(place, key=lambda label: (-len(places[label]), place[label], label)):
            wording, vector = self.vocabulary[label], self._wordings[label]
            if wording not in taken and (not vectors or (np.stack(vectors) @ vector).max().round(_DECIMALS) < ALIKE):
                kept.append(label)
                taken.append(wording)
                vectors.append(vector)
        kept.sort(key=lambda label: (place[label], -len(places[label]), label))
        return tuple(self.vocabulary[label] for label in kept)

    def _mapped(self, number: int) -> tuple[NDArray[np.intp], Vectors]:
        """The nearest wording of each line of a narration, of equally near ones the first; and its cosine."""
        if number not in self._kept:
            similar = (self._corpus.embeddings(number) @ self._wordings.T).round(_DECIMALS)
            self._kept[number] = similar.argmax(axis=1), similar.max(axis=1)
        return self._kept[number]

    def _nearest(self, examples: Sequence[Example], count: int) -> list[list[int]]:
        """The narrations nearest to each example, the best first; none of its own video."""
        prompts = []
        for example in examples:
            goal = (example.goal,) if example.goal.strip() else ()
            prompts.append([steps for steps in (goal, example.history) if steps])
            if not prompts[-1]:
                raise InputError(f"example {example.example_id!r} has neither goal nor history; give one of them.")
        queries = list(dict.fromkeys(steps for prompt in prompts for steps in prompt))
        vectors = self._embeddings.by_text([text for steps in queries for text in steps])
        ranked = self._corpus.search_batch([stacked(vectors, steps) for steps in queries], max(_CANDIDATES, count))
        scores = dict(zip(queries, ({hit.narration: hit.score for hit in hits} for hits in ranked), strict=True))
        nearest = []
        for example, prompt in zip(examples, prompts, strict=True):
            own = VideoIds([example.video_id])
            rankings = [(scores[steps], min(scores[steps].values())) for steps in prompt]
            total = {
                number: sum(ranking.get(number, last) for ranking, last in rankings)
                for number in {number for ranking, _ in rankings for number in ranking}
                if own.may_be(self._video_ids[number]) is None
            }
            nearest.append(sorted(total, key=lambda number: (-total[number], number))[:count])
        return nearest

    def _rest(self, history: Sequence[str], number: int) -> tuple[str, ...]:
        """The lines of a narration after the last that is a step of the history."""
        lines, done = tuple(segment.text for segment in self._corpus.narration(number).segments), 0
        if history:
            cosines = (self._embeddings.stacked(history) @ self._corpus.embeddings(number).T).round(_DECIMALS)
            W = np.clip((cosines - SAID) / (1 - SAID), 0.0, 1.0)
            # The same words are the same step: of a stored vector, which is rounded, the cosine can be less than 1.
            W[np.array([[step == line for line in lines] for step in history])] = 1.0
            done = max((k + 1 for i, k in free_matching(W).path if i is not None and k is not None), default=0)
        return lines[done:]

    def _require_vocabulary(self) -> None:
        if not self.vocabulary:
            raise InputError("there are no wordings to make consensus labels of; give some, such as annotated steps.")


def retrieval_controls(
    corpus: Corpus,
    examples: Sequence[Example],
    annotated: Iterable[Example],
    measure: Callable[[Example, Sequence[str]], float],
    seed: int = 0,
) -> tuple[dict[str, dict[str, Prediction]], dict[str, str]]:
    """Control to the plan of each example, by its id, and how the plans were made, in words.

    Vocabulary and settings of consensus labels are those of `annotated` examples of other videos; settings are chosen
    by `measure` on at most 200 of these, drawn by `seed`, and are the defaults below 10. Without such examples there
    are copies only.
    """
    measured, videos = VideoIds(example.video_id for example in examples), {*map(video_of, examples)}
    others = [row for row in annotated if video_of(row) not in videos and measured.find(row.video_id) is None]
    words = {step for example in others for step in (*example.history, *example.continuation)}
    planner = RetrievalPlanner(corpus, words or None)
    held = sum(measured.may_be(video_id) is not None for video_id in corpus.video_ids)
    made = {"corpus": f"{corpus.folder.name}, {len(corpus):,} narrations, {held:,} of measured videos"}
    plans = {COPY: planner.copies(examples)}
    if not words:
        made[CONSENSUS] = "none: no annotated examples of other videos"
    elif len(others) < _CHOSEN_ON[0]:
        plans[f"{CONSENSUS}, default settings"] = planner.consensus(examples)
        made[CONSENSUS] = f"{DEFAULTS}: the defaults, for {len(others)} annotated examples of other videos"
    else:
        chosen_on = Random(seed).sample(others, min(len(others), _CHOSEN_ON[1]))
        settings, value = planner.choose(chosen_on, measure)
        plans[CONSENSUS] = planner.consensus(examples, settings)
        made[CONSENSUS] = f"{settings}: the best of {len(GRID)} on {len(chosen_on)} annotated examples, {value:.3f}"
    return {name: {plan.example_id: plan for plan in own} for name, own in plans.items()}, made
