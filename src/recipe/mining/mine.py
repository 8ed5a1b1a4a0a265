"""Continuations mined from a corpus: pseudo-labels for supervised fine-tuning (paper, section 4.3, SFT-HT100M).

The paper leaves the procedure open. Two are given here.

*From histories.* For an example's history the verifier's two stages find the best narration: a pool by A_mono, the
highest A_NW in it. The continuation is the segments after the last one that the history is aligned with, at most as
many as the example's own continuation has steps. A narration without a segment there gives way to the next best. One of
the example's own video never counts.

*From titles.* A narration with a title is a procedure of its own: the title is the goal, its step-like segments are the
steps, and cut points divide them into history and continuation.

In both, narrations of excluded videos and near-copies of excluded texts are left out (`recipe.corpus.leaks`).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import JsonObject, fingerprint
from recipe.config.corpus import CUTS, LEAST_SIMILARITY, MiningConfig
from recipe.config.reward import RewardConfig
from recipe.corpus.leaks import Exclusions
from recipe.corpus.store import Corpus
from recipe.data.supervision import cut_points
from recipe.data.video_ids import VideoIds
from recipe.errors import InputError, listed
from recipe.mining.segments import StepLikeness
from recipe.models.store import AnswerStore
from recipe.progress import SILENT, Progress
from recipe.reward.scorer import PromptGroup
from recipe.reward.verifier import Verifier
from recipe.types import Example, Narration

SOURCE = "pseudo"
"""Source of every mined example, and the beginning of its id."""
TITLE_STEPS = 8
"""Most segments in a continuation from titles, where the settings say none."""
DROPPED = {
    "no_narration": "every narration is of the example's own video or of an excluded one",
    "below_similarity": "every narration is below the least similarity",
    "at_end": "no narration has a segment after the end of the history's alignment",
    "no_title": "narrations without a title",
    "excluded": "narrations of excluded videos",
    "too_few_steps": "narrations with fewer than two segments that can be steps",
    "duplicate": "examples with the history and the continuation of an earlier one",
}
"""Why an example of the input or a narration gave nothing, or a mined example was left out."""
# Examples or narrations mined in one call, and kept together where the work can resume.
_AT_ONCE = 256
# Of the procedure: kept work of another one is not used.
_VERSION = 2
_SETTINGS = MiningConfig()


class ExampleOrigin(NamedTuple):
    """Where a mined example comes from."""

    example_id: str
    video_id: str
    """Of the narration."""
    narration: int
    """Its place in the corpus."""
    segments: tuple[int, ...]
    """Segments of the continuation, from 0."""
    similarity: float | None = None
    """A_mono of the history with the narration; None from titles."""
    score: float | None = None
    """A_NW of the history with the narration; None from titles."""


@dataclass(slots=True)
class Mined:
    """Mined examples, each with its origin, and what was left out."""

    mode: str
    """`histories` or `titles`."""
    examples: list[Example] = field(default_factory=list)
    origins: list[ExampleOrigin] = field(default_factory=list)
    considered: int = 0
    """Examples of the input, or narrations of the corpus."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason of `DROPPED` to number."""
    segments: int = 0
    """Segments that could be steps: those after the history's end, or all of a narration with a title."""
    step_like: int = 0
    """The step-like ones among them."""


