"""A study from its settings to its page: every scale's stages, then the tables."""

import logging
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from recipe.artifacts import locked
from recipe.data.benchmarks import PAPERS, find_benchmark
from recipe.progress import Progress
from recipe_studies.experiments.schedule import finished_stages, run_stages, stage_times
from recipe_studies.reproduce.cost import Estimate, estimate
from recipe_studies.reproduce.data import (
    HISTORIES,
    TRACES,
    example_counts,
    left_out_sentences,
    mined_sentence,
    require_all_files,
)
from recipe_studies.reproduce.findings import measure_table
from recipe_studies.reproduce.measures import visible_devices
from recipe_studies.reproduce.page import ScaleResults, StudyResults, write_results
from recipe_studies.reproduce.runs import VIDEO, ScaleRuns, plan_runs, table_stages
from recipe_studies.reproduce.study import Study, names
from recipe_studies.reproduce.tables import ALL, TABLES, PaperTable, published_scale

DATA_STAGES = ("data", "supervision", "prompts")
"""What decides which examples there are, before anything is trained."""
_LOG = logging.getLogger(__name__)

PACKAGES = ("recipe-planner", "torch", "transformers", "trl", "peft", "numpy")


def study_cost(study: Study, output: Path, workers: int = 1) -> list[tuple[Estimate, ScaleRuns]]:
    """What is left to do at each scale, and its cost. Raises as `reproduce` before anything is run."""
    made = [plan_runs(study, name) for name in study.scales]
    folders = [output / one.name for one in made]
    return [
        (estimate(one, finished_stages(folder, one.stages), folder, workers), one)
        for one, folder in zip(made, folders, strict=True)
    ]


def reproduce(study: Study, output: Path, workers: int, progress: Progress, command: str = "") -> StudyResults:
    """Run what is missing, several runs beside each other, and write the tables; returns them.

    Tables that earlier calls finished with the same settings are written again beside those of this call.
    With several GPUs there is a worker on each, without any there are `workers`. Raises what the stages raise; what is
    done stays, and the same call goes on from there; with `study.strict` InputError before anything is trained where
    examples lack files.
    """
    planned = [plan_runs(study, name) for name in study.scales]
    devices = visible_devices()
    output.mkdir(parents=True, exist_ok=True)
    with locked(output):
        for made in planned if study.strict else ():
            first = [stage for stage in made.stages if stage.name.removeprefix(f"{VIDEO}-") in DATA_STAGES]
            run_stages(output / made.name, first, workers, progress, devices)
            require_all_files(output / made.name)
        for made in planned:
            run_stages(output / made.name, made.stages, workers, progress, devices, keep_going=True)
            for sentence in left_out_sentences([*example_counts(output / made.name)]):
                _LOG.warning("%s: %s", made.name, sentence)
        scales = tuple(_scales(study, planned, output))
        results = StudyResults(
            title="RECIPE: the paper's tables, run here",
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=command,
            versions=dict(_versions()),
            device=f"{len(devices)} GPUs" if devices else f"CPU, {os.cpu_count()} cores",
            scales=scales,
        )
        write_results(output, results)
    return results


def _versions() -> Iterator[tuple[str, str]]:
    from importlib.metadata import PackageNotFoundError, version

    yield "python", platform.python_version()
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _scales(study: Study, planned: Sequence[ScaleRuns], output: Path) -> Iterator[ScaleResults]:
    """The results of the scales of this call, then of others in the same folder."""
    asked = {made.name: made for made in planned}
    others = [name for name in names("scales") if name not in asked and (output / name).is_dir()]
    for name in (*asked, *others):
        whole = plan_runs(replace(study, tables=(ALL,), scales=(name,), regimes=()), name)
        made = asked.get(name, replace(whole, tables=(), missing=()))
        result = _results(study, made, whole, output / name)
        if result.tables:
            yield result


def finished_tables(whole: ScaleRuns, folder: Path) -> list[PaperTable]:
    """The tables of which every regime was run and measured with every seed."""
    done = set(finished_stages(folder, whole.stages))
    return [one for one in whole.tables if (stages := table_stages(whole, one)) and stages <= done]


def _results(study: Study, made: ScaleRuns, whole: ScaleRuns, folder: Path) -> ScaleResults:
    """The tables of `made`, and those of `whole` that are finished."""
    plans = dict.fromkeys(finished_tables(whole, folder), whole) | dict.fromkeys(made.tables, made)
    stages = {stage.name for stage in (*made.stages, *whole.stages)}
    return ScaleResults(
        scale=made.name,
        title=made.scale.title,
        published=published_scale(made.scale.title),
        seeds=study.seeds,
        judge=_judge(study),
        assessor="the base" if (assessor := study.endpoints.assessor) is None else assessor.model,
        tables=tuple(measure_table(folder, plans[one], one) for one in TABLES if one in plans),
        missing=made.missing,
        notes=tuple(_notes(study, made, folder)),
        examples=tuple(example_counts(folder)),
        seconds=sum(seconds for name, (seconds, _) in stage_times(folder).items() if name in stages),
    )


def _judge(study: Study) -> str:
    judge, other = study.endpoints.judge, study.endpoints.diversity_judge
    if study.on_world:
        words = "exact validity on the embedded world"
    elif judge is not None:
        words = f"rubric by {judge.model}"
        if judge.settings.history == "perceived":
            words += ", which reads the histories of Phi (of video rows the annotated ones)"
    else:
        words = "rubric by the proxy judge (MiniLM), which is not the paper's judge"
    return words if other is None else f"{words}; diversity by {other.model}"


def _notes(study: Study, made: ScaleRuns, folder: Path) -> Iterator[str]:
    """What a reader has to know of the data, in sentences."""
    yield (
        "A claim holds where the whole interval of its difference is on the claimed side, does not hold where it is on "
        "the other side, and cannot be told otherwise. Many claims are tested: some hold or fail by chance."
    )
    if made.scale.title != published_scale(made.scale.title):
        yield (
            f"The model ({made.scale.title}) is not one of the paper's: only directions can be compared, no numbers."
        )
    if study.on_world:
        yield (
            "Embedded world: in-domain are held-out cut points of goals that are trained on, zero-shot are held-out "
            "goals. Accuracy is exact validity, which the paper's judge does not measure: a line counts in the world's "
            "wordings only, so that a step in a narrator's words is worth nothing."
        )
    data = study.data
    if data is not None and not made.scale.model:
        yield (
            "The base was trained from nothing on the annotations of the training videos. It is no pretrained model as "
            "in the paper: regimes that start from it have seen the annotations already."
        )
    if data is None or not (data / TRACES).is_file():
        yield (
            "Weak supervision is simulated: the pseudo-traces are the annotated steps with some dropped, swapped, "
            f"repeated or replaced ({_rates(study)}). Give {TRACES} of `recipe perceive` for real ones."
        )
    if data is None or not (data / HISTORIES).is_file():
        yield "The histories that the planner is told at test time are made with the same errors."
    if data is not None:
        held = [name for name in PAPERS if find_benchmark(data, name) is not None]
        yield f"Datasets: {', '.join(held)}."
    yield from left_out_sentences([*example_counts(folder)])
    if sentence := mined_sentence(folder):
        yield sentence
    if study.quick:
        yield "This run was quick: a fraction of the work, which shows the way and proves nothing."


def _rates(study: Study) -> str:
    return ", ".join(f"{name} {rate:g}" for name, rate in asdict(study.phi).items())
