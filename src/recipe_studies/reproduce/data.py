"""Supervision of a study: mixtures with pseudo-traces, histories as Phi reads them, and pseudo-labels of the corpus.

Pseudo-traces and histories come from files that `recipe perceive` wrote, where they are given. Else a simulated Phi
makes them: the annotated steps with some dropped, swapped, repeated or replaced by steps of other goals.

A test example that lacks a file that any system needs is left out for all systems, so that all are tested on the same
examples. What is left out is listed in `data/absent.json` (test) and `data/absent-training.json`.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from recipe.artifacts import read_json, remove, write_json
from recipe.config import MiningConfig
from recipe.data.examples import read_examples, write_examples
from recipe.data.histories import History, read_histories, with_histories
from recipe.data.procedures import read_procedures
from recipe.data.supervision import WeakCuts, evenly_spaced, mix_supervision, weakened
from recipe.errors import InputError, listed
from recipe.perception.videos import VideoFolder
from recipe.progress import Progress
from recipe.types import Example, Procedure, Step
from recipe.world.examples import TextNoise
from recipe_studies.experiments.study import TEST, TRAIN
from recipe_studies.reproduce.tables import PERCENTAGES

PROMPTS, PSEUDO = "data/prompts.jsonl", "data/pseudo.jsonl"
ANNOTATED = "data/annotated.jsonl"
"""All training examples, none of them weak."""
TOLD = "data/told.jsonl"
"""The examples of the mixtures, annotated, with the history that Phi reads as `told_history`."""
SAMPLES = "data/vpa.jsonl"
"""The samples of Visual Planning for Assistance, with the history that Phi reads as `told_history`."""
LEFT_OUT = {"test": "data/absent.json", "training": "data/absent-training.json", "VPA": "data/absent-vpa.json"}
"""The examples that are left out, and why; by what they are for."""
Reason = Literal["history", "video", "time", "trace", "cut"]
REASONS: Mapping[Reason, str] = {
    "history": "without a history",
    "video": "without a video",
    "time": "without a time at which the history ends",
    "trace": "without a pseudo-trace",
    "cut": "without a cut point of their pseudo-trace",
}
"""Why an example is left out."""
MIXTURES_ALONE: tuple[str, ...] = ("trace", "cut")
"""Those reasons that leave it out of the mixtures with weak examples alone."""
ABSENT_FILES: tuple[Reason, ...] = ("history", "video", "trace")
"""Those reasons that another download or another call of `recipe perceive` may remove."""
TRACES, HISTORIES, SAMPLE_HISTORIES = "traces.jsonl", "histories.jsonl", "vpa-histories.jsonl"
"""In a folder of data: what `recipe perceive` read, pseudo-traces of training videos, histories of test videos, and
histories of the samples of VPA."""
QUALITY, PSEUDO_WORK = "data/pseudo-quality", "data/.pseudo.work"


def weak_file(percent: int) -> str:
    """The training examples of which `percent` of 100 are weak; all percentages hold the same examples.

    These are the examples of `ANNOTATED` that have a usable pseudo-trace.
    """
    return f"data/weak-{percent}.jsonl"


@dataclass(frozen=True, slots=True)
class Supervision:
    """Where pseudo-traces come from; without a file they are simulated with these errors."""

    phi: TextNoise
    traces: Path | None = None
    cuts: WeakCuts = "trace"
    """Where pseudo-traces are cut."""
    videos: Path | None = None
    """Folder of videos that the policy reads; an example without a video or a time is left out of all training."""
    present: str = ""
    """A fingerprint of the videos that are there."""
    content: str = ""
    """Hash of `traces`."""


def supervise(folder: Path, settings: Supervision, progress: Progress) -> None:
    """Write the annotated training examples, the mixtures of 0 to 100% weak ones, equal in number, and the same
    examples as Phi tells them.

    Raises InputError where no example is left.
    """
    drawn = [replace(example, split="train") for example in read_examples(folder / TRAIN)]
    sources = {example.source for example in drawn} if settings.videos is not None else set()
    left_out = dict(_unseen(drawn, sources, settings.videos))
    training = [example for example in drawn if example.example_id not in left_out]
    # Twice: where none is left nothing may be mixed, and the mixtures leave out more.
    _leave_out(folder / LEFT_OUT["training"], folder / TRAIN, drawn, training, left_out)
    vocabulary = sorted({step for example in training for step in (*example.history, *example.continuation)})
    with progress.task("supervision", len(PERCENTAGES)) as advance:
        if settings.traces is not None:
            traces = read_procedures(settings.traces).procedures
        else:
            # A simulated Phi reads each video once, as a whole.
            traces = []
            for example in {(example.source, example.video_id): example for example in training}.values():
                key = f"trace {example.source} {example.video_id}"
                whole = (*example.history, *example.continuation)
                texts = add_perception_noise(whole, vocabulary, key, settings.phi)
                steps = tuple(Step(text, None, None) for text in texts)
                traces.append(Procedure(example.source, example.video_id, example.goal, steps, split=example.split))
        traced = {(trace.source, trace.video_id) for trace in traces}
        write_examples(folder / ANNOTATED, training)
        for percent in PERCENTAGES:
            mixture = mix_supervision(training, traces, percent, cuts=settings.cuts, paired=True)
            write_examples(folder / weak_file(percent), mixture.examples)
            advance(1)
    mixed = {example.example_id for example in mixture.examples}
    trace_of = {(trace.source, trace.video_id): trace for trace in traces}
    perceived = (
        replace(example, told_history=perceived_history(example, trace_of[example.source, example.video_id]))
        for example in training
        if example.example_id in mixed
    )
    write_examples(folder / TOLD, perceived)
    for example in training:
        if example.example_id not in mixed:
            left_out[example.example_id] = "cut" if (example.source, example.video_id) in traced else "trace"
    _leave_out(folder / LEFT_OUT["training"], folder / TRAIN, drawn, training, left_out)


def perceived_history(example: Example, trace: Procedure) -> tuple[str, ...]:
    """What a pseudo-trace of two steps or more tells of an example's history: its steps that start before the cut.

    Without times it is the same share of its steps. Empty where Phi saw no step before.
    """
    starts = [step.start for step in trace.steps]
    if example.until is None or None in starts:
        weak = weakened(example, trace)
        assert weak is not None  # a cut by share leaves a step on both sides
        return weak.history
    return tuple(step.text for step in trace.steps if step.start is not None and step.start < example.until)


@dataclass(frozen=True, slots=True)
class HistorySource:
    """Where the histories of test examples come from; without a file they are simulated with these errors."""

    phi: TextNoise
    histories: Path | None = None
    clean: bool = False
    """Leave the histories as annotated: the policy reads frames."""
    videos: Path | None = None
    shown: tuple[str, ...] = ()
    """Datasets whose videos a policy of the study reads: an example of theirs needs a video, and a time."""
    present: str = ""
    """A fingerprint of the videos that are there."""
    content: str = ""
    """Hash of `histories`."""


def write_prompts(folder: Path, settings: HistorySource, progress: Progress) -> None:
    """Write the test examples that every system can be tested on, with the history that the planner is told.

    Raises InputError where none is left, and what `with_histories` raises.
    """
    drawn = read_examples(folder / TEST)
    known = None if settings.histories is None else read_histories(settings.histories)
    left_out = dict(_unseen(drawn, settings.shown, settings.videos))
    if known is not None:
        for example in drawn:
            if example.example_id not in known:
                left_out.setdefault(example.example_id, "history")
    tested = [example for example in drawn if example.example_id not in left_out]
    _leave_out(folder / LEFT_OUT["test"], folder / TEST, drawn, tested, left_out)
    with progress.task("prompts", 1) as advance:
        if settings.clean:
            prompts = tested
        elif known is not None:
            prompts = _told(tested, known)
        else:
            prompts = _simulated(tested, read_examples(folder / TRAIN), settings.phi)
        write_examples(folder / PROMPTS, prompts)
        advance(1)


def _told(examples: Sequence[Example], known: Mapping[str, History]) -> list[Example]:
    """The examples with Phi's history as `told_history`. Raises what `with_histories` raises."""
    read = with_histories(examples, known)
    return [replace(old, told_history=new.history) for old, new in zip(examples, read, strict=True)]


