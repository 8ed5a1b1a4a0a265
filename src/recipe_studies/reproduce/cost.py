"""What a study costs before anything starts: runs, hours, memory and disk, and the answers of models behind endpoints.

Hours of devices come from the costs that a scale states. Hours and tokens at endpoints come from numbers of calls,
which are counted, and from sizes of prompts and answers, which are assumed.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from recipe.config import BaseModelConfig, BestOfNConfig, GRPOConfig, SFTConfig
from recipe.data.examples import read_examples
from recipe.evaluation.controls import control_plans
from recipe.evaluation.diversity.scores import questions
from recipe.evaluation.judge.plans import actionable
from recipe.models.costs import Prices
from recipe.planning.prediction_files import read_predictions
from recipe.training.cost import STARTING
from recipe_studies.experiments.data import (
    DataSettings,
    FilesCorpus,
    WorldCorpus,
    build_files_corpus,
    build_world_corpus,
)
from recipe_studies.experiments.models import EndpointModel, count_answers
from recipe_studies.experiments.schedule import Stage, Work
from recipe_studies.experiments.settings import FilesSource
from recipe_studies.experiments.stages import Sampling, Training, sample
from recipe_studies.experiments.study import TRAIN
from recipe_studies.experiments.video import align, learn_symbols, learn_word_embeddings
from recipe_studies.reproduce.data import PROMPTS as PROMPT_FILE
from recipe_studies.reproduce.expand import VIDEO, ScaleRuns
from recipe_studies.reproduce.measures import (
    DIVERSITY_PROMPTS,
    NextActions,
    measure_diversity,
    measure_floors,
    next_actions,
    sampled_prompts,
    score,
    score_controls,
)

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


JUDGED, COMPARED, PLANNED, ASSESSED = (740, 50), (650, 10), (250, 120), (250, 12)
"""Tokens of a prompt and of its answer, without thoughts: of a judge of plans and of diversity, at four characters a
token (docs/studies.md); of a planner; of VidAssist's assessor."""
THINKING = 1024
"""Longest answer from which on it is assumed to hold thoughts, a quarter of what it may be in all."""
CALL_SECONDS, TOKEN_SECONDS = 1.0, 0.02
"""Time of an answer, assumed: to read the prompt, and to write each token."""
KINDS: Mapping[Work, str] = {
    build_files_corpus: "corpus",
    build_world_corpus: "corpus",
    learn_symbols: "visual pre-training",
    learn_word_embeddings: "visual pre-training",
    align: "visual pre-training",
    sample: "plans",
    score: "scores",
    score_controls: "scores",
    measure_diversity: "diversity",
    next_actions: "VPA",
    measure_floors: "VPA",
}
"""Kinds of stages by their work; training is told apart by its settings, and all else is data."""
TRAINING_KINDS = {
    BaseModelConfig: "training, base model",
    SFTConfig: "training, SFT",
    GRPOConfig: "training, GRPO",
    BestOfNConfig: "training, best-of-N rounds",
}
FRONTIER_PLANS = "plans of frontier models"


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
class RemainingCost:
    """The cost of what is left to do at a scale."""

    scale: str
    training_runs: int
    stages: int
    done: int
    """Stages that need not run."""
    prompts: int
    """Test prompts."""
    counted: bool
    """Whether prompts and training examples are counted; else they are those of the scale, or assumed."""
    hours: float
    """Of devices, for the stages that are left, one after the other on one device."""
    endpoint_hours: float
    """Of waiting for models behind endpoints, besides the hours of devices."""
    longest_hours: float
    """Hours of the longest chain of stages: more devices do not make it faster."""
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


@dataclass(frozen=True, slots=True)
class _EndpointCalls:
    """What a stage asks of a model behind an endpoint."""

    role: str
    model: EndpointModel
    calls: int
    reasks: int
    sizes: tuple[int, int]
    """Tokens of a prompt and of its answer."""

    @property
    def seconds(self) -> float:
        """Until the last answer, at the model's concurrency."""
        return self.calls * (CALL_SECONDS + TOKEN_SECONDS * self.sizes[1]) / self.model.concurrency


