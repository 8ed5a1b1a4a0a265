"""Stages that measure plans: accuracy, procedural diversity, and actions of a closed set.

Accuracy is in percent. On the embedded world it is the exact validity of a plan. On benchmarks it is the rubric total
of a judge over its maximum: the judge behind an endpoint where one is given, else the proxy judge, which is not the
paper's.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recipe.artifacts import JsonObject, write_jsonl
from recipe.config import EncoderConfig, ModelConfig, SamplingConfig
from recipe.config.planning import VidAssistConfig
from recipe.data.examples import read_examples
from recipe.errors import InputError
from recipe.evaluation.scores import READINGS
from recipe.planning.prediction_files import read_predictions
from recipe.planning.predictions import Prediction
from recipe.progress import Progress
from recipe.types import Example, Procedure, Step, Verdict
from recipe_studies.experiments.models import EndpointModel, open_stage_model
from recipe_studies.experiments.study import TRAIN
from recipe_studies.experiments.video import request_from_perceived_history
from recipe_studies.reproduce.data import PROMPTS, SAMPLES
from recipe_studies.reproduce.study import JudgeModel
from recipe_studies.reproduce.tables import HistoryKind

if TYPE_CHECKING:
    from recipe.evaluation.diversity.plans import PromptSamples
    from recipe.evaluation.matching import Embed
    from recipe.evaluation.vpa.measures import ActionIds, Ids
    from recipe.evaluation.vpa.protocol import Sample

ENCODER = EncoderConfig(name="minilm")
"""Encoder of the proxy judges and of the remapping to actions, at every scale, so that figures are of one judge."""
DIVERSITY_PROMPTS = 100
"""Prompts of the diversity table (paper, appendix on diversity)."""
SOURCE_OF_DIVERSITY = "coin"
BOUNDS = (READINGS[0], READINGS[2])
"""Fields of a row whose measure is not whole: the measure with what is missing as 0, and as the best."""
CONTROLS = "scores/controls.jsonl"
"""Accuracies of plans that no planner made, below the folder of a scale; on benchmarks only."""
FLOOR_ROWS = "vpa/controls.jsonl"
"""The measures of plans without a model on the samples of VPA."""
VIDASSIST_CACHE = "answers/vidassist"
"""Answers to VidAssist's questions, below the folder of a scale: its stages share them, and go on from them."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """What is measured of the plans of a file, of the first `samples` of each prompt."""

    plans: str
    output: str
    samples: int
    on_world: bool
    judge: JudgeModel | None


def score(folder: Path, settings: Scoring, progress: Progress) -> None:
    """Write one row for each plan: example, sample, accuracy in percent (null where there is no verdict), steps."""
    from recipe.evaluation.validity.measure import score_predictions
    from recipe.world.load import load_world

    examples = read_examples(folder / PROMPTS)
    predictions = [row for row in read_predictions(folder / settings.plans) if row.sample < settings.samples]
    if not settings.on_world:
        write_jsonl(folder / settings.output, _judged(folder, settings.judge, examples, predictions, progress))
        return
    rows: list[JsonObject] = []
    for plan in score_predictions(load_world(), examples, predictions, progress):
        assert plan.validity is not None
        row = {"example_id": plan.example_id, "sample": plan.sample, "accuracy": 100 * plan.validity.score}
        rows.append(row | {"steps": plan.steps, "copied": plan.validity.copied})
    write_jsonl(folder / settings.output, rows)


def score_controls(folder: Path, judge: JudgeModel | None, progress: Progress) -> None:
    """Write one row for each prompt and control that it has: example, control, accuracy in percent, steps."""
    from recipe.evaluation.controls import control_plans

    examples = read_examples(folder / PROMPTS)
    if judge is not None and judge.settings.history == "perceived":
        # A control that copies the history copies the one that the judge reads.
        examples = [replace(row, history=request_from_perceived_history(row).history) for row in examples]
    rows: list[JsonObject] = []
    for name, plans in control_plans(examples, (*examples, *read_examples(folder / TRAIN))).items():
        own = [example for example in examples if example.example_id in plans]
        rows += [row | {"control": name} for row in _judged(folder, judge, own, list(plans.values()), progress)]
    write_jsonl(folder / CONTROLS, rows)


def _judged(
    folder: Path,
    judge: JudgeModel | None,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    progress: Progress,
) -> Iterator[JsonObject]:
    """A row for each plan with the accuracy that a judge gives it."""
    from recipe.evaluation.judge.plans import cases_of
    from recipe.evaluation.judge.verdicts import accuracy_of

    limits = None if judge is None else judge.settings
    cases = cases_of(examples, predictions, samples="all", config=limits).cases
    if judge is None:
        from recipe.evaluation.judge.proxy import ProxyJudge

        judged = ProxyJudge(embed()).judge(cases, progress)
    else:
        from recipe.evaluation.judge.llm import LlmJudge

        with open_stage_model(folder, judge) as model:
            judged = LlmJudge(model, judge.model, judge.settings).judge(cases, progress)
    for case in judged:
        accuracy = accuracy_of(case.outcome) if isinstance(case.outcome, Verdict) else None
        yield {"example_id": case.example_id, "sample": case.sample, "accuracy": accuracy, "steps": len(case.steps)}


