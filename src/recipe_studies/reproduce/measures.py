"""Stages that sample plans and measure them: accuracy, procedural diversity, and actions of a closed set.

Accuracy is in percent. On the embedded world it is the exact validity of a plan. On benchmarks it is the rubric total
of a judge over its maximum: the judge behind an endpoint where one is given, else the proxy judge, which is not the
paper's.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recipe.artifacts import JsonObject, locked, read_json, write_json, write_jsonl
from recipe.config import EncoderConfig, FrameConfig, ModelConfig, SamplingConfig
from recipe.config.planning import VidAssistConfig
from recipe.data.examples import read_examples
from recipe.errors import InputError
from recipe.evaluation.scores import READINGS
from recipe.models.costs import Budget
from recipe.models.protocol import Answer
from recipe.planning.predictions import Prediction, read_predictions, write_predictions
from recipe.progress import Progress
from recipe.types import Example, Verdict
from recipe_studies.experiments.design import TRAIN
from recipe_studies.reproduce.data import PROMPTS
from recipe_studies.reproduce.study import EndpointModel, EngineName, FrontierModel, JudgeModel

if TYPE_CHECKING:
    from recipe.evaluation.diversity.plans import PromptSamples
    from recipe.evaluation.matching import Embed
    from recipe.evaluation.vpa.measures import ActionIds
    from recipe.evaluation.vpa.protocol import Sample
    from recipe.models.model import Model
    from recipe.planning.planner import Planner, Request

ENCODER = EncoderConfig(name="minilm")
"""Encoder of the proxy judges and of the remapping to actions, at every scale, so that figures are of one judge."""
DIVERSITY_PROMPTS = 100
"""Prompts of the diversity table (paper, appendix on diversity)."""
SOURCE_OF_DIVERSITY = "coin"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Plans of one model for every prompt of the test."""

    model: str
    elsewhere: bool
    """Whether the model is a hub id or a folder outside the run."""
    output: str
    sampling: SamplingConfig
    samples: int
    engine: EngineName
    input: Literal["text", "video"] = "text"
    videos: Path | None = None
    frames: FrameConfig = field(default_factory=FrameConfig)


def sample(run_dir: Path, settings: Sampling, progress: Progress) -> None:
    """Sample plans, each from the history that the planner is told or shown."""
    examples = read_examples(run_dir / PROMPTS)
    see = _shown(settings) if settings.input == "video" else told
    with _planner(run_dir, settings) as planner:
        predictions = planner.predict(examples, settings.samples, progress, see)
    write_predictions(run_dir / settings.output, predictions)


@contextmanager
def _planner(run_dir: Path, settings: "Sampling | NextActions") -> Iterator["Planner"]:
    """The planner of a stage's model, while it is loaded."""
    from recipe.models.model import open_model
    from recipe.planning.planner import Planner

    with open_model(_model(run_dir, settings)) as model:
        yield Planner(model, settings.sampling)


def _model(run_dir: Path, settings: "Sampling | NextActions") -> ModelConfig:
    """The model of a stage, which may be a folder below the run folder."""
    name = settings.model if settings.elsewhere else str(run_dir / settings.model)
    return ModelConfig(model=name, engine=settings.engine)


def told(example: Example) -> "Request":
    """The request for a test example: its goal, and its history as Phi read it where that is known."""
    from recipe.planning.planner import Request

    return Request(example.goal, example.history if example.told_history is None else example.told_history)


def _shown(settings: Sampling) -> Any:
    """From examples to requests with the frames of their histories."""
    if settings.videos is None:
        from recipe_studies.experiments.video import view_request

        return view_request("video")
    from recipe.perception.frames import VideoClips
    from recipe.perception.videos import VideoFolder
    from recipe.planning.planner import Request

    clips = VideoClips(VideoFolder(settings.videos), settings.frames)
    return lambda example: Request(example.goal, video=clips(example))


