"""What a study costs before anything starts: runs, hours, memory and disk, and the answers of models behind endpoints.

Hours of devices come from the costs that a scale states. Hours and tokens at endpoints come from numbers of calls,
which are counted, and from sizes of prompts and answers, which are assumed.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from recipe.config import BaseModelConfig, GRPOConfig, SFTConfig
from recipe.data.examples import read_examples
from recipe.evaluation.controls import control_plans
from recipe.evaluation.diversity.scores import questions
from recipe.evaluation.judge.plans import actionable
from recipe.models.costs import Prices
from recipe.planning.predictions import read_predictions
from recipe.training.cost import STARTING, training_seconds
from recipe_studies.experiments.design import TRAIN
from recipe_studies.experiments.schedule import Stage
from recipe_studies.experiments.stages import CorpusBuild, FilesData, Training
from recipe_studies.experiments.teaching import ToldCorpus
from recipe_studies.experiments.video import VisionPretraining
from recipe_studies.reproduce.data import PROMPTS as PROMPT_FILE
from recipe_studies.reproduce.measures import (
    DIVERSITY_PROMPTS,
    ControlScoring,
    Diversity,
    FrontierPlans,
    NextActions,
    Sampling,
    Scoring,
    count_answers,
    sampled_prompts,
)
from recipe_studies.reproduce.runs import VIDEO, Below, ScaleRuns, table_stages
from recipe_studies.reproduce.study import EndpointModel

EXAMPLES, VIDEO_EXAMPLES = 40_000, 8_000
"""Training examples that are assumed where a scale takes all (paper: four datasets, four cuts of each video), and in
the Video configuration (CrossTask alone)."""
PROMPTS, VIDEO_PROMPTS = 4_000, 1_000
"""Prompts that are assumed where a scale takes all."""
CONTROLS = 3
"""Plans of a prompt that no planner made."""
ORDER_CHECKED = 0.1
"""Share of the pairs that a judge of diversity is shown in both orders."""
NARRATION, SEGMENT_BYTES = 8, 100
"""Segments of a narration of the world, and bytes of a segment in a file of narrations, assumed."""
VECTORS = {"minilm": 384}
"""Dimensions of encoders; another has 1,024, as the paper's."""
CODED = 3
"""Bytes of a stored dimension: a float16 and its code."""


class Sizes(NamedTuple):
    """Tokens of a prompt and of its answer, without thoughts."""

    prompt: int
    answer: int


JUDGED, COMPARED, PLANNED, ASSESSED = Sizes(740, 50), Sizes(650, 10), Sizes(250, 120), Sizes(250, 12)
"""Of a judge of plans and of diversity, at four characters a token (docs/judge.md, docs/diversity.md); of a planner;
of VidAssist's assessor."""
THINKING = 1024
"""Longest answer from which on it is assumed to hold thoughts, a quarter of what it may be in all."""
CALL_SECONDS, TOKEN_SECONDS = 1.0, 0.02
"""That an answer takes, assumed: reading the prompt, and each token that is written."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """The stages of one kind that are left."""

    kind: str
    stages: int
    hours: float
    """On one device."""
    endpoint_hours: float
    """Of waiting for models behind endpoints, which needs no device."""


@dataclass(frozen=True, slots=True)
class RoleCost:
    """What is left to ask of a model behind an endpoint, at most; answers that are kept are asked for once."""

    role: str
    model: str
    calls: int
    reasks: int
    """Further calls at most, for answers that cannot be read."""
    tokens_in: int
    tokens_out: int
    hours: float
    """At its concurrency."""
    cost: float | None
    """By its prices; None without."""
    kept: int
    """Answers in its cache, those of finished stages included."""
    max_calls: int | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of what is left to do at a scale."""

    scale: str
    training_runs: int
    stages: int
    done: int
    """Stages that need not run."""
    prompts: int
    """Of the test."""
    counted: bool
    """Whether prompts and training examples are counted; else they are those of the scale, or assumed."""
    hours: float
    """Of devices, for the stages that are left, one after the other on one device."""
    endpoint_hours: float
    """Of waiting for models behind endpoints, beside the hours of devices."""
    longest_hours: float
    """Of the longest chain of stages: no number of devices is faster."""
    workers: int
    wall_hours: float
    """From start to end with so many workers."""
    memory_gb: float
    """Of each device."""
    disk_gb: float
    """Of models and the corpus."""
    kinds: tuple[StageCost, ...]
    tables: dict[str, float]
    """Hours of devices of each table, if it is made alone."""
    roles: tuple[RoleCost, ...]
    source: str
    """Where the hours of devices come from."""