def _simulated(examples: Sequence[Example], training: Iterable[Example], phi: TextNoise) -> list[Example]:
    """The examples with a history as a simulated Phi reads it; foreign steps are those of the training examples."""
    words = sorted({step for example in training for step in (*example.history, *example.continuation)})
    return [
        replace(row, told_history=add_perception_noise(row.history, words, f"told {row.example_id}", phi))
        for row in examples
    ]


@dataclass(frozen=True, slots=True)
class SampleSource:
    """Where the samples of Visual Planning for Assistance and their histories come from."""

    phi: TextNoise
    """Errors of histories that are simulated, without a file."""
    data: Path | None = None
    """Folder of CrossTask's folder; None for the world, whose actions are the usual wordings of its steps."""
    histories: tuple[Path, ...] = ()
    """What Phi read; a later file has precedence."""
    limit: int | None = None
    """Samples at most, evenly spaced; None for all."""
    content: str = ""
    """Hash of `histories`."""


def write_samples(folder: Path, settings: SampleSource, progress: Progress) -> None:
    """Write the samples of VPA with the annotated and the perceived history; those without one are left out for all.

    Raises InputError where none is left, and what `with_histories` raises.
    """
    from recipe.evaluation.vpa.protocol import END, HORIZONS, cut_samples, read_release
    from recipe.world.load import load_world

    with progress.task("samples", 1) as advance:
        if settings.data is not None:
            release = read_release(settings.data)
            drawn = [sample.example() for sample in cut_samples(release.split("test"), release.cards)]
        else:
            # The prompts whose rest fills the largest horizon, the end counted, in the world's usual wordings.
            world, drawn = load_world(), []
            for example in read_examples(folder / PROMPTS):
                own = world.graph(example.goal).steps
                steps = [world.recogniser.step(text, own) for text in example.continuation]
                usual = tuple(world.wordings[step][0] for step in steps if step is not None)
                if len((*usual, END)) >= max(HORIZONS) and None not in steps:
                    drawn.append(replace(example, continuation=usual))
        if settings.limit is not None:
            drawn = evenly_spaced(drawn, settings.limit)
        left_out: dict[str, Reason] = {}
        tested = drawn
        if settings.histories:
            known = {name: row for file in settings.histories for name, row in read_histories(file).items()}
            # Nothing is shown before time 0, so that there Phi has read nothing.
            known |= {row.example_id: History(row.example_id, (), 0.0) for row in drawn if row.until == 0}
            tested = [row for row in drawn if row.example_id in known]
            left_out = {row.example_id: "history" for row in drawn if row.example_id not in known}
        _leave_out(folder / LEFT_OUT["VPA"], folder / SAMPLES, drawn, tested, left_out)
        if settings.histories:
            tested = _told(tested, known)
        elif settings.data is not None:
            tested = _simulated(tested, read_examples(folder / TRAIN), settings.phi)
        write_examples(folder / SAMPLES, tested)
        advance(1)


