"""What an explanation holds: the reward, each pooled narration's alignment, what steps add, links to videos."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple
from urllib.parse import quote

from recipe.config.reward import RewardConfig
from recipe.data.narrations.drafts import web_address
from recipe.errors import InputError
from recipe.report.html import notebook_table
from recipe.report.numbers import format_signed
from recipe.reward.coverage import PromptCoverage
from recipe.types import Narration, PooledAlignment, Reward, Segment

YOUTUBE = "https://www.youtube.com/watch?v={video_id}&t={start}s"

_YOUTUBE_ID = re.compile(r"[A-Za-z0-9_-]{11}")
# Sources whose videos are on YouTube.
_ON_YOUTUBE = {
    "coin", "crosstask", "how2", "howto100m", "howtocaption", "htm-aa", "htm-align", "niv", "sentencified-htm",
    "whisperx", "youcook", "youcook2", "youtube", "yt",
}  # fmt: skip
# The part of a template that says when; left out where there is no time.
_TIMED = re.compile(r"[?&#][^?&#]*\{start\}[^&#]*")


class Links:
    """Links to videos: by a template with `{video_id}` and, where it takes one, `{start}` in whole seconds.

    A narration with an address of its own is linked there. Without a template, others are linked to YouTube where their
    source says that they are there: a corpus of YouTube videos, or a name with a word such as youtube. With the
    template `youtube` all ids that look like YouTube's are linked, with `none` nothing is. Raises InputError for a
    template that cannot be used.

    >>> segment = Segment("stir", 62.5, 64.0)
    >>> Links().of(Narration("dQw4w9WgXcQ", (), source="youtube"), segment)
    'https://www.youtube.com/watch?v=dQw4w9WgXcQ&t=62s'
    >>> Links().of(Narration("dQw4w9WgXcQ", (), source="subtitles"), segment)
    >>> Links("https://host.example/{video_id}?t={start}").of(Narration("a b", ()))
    'https://host.example/a%20b'
    """

    def __init__(self, template: str = "") -> None:
        self._template = "" if template in ("", "none", "youtube") else template
        if self._template and not re.match(r"https?://", template):
            raise InputError(f"--link {template!r} is no web address; begin it with https://, or give none.")
        rest = self._template.replace("{video_id}", "").replace("{start}", "")
        if self._template and ("{video_id}" not in template or set(rest) & set("{}")):
            problem = f"--link {template!r} does not say where a video is"
            raise InputError(f"{problem}; use {{video_id}} and {{start}} in it.")
        self._none, self._youtube = template == "none", template in ("", "youtube")
        self._by_source = template == ""

    def of(self, narration: Narration, segment: Segment | None = None) -> str | None:
        """The link to a video, at the second in which a segment starts, or to a page; None where there is none."""
        if self._none:
            return None
        if narration.url is not None:  # others may have written the corpus: a text that is no address is no link
            return web_address(narration.url)
        if self._youtube and not _YOUTUBE_ID.fullmatch(narration.video_id):
            return None
        source = (narration.source or "").lower()
        words = {source, *re.split(r"[^a-z0-9]+", source)}
        if self._by_source and _ON_YOUTUBE.isdisjoint(words):
            return None
        template = YOUTUBE if self._youtube else self._template
        if not template:
            return None
        start = None if segment is None else segment.start
        # An id of a corpus of others may hold a slash or a quotation mark: it stays one part of the address.
        video_id = quote(narration.video_id, safe="")
        if start is None:
            shorter = _TIMED.sub("", template)
            if "?" not in shorter:  # the part that says when was the first of the query
                shorter = shorter.replace("&", "?", 1)
            return shorter.replace("{start}", "0").replace("{video_id}", video_id)
        return template.replace("{start}", str(max(int(start), 0))).replace("{video_id}", video_id)


class Match(NamedTuple):
    """A step of h + c laid on a segment of a narration; both count from 0."""

    step: int
    segment: int
    similarity: float


class Ground(NamedTuple):
    """A segment of a narration about the task that a step is matched with."""

    narration: int
    """The narration's index in the corpus."""
    segment: int
    similarity: float
    opposite: bool = False
    """Whether the segment says the opposite of the step: the alignment takes it, and it is no evidence."""


@dataclass(frozen=True, slots=True)
class GroundedStep:
    """A step of h + c on one narration; index, segment and similarity are None where it is unmatched."""

    text: str
    in_history: bool
    index: int | None
    """Position of the segment in its narration, from 0."""
    segment: Segment | None
    similarity: float | None


