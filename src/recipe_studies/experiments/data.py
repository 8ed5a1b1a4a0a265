"""The stages that bring the data and corpora of a study: from the embedded world, from files, or from procedures."""

import hashlib
import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Literal

from recipe.artifacts import write_jsonl
from recipe.config import CorpusConfig
from recipe.corpus.excluded import read_exclusions
from recipe.corpus.leaks import Exclusions
from recipe.data.benchmarks import by_role, read_benchmarks, require_benchmarks
from recipe.data.examples import read_examples, write_examples
from recipe.data.narrations import read_narrations, to_row
from recipe.data.procedures import read_procedures
from recipe.data.supervision import cut_procedures, evenly_spaced, limit_videos
from recipe.errors import InputError, listed
from recipe.progress import Progress
from recipe.text import same_goal
from recipe.types import Example, Narration, Procedure, Segment
from recipe.world.examples import TextNoise, draw_examples, noisy_examples
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe.world.narrator import NarratorStyle, goal_narrations, narrate
from recipe.world.validity import plan_key
from recipe_studies.experiments.settings import PROMPT_SHARE, FilesSource, ProceduresSource, WorldSource
from recipe_studies.experiments.study import DOCUMENTS, HELD_OUT, KNOWN, NARRATIONS, TEST, TRAIN, VALIDATION

_LOG = logging.getLogger(__name__)

NOISE = TextNoise()
"""Noise of the base's training text unless the settings differ."""
VALIDATION_PROMPTS = 100
"""Validation prompts of the world unless `validation.prompts` is given."""
VALIDATION_DRAWS = 4
"""Draws for each of them, because many cut points are training prompts."""
OWN_TESTED = 0.2
"""Share of the videos of own procedures that is tested on."""
CORPUS_FILES = ("data/narrations.jsonl", "data/lists.jsonl", "data/wrong.jsonl")
"""Teaching: what is said in the videos of the corpus, their steps, and what is said in videos of the goals that the
base knows, or their steps."""


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Where examples and narrations come from."""

    source: WorldSource | FilesSource | ProceduresSource
    seed: int
    noise: TextNoise = NOISE
    """Of the base's text from a world."""
    validation: int = VALIDATION_PROMPTS
    """Validation prompts, where they are drawn apart from the training prompts."""
    content: str = ""
    """Stands for what the files hold."""
    root: Path = Path()
    """Where the relative paths of the source start."""


def draw_world(folder: Path, settings: DataSettings, progress: Progress) -> None:
    """Narrations, training and test examples, and noisy pre-training text for the base model."""
    world, source, seed = load_world(), settings.source, settings.seed
    assert isinstance(source, WorldSource)
    goals = _used_goals(world, source)
    with progress.task("drawing the world", 4) as advance:
        style = NarratorStyle().cleaner(source.clean)
        write_jsonl(folder / NARRATIONS, map(asdict, narrate(world, source.narrations, seed, style, goals)))
        advance(1)
        write_examples(folder / TRAIN, draw_examples(world, "train", source.train, seed, goals))
        advance(1)
        tests = (draw_examples(world, split, source.test, seed, goals) for split in ("test_cuts", "test_goals"))
        write_examples(folder / TEST, [example for drawn in tests for example in drawn])
        advance(1)
        exposed = round(source.exposure * source.documents)
        texts = noisy_examples(world, exposed, seed, goals, settings.noise)
        if exposed < source.documents:
            others = [goal for goal in world.goals if goal not in goals]
            texts += noisy_examples(world, source.documents - exposed, seed, others, settings.noise, name="others")
        write_examples(folder / DOCUMENTS, texts)
        advance(1)


def _used_goals(world: World, source: WorldSource) -> list[str]:
    """The goals of the source's domains. Raises InputError for a domain that the world does not have."""
    known = list(dict.fromkeys(graph.domain for graph in world.goals.values()))
    if unknown := [name for name in source.domains if name not in known]:
        raise InputError(f"source.domains: the world has no domain {unknown[0]!r}; the domains are {listed(known)}.")
    return [graph.goal for graph in world.goals.values() if graph.domain in (source.domains or known)]


