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
from typing import Literal

from recipe.artifacts import read_json, remove, write_json
from recipe.config import MiningConfig
from recipe.data.examples import read_examples, write_examples
from recipe.data.histories import read_histories, with_histories
from recipe.data.procedures import read_procedures
from recipe.data.supervision import WeakCuts, mix_supervision
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
LEFT_OUT = {"test": "data/absent.json", "training": "data/absent-training.json"}
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
TRACES, HISTORIES = "traces.jsonl", "histories.jsonl"
"""In a folder of data: what `recipe perceive` read, pseudo-traces of training videos and histories of test videos."""
QUALITY, PSEUDO_WORK = "data/pseudo-quality", "data/.pseudo.work"


def weak_file(percent: int) -> str:
    """The training examples of which `percent` of 100 are weak; all percentages hold the same examples.

    They are those of `ANNOTATED` that have a usable pseudo-trace.
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


def supervise(run_dir: Path, settings: Supervision, progress: Progress) -> None:
    """Write the annotated training examples, and the mixtures of 0 to 100% weak ones, equal in number.

    Raises InputError where no example is left.
    """
    drawn = [replace(example, split="train") for example in read_examples(run_dir / TRAIN)]
    sources = {example.source for example in drawn} if settings.videos is not None else set()
    left_out = dict(_unseen(drawn, sources, settings.videos))
    training = [example for example in drawn if example.example_id not in left_out]
    _require_some(training, drawn, run_dir / TRAIN, left_out)
    vocabulary = sorted({step for example in training for step in (*example.history, *example.continuation)})
    with progress.task("supervision", len(PERCENTAGES)) as advance:
        if settings.traces is not None:
            traces = read_procedures(settings.traces).procedures
        else:
            traces = [simulated_trace(example, vocabulary, settings.phi) for example in _one_a_video(training)]
        traced = {(trace.source, trace.video_id) for trace in traces}
        write_examples(run_dir / ANNOTATED, training)
        for percent in PERCENTAGES:
            mixture = mix_supervision(training, traces, percent, cuts=settings.cuts, paired=True)
            write_examples(run_dir / weak_file(percent), mixture.examples)
            advance(1)
    mixed = {example.example_id for example in mixture.examples}
    for example in training:
        if example.example_id not in mixed:
            left_out[example.example_id] = "cut" if (example.source, example.video_id) in traced else "trace"
    _write_left_out(run_dir / LEFT_OUT["training"], drawn, left_out)


@dataclass(frozen=True, slots=True)
class Prompts:
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


def write_prompts(run_dir: Path, settings: Prompts, progress: Progress) -> None:
    """Write the test examples that every system can be tested on, with the history that the planner is told.

    Raises InputError where none is left, and what `with_histories` raises.
    """
    drawn = read_examples(run_dir / TEST)
    known = None if settings.histories is None else read_histories(settings.histories)
    left_out = dict(_unseen(drawn, settings.shown, settings.videos))
    if known is not None:
        for example in drawn:
            if example.example_id not in known:
                left_out.setdefault(example.example_id, "history")
    tested = [example for example in drawn if example.example_id not in left_out]
    _require_some(tested, drawn, run_dir / TEST, left_out)
    with progress.task("prompts", 1) as advance:
        if settings.clean:
            told = tested
        elif known is not None:
            read = with_histories(tested, known)
            told = [replace(old, told_history=new.history) for old, new in zip(tested, read, strict=True)]
        else:
            training = read_examples(run_dir / TRAIN)
            words = sorted({step for example in training for step in (*example.history, *example.continuation)})
            told = []
            for example in tested:
                key = f"told {example.example_id}"
                history = add_perception_noise(example.history, words, key, settings.phi)
                told.append(replace(example, told_history=history))
        write_examples(run_dir / PROMPTS, told)
        advance(1)
    _write_left_out(run_dir / LEFT_OUT["test"], drawn, left_out)


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


def _require_some(
    kept: Sequence[Example], drawn: Sequence[Example], path: Path, left_out: Mapping[str, Reason]
) -> None:
    if drawn and not kept:
        counts = _counted(Counter(left_out.values()))
        remedy = "download the videos, and run `recipe perceive` on them"
        raise InputError.at(path, f"none of {len(drawn):,} examples can be used: {counts}", remedy)


def _write_left_out(path: Path, drawn: Sequence[Example], left_out: Mapping[str, Reason]) -> None:
    rows = [
        {"example_id": example.example_id, "dataset": _dataset(example), "reason": left_out[example.example_id]}
        for example in drawn
        if example.example_id in left_out
    ]
    write_json(path, {"examples": Counter(map(_dataset, drawn)), "left_out": rows})


def _dataset(example: Example) -> str:
    return example.split if example.split.startswith("test_") else example.source


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reasons[reason]:,} {words}" for reason, words in REASONS.items() if reasons.get(reason))


@dataclass(frozen=True, slots=True)
class ExampleCounts:
    """How many examples of a dataset there are, and how many are left out for each reason."""

    input: str
    """Of the configuration: `text`, or `video`."""
    role: str
    """`test` or `training`."""
    dataset: str
    examples: int
    left_out: dict[str, int]
    """By reason, of `REASONS`."""


def example_counts(run_dir: Path) -> Iterator[ExampleCounts]:
    """The counts of the stages that were run below the folder of a scale."""
    for name in ("text", "video"):
        for role, file in LEFT_OUT.items():
            path = run_dir / ("" if name == "text" else name) / file
            if path.is_file():
                held = read_json(path)
                for dataset, count in held["examples"].items():
                    reasons = Counter(row["reason"] for row in held["left_out"] if row["dataset"] == dataset)
                    yield ExampleCounts(name, role, dataset, count, dict(reasons))


def left_out_sentences(counts: Sequence[ExampleCounts]) -> Iterator[str]:
    """What is left out, in sentences: of the tests, of all training, and of the mixtures alone."""
    for name, role in dict.fromkeys((one.input, one.role) for one in counts):
        own = [one for one in counts if (one.input, one.role) == (name, role)]
        total = sum(one.examples for one in own)
        reasons = sum((Counter(one.left_out) for one in own), Counter[str]())
        everywhere = "left out for all systems" if role == "test" else "left out of all training"
        for some, words in (
            ({key: n for key, n in reasons.items() if key not in MIXTURES_ALONE}, everywhere),
            ({key: n for key, n in reasons.items() if key in MIXTURES_ALONE}, "in no mixture with weak examples"),
        ):
            if count := sum(some.values()):
                yield (
                    f"Of {total:,} {role} examples with {name} as input, {count:,} ({100 * count / total:.1f}%) are "
                    f"{words}: {_counted(some)}. {Path('' if name == 'text' else name, LEFT_OUT[role])} lists them."
                )


def require_all_files(run_dir: Path) -> None:
    """Raises InputError, naming the first ones, where examples are left out for want of a file."""
    for name in ("", "video"):
        for role, file in LEFT_OUT.items():
            path = run_dir / name / file
            held = read_json(path) if path.is_file() else {"left_out": []}
            rows = [row for row in held["left_out"] if row["reason"] in ABSENT_FILES]
            if rows:
                counts = _counted(Counter(row["reason"] for row in rows))
                first = listed([row["example_id"] for row in rows])
                remedy = "add the files, or run without --strict to leave the examples out"
                raise InputError.at(path, f"{len(rows):,} {role} examples lack a file: {counts} ({first})", remedy)


def _one_a_video(examples: Sequence[Example]) -> list[Example]:
    return list({(example.source, example.video_id): example for example in examples}.values())


def simulated_trace(example: Example, vocabulary: Sequence[str], noise: TextNoise) -> Procedure:
    """The pseudo-trace of an example's whole video as a simulated Phi writes it."""
    whole = (*example.history, *example.continuation)
    steps = add_perception_noise(whole, vocabulary, f"trace {example.source} {example.video_id}", noise)
    return Procedure(
        video_id=example.video_id,
        source=example.source,
        goal=example.goal,
        steps=tuple(Step(text, None, None) for text in steps),
        split=example.split,
    )