class SharedBudget(Budget):
    """A budget of calls that all processes share whose answers go to one cache: as many as the cache may hold.

    The folder holds how many answers are paid for or promised to a process. Where no process is asking, that is the
    number of answers in it, so that a process that was killed keeps nothing reserved.
    """

    def __init__(self, calls: int | None, cache: Path) -> None:
        super().__init__(calls)
        self._cache, self._asking = cache, list[int]()

    def reserve(self, wanted: int, whole: bool = False) -> int:
        """As Budget does, of what the other processes have left."""
        if self.calls is None:
            return super().reserve(wanted, whole)
        with locked(self._cache, wait=True):
            asking = os.open(self._cache / "asking", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(asking, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.calls_spent = count_answers(self._cache)
            except BlockingIOError:
                self.calls_spent = read_json(self._cache / "promised.json")
            try:
                allowed = super().reserve(wanted, whole)
            except BaseException:
                os.close(asking)
                raise
            fcntl.flock(asking, fcntl.LOCK_SH)  # as long as this process lives or until it settles
            self._asking.append(asking)
            write_json(self._cache / "promised.json", self.calls_spent)
            return allowed

    def settle(self, reserved: int, paid: Sequence[Answer]) -> None:
        """As Budget does, for the other processes, too."""
        if self.calls is None:
            super().settle(reserved, paid)
            return
        with locked(self._cache, wait=True):
            self.calls_spent = read_json(self._cache / "promised.json")
            super().settle(reserved, paid)
            write_json(self._cache / "promised.json", self.calls_spent)
            os.close(self._asking.pop())


def count_answers(cache: Path) -> int:
    """Number of answers in a cache."""
    return sum(1 for _ in cache.glob("??/*.json"))


@contextmanager
def asked(model: EndpointModel) -> "Iterator[Model]":
    """A model behind an endpoint, within the budget that all stages of the run folder share."""
    from recipe.models.model import open_model

    budget = None if model.cache is None else SharedBudget(model.max_calls, model.cache)
    with open_model(model, budget=budget) as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class FrontierPlans:
    """Plans of a model behind an endpoint for every prompt of the test."""

    model: FrontierModel
    output: str
    sampling: SamplingConfig


def ask_frontier(run_dir: Path, settings: FrontierPlans, progress: Progress) -> None:
    """Ask the model for one plan of each prompt; answers are kept, so that a resumed stage pays for none twice."""
    from recipe.planning.planner import Planner

    examples = read_examples(run_dir / PROMPTS)
    with asked(settings.model) as model:
        predictions = Planner(model, settings.sampling).predict(examples, 1, progress, told)
    write_predictions(run_dir / settings.output, predictions)


@dataclass(frozen=True, slots=True)
class Scoring:
    """The accuracy of each plan of a file: the first `samples` of each prompt."""

    plans: str
    output: str
    samples: int
    on_world: bool
    judge: JudgeModel | None


def score(run_dir: Path, settings: Scoring, progress: Progress) -> None:
    """Write one row for each plan: example, sample, accuracy in percent (null where there is no verdict), steps."""
    examples = read_examples(run_dir / PROMPTS)
    predictions = [one for one in read_predictions(run_dir / settings.plans) if one.sample < settings.samples]
    if settings.on_world:
        rows = _exact(examples, predictions, progress)
    else:
        rows = _judged(settings.judge, examples, predictions, progress)
    write_jsonl(run_dir / settings.output, rows)


BOUNDS = (READINGS[0], READINGS[2])
"""Fields of a row whose measure is not whole: the measure with what is missing as 0, and as the best."""
CONTROLS = "scores/controls.jsonl"
"""Accuracies of plans that no planner made, below the folder of a scale; on benchmarks only."""


@dataclass(frozen=True, slots=True)
class ControlScoring:
    """The judge that scores the controls."""

    judge: JudgeModel | None


def score_controls(run_dir: Path, settings: ControlScoring, progress: Progress) -> None:
    """Write one row for each prompt and control that it has: example, control, accuracy in percent, steps."""
    from recipe.evaluation.controls import control_plans

    examples = read_examples(run_dir / PROMPTS)
    if settings.judge is not None and settings.judge.settings.history == "perceived":
        # A control that copies the history copies the one that the judge reads.
        examples = [replace(one, history=told(one).history) for one in examples]
    rows: list[JsonObject] = []
    for name, plans in control_plans(examples, (*examples, *read_examples(run_dir / TRAIN))).items():
        own = [one for one in examples if one.example_id in plans]
        judged = _judged(settings.judge, own, list(plans.values()), progress)
        rows += [row | {"control": name} for row in judged]
    write_jsonl(run_dir / CONTROLS, rows)


def _exact(examples: Sequence[Example], predictions: Sequence[Prediction], progress: Progress) -> Iterator[JsonObject]:
    from recipe.evaluation.validity.measure import score_predictions
    from recipe.world.load import load_world

    for one in score_predictions(load_world(), examples, predictions, progress):
        assert one.validity is not None
        yield {
            "example_id": one.example_id,
            "sample": one.sample,
            "accuracy": 100 * one.validity.score,
            "steps": one.steps,
            "copied": one.validity.copied,
        }


def _judged(
    judge: JudgeModel | None, examples: Sequence[Example], predictions: Sequence[Prediction], progress: Progress
) -> Iterator[JsonObject]:
    from recipe.evaluation.judge.plans import cases_of
    from recipe.evaluation.judge.verdicts import accuracy_of

    limits = None if judge is None else judge.settings
    cases = cases_of(examples, predictions, samples="all", config=limits).cases
    if judge is None:
        from recipe.evaluation.judge.proxy import ProxyJudge

        judged = ProxyJudge(embed()).judge(cases, progress)
    else:
        from recipe.evaluation.judge.llm import LlmJudge

        with asked(judge) as model:
            judged = LlmJudge(model, judge.model, judge.settings).judge(cases, progress)
    for one in judged:
        accuracy = accuracy_of(one.outcome) if isinstance(one.outcome, Verdict) else None
        yield {"example_id": one.example_id, "sample": one.sample, "accuracy": accuracy, "steps": len(one.steps)}


def embed() -> "Embed":
    """Unit vectors of texts by the encoder of all measures."""
    from recipe.corpus.encoders import open_encoder

    return open_encoder(ENCODER).encode


@dataclass(frozen=True, slots=True)
class Diversity:
    """The procedural diversity of each prompt's plans."""

    plans: str
    output: str
    samples: int
    on_world: bool
    judge: JudgeModel | None


def compare(run_dir: Path, settings: Diversity, progress: Progress) -> None:
    """Write one row for each prompt: example, diversity from 0 to 1 (null without an answer), and where answers are
    missing the diversity with them as 0 and as the best.
    """
    from recipe.evaluation.diversity.judges import DiversityJudge, LlmDiversityJudge, ProxyDiversityJudge
    from recipe.evaluation.diversity.scores import compare_plans, prompt_diversity

    prompts = sampled_prompts(run_dir, settings)
    judge: DiversityJudge
    if settings.judge is None:
        pairs = compare_plans(ProxyDiversityJudge(embed()), prompts, 0.0, progress=progress)
    else:
        with asked(settings.judge) as model:
            judge = LlmDiversityJudge(model, settings.judge.model, settings.judge.settings)
            pairs = compare_plans(judge, prompts, progress=progress)
    found, least, most = prompt_diversity(pairs), prompt_diversity(pairs, 0), prompt_diversity(pairs, 1)
    write_jsonl(
        run_dir / settings.output,
        (
            {"example_id": name, "diversity": found.get(name)}
            | ({} if least[name] == most[name] else dict(zip(BOUNDS, (least[name], most[name]), strict=True)))
            for name in least
        ),
    )


def sampled_prompts(run_dir: Path, settings: Diversity) -> "list[PromptSamples]":
    """The prompts of the diversity table with their plans. Raises InputError where the test holds none of COIN."""
    from recipe.evaluation.diversity.plans import chosen_prompts, sampled_plans

    examples = read_examples(run_dir / PROMPTS)
    own = [one for one in examples if settings.on_world or one.source == SOURCE_OF_DIVERSITY]
    if not own:
        problem, remedy = "the diversity table is of COIN, and no test prompt is", "add COIN to the data"
        raise InputError.at(run_dir / PROMPTS, problem, remedy)
    chosen = chosen_prompts(own, DIVERSITY_PROMPTS)
    return sampled_plans(chosen, read_predictions(run_dir / settings.plans), examples, settings.samples).prompts


@dataclass(frozen=True, slots=True)
class NextActions:
    """Next actions of a closed set for each sample: one plan, remapped, or the actions that VidAssist chooses (paper,
    section 4.5).
    """

    model: str
    elsewhere: bool
    output: str
    sampling: SamplingConfig
    data: Path | None
    """Folder of CrossTask's folder; None for the world, whose actions are the usual wordings of its steps."""
    engine: EngineName
    limit: int | None
    """Samples at most, evenly spaced; None for all."""
    vidassist: VidAssistConfig | None = None
    """How VidAssist searches with the model as its planner; None: the model's own plan."""
    original: ModelConfig | None = None
    """VidAssist's own proposer, which assesses, too."""
    original_elsewhere: bool = False
    """Whether it is a hub id, an endpoint or a folder outside the run."""
    plans: str = ""
    """VidAssist's predictions, with their trace and manifest beside them."""

    @property
    def answers(self) -> tuple[int, int]:
        """Answers for a sample at most: of the model, and of VidAssist's own proposer."""
        if self.vidassist is None:
            return 1, 0
        own, original = (int(self.vidassist.proposers in ("both", name)) for name in ("recipe", "original"))
        proposals = self.vidassist.candidates * (1 + self.vidassist.beam * (self.vidassist.horizon - 1))
        # Each proposal is assessed.
        return own * proposals, (2 * original + own) * proposals


VIDASSIST_CACHE = "answers/vidassist"
"""Answers to VidAssist's questions, below the folder of a scale: its stages share them, and go on from them."""


def next_actions(run_dir: Path, settings: NextActions, progress: Progress) -> None:
    """Write one row for each sample: success, accuracy and IoU at each horizon, in percent, by `horizon.measure`."""
    import numpy as np

    from recipe.evaluation.vpa.measures import positions
    from recipe.evaluation.vpa.protocol import HORIZONS
    from recipe.evaluation.vpa.remap import remap

    samples, ids = _world_samples(run_dir) if settings.data is None else _crosstask_samples(settings.data)
    if settings.limit is not None:
        stride = max(1, len(samples) / settings.limit)
        samples = [samples[int(place * stride)] for place in range(min(settings.limit, len(samples)))]
    examples = [one.example() for one in samples]
    if settings.vidassist is None:
        with _planner(run_dir, settings) as planner:
            predictions = planner.predict(examples, 1, progress)
    else:
        predictions = _searched(run_dir, settings, examples, ids.taxonomy.actions, progress)
    steps = {one.example_id: one.steps for one in predictions}
    width = max(HORIZONS)
    mapped = remap(samples, steps, ids.taxonomy, embed, width)
    plans = ids.of([plan.actions for plan in mapped.plans], width)
    targets = ids.references(samples, width)
    rows: list[dict[str, Any]] = [{"example_id": one.sample_id, "goal": one.goal} for one in samples]
    for horizon in HORIZONS:
        measured = positions(plans[:, :horizon], targets[:, :horizon])
        named = {"success_rate": measured.success, "accuracy": measured.accuracy, "iou": measured.iou}
        for name, values in named.items():
            for row, value in zip(rows, np.asarray(values), strict=True):
                row[f"{horizon}.{name}"] = 100 * float(value)
    write_jsonl(run_dir / settings.output, rows)


def _searched(
    run_dir: Path, settings: NextActions, examples: Sequence[Example], actions: Sequence[str], progress: Progress
) -> list[Prediction]:
    """VidAssist's plans, which are written with why each action was chosen."""
    from recipe.models.model import open_model
    from recipe.planning.admissible import AdmissibleActions
    from recipe.planning.vidassist.methods import with_planner, write_plans
    from recipe.planning.vidassist.trace import trace_of

    assert settings.vidassist is not None
    assert settings.original is not None
    original, planner = settings.original, _model(run_dir, settings)
    if not settings.original_elsewhere:
        original = original.model_copy(update={"model": str(run_dir / original.model)})
    shared: dict[str, Any] = {"cache": run_dir / VIDASSIST_CACHE}
    opened: AbstractContextManager[Model]
    if isinstance(original, EndpointModel):
        opened = asked(original)
    else:
        if original != planner and planner.engine == original.engine == "vllm":
            shared["engine_memory"] = planner.engine_memory / 2  # both are on one GPU
        original = original.model_copy(update=shared)
        opened = open_model(original)
    planner = planner.model_copy(update=shared)
    known = AdmissibleActions(embed(), actions)
    output = run_dir / settings.plans
    about = {
        "model": settings.original.model,
        "recipe_model": settings.model,
        "encoder": ENCODER.name,
        "history": "oracle" if settings.data else "as told",
        "actions": "all",
    }
    alone = settings.vidassist.proposers == "original"
    with opened as model, with_planner(model, original, None if alone else planner) as models:
        write_plans(
            examples, settings.vidassist, models, lambda goal: known, {}, output, trace_of(output), about, progress
        )
    return read_predictions(output)


def _crosstask_samples(root: Path) -> "tuple[list[Sample], ActionIds]":
    from recipe.evaluation.vpa.run import open_task

    task = open_task(root)
    return task.samples, task.ids


def _world_samples(run_dir: Path) -> "tuple[list[Sample], ActionIds]":
    """The prompts whose rest fills the largest horizon, the end counted, in the world's usual wordings."""
    from recipe.evaluation.vpa.measures import ActionIds
    from recipe.evaluation.vpa.protocol import END, HORIZONS, Sample, Taxonomy
    from recipe.world.load import load_world

    world = load_world()
    usual = {step: wordings[0] for step, wordings in world.wordings.items()}
    cards = {goal: tuple(usual[step] for step in graph.steps) for goal, graph in world.goals.items()}
    samples = []
    for one in read_examples(run_dir / PROMPTS):
        own = world.graph(one.goal).steps
        named = [world.recogniser.step(text, own) for text in one.continuation]
        target = (*(usual[step] for step in named if step is not None), END)
        if len(target) >= max(HORIZONS) and None not in named:
            history = one.history if one.told_history is None else one.told_history
            samples.append(Sample(one.example_id, one.video_id, one.goal, one.goal, history, target, None))
    return samples, ActionIds(Taxonomy(cards))


DEVICE_VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_devices() -> tuple[str, ...]:
    """The GPUs that runs are spread over: those that the environment shows, else all; empty without any."""
    if named := os.environ.get(DEVICE_VARIABLE):
        return tuple(filter(None, named.split(",")))
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))