def mine(
    corpus: Corpus,
    config: MiningConfig = _SETTINGS,
    examples: Sequence[Example] | None = None,
    *,
    exclusions: Exclusions | None = None,
    limit: int | None = None,
    seed: int = 0,
    work: Path | None = None,
    progress: Progress = SILENT,
) -> Mined:
    """Examples mined for the histories of `examples`, or from titles where there are none.

    At most `limit` examples, drawn by the seed: a smaller limit gives some of those of a larger one. A folder `work`
    keeps what is done, so that a call that was killed goes on there with the same result. Raises InputError for an
    example without a history and for a corpus without titles, and what the verifier raises.
    """
    source: _Titles | _Histories = (
        _Titles(corpus, config, exclusions, seed)
        if examples is None
        else _Histories(corpus, config, exclusions, seed, examples)
    )
    store = None if work is None else AnswerStore(work)
    mined, examples_of = Mined(source.mode), list[tuple[int, Example, ExampleOrigin]]()
    known: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    order = source.order(drawn=limit is not None)
    with progress.task(f"mining from {source.mode}", len(order)) as advance:
        for batch in (order[start : start + _AT_ONCE] for start in range(0, len(order), _AT_ONCE)):
            if store is None:
                outcomes = source.outcomes(batch)
            else:
                # All that the outcomes of these items depend on; the limit is no part of it.
                key = fingerprint([source.identity, source.items(batch)])
                if (entry := store.find(key)) is None:
                    entry = {"outcomes": source.outcomes(batch)}
                    store.keep(key, entry)
                outcomes = entry["outcomes"]
            for index, outcome in zip(batch, outcomes, strict=True):
                mined.considered += 1
                mined.segments += outcome["segments"]
                mined.step_like += outcome["step_like"]
                mined.dropped.update(filter(None, [outcome["dropped"]]))
                for row in outcome["mined"]:
                    example = source.example(index, row)
                    if (texts := (example.history, example.continuation)) in known:
                        mined.dropped["duplicate"] += 1
                        continue
                    known.add(texts)
                    origin = ExampleOrigin(
                        example.example_id,
                        row["video_id"],
                        row["narration"],
                        tuple(row["segments"]),
                        row.get("similarity"),
                        row.get("score"),
                    )
                    examples_of.append((index, example, origin))
            advance(len(batch))
            if limit is not None and len(examples_of) >= limit:
                del examples_of[limit:]
                break
    if mined.dropped["no_title"] == len(corpus):
        raise InputError.at(
            corpus.folder,
            f"none of its {len(corpus):,} narrations has a title, so there are no goals",
            "build it from narrations with titles, or mine for the histories of examples",
        )
    # In the order of the input, whatever order they were drawn in.
    examples_of.sort(key=lambda entry: (entry[0], entry[1].cut))
    mined.examples = [example for _, example, _ in examples_of]
    mined.origins = [origin for _, _, origin in examples_of]
    return mined


class _Source:
    """What is mined, by its place in the input; the outcome of an item depends on that item only."""

    mode: ClassVar[str]

    def __init__(self, corpus: Corpus, config: MiningConfig, exclusions: Exclusions | None, seed: int) -> None:
        self.corpus, self.config, self.exclusions, self.seed = corpus, config, exclusions, seed
        self.verifier = Verifier(corpus, RewardConfig())
        self._likeness = StepLikeness(self.verifier.embed)
        self.identity = {
            "version": _VERSION,
            "mode": self.mode,
            "corpus": corpus.manifest["id"],
            "settings": config.model_dump(mode="json"),
            "exclusions": None if exclusions is None else exclusions.identity,
            "seed": seed,
        }

    def usable(self, narration: Narration) -> list[bool] | None:
        """Which segments are no near-copies of excluded texts; None for an excluded video."""
        if self.exclusions is None:
            return [True] * len(narration.segments)
        overlap = self.exclusions.compare(narration)
        return None if overlap.excluded_id or overlap.by_text else [copy is None for copy in overlap.copies]

    def step_like(self, number: int, narration: Narration) -> NDArray[np.bool_]:
        """Which segments of the narration at a place of the corpus are step-like."""
        return self._likeness.select(narration.segments, self.corpus.embeddings(number), self.config.threshold)


