"""How good mined continuations are: what was left out, how they agree with annotations, and examples to read.

A mined continuation is compared with the annotated one where there is one: that of the example that it was mined for,
or, from titles, the annotated steps of the same video during the mined segments. Measures as in
`recipe.evaluation.matching`:

    step F1, in order    each segment is taken for the nearest annotated step of all compared examples
    likeness in order    2 sum over an ordered pairing / (n + m), of likenesses 0 to 1

Two floors are shown next to them: the continuation mined for another video of the same goal, and for another goal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import fmean

import numpy as np

from recipe.artifacts import to_json, write_json, write_text
from recipe.config.corpus import MiningConfig
from recipe.corpus.store import Corpus
from recipe.evaluation.histories import partners
from recipe.evaluation.matching import Likeness, NearestStep, calibrate, ordered_f1, ordered_likeness, step_f1
from recipe.mining.mine import DROPPED, SOURCE, ExampleOrigin, Mined
from recipe.mining.segments import StepLikeness
from recipe.report.elements import Cell, Section, Table, headings, row
from recipe.report.markdown import render_markdown
from recipe.reward.embeddings import StepEmbeddings
from recipe.stats import Interval, mean_interval, video_of
from recipe.types import Example, Procedure, Segment, Step

DATA, PAGE = "quality.json", "quality.md"
COMPARED = 1_000
"""Examples that are compared with annotations, at most; drawn by the seed."""
SHOWN = 8
"""Examples on the page."""
INSIDE = 0.5
"""Share of a segment's time that lies in an annotated step where it counts as one."""
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_LENGTHS = {
    "history": "steps of a history",
    "continuation": "segments of a continuation",
    "words": "words of a segment",
}
MEASURES = {"f1": "step F1", "ordered_f1": "F1 in order", "likeness": "likeness in order"}
MINED, SAME_GOAL, OTHER_GOAL = "mined", "same_goal", "other_goal"


@dataclass(frozen=True, slots=True)
class StepLikeShare:
    """How far step-like segments are those said during annotated steps, in videos with annotated times."""

    videos: int
    precision: float
    """Of the step-like segments, the share with half of their time or more in an annotated step."""
    precision_of_all: float
    """The same of all segments: what a rule without knowledge has."""
    recall: float
    """Of the segments in annotated steps, the share that is step-like."""

    def table(self) -> Table:
        """The shares as a table."""
        rows = (
            row("step-like segments in annotated steps", Cell(self.precision, percent=True)),
            row("all segments in annotated steps", Cell(self.precision_of_all, percent=True)),
            row("segments in annotated steps that are step-like", Cell(self.recall, percent=True)),
        )
        return Table("Step-like segments", "", headings("share"), rows, about=f"{self.videos:,} videos")


@dataclass(frozen=True, slots=True)
class ShownExample:
    """One mined example as the page shows it."""

    example_id: str
    goal: str
    video_id: str
    """Of the narration."""
    similarity: float | None
    history: tuple[str, ...]
    continuation: tuple[str, ...]
    annotated: tuple[str, ...]
    """Empty where there is none."""

    def table(self) -> Table:
        """History and continuation, a row a step, next to each mined step the annotated one."""
        rows = [row(f"done {number}", step, "") for number, step in enumerate(self.history, start=1)]
        pairs = zip_longest(self.continuation, self.annotated, fillvalue="")
        rows += [row(f"{number}", *texts) for number, texts in enumerate(pairs, start=1)]
        likely = "" if self.similarity is None else f", similarity {self.similarity:.2f}"
        about = f"{self.example_id}, narration {self.video_id}{likely}"
        return Table(self.goal, "", headings("history, then mined", "annotated"), tuple(rows), about=about)


