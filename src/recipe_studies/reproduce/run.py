"""A study from its settings to its page: every scale's stages, then the tables."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from recipe.artifacts import locked, read_json, read_jsonl, to_json, write_json
from recipe.data.benchmarks import BENCHMARKS, find_benchmark
from recipe.data.examples import read_examples
from recipe.planning.prediction_files import read_predictions
from recipe.progress import Progress
from recipe_studies.experiments.results import ROWS, Provenance, write_plan_rows
from recipe_studies.experiments.schedule import finished_stages, run_stages, stage_times
from recipe_studies.reproduce.data import (
    HISTORIES,
    PROMPTS,
    QUALITY,
    TRACES,
    example_counts,
    left_out_sentences,
    require_all_files,
)
from recipe_studies.reproduce.expand import DATA_STAGES, VIDEO, Run, ScaleRuns, expand, restrict
from recipe_studies.reproduce.findings import measure_table
from recipe_studies.reproduce.page import RESULTS, ScaleResults, StudyResults, rerender
from recipe_studies.reproduce.study import PaperStudy, names
from recipe_studies.reproduce.tables import TABLES, PaperTable, published_scale

_LOG = logging.getLogger(__name__)


def reproduce(
    study: PaperStudy, wholes: Sequence[ScaleRuns], output: Path, workers: int, progress: Progress, command: str = ""
) -> StudyResults:
    """Run what is missing, several runs at a time, and write the tables; returns them.

    `wholes` is what can be done at each scale (`expand`). Tables that earlier calls finished with the same settings are
    written again along with those of this call. With several GPUs there is a worker on each, without any there are
    `workers`. Raises what the stages raise; what is done stays, and the same call goes on from there; with
    `study.strict` InputError before anything is trained where examples lack files.
    """
    plans = {whole.name: whole for whole in wholes}
    asked = {name: restrict(study, whole) for name, whole in plans.items()}
    import torch

    # The GPUs that runs are spread over. CUDA takes the names up to the first that is no GPU, so that -1 hides all.
    count, named = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
    devices = tuple(named.split(","))[:count] if named else tuple(map(str, range(count)))
    output.mkdir(parents=True, exist_ok=True)
    with locked(output):
        stages = [stage for part in asked.values() for stage in part.placed]
        if study.strict:
            first = [stage for stage in stages if Path(stage.name).name.removeprefix(f"{VIDEO}-") in DATA_STAGES]
            run_stages(output, first, workers, progress, devices)
            for name in asked:
                require_all_files(output / name)
        run_stages(output, stages, workers, progress, devices, keep_going=True)
        for name, part in asked.items():
            # By file: on the world two regimes can be one run, and a call may ask for either.
            for run in {run.file(ROWS): run for run in (*part.runs, *part.frontier)}.values():
                _write_rows(output / name, run)
            for sentence in left_out_sentences([*example_counts(output / name)]):
                _LOG.warning("%s: %s", name, sentence)
        # Scales of earlier calls in the same folder are shown, too.
        for name in names("scales"):
            if name not in plans and (output / name).is_dir():
                plans[name] = expand(replace(study, tables=tuple(paper.name for paper in TABLES)), name)
        results = StudyResults(
            title="RECIPE: the paper's tables, run here",
            provenance=Provenance.now(f"{len(devices)} GPUs" if devices else "CPU", command=command, seeds=study.seeds),
            scales=tuple(
                scale
                for name, whole in plans.items()
                if (scale := _results(study, asked.get(name), whole, output / name)).tables
            ),
        )
        # Keys stay in order, because the page shows them so; the page is written from the file alone.
        write_json(output / RESULTS, to_json(results), sort_keys=False)
        rerender(output)
    return results


def _write_rows(folder: Path, run: Run) -> None:
    """Write the plans of a run below the folder of a scale, each with its prompt and its accuracy."""
    examples = {example.example_id: example for example in read_examples(folder / run.folder / PROMPTS)}
    scores = {(row.pop("example_id"), row.pop("sample")): row for _, row in read_jsonl(folder / run.file("scores"))}
    plans = (row for row in read_predictions(folder / run.file("plans")) if (row.example_id, row.sample) in scores)
    rows = ((examples[row.example_id], row.sample, row.steps, scores[row.example_id, row.sample]) for row in plans)
    write_plan_rows(folder / run.file(ROWS), run.same_as or run.regime, run.seed, rows)


def finished_tables(whole: ScaleRuns, folder: Path) -> list[PaperTable]:
    """The tables of which every regime was run and measured with every seed."""
    done = set(finished_stages(folder, whole.stages))
    return [paper for paper in whole.tables if (stages := whole.table_stages(paper)) and stages <= done]


def _results(study: PaperStudy, asked: ScaleRuns | None, whole: ScaleRuns, folder: Path) -> ScaleResults:
    """The tables that the call asks for, and others of which earlier calls ran and measured every regime and seed."""
    runs = {paper.name: whole for paper in finished_tables(whole, folder)}
    if asked is not None:
        runs |= {paper.name: asked for paper in asked.tables}
    stage_names = {stage.name for stage in whole.stages}
    judge, diversity_judge, assessor = (
        getattr(study.endpoints, role) for role in ("judge", "diversity_judge", "assessor")
    )
    if study.on_world:
        accuracy = "exact validity on the embedded world"
    elif judge is not None:
        accuracy = f"rubric by {judge.model}"
        if judge.settings.history == "perceived":
            accuracy += ", which reads the histories of Phi (of video rows the annotated ones)"
    else:
        accuracy = "rubric by the proxy judge (MiniLM), which is not the paper's judge"
    return ScaleResults(
        scale=whole.name,
        title=whole.scale.title,
        published=published_scale(whole.scale.title),
        seeds=study.seeds,
        judge=accuracy if diversity_judge is None else f"{accuracy}; diversity by {diversity_judge.model}",
        assessor="the base" if assessor is None else assessor.model,
        tables=tuple(measure_table(folder, runs[paper.name], paper) for paper in TABLES if paper.name in runs),
        missing=() if asked is None else asked.missing,
        notes=tuple(_notes(study, whole, folder)),
        examples=tuple(example_counts(folder)),
        seconds=sum(seconds for name, (seconds, _) in stage_times(folder).items() if name in stage_names),
    )


def _notes(study: PaperStudy, made: ScaleRuns, folder: Path) -> Iterator[str]:
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
        rates = ", ".join(f"{name} {rate:g}" for name, rate in asdict(study.phi).items())
        yield (
            "Weak supervision is simulated: the pseudo-traces are the annotated steps with some dropped, swapped, "
            f"repeated or replaced ({rates}). Give {TRACES} of `recipe perceive` for real ones."
        )
    if data is None or not (data / HISTORIES).is_file():
        yield "The histories that the planner is told at test time are made with the same errors."
    if data is not None:
        held = [name for name in BENCHMARKS if find_benchmark(data, name) is not None]
        yield f"Datasets: {', '.join(held)}."
    yield from left_out_sentences([*example_counts(folder)])
    if (folder / QUALITY).is_dir():
        mined = read_json(folder / QUALITY / "quality.json")
        lengths = mined["lengths"]
        yield (
            f"Pseudo-labels: {mined['examples']:,} continuations of {mined['narrations']:,} narrations, in the mean "
            f"{lengths['continuation']:.1f} segments of {lengths['words']:.0f} words ({QUALITY}/quality.md)."
        )
    if study.quick:
        yield "This run was quick: a fraction of the work, which shows the way and proves nothing."
