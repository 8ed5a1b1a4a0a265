"""Visual Planning for Assistance (VPA) on CrossTask: from annotated videos to the samples of the protocol.

Given the goal and the video up to a cut, a system predicts the next T actions of a closed set (Patel et al., 2023). The
samples are cut as in facebookresearch/VLaMP, `create_prefixes="all"`, re-implemented from its description:

    steps   = start + the video's steps in the order of its annotation file + end
    history = steps[:p], target = steps[p:]        for every p >= 1: the start alone is a history, an empty one
    kept where the target holds at least as many entries as are planned, the end among them

That order is the time's but for a few files, which is enough to move the calibration by 0.3 points. VLaMP's T = 3
figures are prefixes of its T = 4 plans on the same samples. Other papers cut otherwise, and their numbers cannot be
compared with these.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from recipe.data.benchmarks import require_benchmarks
from recipe.data.crosstask import TaskCard, read_cards, read_crosstask
from recipe.data.supervision import cut_at
from recipe.errors import InputError
from recipe.types import Example, Procedure

END = "<|eact|>"
"""The end of a video, as VLaMP's action set calls it: the last entry of a target."""
HORIZONS = (1, 3, 4)
"""T of the paper's table."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The steps of a procedure before a cut, and those after it."""

    sample_id: str
    """source/video/cut, as the ids of other examples."""
    video_id: str
    task: str
    """CrossTask's number of the goal."""
    goal: str
    history: tuple[str, ...]
    """Annotated steps before the cut; empty where the video has only begun."""
    target: tuple[str, ...]
    """All that follows: annotated steps, then `END`."""
    until: float | None
    """Seconds at which the first step of the target starts."""
    split: str = "test"

    @property
    def continuation(self) -> tuple[str, ...]:
        """The steps of the target, of which there is at least one."""
        # The end is an entry to predict, and no step to plan.
        return self.target[:-1] if self.target[-1] == END else self.target

    def example(self) -> Example:
        """The same as planners read it."""
        return Example(
            example_id=self.sample_id,
            source="crosstask",
            video_id=self.video_id,
            goal=self.goal,
            history=self.history,
            continuation=self.continuation,
            cut=len(self.history),
            split=self.split,
            until=self.until,
        )


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """The closed set of actions: each different string of the cards.

    18 cards hold 133 steps and 105 strings. VLaMP, PDPP, KEPP and the paper use the 105; SCHEMA and ViterbiPlanNet
    count a string once for each task that has it, and their figures cannot be compared with these.
    """

    cards: Mapping[str, tuple[str, ...]]
    """Goal to the steps of its card, in the order of the release."""

    @property
    def actions(self) -> tuple[str, ...]:
        """Every action, in the order of the release."""
        return tuple(dict.fromkeys(step for steps in self.cards.values() for step in steps))


class CrossTaskRelease(NamedTuple):
    """CrossTask as published, with the lists of VPA."""

    procedures: list[Procedure]
    cards: dict[str, TaskCard]
    """Task number to card."""

    def taxonomy(self) -> Taxonomy:
        """The set of actions of the cards."""
        return Taxonomy({card.name: card.steps for card in self.cards.values()})

    def split(self, *names: str) -> list[Procedure]:
        """The videos of some splits. Raises InputError where there is none."""
        chosen = [procedure for procedure in self.procedures if procedure.split in names]
        if not chosen:
            raise InputError(f"no video of CrossTask is in {' or '.join(names)}; check the lists in splits/.")
        return chosen


def read_release(root: Path | str) -> CrossTaskRelease:
    """CrossTask under `root`, which is its own folder or the folder of all benchmarks. Raises InputError."""
    folder = require_benchmarks(root, ["crosstask"])["crosstask"]
    return CrossTaskRelease(
        read_crosstask(folder, "file"), read_cards(folder / "crosstask_release" / "tasks_primary.txt")
    )


def cut_samples(
    procedures: Iterable[Procedure], cards: Mapping[str, TaskCard], width: int = max(HORIZONS)
) -> list[Sample]:
    """The cuts whose target has `width` entries or more, in the order of the videos, then by cut.

    A target that holds the end alone makes no sample: there is nothing to plan. Raises InputError where no video is
    long enough.
    """
    tasks = {card.name: task for task, card in cards.items()}
    samples = []
    for procedure in procedures:
        for cut in range(len(procedure.steps)):
            example = cut_at(procedure, cut)
            target = (*example.continuation, END)
            # VLaMP's `create_prefixes="all"`: the end counts as an entry, so a target of T - 1 steps is long enough.
            if len(target) < width:
                continue
            samples.append(
                Sample(
                    sample_id=example.example_id,
                    video_id=example.video_id,
                    task=tasks.get(procedure.goal, ""),
                    goal=example.goal,
                    history=example.history,
                    target=target,
                    until=example.until,
                    split=example.split,
                )
            )
    if not samples:
        raise InputError(f"no video is long enough to plan {width} actions; give more or longer videos.")
    return samples