@dataclass(frozen=True, slots=True)
class Quality:
    """The report on mined examples."""

    mode: str
    examples: int
    considered: int
    narrations: int
    """Different narrations that gave an example."""
    dropped: dict[str, int]
    """Reason of `recipe.mining.mine.DROPPED` to number."""
    step_like: float | None
    """Share of step-like segments among those that could be steps; None where there are none."""
    lengths: dict[str, float]
    """Means: steps of the history and the continuation, words of a step of the continuation."""
    similarity: dict[str, float]
    """Quantiles of A_mono of history and narration; empty from titles."""
    compared: int
    """Examples with an annotated continuation that were compared."""
    agreement: dict[str, dict[str, Interval]]
    """Continuation (mined, or one of two floors) to measure to mean, with intervals that cluster by goal."""
    step_like_segments: StepLikeShare | None
    """None without annotated times."""
    shown: tuple[ShownExample, ...]

    def write(self, folder: Path) -> list[Path]:
        """Write the report as data and as a page of Markdown, each all or nothing; returns the files."""
        written = [folder / DATA, folder / PAGE]
        write_json(written[0], to_json(self))
        write_text(written[1], self.page())
        return written

    def page(self) -> str:
        """The page as Markdown; the same report gives the same page."""
        sections = [Section("figures", "Figures", "figures", blocks=self.tables())]
        if self.shown:
            drawn = "Drawn at random by the seed; next to each step of the continuation is the annotated one, if any."
            blocks = tuple(example.table() for example in self.shown)
            sections.append(Section("examples", "Examples", "examples", paragraphs=(drawn,), blocks=blocks))
        return render_markdown(f"Continuations mined from {self.mode}", [], sections)

    def tables(self) -> tuple[Table, ...]:
        """The figures as tables."""
        counts = [
            row("examples", self.examples),
            row("examples mined for" if self.mode == "histories" else "narrations read", self.considered),
            row("narrations that gave one", self.narrations),
            *(row(f"left out: {DROPPED[reason]}", count) for reason, count in self.dropped.items()),
            row("step-like segments, of those that could be steps", Cell(self.step_like, percent=True)),
            *(row(name, Cell(self.lengths[key])) for key, name in _LENGTHS.items() if key in self.lengths),
            *(
                row(f"similarity of history and narration, quantile {q}", Cell(value, 2))
                for q, value in self.similarity.items()
            ),
        ]
        tables = [Table("Mined examples", "", headings("value"), tuple(counts))]
        if self.agreement:
            rows = tuple(
                row(name.replace("_", " "), *(Cell(measures[measure], percent=True) for measure in MEASURES))
                for name, measures in self.agreement.items()
            )
            about = f"{self.compared:,} examples, 95% intervals by goal"
            notes = ("Floors: mined for another video of the same goal, and for another goal.",)
            columns = headings(*MEASURES.values())
            tables.append(Table("Agreement with annotations", "", columns, rows, about=about, notes=notes))
        if self.step_like_segments is not None:
            tables.append(self.step_like_segments.table())
        return tuple(tables)


def measure_quality(
    mined: Mined,
    corpus: Corpus,
    config: MiningConfig,
    *,
    examples: Sequence[Example] = (),
    procedures: Sequence[Procedure] = (),
    seed: int = 0,
) -> Quality:
    """The report; `examples` are those mined for, `procedures` annotated videos of the corpus.

    Raises ComputeError where the encoder tells no steps apart.
    """
    embeddings = StepEmbeddings(corpus.encoder)
    videos = {procedure.video_id: procedure for procedure in procedures}
    references = _references(mined, corpus, {f"{SOURCE}/{example.example_id}": example for example in examples}, videos)
    order = [int(index) for index in np.random.default_rng(seed).permutation(len(mined.examples))]
    compared = sorted([index for index in order if references[index]][:COMPARED])
    shown = [index for index in order if references[index]] if compared else order
    similarities = [origin.similarity for origin in mined.origins if origin.similarity is not None]
    continuations, lengths = [example.continuation for example in mined.examples], dict[str, float]()
    if continuations:
        lengths = {
            "history": fmean(len(example.history) for example in mined.examples),
            "continuation": fmean(map(len, continuations)),
            "words": fmean(len(text.split()) for texts in continuations for text in texts),
        }
    examples_shown = []
    for index in shown[:SHOWN]:
        example, origin = mined.examples[index], mined.origins[index]
        texts = (example.history, example.continuation, references[index])
        named = (example.example_id, example.goal, origin.video_id, origin.similarity)
        examples_shown.append(ShownExample(*named, *texts))
    return Quality(
        mode=mined.mode,
        examples=len(mined.examples),
        considered=mined.considered,
        narrations=len({origin.narration for origin in mined.origins}),
        dropped={reason: mined.dropped[reason] for reason in DROPPED if mined.dropped[reason]},
        step_like=mined.step_like / mined.segments if mined.segments else None,
        lengths=lengths,
        similarity={f"{q:g}": float(np.quantile(similarities, q)) for q in _QUANTILES if similarities},
        compared=len(compared),
        agreement=_agreement(
            [mined.examples[index] for index in compared], [references[index] for index in compared], embeddings, seed
        ),
        step_like_segments=_step_like_share(mined.origins, corpus, videos, embeddings, config) if videos else None,
        shown=tuple(examples_shown),
    )