def draw_validation(folder: Path, settings: DataSettings, progress: Progress) -> None:
    """Validation prompts of the world: cut points of the training split that no training or test prompt has.

    Raises InputError where the world has too few.
    """
    world, drawn, count = load_world(), settings.source.train, settings.validation
    with progress.task("drawing validation prompts"):
        known = [example for file in (TRAIN, TEST) for example in read_examples(folder / file)]
        used = {(example.goal, plan_key(world, example.goal, example.history)) for example in known}
        assert isinstance(settings.source, WorldSource)
        # The first examples of a seed are the training examples, so that these are of other videos, too.
        drawn_in_all = drawn + VALIDATION_DRAWS * count
        draws = draw_examples(world, "train", drawn_in_all, settings.seed, _used_goals(world, settings.source))
        chosen: list[Example] = []
        for example in draws[drawn:]:
            if len(chosen) == count:
                break
            cut = example.goal, plan_key(world, example.goal, example.history)
            if cut not in used:
                used.add(cut)
                chosen.append(replace(example, split="validation"))
        if len(chosen) < count:
            problem = f"the world has {len(chosen)} cut points left for {count} validation prompts"
            raise InputError.at(folder / VALIDATION, problem, "lower validation.prompts or source.train")
        write_examples(folder / VALIDATION, chosen)


def cut_benchmarks(folder: Path, settings: DataSettings, progress: Progress) -> None:
    """Training, test and base-model examples of benchmarks and own procedures, cut by hash; videos stay in their
    published split.
    """
    source, seed = settings.source, settings.seed
    assert isinstance(source, FilesSource)
    procedures: list[Procedure] = []
    if source.benchmarks:
        procedures, _ = by_role(read_benchmarks(require_benchmarks(settings.root, source.benchmarks), progress))
    for file in source.procedures:
        own = [replace(row, split=row.split or "train") for row in _usable_procedures(settings.root / file)]
        if all(procedure.split != "test" for procedure in own):
            # No row is kept for the test: a part of the videos is, drawn by hash.
            videos = _by_hash({procedure.video_id for procedure in own}, seed)
            tested_videos = set(videos[: max(1, round(OWN_TESTED * len(videos)))])
            own = [replace(row, split="test") if row.video_id in tested_videos else row for row in own]
        procedures += own
    held_out = {procedure.video_id for procedure in procedures if procedure.split != "train"}
    # Published splits ignore each other: a video that one benchmark tests on is not trained on in another.
    trained = [row for row in procedures if row.split == "train" and row.video_id not in held_out]
    # Several cut points of a video to train on, as in the paper; one to test on, so that each video counts once.
    cut = cut_procedures(trained, train=4, seed=seed).examples
    tested = limit_videos([row for row in procedures if row.split == "test"], source.test, seed)
    tests = cut_procedures(tested, test=1, seed=seed).examples
    if not cut or not tests:
        counts = f"{len(cut)} examples to train on and {len(tests)} to test on"
        raise InputError.at(settings.root, f"the procedures give {counts}", "give procedures of both splits")
    write_examples(folder / DOCUMENTS, evenly_spaced(cut, source.documents))
    write_examples(folder / TRAIN, evenly_spaced(cut, source.train))
    write_examples(folder / TEST, [replace(example, split=example.source) for example in tests])


def choose_prompts(folder: Path, settings: Literal["validation", "test"], progress: Progress) -> None:
    """Measure on the prompts of validation or test."""
    with progress.task(f"{settings} prompts"):
        write_examples(folder / TEST, read_examples(folder / {"validation": VALIDATION, "test": HELD_OUT}[settings]))


