"""What the study of task graphs is made on: CaptainCook4D with an encoder, and how its figures are told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from graph_plans import separation

from recipe.artifacts import read_json, to_json
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.data.captaincook4d import read_captaincook4d
from recipe.data.task_graphs import GoalGraph, TaskGraphs, read_task_graphs
from recipe.evaluation.matching import Embed
from recipe.evaluation.validity.readings import MARGIN, THRESHOLDS, GraphReader, threshold_of
from recipe.stats import Interval
from recipe.types import Procedure

ERRORS = "annotation_json/error_annotations.json"
SEED = 0


@dataclass(frozen=True)
class Study:
    """What is measured on, and with."""

    graphs: TaskGraphs
    recordings: list[Procedure]
    """In the order of their names, steps as performed."""
    tags: Mapping[str, frozenset[str]]
    """Categories of error of each recording; empty for a normal one."""
    embed: Embed
    threshold: float

    @property
    def normal(self) -> list[Procedure]:
        """The recordings without errors."""
        return [one for one in self.recordings if not self.tags[one.video_id]]

    def reader(self, margin: float = MARGIN) -> GraphReader:
        """A reader of plans."""
        return GraphReader(self.graphs, self.embed, self.threshold, margin=margin)


def open_study(folder: Path, encoder: str = "minilm", every: int = 1) -> Study:
    """CaptainCook4D with an encoder that embeds each text once."""
    embed = _remembered(open_encoder(EncoderConfig(name=encoder)).encode)
    procedures = [one for one in read_captaincook4d(folder) if one.steps]
    graphs = read_task_graphs(folder)
    threshold = THRESHOLDS.get(encoder) or threshold_of(graphs, embed)
    tags = {
        one["recording_id"]: frozenset(
            error["tag"] for step in one["step_annotations"] for error in step.get("errors", ())
        )
        | (frozenset({"some error"}) if one["is_error"] else frozenset())
        for one in read_json(folder / ERRORS)
    }
    return Study(graphs, procedures[::every], tags, embed, threshold)


def performed(procedure: Procedure) -> list[str]:
    return [step.text for step in procedure.steps]


def said_of(own: GoalGraph) -> dict[str, str]:
    return {step: said[0] for step, said in own.wordings.items()}


def auc(valid: Sequence[tuple[str, float]], wrong: Sequence[tuple[str, float]]) -> Interval:
    clusters = [goal for goal, _ in valid], [goal for goal, _ in wrong]
    return separation([score for _, score in valid], [score for _, score in wrong], clusters)


def told(value: Interval | None) -> dict[str, Any]:
    return {} if value is None else {name: part for name, part in to_json(value).items() if part not in (None, "")}


def _remembered(embed: Embed) -> Embed:
    known: dict[str, np.ndarray] = {}

    def once(texts: Sequence[str]) -> np.ndarray:
        if new := sorted({text for text in texts if text not in known}):
            known.update(zip(new, embed(new), strict=True))
        return np.stack([known[text] for text in texts])

    return once