def embed() -> "Embed":
    """Unit vectors of texts by the encoder of all measures."""
    from recipe.corpus.encoders import open_encoder

    return open_encoder(ENCODER).encode


def measure_diversity(folder: Path, settings: Scoring, progress: Progress) -> None:
    """Write one row for each prompt: example, procedural diversity from 0 to 1 (null without an answer), and where
    answers are missing the diversity with them as 0 and as the best.
    """
    from recipe.evaluation.diversity.judges import LlmDiversityJudge, ProxyDiversityJudge
    from recipe.evaluation.diversity.scores import compare_plans, prompt_diversity

    prompts = sampled_prompts(folder, settings)
    if settings.judge is None:
        pairs = compare_plans(ProxyDiversityJudge(embed()), prompts, 0.0, progress=progress)
    else:
        with open_stage_model(folder, settings.judge) as model:
            judge = LlmDiversityJudge(model, settings.judge.model, settings.judge.settings)
            pairs = compare_plans(judge, prompts, progress=progress)
    answered, least, most = prompt_diversity(pairs), prompt_diversity(pairs, 0), prompt_diversity(pairs, 1)
    rows = []
    for name in least:
        bounds = {} if least[name] == most[name] else dict(zip(BOUNDS, (least[name], most[name]), strict=True))
        rows.append({"example_id": name, "diversity": answered.get(name), **bounds})
    write_jsonl(folder / settings.output, rows)


def sampled_prompts(folder: Path, settings: Scoring) -> "list[PromptSamples]":
    """The prompts of the diversity table with their plans. Raises InputError where the test holds none of COIN."""
    from recipe.evaluation.diversity.plans import chosen_prompts, sampled_plans

    examples = read_examples(folder / PROMPTS)
    own = [example for example in examples if settings.on_world or example.source == SOURCE_OF_DIVERSITY]
    if not own:
        problem, remedy = "the diversity table is of COIN, and no test prompt is", "add COIN to the data"
        raise InputError.at(folder / PROMPTS, problem, remedy)
    chosen = chosen_prompts(own, DIVERSITY_PROMPTS)
    if settings.judge is not None and settings.judge.settings.history == "perceived":
        chosen = [replace(row, history=request_from_perceived_history(row).history) for row in chosen]
    return sampled_plans(chosen, read_predictions(folder / settings.plans), examples, settings.samples)


@dataclass(frozen=True, slots=True)
class NextActions:
    """Next actions of a closed set for each sample: one plan, remapped, or the actions that VidAssist or one of its
    baselines chooses (paper, section 4.5).
    """

    model: ModelConfig
    is_external_model: bool
    output: str
    sampling: SamplingConfig
    data: Path | None
    """Folder of CrossTask's folder; None for the world, whose actions are the usual wordings of its steps."""
    limit: int | None
    """Samples at most; None for all."""
    history: HistoryKind = "perceived"
    """What is told of a sample: what Phi read, or the annotated steps."""
    vidassist: VidAssistConfig | None = None
    """How VidAssist searches with the model as its planner; None: the model's own plan."""
    original: ModelConfig | None = None
    """VidAssist's own proposer, which assesses, too."""
    is_external_original: bool = False
    """Whether it is a hub id, an endpoint or a folder outside the run."""
    plans: str = ""
    """VidAssist's predictions; their trace and manifest are in the same folder."""

    @property
    def answers(self) -> tuple[int, int]:
        """Answers for a sample at most: of the model, and of VidAssist's own proposer."""
        own = self.vidassist
        if own is None:
            return 1, 0
        if own.method != "vidassist":
            return 0, 1 if own.method == "llm" else own.agent_samples * own.horizon
        # Each model proposes `candidates` actions for the empty plan, then at every further step for each of the `beam`
        # plans that are kept (paper, appendix on VidAssist).
        recipe, original = (int(own.proposers in ("both", name)) for name in ("recipe", "original"))
        proposals = own.candidates * (1 + own.beam * (own.horizon - 1))
        # Each proposal is assessed.
        return recipe * proposals, (2 * original + recipe) * proposals

    @property
    def tokens(self) -> int:
        """Of an answer, at most."""
        if self.vidassist is None:
            return self.sampling.max_tokens
        return self.vidassist.max_tokens * (self.vidassist.horizon if self.vidassist.method == "llm" else 1)


def next_actions(folder: Path, settings: NextActions, progress: Progress) -> None:
    """Write one row for each sample: success, accuracy and IoU at each horizon, in percent, by `horizon.measure`."""
    from recipe.evaluation.vpa.protocol import HORIZONS
    from recipe.evaluation.vpa.remap import remap
    from recipe.planning.planner import Planner

    samples, ids = _open_samples(folder, settings.data)
    examples = [sample.example() for sample in samples]
    if settings.history == "perceived":
        histories = {
            row.example_id: request_from_perceived_history(row).history for row in read_examples(folder / SAMPLES)
        }
        examples = [replace(row, history=histories[row.example_id]) for row in examples]
    if settings.vidassist is None:
        with open_stage_model(folder, settings.model, is_external=settings.is_external_model) as model:
            predictions = Planner(model, settings.sampling).predict(examples, 1, progress)
    else:
        predictions = _searched(folder, settings, examples, ids.taxonomy.actions, progress)
    steps = {row.example_id: row.steps for row in predictions}
    mapped, _ = remap(samples, steps, ids.taxonomy, embed)
    plans = ids.of([plan.actions for plan in mapped], max(HORIZONS))
    write_jsonl(folder / settings.output, _action_rows(samples, ids, [plans]))