def estimate(made: ScaleRuns, done: Sequence[str], folder: Path | None = None, workers: int = 1) -> Estimate:
    """The cost of the stages that are not in `done`, by name; what those left below the scale's `folder` is counted."""
    finished = set(done)
    counts = {below: _counts(made, below, finished, folder) for below in ("", VIDEO)}
    left = [stage for stage in made.stages if stage.name not in finished]
    asked = {stage.name: call for stage in left if (call := _calls(stage, finished, counts, folder)) is not None}
    seconds: dict[str, float] = {}
    segments: dict[str, int] = {}
    for stage in left:
        own, below = _inner(stage.settings)
        if isinstance(own, CorpusBuild | ToldCorpus):
            segments[stage.name] = _segments(own, made)
        if isinstance(own, NextActions) and stage.name in asked:
            seconds[stage.name] = asked[stage.name].seconds + _device_seconds(own, made, *counts[below][:2])
        elif stage.name in asked:
            seconds[stage.name] = STARTING + asked[stage.name].seconds
        elif stage.name in segments:
            seconds[stage.name] = STARTING + segments[stage.name] / made.scale.cost.segments_per_second
        else:
            seconds[stage.name] = _device_seconds(own, made, *counts[below][:2])
    until: dict[str, float] = {}
    for stage in made.stages:
        until[stage.name] = seconds.get(stage.name, 0.0) + max((until[need] for need in stage.needs), default=0.0)
    trained = [stage for stage in left if isinstance(_inner(stage.settings)[0], Training)]
    encoder = made.scale.corpus.encoder
    vector = encoder.dimension or VECTORS.get(encoder.name, 1024)
    # VidAssist's planner holds its device while the assessor is asked.
    waiting = {stage.name: asked[stage.name] for stage in left if stage.name in asked and not stage.gpu}
    on_device = {name: value for name, value in seconds.items() if name not in waiting}
    return Estimate(
        scale=made.name,
        training_runs=len(trained),
        stages=len(made.stages),
        done=len(finished),
        prompts=counts[""][1],
        counted=counts[""][2],
        hours=sum(on_device.values()) / 3600,
        endpoint_hours=sum(call.seconds for call in waiting.values()) / 3600,
        longest_hours=max(until.values(), default=0.0) / 3600,
        workers=workers,
        wall_hours=_wall_seconds(made.stages, seconds, waiting, workers) / 3600,
        memory_gb=made.scale.cost.memory_gb,
        disk_gb=len(trained) * made.scale.cost.model_gb + sum(segments.values()) * vector * CODED / 1e9,
        kinds=_kinds(left, seconds, waiting),
        tables={one.name: _table_hours(made, table_stages(made, one), on_device) for one in made.tables},
        roles=_roles(list(asked.values())),
        source=made.scale.cost.source,
    )


def _inner(settings: object) -> tuple[object, str]:
    """The settings of the work itself, and the folder below the scale's that it is done in."""
    return (settings.settings, settings.folder) if isinstance(settings, Below) else (settings, "")


