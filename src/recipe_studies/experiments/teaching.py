"""The data and corpora of a teaching experiment: what the base knows, what is to be taught, and who covers it."""

import hashlib
import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Literal

from recipe.artifacts import write_jsonl
from recipe.config import CorpusConfig
from recipe.corpus.leaks import Exclusions
from recipe.data.benchmarks import read_benchmarks, require_benchmarks
from recipe.data.examples import read_examples, write_examples
from recipe.data.narrations import read_narrations, to_row
from recipe.data.procedures import read_procedures
from recipe.data.supervision import cut_procedures, evenly_spaced, limit_videos
from recipe.data.video_ids import VideoIds
from recipe.errors import InputError
from recipe.progress import Progress
from recipe.types import Example, Narration, Procedure, Segment
from recipe.world.examples import TextNoise, draw_parts, noisy_examples
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe_studies.experiments.design import DOCUMENTS, HELD_OUT, TEST, TRAIN, VALIDATION
from recipe_studies.experiments.settings import ProceduresSource, TeachingWorld

_LOG = logging.getLogger(__name__)

OWN_TESTED = 0.2
"""Share of the videos of own procedures that is tested on."""
CORPUS_FILES = ("data/narrations.jsonl", "data/lists.jsonl", "data/wrong.jsonl")
"""What is said in the videos of the corpus, their steps, and narrations of another domain or of what the base knows."""
CLEAN = TextNoise(drop=0, swap=0, alien=0, repeat=0, stop=0)
"""Of the base's text about goals that it knows."""