def _unseen(examples: Iterable[Example], shown: Iterable[str], videos: Path | None) -> Iterator[tuple[str, Reason]]:
    """Ids of examples of datasets that are shown to a policy and cannot be, and why."""
    if videos is None:
        return
    folder, shown = VideoFolder(videos), set(shown)
    for example in examples:
        if example.source in shown:
            if folder.find(example.source, example.video_id) is None:
                yield example.example_id, "video"
            elif not example.until:  # nothing is shown before time 0
                yield example.example_id, "time"


def _leave_out(
    path: Path, origin: Path, drawn: Sequence[Example], kept: Sequence[Example], left_out: Mapping[str, Reason]
) -> None:
    """List the examples that are left out. Raises InputError where none is kept."""
    if drawn and not kept:
        counts = _counted(Counter(left_out.values()))
        remedy = "download the videos, and run `recipe perceive` on them"
        raise InputError.at(origin, f"none of {len(drawn):,} examples can be used: {counts}", remedy)
    datasets = [example.split if example.split.startswith("test_") else example.source for example in drawn]
    rows = [
        {"example_id": example.example_id, "dataset": dataset, "reason": left_out[example.example_id]}
        for example, dataset in zip(drawn, datasets, strict=True)
        if example.example_id in left_out
    ]
    write_json(path, {"examples": Counter(datasets), "left_out": rows})


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reasons[reason]:,} {words}" for reason, words in REASONS.items() if reasons.get(reason))


@dataclass(frozen=True, slots=True)
class ExampleCounts:
    """How many examples of a dataset there are, and how many are left out for each reason."""

    input: str
    """What the policy reads: `text` or `video`."""
    role: str
    """`test`, `training` or `VPA`."""
    dataset: str
    examples: int
    left_out: dict[str, int]
    """By reason, of `REASONS`."""

    @property
    def mixed(self) -> int:
        """How many are left for the mixtures with weak examples, for which nothing may lack."""
        return self.examples - sum(self.left_out.values())

    @property
    def used(self) -> int:
        """How many are left for all else."""
        return self.mixed + sum(self.left_out.get(reason, 0) for reason in MIXTURES_ALONE)


def _left_out_files(folder: Path) -> Iterator[tuple[str, str, Path, Any]]:
    """Input, role, path and content of each list of what is left out below the folder of a scale."""
    for name in ("text", "video"):
        for role, file in LEFT_OUT.items():
            path = folder / ("" if name == "text" else name) / file
            if path.is_file():
                yield name, role, path, read_json(path)


