"""What training takes: seconds of a whole run from the seconds of each kind of work, and these by two real steps.

Nothing is calculated from the shape of a model: `measure` takes two steps of the run itself, on the device that it
would use. Studies state the same seconds for their scales. Importing this loads no torch.
"""

import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe.config.base import Settings
from recipe.config.training import (
    AnyTraining,
    BaseModelConfig,
    BestOfNConfig,
    GRPOConfig,
    RewardTrainingSettings,
    SFTConfig,
)
from recipe.data.examples import read_training_examples
from recipe.progress import Advance
from recipe.reward.scorer import Scorer

STARTING = 10.0
"""Seconds in which a process starts and loads a model."""


class Rates(Settings):
    """Seconds of each kind of work on one device."""

    base_seconds: float = 0.0
    """Of training the base from nothing."""
    sft_step_seconds: float
    grpo_step_seconds: float
    plan_seconds: float
    """Of one sampled plan."""

    def run_seconds(self, config: AnyTraining, examples: int) -> float:
        """Of a whole run on so many examples."""
        if isinstance(config, BaseModelConfig):
            return self.base_seconds
        if isinstance(config, GRPOConfig):
            return self.grpo_step_seconds * config.steps
        if isinstance(config, BestOfNConfig):
            examples = config.prompts_per_round or examples
        fine_tuning = self.sft_step_seconds * config.epochs * math.ceil(examples / config.batch_size)
        if isinstance(config, BestOfNConfig):
            return config.rounds * (self.plan_seconds * config.n * examples + fine_tuning)
        return fine_tuning


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """What two steps of a run took."""

    step_seconds: float
    plan_seconds: float | None
    """Of sampling and scoring one plan, in best-of-N rounds; in GRPO a step holds them."""
    hours: float
    """Of the whole run, without validation."""
    memory: float
    """Bytes at the peak: of the GPU where there is one, else of this process."""

    def lines(self) -> list[str]:
        """What was measured, in lines of text."""
        plan = "" if self.plan_seconds is None else f", {self.plan_seconds:.3g} s a plan"
        return [
            f"measured: {self.step_seconds:.3g} s a step{plan}, {size(self.memory)} at the peak",
            f"time: {duration(3600 * self.hours)}, without validation",
        ]


def size(held: float) -> str:
    """Bytes in words.

    >>> size(8.2e6), size(1.24e9)
    ('8 MB', '1.2 GB')
    """
    return f"{held / 1e6:.0f} MB" if held < 1e8 else f"{held / 1e9:,.1f} GB"


def duration(seconds: float) -> str:
    """About how long.

    >>> duration(40), duration(600), duration(9000)
    ('about 40 seconds', 'about 10 minutes', 'about 2.5 hours')
    """
    if seconds < 120:
        return f"about {seconds:.0f} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds < 7200 else f"about {seconds / 3600:,.1f} hours"


class _TwoSteps:
    """Notes when the work of each task was done, as the trainers report it, and ends a run after its second step."""

    def __init__(self) -> None:
        self.done: dict[str, list[tuple[float, int]]] = {}

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        done = self.done[description] = [(time.monotonic(), 0)]

        def advance(units: int) -> None:
            if units:  # a pass of the model within a step reports 0
                done.append((time.monotonic(), units))
            if len(done) > 2 and not description.endswith(("plans", "best of N")):
                raise _Measured

        yield advance

    def seconds(self, task: str) -> float:
        """Seconds of one unit, from the last report of a task; the first one includes work that is done only once."""
        (before, _), (after, units) = self.done[task][-2:]
        return (after - before) / units


class _Measured(Exception):
    """Ends a run after its second step."""


def measure(config: AnyTraining) -> StepMeasurement:
    """Two real steps of a run, in a folder that is removed; the second one counts.

    Raises as the training does: ComputeError where memory does not suffice, InputError for what cannot be read.
    """
    import resource  # noqa: PLC0415 - not on every system

    import torch  # noqa: PLC0415

    from recipe.training import ranks  # noqa: PLC0415 - loads torch

    ranks.single("recipe train check --measure")
    clock = _TwoSteps()
    scorer: Scorer | None = None
    examples = len(read_training_examples(config.examples, config.split))
    if isinstance(config, RewardTrainingSettings) and config.control is not None:
        from recipe.reward.own import FunctionReward  # noqa: PLC0415

        # What compares plans with continuations takes no time beside the model, and some reward has to stand for it.
        scorer = FunctionReward(lambda goal, history, plan: len(plan))
    elif isinstance(config, RewardTrainingSettings) and config.corpus is not None:
        from recipe.corpus.store import Corpus  # noqa: PLC0415
        from recipe.reward.verifier import Verifier  # noqa: PLC0415

        scorer = Verifier(Corpus.open(config.corpus, devices=config.corpus_devices), config.reward)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory(prefix="recipe-measure-") as folder, suppress(_Measured):
        changes: dict[str, Any] = {
            "output": Path(folder) / "run",
            "save_every": 1_000_000,
        }  # no checkpoint within two steps
        if not isinstance(config, BaseModelConfig):
            changes["metrics"] = ()
        if isinstance(config, RewardTrainingSettings):
            changes |= {"validation": None, "min_coverage": None}
        if isinstance(config, BestOfNConfig):
            # Two batches of plans, and from their prompts at least two steps.
            prompts = max(2 * max(1, config.completions_at_once // config.n), 2 * config.batch_size)
            changes |= {"rounds": 1, "prompts_per_round": min(prompts, config.prompts_per_round or examples)}
        short: Any = config.model_copy(update=changes)
        if isinstance(config, BaseModelConfig):
            from recipe.training.base import train_base  # noqa: PLC0415

            train_base(short, clock)
        elif isinstance(config, SFTConfig):
            from recipe.training.sft import train_sft  # noqa: PLC0415

            train_sft(short, clock)
        elif isinstance(config, GRPOConfig):
            from recipe.training.grpo import train_grpo  # noqa: PLC0415

            train_grpo(short, scorer, clock)
        else:
            from recipe.training.best_of_n import train_best_of_n  # noqa: PLC0415

            train_best_of_n(short, scorer, clock)
    # Linux counts it in units of 1,024 bytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    memory = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
    if torch.cuda.is_available():
        memory = float(torch.cuda.max_memory_reserved())
    if isinstance(config, BestOfNConfig):
        step, plan = clock.seconds("round 1: fine-tuning"), clock.seconds("round 1: plans")
        rates = Rates(sft_step_seconds=step, grpo_step_seconds=0, plan_seconds=plan)
    else:
        titles = {BaseModelConfig: "base model", SFTConfig: "SFT", GRPOConfig: "GRPO"}
        step, plan = clock.seconds(titles[type(config)]), None
        whole = step * config.steps if isinstance(config, BaseModelConfig) else 0.0
        rates = Rates(base_seconds=whole, sft_step_seconds=step, grpo_step_seconds=step, plan_seconds=0)
    return StepMeasurement(step, plan, (STARTING + rates.run_seconds(config, examples)) / 3600, memory)
