"""Supervision of a study: mixtures with pseudo-traces, histories as Phi reads them, and pseudo-labels of the corpus.

Pseudo-traces and histories come from files that `recipe perceive` wrote, where they are given. Else a simulated Phi
makes them: the annotated steps with some dropped, swapped, repeated or replaced by steps of other goals.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from recipe.artifacts import file_sha256, read_json, remove
from recipe.config import MiningConfig
from recipe.data.examples import read_examples, write_examples
from recipe.data.histories import read_histories, with_histories
from recipe.data.procedures import read_procedures
from recipe.data.supervision import mix_supervision
from recipe.errors import InputError
from recipe.experiments.design import TEST, TRAIN
from recipe.progress import Progress
from recipe.reproduce.tables import PERCENTAGES
from recipe.types import Example, Procedure, Step
from recipe.world.examples import TextNoise

PROMPTS, PSEUDO = "data/prompts.jsonl", "data/pseudo.jsonl"
TRACES, HISTORIES = "traces.jsonl", "histories.jsonl"
"""In a folder of data: what `recipe perceive` read, pseudo-traces of training videos and histories of test videos."""
QUALITY, PSEUDO_WORK = "data/pseudo-quality", "data/.pseudo.work"


def weak_file(percent: int) -> str:
    """The training examples of which `percent` of 100 are weak; all percentages hold the same examples."""
    return f"data/weak-{percent}.jsonl"


@dataclass(frozen=True, slots=True)
class Supervision:
    """Where pseudo-traces and histories come from; without files they are simulated with these errors."""

    phi: TextNoise
    traces: Path | None = field(default=None, repr=False)
    histories: Path | None = field(default=None, repr=False)
    aligned_cuts: bool = False
    """Cut pseudo-traces where the annotation is cut, so that a clip of the history fits both."""
    clean_prompts: bool = False
    """Leave the histories of test examples as annotated: the policy reads frames."""
    content: str = ""

    def __post_init__(self) -> None:
        held = [file_sha256(file) for file in (self.traces, self.histories) if file is not None]
        object.__setattr__(self, "content", " ".join(held))


def supervise(run_dir: Path, settings: Supervision, progress: Progress) -> None:
    """Write the mixtures of 0 to 100% weak examples, equal in number, and the prompts of the test."""
    training = [replace(example, split="train") for example in read_examples(run_dir / TRAIN)]
    tested = read_examples(run_dir / TEST)
    vocabulary = sorted({step for example in training for step in (*example.history, *example.continuation)})
    noise = settings.phi
    with progress.task("supervision", len(PERCENTAGES) + 1) as advance:
        if settings.traces is not None:
            traces = read_procedures(settings.traces).procedures
        else:
            traces = [simulated_trace(example, vocabulary, noise) for example in _one_a_video(training)]
        for percent in PERCENTAGES:
            mixture = mix_supervision(
                training, traces, percent, cuts="annotated" if settings.aligned_cuts else "trace", paired=True
            )
            write_examples(run_dir / weak_file(percent), mixture.examples)
            advance(1)
        write_examples(run_dir / PROMPTS, _told(tested, settings, vocabulary, noise))
        advance(1)


def _told(
    tested: Sequence[Example], settings: Supervision, vocabulary: Sequence[str], noise: TextNoise
) -> list[Example]:
    """The test examples with the history that the planner is told."""
    if settings.clean_prompts:
        return list(tested)
    if settings.histories is not None:
        read = with_histories(tested, read_histories(settings.histories))
        return [replace(old, told_history=new.history) for old, new in zip(tested, read, strict=True)]
    return [
        replace(example, told_history=perceived(example.history, vocabulary, f"told {example.example_id}", noise))
        for example in tested
    ]


def _one_a_video(examples: Sequence[Example]) -> list[Example]:
    return list({(example.source, example.video_id): example for example in examples}.values())


def simulated_trace(example: Example, vocabulary: Sequence[str], noise: TextNoise) -> Procedure:
    """The pseudo-trace of an example's whole video as a simulated Phi writes it."""
    whole = (*example.history, *example.continuation)
    steps = perceived(whole, vocabulary, f"trace {example.source} {example.video_id}", noise)
    return Procedure(
        video_id=example.video_id,
        source=example.source,
        goal=example.goal,
        steps=tuple(Step(text, None, None) for text in steps),
        split=example.split,
    )


def perceived(steps: Sequence[str], vocabulary: Sequence[str], key: str, noise: TextNoise) -> tuple[str, ...]:
    """Steps as a simulated Phi writes them; `key` draws the errors, foreign steps come from `vocabulary`.

    At least one step is left of one or more.

    >>> perceived(("boil the water", "pour it"), ["cut the wood"], "a", TextNoise(0, 0, 0, 0, 0))
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


def label(run_dir: Path, settings: PseudoLabels, progress: Progress) -> None:
    """Write the pseudo-labelled examples and the report on them; texts of the test give none.

    Raises InputError where the corpus gives none.
    """
    from recipe.corpus.leaks import Exclusions, warn_unchecked
    from recipe.corpus.store import Corpus
    from recipe.mining.mine import mine
    from recipe.mining.quality import measure_quality, write_quality

    corpus, config = Corpus.open(run_dir / settings.corpus), MiningConfig()
    examples = read_examples(run_dir / weak_file(0))
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