def example_counts(folder: Path) -> Iterator[ExampleCounts]:
    """The counts of the stages that were run below the folder of a scale."""
    for name, role, _, held in _left_out_files(folder):
        for dataset, count in held["examples"].items():
            reasons = Counter(row["reason"] for row in held["left_out"] if row["dataset"] == dataset)
            yield ExampleCounts(name, role, dataset, count, dict(reasons))


def left_out_sentences(counts: Sequence[ExampleCounts]) -> Iterator[str]:
    """What is left out, in sentences: of the tests, of all training, and of the mixtures alone."""
    for name, role in dict.fromkeys((count.input, count.role) for count in counts):
        own = [count for count in counts if (count.input, count.role) == (name, role)]
        total = sum(item.examples for item in own)
        reasons = sum((Counter(item.left_out) for item in own), Counter[str]())
        everywhere = "left out of all training" if role == "training" else "left out for all systems"
        for some, words in (
            ({key: n for key, n in reasons.items() if key not in MIXTURES_ALONE}, everywhere),
            ({key: n for key, n in reasons.items() if key in MIXTURES_ALONE}, "in no mixture with weak examples"),
        ):
            if count := sum(some.values()):
                yield (
                    f"Of {total:,} {role} examples with {name} as input, {count:,} ({100 * count / total:.1f}%) are "
                    f"{words}: {_counted(some)}. {Path('' if name == 'text' else name, LEFT_OUT[role])} lists them."
                )


def require_all_files(folder: Path) -> None:
    """Raises InputError, naming the first ones, where examples are left out for want of a file."""
    for _, role, path, held in _left_out_files(folder):
        if rows := [row for row in held["left_out"] if row["reason"] in ABSENT_FILES]:
            counts = _counted(Counter(row["reason"] for row in rows))
            first = listed([row["example_id"] for row in rows])
            remedy = "add the files, or run without --strict to leave the examples out"
            raise InputError.at(path, f"{len(rows):,} {role} examples lack a file: {counts} ({first})", remedy)


def add_perception_noise(
    steps: Sequence[str], vocabulary: Sequence[str], key: str, noise: TextNoise
) -> tuple[str, ...]:
    """Steps as a simulated Phi writes them; `key` draws the errors, foreign steps come from `vocabulary`.

    At least one step is left of one or more.

    >>> add_perception_noise(("boil the water", "pour it"), ["cut the wood"], "a", TextNoise(0, 0, 0, 0, 0))
    ('boil the water', 'pour it')
    """
    # By name: an example has the same errors whatever others there are.
    rng = random.Random(key)
    out: list[str] = []
    for step in steps:
        if rng.random() < noise.drop:
            continue
        out.append(rng.choice(vocabulary) if rng.random() < noise.alien else step)
        if rng.random() < noise.repeat:
            out.append(out[-1])
    for index in range(len(out) - 1):
        if rng.random() < noise.swap:
            out[index], out[index + 1] = out[index + 1], out[index]
    while len(out) > 1 and rng.random() < noise.stop:
        out.pop()
    return tuple(out) or tuple(steps[:1])


@dataclass(frozen=True, slots=True)
class PseudoLabels:
    """Continuations mined from a corpus for the histories of the training examples (paper, section 4.2)."""

    corpus: str
    count: int | None
    """Examples at most; None: as many as there are training examples."""


def mine_pseudo_labels(folder: Path, settings: PseudoLabels, progress: Progress) -> None:
    """Write the pseudo-labelled examples and the report on them; texts of the test give none.

    Raises InputError where the corpus gives none.
    """
    from recipe.corpus.excluded import read_exclusions
    from recipe.corpus.leaks import warn_unchecked
    from recipe.corpus.store import Corpus
    from recipe.mining.mine import mine
    from recipe.mining.quality import measure_quality

    corpus, config = Corpus.open(folder / settings.corpus), MiningConfig()
    examples = read_examples(folder / ANNOTATED)
    exclusions = read_exclusions([folder / TEST])
    warn_unchecked(exclusions.checked_among(corpus.video_ids), TEST)
    work = folder / PSEUDO_WORK
    mined = mine(corpus, config, examples, exclusions=exclusions, limit=settings.count, work=work, progress=progress)
    if not mined.examples:
        raise InputError.at(corpus.folder, "no continuation could be mined from it", "give other narrations")
    measure_quality(mined, corpus, config, examples=examples).write(folder / QUALITY)
    write_examples(folder / PSEUDO, mined.examples)
    remove(work)