def split_procedures(folder: Path, settings: DataSettings, progress: Progress) -> None:
    """Prompts of training, validation and test; the narrations, lists and wrong narrations for the corpora.

    Raises InputError where a part holds nothing.
    """
    source, seed, root = settings.source, settings.seed, settings.root
    assert isinstance(source, ProceduresSource)
    procedures = [row for file in source.procedures for row in _usable_procedures(root / file)]
    if source.benchmarks:
        procedures += read_benchmarks(require_benchmarks(root, source.benchmarks), progress)
    goals = _by_hash({same_goal(row.goal) for row in procedures}, seed)
    known_goals = set(goals[: round(source.known_share * len(goals))])
    taught = [row for row in procedures if same_goal(row.goal) not in known_goals]
    tested = limit_videos([row for row in taught if row.split == source.test_split], source.test, seed)
    held_out = {row.video_id for row in procedures if row.split != "train"}
    training = [row for row in taught if row.split == "train" and row.video_id not in held_out]
    ranks = {name: rank for rank, name in enumerate(_by_hash({row.video_id for row in training}, seed))}
    prompted = round(PROMPT_SHARE * len(ranks))
    prompt_videos = [row for row in training if ranks[row.video_id] < prompted]
    validated = limit_videos(prompt_videos, source.validation, seed)
    chosen = {(row.source, row.video_id) for row in validated}
    prompt_videos = [row for row in prompt_videos if (row.source, row.video_id) not in chosen]
    # Labels from a closed set recur: a list that repeats the steps of a measured video would pass for that video.
    measured = Exclusions((), (step.text for row in [*validated, *tested] for step in row.steps))
    narrated = [
        row for row in training if ranks[row.video_id] >= prompted and not measured.compare(_as_list(row)).by_text
    ]
    narrated.sort(key=lambda row: ranks[row.video_id])
    known = [row for row in procedures if same_goal(row.goal) in known_goals and row.split == "train"]
    if source.known:
        others = read_benchmarks(require_benchmarks(root, source.known), progress)
        known += [row for row in others if row.split == "train"]
    known = [row for row in known if row.video_id not in held_out and row.video_id not in ranks]
    parts = {
        TRAIN: evenly_spaced(cut_procedures(prompt_videos, train=4, test=4, seed=seed).examples, source.train),
        VALIDATION: cut_procedures(validated, train=1, test=1, seed=seed).examples,
        HELD_OUT: cut_procedures(tested, train=1, test=1, seed=seed).examples,
    }
    splits = {VALIDATION: "validation", HELD_OUT: "test"}
    for file, examples in parts.items():
        if not examples:
            problem = f"the procedures give no examples for {PurePath(file).stem}"
            raise InputError.at(root, problem, "give more videos, or change validation or test_split")
        write_examples(folder / file, [replace(example, split=splits.get(file, example.split)) for example in examples])
    own = {row.source for row in procedures}
    for file, learned in ((DOCUMENTS, known), (KNOWN, [row for row in known if row.source in own])):
        if learned:
            cut = cut_procedures(learned, train=4, test=4, seed=seed).examples
            write_examples(folder / file, evenly_spaced(cut, source.documents))
    said = read_narrations([root / file for file in source.narrations], duplicates="keep-first")
    spoken = {narration.video_id: narration for narration in said} if source.narrations else {}
    own_known = [row for row in known if row.source in own]
    narrations, wrong = (
        [replace(spoken[row.video_id], title=row.goal) for row in rows if row.video_id in spoken]
        for rows in (narrated, own_known)
    )
    wrong = wrong if source.narrations else [_as_list(row) for row in known]
    order = {name: rank for rank, name in enumerate(_by_hash({row.video_id for row in wrong}, seed))}
    wrong.sort(key=lambda row: order[row.video_id])
    for file, content in zip(CORPUS_FILES, (narrations, map(_as_list, narrated), wrong), strict=True):
        write_jsonl(folder / file, map(to_row, content))


def _usable_procedures(file: Path) -> list[Procedure]:
    """The procedures of a file; rows that cannot be used are left out, with a warning."""
    read = read_procedures(file, on_bad="skip")
    if read.skipped:
        _LOG.warning("%d rows of %s are left out; the first: %s", len(read.skipped), file, read.skipped[0][1])
    return read.procedures


def _by_hash(names: Iterable[str], seed: int) -> list[str]:
    # A hash, and no shuffle: a further video leaves the order of the others as it is.
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())


def _as_list(procedure: Procedure) -> Narration:
    """A procedure's steps as a narration."""
    steps = tuple(Segment(step.text) for step in procedure.steps)
    return Narration(procedure.video_id, steps, title=procedure.goal, source=procedure.source)


@dataclass(frozen=True, slots=True)
class FilesCorpus:
    """A corpus of narration files; `content` stands for what files outside the run folder hold."""

    config: CorpusConfig
    folder: str
    files: tuple[Path, ...]
    """Below the run folder, or absolute."""
    content: str = ""
    each: int | None = None
    """Narrations of a goal at most, the first ones; None for all."""
    instead: str = ""
    """A file of narrations that takes their place, as many of them as they are."""
    without_tests: bool = False
    """Leave out the videos of the test examples, and near-copies of their texts."""
    order: Literal["", "shuffled", "mixed"] = ""
    """Whether the lines of each narration are shuffled, or all lines are dealt out anew to narrations as long."""
    captions: str = ""
    """A file of step lists of the same videos: one line in four becomes a step, as captions made of speech have."""
    seed: int = 0
    """Of the order."""