def _references(
    mined: Mined, corpus: Corpus, examples: Mapping[str, Example], videos: Mapping[str, Procedure]
) -> list[tuple[str, ...]]:
    """The annotated continuation of each mined example, empty where there is none."""
    references = []
    for example, origin in zip(mined.examples, mined.origins, strict=True):
        steps: list[str] = []
        if mined.mode == "histories":
            own = examples.get(example.example_id)
            steps = [] if own is None else list(own.continuation)
        elif (video := videos.get(origin.video_id)) is not None:
            # The annotated steps that overlap the stretch from the first segment to the last; none without times.
            narration = corpus.narration(origin.narration)
            times = [_time(narration.segments[index]) for index in origin.segments]
            known = [time for time in times if time is not None]
            if known and len(known) == len(times):
                (start, _), (_, end) = known[0], known[-1]
                steps = [
                    step.text for step in video.steps if (time := _time(step)) and time[0] < end and time[1] > start
                ]
        references.append(tuple(steps))
    return references


def _time(item: Segment | Step) -> tuple[float, float] | None:
    """Start and end in seconds; None where one is not known."""
    return None if item.start is None or item.end is None else (item.start, item.end)


def _agreement(
    examples: Sequence[Example], references: Sequence[Sequence[str]], embeddings: StepEmbeddings, seed: int
) -> dict[str, dict[str, Interval]]:
    if not examples:
        return {}
    nearest = NearestStep(embeddings.stacked, [step for steps in references for step in steps])
    nearest.learn([text for example in examples for text in example.continuation])
    texts = [text for example, own in zip(examples, references, strict=True) for text in (*example.continuation, *own)]
    likeness = Likeness(embeddings.stacked, calibrate(embeddings.stacked), texts)
    same = partners(examples, lambda item, other: item.goal == other.goal and video_of(item) != video_of(other))
    different = partners(examples, lambda item, other: item.goal != other.goal)
    others: dict[str, Sequence[int | None]] = {MINED: range(len(examples)), SAME_GOAL: same, OTHER_GOAL: different}
    agreement: dict[str, dict[str, Interval]] = {}
    for name, places in others.items():
        values: dict[str, list[float]] = {measure: [] for measure in MEASURES}
        goals = []
        for example, reference, index in zip(examples, references, places, strict=True):
            if index is None:
                continue
            steps = examples[index].continuation
            plan, wanted = nearest(steps), nearest(reference)
            ordered = ordered_likeness(likeness.between(steps, reference))
            values["f1"].append(step_f1(plan, wanted))
            values["ordered_f1"].append(ordered_f1(plan, wanted))
            # Dice's coefficient, with the ordered likeness in place of the steps that both plans share.
            values["likeness"].append(2 * ordered / (len(steps) + len(reference)))
            goals.append(example.goal)
        if goals:
            agreement[name] = {measure: mean_interval(numbers, goals, seed) for measure, numbers in values.items()}
    return agreement


def _step_like_share(
    origins: Sequence[ExampleOrigin],
    corpus: Corpus,
    videos: Mapping[str, Procedure],
    embeddings: StepEmbeddings,
    config: MiningConfig,
) -> StepLikeShare | None:
    """Over the narrations that gave an example, those whose video has annotated times."""
    likeness = StepLikeness(embeddings.stacked)
    chosen, inside, count = list[np.bool_](), list[bool](), 0
    for number, video_id in sorted({(origin.narration, origin.video_id) for origin in origins}):
        narration = corpus.narration(number)
        times = [time for segment in narration.segments if (time := _time(segment)) is not None]
        steps = [time for step in (videos[video_id].steps if video_id in videos else ()) if (time := _time(step))]
        if not steps or len(times) < len(narration.segments):
            continue
        count += 1
        for start, end in times:  # whether half of the time or more lies in one step
            shared = max(min(end, step_end) - max(start, step_start) for step_start, step_end in steps)
            # Of a moment, which has no length, half would lie anywhere.
            inside.append(shared >= INSIDE * (end - start) and shared > 0)
        chosen += [*likeness.select(narration.segments, corpus.embeddings(number), config.threshold)]
    if not any(chosen) or not any(inside):
        return None
    both = sum(bool(a and b) for a, b in zip(chosen, inside, strict=True))
    return StepLikeShare(
        videos=count,
        precision=both / sum(map(bool, chosen)),
        precision_of_all=sum(inside) / len(inside),
        recall=both / sum(inside),
    )