def _counts(made: ScaleRuns, below: str, finished: Collection[str], folder: Path | None) -> tuple[int, int, bool]:
    """Training examples, prompts, and whether they are counted."""
    scale = made.scale
    if folder is not None and (f"{below}-prompts" if below else "prompts") in finished:
        own = folder / below
        return len(read_examples(own / TRAIN)), len(read_examples(own / PROMPT_FILE)), True
    examples, prompts = (VIDEO_EXAMPLES, VIDEO_PROMPTS) if below else (EXAMPLES, PROMPTS)
    if made.on_world:
        return scale.world.get("train", examples), 2 * scale.world.get("test", prompts), False
    inner = [_inner(stage.settings) for stage in made.stages]
    tested = next((len(own.source.benchmarks) for own, at in inner if isinstance(own, FilesData) and at == below), 1)
    return scale.train or examples, tested * scale.test if scale.test else prompts, False


def _segments(own: CorpusBuild | ToldCorpus, made: ScaleRuns) -> int:
    """Segments of a corpus that is to be built."""
    if isinstance(own, CorpusBuild) and own.narrations:
        return sum(file.stat().st_size for file in own.narrations) // SEGMENT_BYTES
    return NARRATION * made.scale.world.get("narrations", 0)


def _device_seconds(own: object, made: ScaleRuns, examples: int, prompts: int) -> float:
    """Seconds of a stage that no endpoint is asked for."""
    cost = made.scale.cost
    if isinstance(own, Training):
        return STARTING + training_seconds(own.config, cost, examples)
    if isinstance(own, Sampling):
        return STARTING + cost.plan_seconds * prompts * own.samples
    if isinstance(own, NextActions):
        answers, original = own.answers
        if not isinstance(own.original, EndpointModel):
            answers += original
        tokens = own.sampling.max_tokens if own.vidassist is None else own.vidassist.max_tokens
        seconds = cost.plan_seconds * tokens / own.sampling.max_tokens
        return STARTING + seconds * min(prompts, own.limit or prompts) * answers
    return STARTING


class _Calls(NamedTuple):
    """What a stage asks of a model behind an endpoint."""

    role: str
    model: EndpointModel
    calls: int
    reasks: int
    sizes: Sizes

    @property
    def seconds(self) -> float:
        return self.calls * (CALL_SECONDS + TOKEN_SECONDS * self.sizes.answer) / self.model.concurrency


def _calls(
    stage: Stage, finished: set[str], counts: Mapping[str, tuple[int, int, bool]], folder: Path | None
) -> _Calls | None:
    """The calls of a stage at most, exactly where its prompts and plans are there; None where it asks no endpoint."""
    own, below = _inner(stage.settings)
    _, prompts, counted = counts[below]
    known = None if folder is None or not counted or not finished.issuperset(stage.needs) else folder / below
    if isinstance(own, FrontierPlans):
        return _Calls(f"frontier {Path(own.output).stem}", own.model, prompts, 0, _with_thoughts(PLANNED, own.sampling))
    if isinstance(own, NextActions) and isinstance(own.original, EndpointModel):
        return _Calls("assessor", own.original, min(prompts, own.limit or prompts) * own.answers[1], 0, ASSESSED)
    if not isinstance(own, Scoring | ControlScoring | Diversity) or own.judge is None:
        return None
    settings, role, sizes = own.judge.settings, "judge", JUDGED
    if isinstance(own, Diversity):
        role, sizes = "diversity_judge", COMPARED
        if known is not None:
            asked = len(questions(sampled_prompts(known, own), ORDER_CHECKED))
        else:
            pairs = len(list(combinations(range(own.samples), 2)))
            asked = round(min(DIVERSITY_PROMPTS, prompts) * pairs * (1 + ORDER_CHECKED))
    elif isinstance(own, Scoring):
        if own.on_world:
            return None
        asked = prompts * own.samples
        if known is not None:
            plans = read_predictions(known / own.plans)
            asked = sum(one.sample < own.samples and actionable(one.steps) for one in plans)
        asked *= settings.repeats
    else:
        asked = prompts * CONTROLS
        if known is not None:
            examples = read_examples(known / PROMPT_FILE)
            controls = control_plans(examples, (*examples, *read_examples(known / TRAIN)))
            asked = sum(actionable(plan.steps) for plans in controls.values() for plan in plans.values())
        asked *= settings.repeats
    return _Calls(role, own.judge, asked, asked * settings.reasks, _with_thoughts(sizes, settings))