def build_files_corpus(folder: Path, settings: FilesCorpus, progress: Progress) -> None:
    """Build it. Raises InputError for a file without narrations."""
    from recipe.corpus.build import build_corpus
    from recipe.corpus.leaks import ExclusionReport, warn_unchecked

    files = [folder / file for file in settings.files]
    if settings.without_tests:
        exclusions, report = read_exclusions([folder / TEST]), ExclusionReport()
        kept = exclusions.filter(read_narrations(files, "keep-first", check=exclusions.require_clear), report)
        build_corpus(kept, folder / settings.folder, settings.config, progress)
        warn_unchecked(exclusions.checked(report), TEST)
        return
    narrations: Iterable[Narration] = read_narrations(files, "keep-first")
    if settings.each is not None:
        by_goal: dict[str, list[Narration]] = {}
        for narration in narrations:
            own = by_goal.setdefault(same_goal(narration.title or narration.video_id), [])
            if len(own) < settings.each:
                own.append(narration)
        narrations = [narration for own in by_goal.values() for narration in own]
        if settings.instead:
            others = list(read_narrations([folder / settings.instead], "keep-first"))
            narrations = others[: len(narrations)]
    if settings.captions:
        steps = {row.video_id: row for row in read_narrations([folder / settings.captions], "keep-first")}
        narrations = [captioned(row, steps[row.video_id]) for row in narrations]
    if settings.order:
        narrations = reordered(list(narrations), settings.order, settings.seed)
    build_corpus(narrations, folder / settings.folder, settings.config, progress)


def reordered(narrations: Sequence[Narration], order: Literal["shuffled", "mixed"], seed: int = 0) -> list[Narration]:
    """Narrations of the same lines and lengths: each in an order of chance, or all lines dealt out to all narrations.

    What stands at a place keeps the place's times, so that only texts move.
    """
    rng = random.Random(f"{order} {seed}")
    lines = [[segment.text for segment in narration.segments] for narration in narrations]
    if order == "mixed":
        dealt = iter(rng.sample(every := [text for own in lines for text in own], len(every)))
        lines = [[next(dealt) for _ in own] for own in lines]
    else:
        lines = [rng.sample(own, len(own)) for own in lines]
    return [
        replace(
            narration, segments=tuple(replace(s, text=text) for s, text in zip(narration.segments, own, strict=True))
        )
        for narration, own in zip(narrations, lines, strict=True)
    ]


def captioned(said: Narration, steps: Narration) -> Narration:
    """Three lines of speech for each step of the same video, evenly spaced, in between the steps; without times.

    Nothing tells where in the speech a step happens: steps are taken as evenly spaced, too.
    """
    # Three to one: a quarter of the lines are then steps.
    spoken = evenly_spaced(list(said.segments), 3 * len(steps.segments))
    placed = [
        ((place + 0.5) / len(lines), segment.text)
        for lines in (spoken, steps.segments)
        for place, segment in enumerate(lines)
    ]
    return replace(said, segments=tuple(Segment(text) for _, text in sorted(placed, key=itemgetter(0))))


@dataclass(frozen=True, slots=True)
class WorldCorpus:
    """A corpus of some goals of the world, each with how many people narrate it."""

    config: CorpusConfig
    folder: str
    seed: int
    narrations: tuple[tuple[str, int], ...]


def build_world_corpus(folder: Path, settings: WorldCorpus, progress: Progress) -> None:
    """Build it."""
    from recipe.corpus.build import build_corpus

    world, seed = load_world(), settings.seed
    narrations = [row for goal, count in settings.narrations for row in goal_narrations(world, goal, count, seed)]
    build_corpus(narrations, folder / settings.folder, settings.config, progress)


def wrong_domain(source: WorldSource, config: CorpusConfig, folder: str, seed: int) -> WorldCorpus:
    """The corpus of domains that the source leaves out; where it uses all, of the one with the fewest goals, because
    what that covers by chance is the least of the test."""
    domains: dict[str, list[str]] = {}
    world = load_world()
    for graph in world.goals.values():
        domains.setdefault(graph.domain, []).append(graph.goal)
    goals = [goal for name, own in domains.items() if name not in source.domains for goal in own]
    if not source.domains or not goals:
        goals = min(domains.values(), key=len)
    return WorldCorpus(config, folder, seed, tuple((goal, source.narrations // len(goals)) for goal in goals))