class _Histories(_Source):
    """Continuations for the histories of examples."""

    mode = "histories"

    def __init__(
        self,
        corpus: Corpus,
        config: MiningConfig,
        exclusions: Exclusions | None,
        seed: int,
        examples: Sequence[Example],
    ) -> None:
        super().__init__(corpus, config, exclusions, seed)
        if empty := [example.example_id for example in examples if not example.history]:
            raise InputError(f"{len(empty):,} examples have no history to mine for ({listed(empty)}); leave them out.")
        self._examples = examples

    def items(self, places: Sequence[int]) -> object:
        """The items as JSON values."""
        examples = [self._examples[index] for index in places]
        return [[example.video_id, example.history, len(example.continuation)] for example in examples]

    def order(self, drawn: bool) -> list[int]:
        """The places of all items in the order in which they are mined; drawn by the seed for a limit."""
        keys = [json.dumps([self.seed, "mined", example.example_id]) for example in self._examples]
        places = list(range(len(keys)))
        return sorted(places, key=lambda index: hashlib.sha256(keys[index].encode()).digest()) if drawn else places

    def outcomes(self, places: Sequence[int]) -> list[JsonObject]:
        """What each item gives, as `_outcome` writes it; all pools are found in one scan."""
        examples = [self._examples[index] for index in places]
        groups = [PromptGroup.of(example.goal, example.history, [()]) for example in examples]
        outcomes = []
        for example, pool in zip(examples, self.verifier.align_groups(groups), strict=True):
            outcome, own = _outcome("no_narration"), VideoIds([example.video_id])
            for aligned in pool:
                narration = self.corpus.narration(aligned.hit.narration)
                if own.may_be(narration.video_id) or (usable := self.usable(narration)) is None:
                    continue
                if aligned.hit.score < LEAST_SIMILARITY:
                    # The pool is in the order of A_NW, so that a later narration may be nearer.
                    outcome = _outcome("below_similarity")
                    continue
                # Behind the last segment that the history matches; all of it where the history matches none.
                end = aligned.matches[-1][1] + 1 if aligned.matches else 0
                step_like = self.step_like(aligned.hit.narration, narration)
                after = [segment for segment in range(end, len(usable)) if usable[segment]]
                likely = [segment for segment in after if step_like[segment]]
                chosen = likely if self.config.segments == "step-like" else after
                if not (chosen := chosen[: self.config.steps or len(example.continuation)]):
                    outcome = _outcome("at_end")
                    continue
                row = {
                    "video_id": narration.video_id,
                    "narration": aligned.hit.narration,
                    "segments": chosen,
                    "similarity": round(aligned.hit.score, 6),
                    "score": round(aligned.score, 6),
                    "continuation": [narration.segments[segment].text for segment in chosen],
                }
                outcome = _outcome("", len(after), len(likely), [row])
                break
            outcomes.append(outcome)
        return outcomes

    def example(self, index: int, row: JsonObject) -> Example:
        example = self._examples[index]
        return replace(
            example,
            example_id=f"{SOURCE}/{example.example_id}",
            source=SOURCE,
            continuation=tuple(row["continuation"]),
            supervision="weak",
        )


class _Titles(_Source):
    """Narrations as procedures."""

    mode = "titles"

    def items(self, places: Sequence[int]) -> object:
        """The items as JSON values."""
        return list(places)

    def order(self, drawn: bool) -> list[int]:
        """The places of all items in the order in which they are mined; drawn by the seed for a limit."""
        count = len(self.corpus)
        return np.random.default_rng(self.seed).permutation(count).tolist() if drawn else list(range(count))

    def outcomes(self, places: Sequence[int]) -> list[JsonObject]:
        """In corpus order, because reading a text decodes its whole shard."""
        outcomes: dict[int, JsonObject] = {}
        for number in sorted(places):
            narration = self.corpus.narration(number)
            if not (goal := (narration.title or "").strip()):
                outcomes[number] = _outcome("no_title")
                continue
            if (usable := self.usable(narration)) is None:
                outcomes[number] = _outcome("excluded")
                continue
            step_like = self.step_like(number, narration)
            after = [segment for segment in range(len(usable)) if usable[segment]]
            likely = [segment for segment in after if step_like[segment]]
            steps = after if self.config.segments == "all" else likely
            if len(steps) < 2:
                outcomes[number] = _outcome("too_few_steps", len(after), len(likely))
                continue
            texts, rows = [narration.segments[segment].text for segment in steps], []
            for cut in cut_points(narration.video_id, len(steps), CUTS, self.seed):
                end = cut + (self.config.steps or TITLE_STEPS)
                rows.append(
                    {
                        "video_id": narration.video_id,
                        "narration": number,
                        "segments": steps[cut:end],
                        "goal": goal,
                        "history": texts[:cut],
                        "continuation": texts[cut:end],
                        "until": narration.segments[steps[cut]].start,
                    }
                )
            outcomes[number] = _outcome("", len(after), len(likely), rows)
        return [outcomes[index] for index in places]

    def example(self, index: int, row: JsonObject) -> Example:
        history = tuple(row["history"])
        return Example(
            example_id=f"{SOURCE}/{row['video_id']}/{len(history)}",
            source=SOURCE,
            video_id=row["video_id"],
            goal=row["goal"],
            history=history,
            continuation=tuple(row["continuation"]),
            cut=len(history),
            split="train",
            supervision="weak",
            until=row["until"],
        )


def _outcome(dropped: str, segments: int = 0, step_like: int = 0, mined: Sequence[JsonObject] = ()) -> JsonObject:
    return {"dropped": dropped, "segments": segments, "step_like": step_like, "mined": list(mined)}
