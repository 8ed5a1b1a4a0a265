"""One number a plan, for validation while training: validity, matched step F1 or the proxy judge's total.

The same computation as `recipe evaluate validity`, `match` and `judge --proxy`, without their files. Training is handed
the function and imports nothing from here.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from recipe.config import EncoderConfig, ValidationSettings
from recipe.corpus.encoders import open_encoder
from recipe.data.task_graphs import read_task_graphs
from recipe.errors import InputError
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.evaluation.judge.verdicts import HIGHEST
from recipe.evaluation.matching import Embed, StepMatcher
from recipe.evaluation.validity.readings import MARGIN, THRESHOLDS, GraphReader, Reader, WorldReader, threshold_of
from recipe.types import Example, Verdict
from recipe.world.load import load_world

PlanMeasure = Callable[[Sequence[Example], Sequence[Sequence[str]]], list[float | None]]
"""Of examples and a plan of each, the plans' values; None for a plan that cannot be measured."""

WORLD = "world"
"""Name of the graphs of the embedded world in scores."""
_CRITERIA = 6
"""Of the rubric."""


def plan_measure(settings: ValidationSettings) -> PlanMeasure | None:
    """What validation chooses by; None for the reward, which training has. Values are between 0 and 1.

    Raises InputError for an encoder or task graphs that cannot be read.
    """
    if settings.measure == "reward":
        return None
    if settings.measure == "validity":
        reader, _, _ = open_reader(settings.graphs, settings.encoder, settings.threshold)
        return lambda examples, plans: _validities(reader, examples, plans)
    embed = open_encoder(EncoderConfig(name=settings.encoder)).encode
    if settings.measure == "proxy":
        judge = ProxyJudge(embed, settings.encoder)
        return lambda examples, plans: _verdicts(judge, examples, plans)
    matcher = StepMatcher(embed)
    return lambda examples, plans: _agreements(matcher, examples, plans)


def open_reader(
    graphs: Path | None, encoder: str, threshold: float | None, split_lines: bool = False
) -> tuple[Reader, str, dict[str, str]]:
    """What matches plans to task graphs, the name of the graphs, and the settings; without `graphs`, the world's.

    Raises InputError for settings that need graphs, and for graphs that cannot be read.
    """
    if graphs is None:
        if threshold is not None or split_lines:
            raise InputError("--threshold and --split-lines go with --graphs: the embedded world has its own wordings.")
        return WorldReader(load_world()), WORLD, {}
    read = read_task_graphs(graphs)
    embed: Embed = open_encoder(EncoderConfig(name=encoder)).encode
    least = threshold if threshold is not None else THRESHOLDS.get(encoder)
    if least is None:
        least = threshold_of(read, embed)
    described = {
        "encoder": encoder,
        "threshold": f"{least:g}",
        "margin": f"{MARGIN:g}",
        "lines": "split" if split_lines else "whole",
        "graphs": str(len(read)),
    }
    return GraphReader(read, embed, least, split_lines=split_lines), graphs.stem, described


def _validities(reader: Reader, examples: Sequence[Example], plans: Sequence[Sequence[str]]) -> list[float | None]:
    """None for a goal without a task graph."""
    known = [reader.knows(example.goal) for example in examples]
    pairs = list(zip(examples, plans, strict=True))
    reader.learn(
        (example.goal, text)
        for (example, plan), has in zip(pairs, known, strict=True)
        if has
        for text in (*example.history, *plan)
    )
    return [
        reader.read(example.goal, example.history, plan).score().score if has else None
        for (example, plan), has in zip(pairs, known, strict=True)
    ]


def _agreements(
    matcher: StepMatcher, examples: Sequence[Example], plans: Sequence[Sequence[str]]
) -> list[float | None]:
    matcher.learn(step for plan in plans for step in plan)
    return [matcher.agreement(example, plan).f1 for example, plan in zip(examples, plans, strict=True)]


def _verdicts(judge: ProxyJudge, examples: Sequence[Example], plans: Sequence[Sequence[str]]) -> list[float | None]:
    judged = judge.judge([Case(example, tuple(plan)) for example, plan in zip(examples, plans, strict=True)])
    outcomes = [one.outcome for one in judged]
    return [one.total / (_CRITERIA * HIGHEST) if isinstance(one, Verdict) else None for one in outcomes]
