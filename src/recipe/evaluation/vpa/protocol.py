"""Visual Planning for Assistance (VPA) on CrossTask: from annotated videos to the samples of the protocol.

Given the goal and the video up to a cut, a system predicts the next T actions of a closed set (Patel et al., 2023). The
samples are cut as in facebookresearch/VLaMP, `create_prefixes="all"`, re-implemented from its description:

    steps   = start + the video's steps in the order of its annotation file + end
    history = steps[:p], target = steps[p:]        for every p >= 1: the start alone is a history, an empty one
    kept where the target holds at least as many entries as are planned, the end among them

That order is the time's but for a few files, which is enough to move the calibration by 0.3 points; `order="time"`
sorts them. VLaMP's T = 3 figures are prefixes of its T = 4 plans on the same samples. Other papers cut otherwise:
numbers of two rules or two taxonomies cannot be compared, and which ones were used is on every result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from recipe.data.benchmarks import require_benchmarks
from recipe.data.crosstask import StepOrder, TaskCard, read_cards, read_crosstask
from recipe.data.supervision import cut_at
from recipe.errors import InputError
from recipe.types import Example, Procedure

END = "<|eact|>"
"""The end of a video, as VLaMP's action set calls it: the last entry of a target under the rule `vlamp`."""
HORIZONS = (1, 3, 4)
"""T of the paper's table."""

Protocol = Literal["shared", "separate"]
"""One sample set for every T, that of the largest; or a set for each T."""
Rule = Literal["vlamp", "true-steps", "observed"]
"""Which cuts make samples: the end counts in the target; only steps count; and at least one step was observed."""


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
    """All that follows: annotated steps, then `END` where the rule counts it."""
    until: float | None
    """Seconds at which the first step of the target starts."""
    split: str = "test"
    horizons: tuple[int, ...] = HORIZONS
    """Those T whose sample set holds it."""

    @property
    def continuation(self) -> tuple[str, ...]:
        """The steps of the target, of which there is at least one."""
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
    """The closed set of actions: by default each different string, or each step of each task.

    18 cards hold 133 steps and 105 strings; VLaMP, PDPP, KEPP and the paper use the 105, SCHEMA and ViterbiPlanNet
    the 133.
    """

    cards: Mapping[str, tuple[str, ...]]
    """Goal to the steps of its card, in the order of the release."""
    by_task: bool = False
    """Whether a string counts once for each task that has it."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Every step once, in the order of the release."""
        return tuple(dict.fromkeys(step for steps in self.cards.values() for step in steps))

    @property
    def actions(self) -> tuple[str, ...]:
        """Every action, in the order of the release."""
        return tuple(dict.fromkeys(self.action(step, goal) for goal, steps in self.cards.items() for step in steps))

    def action(self, step: str, goal: str) -> str:
        """The action that `step` is for `goal`: by task, the goal's own or that of the first card that has it."""
        if not self.by_task or step == END:
            return step
        owners = (goal, *self.cards)
        owner = next((owner for owner in owners if step in self.cards.get(owner, ())), goal)
        return f"{owner}: {step}"

    def card(self, goal: str) -> tuple[str, ...]:
        """The actions of the goal's card."""
        return tuple(self.action(step, goal) for step in self.cards[goal])


class CrossTaskRelease(NamedTuple):
    """CrossTask as published, with the lists of VPA."""

    procedures: list[Procedure]
    cards: dict[str, TaskCard]
    """Task number to card."""

    def taxonomy(self, by_task: bool = False) -> Taxonomy:
        """The set of actions of the cards."""
        return Taxonomy({card.name: card.steps for card in self.cards.values()}, by_task)

    def split(self, *names: str) -> list[Procedure]:
        """The videos of some splits. Raises InputError where there is none."""
        chosen = [procedure for procedure in self.procedures if procedure.split in names]
        if not chosen:
            raise InputError(f"no video of CrossTask is in {' or '.join(names)}; check the lists in splits/.")
        return chosen


def read_release(root: Path, order: StepOrder = "file") -> CrossTaskRelease:
    """CrossTask under `root`, which is its own folder or the folder of all benchmarks. Raises InputError."""
    folder = require_benchmarks(root, ["crosstask"])["crosstask"]
    return CrossTaskRelease(
        read_crosstask(folder, order), read_cards(folder / "crosstask_release" / "tasks_primary.txt")
    )


def cut_samples(
    procedures: Iterable[Procedure],
    cards: Mapping[str, TaskCard],
    protocol: Protocol = "shared",
    rule: Rule = "vlamp",
    horizons: Sequence[int] = HORIZONS,
) -> list[Sample]:
    """The samples of the videos, in their order, then by cut.

    A target that holds the end alone makes no sample: there is nothing to plan. Raises InputError for a horizon below
    1, and where no video is long enough.
    """
    if not horizons or min(horizons) < 1:
        raise InputError("a horizon is missing or below 1; give numbers of actions such as 1, 3 and 4.")
    tasks = {card.name: task for task, card in cards.items()}
    least = {horizon: max(horizons) if protocol == "shared" else horizon for horizon in sorted(set(horizons))}
    samples = []
    for procedure in procedures:
        for cut in range(1 if rule == "observed" else 0, len(procedure.steps)):
            example = cut_at(procedure, cut)
            target = (*example.continuation, END) if rule == "vlamp" else example.continuation
            fitting = tuple(horizon for horizon, needed in least.items() if len(target) >= needed)
            if not fitting:
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
                    horizons=fitting,
                )
            )
    if not samples:
        raise InputError(f"no video is long enough to plan {min(least.values())} actions; give more or longer videos.")
    return samples