def estimate(made: ScaleRuns, done: Sequence[str], folder: Path | None = None, workers: int = 1) -> RemainingCost:
    """The cost of the stages that are not in `done`, by name; what those left below the scale's `folder` is counted."""
    finished, scale = set(done), made.scale
    counts = {below: _counts(made, below, finished, folder) for below in ("", VIDEO)}
    left = [stage for stage in made.stages if stage.name not in finished]
    asked = {stage.name: call for stage in left if (call := _endpoint_calls(stage, finished, counts, folder))}
    seconds: dict[str, float] = {}
    segments = 0
    for stage in left:
        own, call = stage.settings, asked.get(stage.name)
        examples, prompts, _ = counts[stage.folder]
        takes = STARTING
        if isinstance(own, FilesCorpus | WorldCorpus):
            held = NARRATION * scale.world.get("narrations", 0)
            if isinstance(own, FilesCorpus) and own.content:
                held = sum(file.stat().st_size for file in own.files) // SEGMENT_BYTES
            segments += held
            takes += held / scale.cost.segments_per_second
        elif isinstance(own, Training):
            takes += scale.cost.run_seconds(own.config, examples)
        elif isinstance(own, NextActions):
            answers, original = own.answers
            if not isinstance(own.original, EndpointModel):
                answers += original
            plan_seconds = scale.cost.plan_seconds * own.tokens / own.sampling.max_tokens
            takes += plan_seconds * min(prompts, own.limit or prompts) * answers
        elif isinstance(own, Sampling) and call is None:
            takes += scale.cost.plan_seconds * prompts * own.samples
        seconds[stage.name] = takes + (0.0 if call is None else call.seconds)
    until: dict[str, float] = {}
    for stage in made.stages:
        until[stage.name] = seconds.get(stage.name, 0.0) + max((until[need] for need in stage.needs), default=0.0)
    # VidAssist's planner holds its device while the assessor is asked.
    waiting = {stage.name for stage in left if stage.name in asked and not stage.gpu}
    on_device = {name: value for name, value in seconds.items() if name not in waiting}
    by_kind: dict[str, list[str]] = {}
    for stage in left:
        kind = KINDS.get(stage.work, "data")
        if isinstance(stage.settings, Training):
            kind = TRAINING_KINDS[type(stage.settings.config)]
        elif isinstance(stage.settings, Sampling) and stage.name in waiting:
            kind = FRONTIER_PLANS
        by_kind.setdefault(kind, []).append(stage.name)
    shown = ["data", *TRAINING_KINDS.values(), "corpus", "visual pre-training", "plans", FRONTIER_PLANS]
    kinds = []
    for kind in (*shown, "scores", "diversity", "VPA"):
        if own_names := by_kind.get(kind):
            device = sum(seconds[name] for name in own_names if name not in waiting) / 3600
            endpoint = sum(asked[name].seconds for name in own_names if name in waiting) / 3600
            kinds.append(StageCost(kind, len(own_names), device, endpoint))
    roles: dict[str, list[_EndpointCalls]] = {}
    for call in asked.values():
        roles.setdefault(call.role, []).append(call)
    role_costs = []
    for role, calls in roles.items():
        model = calls[0].model
        read, written = (sum(call.calls * call.sizes[side] for call in calls) for side in range(2))
        role_costs.append(
            RoleCost(
                role=role,
                model=model.model,
                calls=sum(call.calls for call in calls),
                reasks=sum(call.reasks for call in calls),
                tokens_in=read,
                tokens_out=written,
                hours=sum(call.seconds for call in calls) / 3600,
                cost=Prices(model.price_in, model.price_out).cost(read, written),
                kept=0 if model.cache is None else count_answers(model.cache),
                max_calls=model.max_calls,
            )
        )
    trained = sum(isinstance(stage.settings, Training) for stage in left)
    encoder = scale.corpus.encoder
    vector = encoder.dimension or VECTORS.get(encoder.name, 1024)
    return RemainingCost(
        scale=made.name,
        training_runs=trained,
        stages=len(made.stages),
        done=len(finished),
        prompts=counts[""][1],
        counted=counts[""][2],
        hours=sum(on_device.values()) / 3600,
        endpoint_hours=sum(asked[name].seconds for name in waiting) / 3600,
        longest_hours=max(until.values(), default=0.0) / 3600,
        workers=workers,
        wall_hours=_wall_seconds(made.stages, seconds, waiting, workers) / 3600,
        memory_gb=scale.cost.memory_gb,
        disk_gb=trained * scale.cost.model_gb + segments * vector * CODED / 1e9,
        kinds=tuple(kinds),
        tables={
            paper.name: sum(on_device.get(name, 0.0) for name in sorted(made.with_needs(made.table_stages(paper))))
            / 3600
            for paper in made.tables
        },
        roles=tuple(role_costs),
        source=scale.cost.source,
    )