@dataclass(frozen=True, slots=True)
class AlignedNarration:
    """One narration of the pool, and how the steps of h + c align with it."""

    index: int
    """Position in the corpus."""
    narration: Narration
    retrieved: float
    """The score that brought it into the pool."""
    score: float
    """What it says of h + c, by the verifier's own alignment."""
    matches: tuple[Match, ...]
    """Steps and segments rise together; a step that is not here is unmatched."""
    similarities: tuple[tuple[float, ...], ...]
    """[M steps, L segments] as the verifier sees them, to four decimals."""

    @classmethod
    def of(cls, pooled: PooledAlignment, narration: Narration) -> "AlignedNarration":
        """A narration of a pool by its alignment."""
        W = pooled.similarities
        return cls(
            index=pooled.hit.narration,
            narration=narration,
            retrieved=pooled.hit.score,
            score=pooled.score,
            matches=tuple(Match(i, k, round(float(W[i, k]), 4)) for i, k in pooled.matches),
            similarities=tuple(tuple(round(value, 4) for value in row) for row in W.tolist()),
        )

    @property
    def unmatched_steps(self) -> tuple[int, ...]:
        """Positions in h + c that no match names."""
        matched = {match.step for match in self.matches}
        return tuple(i for i in range(len(self.similarities)) if i not in matched)

    @property
    def unmatched_segments(self) -> tuple[int, ...]:
        """Positions in the narration that no match names."""
        matched = {match.segment for match in self.matches}
        return tuple(k for k in range(len(self.narration.segments)) if k not in matched)

    def history_end(self, history: int) -> int | None:
        """The last segment that one of the first `history` steps is matched with; None where none is."""
        return max((match.segment for match in self.matches if match.step < history), default=None)

    def closest_step(self, segment: int) -> Match | None:
        """The step most similar to a segment, the first of equals, matched or not; None without steps."""
        matches = (Match(i, segment, row[segment]) for i, row in enumerate(self.similarities))
        return max(matches, key=lambda match: match.similarity, default=None)

    def closest_segment(self, step: int) -> Match | None:
        """The segment most similar to a step, the first of equals, matched or not; None without segments."""
        matches = (Match(step, k, value) for k, value in enumerate(self.similarities[step]))
        return max(matches, key=lambda match: match.similarity, default=None)


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """What the whole pool says of one step of h + c, and what the step adds to the reward."""

    text: str
    in_history: bool
    without: float | None
    """The reward of the plan that misses this step only; None for a step of the history."""
    gated_without: bool
    """Whether the gate closes on that plan."""
    contribution: float | None
    """R(plan) - R(plan without this step); below 0 the plan earns more without it."""
    matched_in: int
    """Narrations about the task whose alignment matches this step."""
    mean_similarity: float | None
    """Mean over those narrations; None where there are none."""
    grounds: tuple[Ground, ...]
    """The segments it is matched with, one for each of those narrations, the best quote first."""


class OtherPlans(NamedTuple):
    """What other plans of about as many steps earn for the same prompt, for comparison."""

    name: str
    """What they are, in words."""
    plans: int
    low: float
    median: float
    high: float
    below: int
    """How many of them earn less than the explained plan."""

    @classmethod
    def of(cls, name: str, rewards: Sequence[float], reward: float) -> "OtherPlans":
        """Plans with these rewards, compared with that of the explained plan."""
        below = sum(other < reward for other in rewards)
        return cls(name, len(rewards), min(rewards), median(rewards), max(rewards), below)


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """A reward with all of its evidence; without anything to align there are no narrations."""

    goal: str
    history: tuple[str, ...]
    continuation: tuple[str, ...]
    config: RewardConfig
    reward: Reward
    evidence: tuple[StepEvidence, ...]
    """One for each step of h, then of c."""
    narrations: tuple[AlignedNarration, ...]
    """The whole pool, the best alignment first."""
    about: Mapping[int, float]
    """The narrations of the pool that are about the task, copies left out, with their fit to it
    (`CorpusCoverage.narrations_about`)."""
    attribution: tuple[tuple[str, float], ...] = ()
    """What each feature that a self-trained net reads adds to the reward, named in words, the largest first; empty
    without a net."""
    coverage: PromptCoverage | None = None
    """How far the corpus knows the task, for any plan; None where it is too small to tell."""
    caution: str = ""
    """What to know before the reward is used: that the corpus is too small for it; empty where it is not."""
    others: tuple[OtherPlans, ...] = ()
    """What other plans earn here, by their kind; empty where they were not asked for."""

    def __repr__(self) -> str:
        counts = f"{len(self.continuation)} steps after {len(self.history)}, {len(self.narrations)} narrations"
        return f"<Explanation of {self.goal!r}: reward {self.reward.total:.3f}, {counts}>"

    def _repr_html_(self) -> str:
        """What each step of the plan adds, and its segment in the best narration, for notebooks."""
        caption = f"{self.goal}: reward {self.reward.total:.3f}" + (
            f" ({self.best.narration.video_id})" if self.best else ""
        )
        grounded = self.steps[len(self.history) :] or (None,) * len(self.continuation)
        rows = [
            (
                step.text,
                format_signed(step.contribution or 0.0, 3),
                f"{step.matched_in}/{len(self.about)}",
                ground.segment.text if ground is not None and ground.segment is not None else "",
            )
            for step, ground in zip(self.plan_evidence, grounded, strict=True)
        ]
        return notebook_table(caption, ("step", "adds", "matched in", "best segment"), rows)

    @property
    def best(self) -> AlignedNarration | None:
        """The narration that the reward names as its best, else the best alignment."""
        named = (aligned for aligned in self.narrations if aligned.index == self.reward.best_narration)
        return next(named, self.narrations[0] if self.narrations else None)

    @property
    def steps(self) -> tuple[GroundedStep, ...]:
        """The steps of h + c on the best narration."""
        return self.grounded(self.best) if self.best else ()

    @property
    def plan_evidence(self) -> tuple[StepEvidence, ...]:
        """The evidence for the steps of c."""
        return self.evidence[len(self.history) :]

    def grounded(self, aligned: AlignedNarration) -> tuple[GroundedStep, ...]:
        """The steps of h + c on one narration; of several segments of a step, the most similar."""
        best, grounded = best_matches(aligned.matches), []
        for i, text in enumerate((*self.history, *self.continuation)):
            match, in_history = best.get(i), i < len(self.history)
            segment = None if match is None else aligned.narration.segments[match.segment]
            matched = (None, None, None) if match is None else (match.segment, segment, match.similarity)
            grounded.append(GroundedStep(text, in_history, *matched))
        return tuple(grounded)


def best_matches(matches: tuple[Match, ...]) -> dict[int, Match]:
    """The most similar match of each step that has one, the first of equals."""
    best: dict[int, Match] = {}
    for match in matches:
        if match.step not in best or match.similarity > best[match.step].similarity:
            best[match.step] = match
    return best