def add_perception_noise(
    steps: Sequence[str], vocabulary: Sequence[str], key: str, noise: TextNoise
) -> tuple[str, ...]:
    """Steps as a simulated Phi writes them; `key` draws the errors, foreign steps come from `vocabulary`.

    At least one step is left of one or more.

    >>> add_perception_noise(("boil the water", "pour it"), ["cut the wood"], "a", TextNoise(0, 0, 0, 0, 0))
    ('boil the water', 'pour it')
    """
    rng = random.Random(key)
    out: list[str] = []
    for step in steps:
        if rng.random() < noise.drop:
            continue
        out.append(rng.choice(vocabulary) if rng.random() < noise.alien else step)
        if rng.random() < noise.repeat:
            out.append(out[-1])
    for place in range(len(out) - 1):
        if rng.random() < noise.swap:
            out[place], out[place + 1] = out[place + 1], out[place]
    while len(out) > 1 and rng.random() < noise.stop:
        out.pop()
    return tuple(out) or tuple(steps[:1])


@dataclass(frozen=True, slots=True)
class PseudoLabels:
    """Continuations mined from a corpus for the histories of the training examples (paper, section 4.2)."""

    corpus: str
    count: int | None
    """Examples at most; None: as many as there are training examples."""


def mine_pseudo_labels(run_dir: Path, settings: PseudoLabels, progress: Progress) -> None:
    """Write the pseudo-labelled examples and the report on them; texts of the test give none.

    Raises InputError where the corpus gives none.
    """
    from recipe.corpus.leaks import Exclusions, warn_unchecked
    from recipe.corpus.store import Corpus
    from recipe.mining.mine import mine
    from recipe.mining.quality import measure_quality, write_quality

    corpus, config = Corpus.open(run_dir / settings.corpus), MiningConfig()
    examples = read_examples(run_dir / ANNOTATED)
    exclusions = Exclusions.read([run_dir / TEST])
    warn_unchecked(exclusions.checked_among(corpus.video_ids), TEST)
    work = run_dir / PSEUDO_WORK
    mined = mine(corpus, config, examples, exclusions=exclusions, limit=settings.count, work=work, progress=progress)
    if not mined.examples:
        raise InputError.at(corpus.folder, "no continuation could be mined from it", "give other narrations")
    write_quality(measure_quality(mined, corpus, config, examples=examples), run_dir / QUALITY)
    write_examples(run_dir / PSEUDO, mined.examples)
    remove(work)


def mined_sentence(run_dir: Path) -> str:
    """What was mined, in a sentence; empty where nothing was."""
    if not (run_dir / QUALITY).is_dir():
        return ""
    row = read_json(run_dir / QUALITY / "quality.json")
    return (
        f"Pseudo-labels: {row['examples']:,} continuations of {row['narrations']:,} narrations, in the mean "
        f"{row['lengths']['continuation']:.1f} segments of {row['lengths']['words']:.0f} words ({QUALITY}/quality.md)."
    )