def _counts(made: ScaleRuns, below: str, finished: Collection[str], folder: Path | None) -> tuple[int, int, bool]:
    """Training examples, prompts, and whether they are counted."""
    scale = made.scale
    if folder is not None and (f"{below}-prompts" if below else "prompts") in finished:
        own = folder / below
        return len(read_examples(own / TRAIN)), len(read_examples(own / PROMPT_FILE)), True
    examples, prompts = (VIDEO_EXAMPLES, VIDEO_PROMPTS) if below else (EXAMPLES, PROMPTS)
    if made.on_world:
        return scale.world.get("train", examples), 2 * scale.world.get("test", prompts), False
    tested = 1
    for stage in made.stages:
        own = stage.settings
        if stage.folder == below and isinstance(own, DataSettings) and isinstance(own.source, FilesSource):
            tested = len(own.source.benchmarks)
    return scale.train or examples, tested * scale.test if scale.test else prompts, False


def _endpoint_calls(
    stage: Stage, finished: set[str], counts: Mapping[str, tuple[int, int, bool]], folder: Path | None
) -> _EndpointCalls | None:
    """The calls of a stage at most, exactly where its prompts and plans are there; None where it asks no endpoint."""
    own, below = stage.settings, stage.folder
    _, prompts, counted = counts[below]
    known = None if folder is None or not counted or not finished.issuperset(stage.needs) else folder / below
    if isinstance(own, NextActions) and isinstance(own.original, EndpointModel):
        calls = min(prompts, own.limit or prompts) * own.answers[1]
        return _EndpointCalls("assessor", own.original, calls, 0, ASSESSED)
    model = own if stage.work is score_controls else getattr(own, "judge", None)
    if isinstance(own, Sampling) and isinstance(own.model, EndpointModel):
        model, settings = own.model, own.sampling
        role, sizes, calls, reasks = f"frontier {own.plans[0].regime}", PLANNED, prompts, 0
    elif model is None or (stage.work is score and own.on_world):
        return None
    elif stage.work is measure_diversity:
        role, sizes, settings = "diversity_judge", COMPARED, model.settings
        if known is not None:
            calls = len(questions(sampled_prompts(known, own), ORDER_CHECKED))
        else:
            pairs = len(list(combinations(range(own.samples), 2)))
            calls = round(min(DIVERSITY_PROMPTS, prompts) * pairs * (1 + ORDER_CHECKED))
        reasks = calls * settings.reasks
    else:
        role, sizes, settings = "judge", JUDGED, model.settings
        if stage.work is score:
            calls = prompts * own.samples
            if known is not None:
                plans = read_predictions(known / own.plans)
                calls = sum(plan.sample < own.samples and actionable(plan.steps) for plan in plans)
        else:
            calls = prompts * CONTROLS
            if known is not None:
                examples = read_examples(known / PROMPT_FILE)
                controls = control_plans(examples, (*examples, *read_examples(known / TRAIN)))
                calls = sum(actionable(plan.steps) for own_plans in controls.values() for plan in own_plans.values())
        calls *= settings.repeats
        reasks = calls * settings.reasks
    longest = int(settings.max_tokens)
    sizes = (sizes[0], longest // 4) if longest > THINKING else sizes
    return _EndpointCalls(role, model, calls, reasks, sizes)


def _wall_seconds(
    stages: Sequence[Stage], seconds: Mapping[str, float], waiting: Collection[str], workers: int
) -> float:
    """The end of the last stage: those that stand first before others that can run, one on each worker.

    A stage that asks an endpoint holds no worker.
    """
    pending = {stage.name: stage for stage in stages if stage.name in seconds}
    done = {stage.name for stage in stages} - set(pending)
    running: list[tuple[float, str]] = []
    now, free = 0.0, workers
    while pending or running:
        for name in [name for name, stage in pending.items() if done.issuperset(stage.needs)]:
            if name in waiting or free:
                free -= name not in waiting
                del pending[name]
                heapq.heappush(running, (now + seconds[name], name))
        now, name = heapq.heappop(running)
        free += name not in waiting
        done.add(name)
    return now