def _with_thoughts(sizes: Sizes, settings: Any) -> Sizes:
    longest = int(settings.max_tokens)
    return sizes._replace(answer=longest // 4) if longest > THINKING else sizes


def _roles(asked: Sequence[_Calls]) -> tuple[RoleCost, ...]:
    roles: dict[str, list[_Calls]] = {}
    for call in asked:
        roles.setdefault(call.role, []).append(call)
    found = []
    for role, own in roles.items():
        model = own[0].model
        read, written = (sum(call.calls * call.sizes[at] for call in own) for at in range(2))
        found.append(
            RoleCost(
                role=role,
                model=model.model,
                calls=sum(call.calls for call in own),
                reasks=sum(call.reasks for call in own),
                tokens_in=read,
                tokens_out=written,
                hours=sum(call.seconds for call in own) / 3600,
                cost=Prices(model.price_in, model.price_out).cost(read, written),
                kept=0 if model.cache is None else count_answers(model.cache),
                max_calls=model.max_calls,
            )
        )
    return tuple(found)


_TRAINING = {BaseModelConfig: "training, base model", SFTConfig: "training, SFT", GRPOConfig: "training, GRPO"}
_ROUNDS = "training, best-of-N rounds"
_KINDS = {
    CorpusBuild: "corpus",
    ToldCorpus: "corpus",
    VisionPretraining: "visual pre-training",
    Sampling: "plans",
    FrontierPlans: "plans of frontier models",
    Scoring: "scores",
    ControlScoring: "scores",
    Diversity: "diversity",
    NextActions: "VPA",
}


def _kinds(left: Sequence[Stage], seconds: Mapping[str, float], asked: Mapping[str, _Calls]) -> tuple[StageCost, ...]:
    """The stages that are left, by kind."""
    kinds: dict[str, list[str]] = {kind: [] for kind in ("data", *_TRAINING.values(), _ROUNDS, *_KINDS.values())}
    for stage in left:
        own, _ = _inner(stage.settings)
        kind = _TRAINING.get(type(own.config), _ROUNDS) if isinstance(own, Training) else _KINDS.get(type(own), "data")
        kinds[kind].append(stage.name)
    return tuple(
        StageCost(
            kind,
            len(own),
            sum(seconds[name] for name in own if name not in asked) / 3600,
            sum(asked[name].seconds for name in own if name in asked) / 3600,
        )
        for kind, own in kinds.items()
        if own
    )


def _table_hours(made: ScaleRuns, measured: Collection[str], on_device: Mapping[str, float]) -> float:
    """Hours of the stages that measure a table, and of all that they need."""
    needed = set(measured)
    for stage in reversed(made.stages):  # what is needed stands before
        if stage.name in needed:
            needed.update(stage.needs)
    return sum(on_device.get(name, 0.0) for name in needed) / 3600


def _wall_seconds(stages: Sequence[Stage], seconds: Mapping[str, float], asked: Collection[str], workers: int) -> float:
    """The end of the last stage: those that stand first before others that can run, one on each worker.

    A stage that asks an endpoint holds no worker.
    """
    pending = {stage.name: stage for stage in stages if stage.name in seconds}
    done = {stage.name for stage in stages} - set(pending)
    running: list[tuple[float, str]] = []
    now, free = 0.0, workers
    while pending or running:
        for name in [name for name, stage in pending.items() if done.issuperset(stage.needs)]:
            if name in asked or free:
                free -= name not in asked
                del pending[name]
                heapq.heappush(running, (now + seconds[name], name))
        now, name = heapq.heappop(running)
        free += name not in asked
        done.add(name)
    return now