def measure_floors(folder: Path, data: Path | None, progress: Progress) -> None:
    """Write the same for plans without a model, with the name of the `control`: by chance, and counted in training."""
    from recipe.evaluation.vpa.baselines import FLOORS, floor_plans, random_plans
    from recipe.evaluation.vpa.protocol import HORIZONS, read_release
    from recipe.evaluation.vpa.run import BASELINES
    from recipe.world.load import load_world

    samples, ids = _open_samples(folder, data)
    if data is not None:
        training = read_release(data).split("train", "val")
    else:
        world, videos = load_world(), dict[str, Procedure]()
        for row in read_examples(folder / TRAIN):
            known = (
                world.recogniser.step(text, world.graph(row.goal).steps) for text in (*row.history, *row.continuation)
            )
            steps = tuple(Step(world.wordings[step][0], None, None) for step in known if step is not None)
            videos[row.video_id] = Procedure(row.source, row.video_id, row.goal, steps)
        training = list(videos.values())
    width, rows = max(HORIZONS), list[JsonObject]()
    for name in BASELINES:
        floor = next((floor for floor in FLOORS if floor == name), None)
        if floor is None:
            draws = random_plans(samples, ids, width, name == "random-goal")
        else:
            draws = iter([ids.of(floor_plans(floor, samples, training, ids.taxonomy, width), width)])
        rows += [row | {"control": name} for row in _action_rows(samples, ids, draws)]
    write_jsonl(folder / FLOOR_ROWS, rows)


def _open_samples(folder: Path, data: Path | None) -> "tuple[list[Sample], ActionIds]":
    """The samples of a study with their annotated histories, and the closed set of their actions."""
    from recipe.evaluation.vpa.measures import ActionIds
    from recipe.evaluation.vpa.protocol import END, Sample, Taxonomy, read_release
    from recipe.world.load import load_world

    if data is not None:
        taxonomy = read_release(data).taxonomy()
    else:
        world = load_world()
        usual = {step: wordings[0] for step, wordings in world.wordings.items()}
        taxonomy = Taxonomy({goal: tuple(usual[step] for step in own.steps) for goal, own in world.goals.items()})
    samples = [
        Sample(row.example_id, row.video_id, "", row.goal, row.history, (*row.continuation, END), row.until)
        for row in read_examples(folder / SAMPLES)
    ]
    return samples, ActionIds(taxonomy)


def _action_rows(samples: "list[Sample]", ids: "ActionIds", draws: "Iterable[Ids]") -> Iterator[JsonObject]:
    """A row for each sample, of several draws the means."""
    from recipe.evaluation.vpa.measures import measure_plans

    for sample, metrics in zip(samples, measure_plans(samples, ids, draws), strict=True):
        yield {"example_id": sample.sample_id, "goal": sample.goal, **metrics}


def _searched(
    folder: Path, settings: NextActions, examples: Sequence[Example], actions: Sequence[str], progress: Progress
) -> list[Prediction]:
    """VidAssist's plans, which are written with why each action was chosen."""
    from recipe.planning.admissible import AdmissibleActions
    from recipe.planning.vidassist.methods import with_planner, write_plans
    from recipe.planning.vidassist.trace import trace_of

    assert settings.vidassist is not None
    assert settings.original is not None
    original, planner, output = settings.original, settings.model, folder / settings.plans
    if not settings.is_external_model:
        planner = planner.model_copy(update={"model": str(folder / planner.model)})
    if not settings.is_external_original:
        original = original.model_copy(update={"model": str(folder / original.model)})
    shared: dict[str, Any] = {"cache": folder / VIDASSIST_CACHE}
    if not isinstance(original, EndpointModel):  # an endpoint's answers are in a cache of their own
        if original != planner and planner.engine == original.engine == "vllm":
            shared["engine_memory"] = planner.engine_memory / 2  # both are on one GPU
        original = original.model_copy(update=shared)
    planner = planner.model_copy(update=shared)
    known = AdmissibleActions(embed(), actions)
    about = {
        "model": settings.original.model,
        "recipe_model": settings.model.model,
        "encoder": ENCODER.name,
        "history": "oracle" if settings.history == "annotated" else "as told",
        "actions": "all",
    }
    alone = settings.vidassist.proposers == "original"  # so are its baselines
    with ExitStack() as stack:
        model = stack.enter_context(open_stage_model(folder, original))
        models = stack.enter_context(with_planner(model, original, None if alone else planner))
        write_plans(
            examples, settings.vidassist, models, lambda goal: known, {}, output, trace_of(output), about, progress
        )
    return read_predictions(output)