def known_and_taught(world: World, seed: int) -> tuple[list[str], list[str]]:
    """The goals of half of the domains, which the base knows, and those of the other half."""
    domains = sorted({graph.domain for graph in world.goals.values()})
    random.Random(f"known domains {seed}").shuffle(domains)
    known = set(domains[: len(domains) // 2])
    goals = list(world.goals.values())
    return [one.goal for one in goals if one.domain in known], [one.goal for one in goals if one.domain not in known]


@dataclass(frozen=True, slots=True)
class TaughtWorld:
    """The examples of a teaching experiment on the world."""

    source: TeachingWorld
    seed: int


def draw_taught_world(run_dir: Path, settings: TaughtWorld, progress: Progress) -> None:
    """Prompts of training, validation and test of the taught goals, and the base's text about all goals."""
    world, source, seed = load_world(), settings.source, settings.seed
    known, taught = known_and_taught(world, seed)
    counts = {"train": source.train, "validation": source.validation, "test": source.test}
    with progress.task("drawing the world", len(counts) + 1) as advance:
        for (part, count), file in zip(counts.items(), (TRAIN, VALIDATION, HELD_OUT), strict=True):
            write_examples(run_dir / file, draw_parts(world, taught, part, count, seed))
            advance(1)
        exposed = round(source.exposure * source.documents)
        noisy = noisy_examples(world, exposed, seed, taught)
        clean = noisy_examples(world, source.documents - exposed, seed, known, CLEAN, name="clean")
        write_examples(run_dir / DOCUMENTS, [*noisy, *clean])
        advance(1)


def choose_prompts(run_dir: Path, settings: Literal["validation", "test"], progress: Progress) -> None:
    """Measure on the prompts of validation or test."""
    with progress.task(f"{settings} prompts"):
        write_examples(run_dir / TEST, read_examples(run_dir / {"validation": VALIDATION, "test": HELD_OUT}[settings]))


@dataclass(frozen=True, slots=True)
class TaughtProcedures:
    """The files of a teaching experiment on real procedures below `root`; `content` stands for what they hold."""

    source: ProceduresSource
    seed: int
    content: str
    root: Path = field(repr=False)


def split_procedures(run_dir: Path, settings: TaughtProcedures, progress: Progress) -> None:
    """Prompts of training, validation and test; the narrations, lists and wrong narrations for the corpora.

    Raises InputError where a part holds nothing.
    """
    source, seed, root = settings.source, settings.seed, settings.root
    procedures = [one for file in source.procedures for one in _usable(root / file)]
    if source.benchmarks:
        procedures += read_benchmarks(require_benchmarks(root, source.benchmarks), progress)
    goals = _by_hash({_goal(one) for one in procedures}, seed)
    known_goals = set(goals[: round(source.known_share * len(goals))])
    taught = [one for one in procedures if _goal(one) not in known_goals]
    tested = limit_videos([one for one in taught if one.split == source.test_split], source.test, seed)
    held_out = {one.video_id for one in procedures if one.split != "train"}
    training = [one for one in taught if one.split == "train" and one.video_id not in held_out]
    places = {name: place for place, name in enumerate(_by_hash({one.video_id for one in training}, seed))}
    prompted = round(source.prompt_share * len(places))
    prompt_videos = [one for one in training if places[one.video_id] < prompted]
    validated = limit_videos(prompt_videos, source.validation, seed)
    chosen = {(one.source, one.video_id) for one in validated}
    prompt_videos = [one for one in prompt_videos if (one.source, one.video_id) not in chosen]
    # Labels from a closed set recur: a list that repeats the steps of a measured video would pass for that video.
    measured = Exclusions((), (step.text for one in [*validated, *tested] for step in one.steps))
    told = [one for one in training if places[one.video_id] >= prompted and not measured.compare(_as_list(one)).by_text]
    told.sort(key=lambda one: places[one.video_id])
    known = [one for one in procedures if _goal(one) in known_goals and one.split == "train"]
    if source.known:
        known += [p for p in read_benchmarks(require_benchmarks(root, source.known), progress) if p.split == "train"]
    known = [one for one in known if one.video_id not in held_out and one.video_id not in places]
    parts = {
        TRAIN: evenly_spaced(_cut(prompt_videos, 4, seed), source.train),
        VALIDATION: [replace(one, split="validation") for one in _cut(validated, 1, seed)],
        HELD_OUT: [replace(one, split="test") for one in _cut(tested, 1, seed)],
    }
    for file, examples in parts.items():
        if not examples:
            problem = f"the procedures give no examples for {PurePath(file).stem}"
            raise InputError.at(root, problem, "give more videos, or change prompt_share, validation or test_split")
        write_examples(run_dir / file, examples)
    if known:
        write_examples(run_dir / DOCUMENTS, evenly_spaced(_cut(known, 4, seed), source.documents))
    goal_of = {one.video_id: one.goal for one in told}
    own = VideoIds(one.video_id for one in procedures)
    said = [one for one in _told(root, source.narrations) if one.video_id in goal_of]
    said.sort(key=lambda one: places[one.video_id])
    narrations = [replace(one, title=goal_of[one.video_id]) for one in said]
    sources = {one.source for one in said} - {None}
    foreign = (one for one in _told(root, source.wrong_narrations) if one.source not in sources)
    wrong = [one for one in foreign if not own.may_be(one.video_id)] or [_as_list(one) for one in known]
    order = {name: place for place, name in enumerate(_by_hash({one.video_id for one in wrong}, seed))}
    wrong.sort(key=lambda one: order[one.video_id])
    contents = (narrations, [_as_list(one) for one in told], wrong)
    for file, content in zip(CORPUS_FILES, contents, strict=True):
        write_jsonl(run_dir / file, map(to_row, content))


def _cut(procedures: Sequence[Procedure], count: int, seed: int) -> list[Example]:
    return cut_procedures(procedures, train=count, test=count, seed=seed).examples


def _usable(file: Path) -> list[Procedure]:
    """The procedures of a file; rows that cannot be used are left out, with a warning."""
    found = read_procedures(file, on_bad="skip")
    if found.skipped:
        _LOG.warning("%d rows of %s are left out; the first: %s", len(found.skipped), file, found.skipped[0].reason)
    return found.procedures


def own_procedures(file: Path, seed: int) -> list[Procedure]:
    """The procedures of a file, `train` where no split is given; without any of `test`, a part of the videos is.

    The part is drawn by hash. Raises InputError.
    """
    found = [replace(one, split=one.split or "train") for one in _usable(file)]
    if any(one.split == "test" for one in found):
        return found
    videos = _by_hash({one.video_id for one in found}, seed)
    tested = set(videos[: max(1, round(OWN_TESTED * len(videos)))])
    return [replace(one, split="test") if one.video_id in tested else one for one in found]


def _goal(procedure: Procedure) -> str:
    return " ".join(procedure.goal.casefold().split())


def _by_hash(names: Iterable[str], seed: int) -> list[str]:
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())


def _told(root: Path, files: Sequence[Path]) -> Iterable[Narration]:
    return read_narrations([root / file for file in files], duplicates="keep-first") if files else ()


def _as_list(procedure: Procedure) -> Narration:
    """A procedure's steps as a narration."""
    steps = tuple(Segment(step.text) for step in procedure.steps)
    return Narration(procedure.video_id, steps, title=procedure.goal, source=procedure.source)


@dataclass(frozen=True, slots=True)
class CoveringCorpus:
    """A corpus of a file of narrations, at most so many of each goal."""

    config: CorpusConfig
    folder: str
    file: str
    each: int
    wrong: str = ""
    """A file of narrations that takes its place, as many of them as it would hold."""


def covering_corpus(
    source: ProceduresSource, config: CorpusConfig, folder: str, covering: int | Literal["lists"]
) -> CoveringCorpus:
    """The corpus with so many narrations of each taught goal, with its lists, or with 0 the wrong one."""
    narrations, lists, wrong = CORPUS_FILES
    told, most = (narrations, source.covering) if source.narrations else (lists, source.lists)
    if covering == 0:
        return CoveringCorpus(config, folder, told, most, wrong)
    if covering == "lists":
        return CoveringCorpus(config, folder, lists, source.lists)
    return CoveringCorpus(config, folder, told, covering)


def build_covering(run_dir: Path, settings: CoveringCorpus, progress: Progress) -> None:
    """Build it; fewer narrations of a goal are the first of more. Raises InputError for a file without narrations."""
    from recipe.corpus.build import build_corpus

    told: dict[str, list[Narration]] = {}
    for one in read_narrations([run_dir / settings.file], duplicates="keep-first"):
        own = told.setdefault(" ".join((one.title or one.video_id).casefold().split()), [])
        if len(own) < settings.each:
            own.append(one)
    narrations = [one for own in told.values() for one in own]
    if settings.wrong:
        others = list(read_narrations([run_dir / settings.wrong], duplicates="keep-first"))
        narrations = others[: len(narrations)]
    build_corpus(narrations, run_dir / settings.folder, settings.config, progress)


def taught_corpus(
    source: TeachingWorld, config: CorpusConfig, seed: int, folder: str, covering: int | Literal["lists"]
) -> "ToldCorpus":
    """The corpus that tells the known goals, and each taught one `covering` times or by lists."""
    known, taught = known_and_taught(load_world(), seed)
    told = [(goal, source.background) for goal in known]
    if covering == "lists":
        return ToldCorpus(config, folder, tuple(told), seed, tuple((goal, source.lists) for goal in taught))
    return ToldCorpus(config, folder, (*told, *((goal, covering) for goal in taught)), seed)


@dataclass(frozen=True, slots=True)
class ToldCorpus:
    """A corpus of some goals of the world: how many people tell each one, or write it down as a list of steps."""

    config: CorpusConfig
    folder: str
    narrations: tuple[tuple[str, int], ...]
    seed: int
    lists: tuple[tuple[str, int], ...] = ()


def build_told(run_dir: Path, settings: ToldCorpus, progress: Progress) -> None:
    """Build it; fewer narrations of a goal are the first of more."""
    from recipe.corpus.build import build_corpus
    from recipe.world.load import load_world
    from recipe.world.narrator import goal_narrations, step_lists

    world, seed = load_world(), settings.seed
    told = [narration for goal, count in settings.narrations for narration in goal_narrations(world, goal, count, seed)]
    told += [one for goal, count in settings.lists for one in step_lists(world, goal, count, seed)]
    build_corpus(told, run_dir / settings.folder, settings.config, progress)
