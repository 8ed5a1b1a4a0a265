"""The data and corpora of a teaching experiment: what the base knows, what is to be taught, and who covers it."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recipe.config import CorpusConfig
from recipe.data.examples import read_examples, write_examples
from recipe.experiments.design import DOCUMENTS, HELD_OUT, TEST, TRAIN, VALIDATION
from recipe.experiments.settings import TeachingWorld
from recipe.progress import Progress
from recipe.world.examples import TextNoise, draw_parts, noisy_examples
from recipe.world.graph import World
from recipe.world.load import load_world

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
    from recipe.world.narrator import people, step_lists

    world, seed = load_world(), settings.seed
    told = [one for goal, count in settings.narrations for one in people(world, goal, count, seed)]
    told += [one for goal, count in settings.lists for one in step_lists(world, goal, count, seed)]
    build_corpus(told, run_dir / settings.folder, settings.config, progress)
