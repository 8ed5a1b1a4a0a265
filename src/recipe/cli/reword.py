"""`recipe data reword`: goals and step labels as instructions, in the words of a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recipe.cli.console import CommandOutput, progress, shows
from recipe.cli.flags import SettingsTable, with_settings
from recipe.cli.models import MODEL, open_for_command, with_cache
from recipe.config import ModelConfig, SamplingConfig
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.models.protocol import Chat
    from recipe.report.elements import Table
    from recipe.types import Procedure


@with_settings(
    model=MODEL,
    sampling=SettingsTable(
        SamplingConfig, ("temperature", "max_tokens", "seed"), "How the model samples", defaults={"max_tokens": 1024}
    ),
)
@shows
def reword(
    output: Annotated[Path, typer.Option(help="Rewordings to write, JSON lines, with a report next to them.")],
    root: Annotated[
        Path | None, typer.Option(help="Folder of benchmark folders, or one benchmark's own folder.")
    ] = None,
    benchmark: Annotated[
        list[str] | None, typer.Option(help="With --root, only this benchmark; repeat for several.")
    ] = None,
    procedures: Annotated[Path | None, typer.Option(help="Procedures of your own.")] = None,
    examples: Annotated[
        Path | None, typer.Option(help="Only the videos of these examples, in place of --root and --procedures.")
    ] = None,
    split: Annotated[Literal["train", "val", "test"] | None, typer.Option(help="Only this split.")] = None,
    prompt: Annotated[
        Path | None, typer.Option(help="Prompt that takes $goal and $steps. Default: recipe/prompts/reword.txt.")
    ] = None,
    new_words: Annotated[
        int, typer.Option(min=0, help="Content words of a rewording that may be in no label of the video, at most.")
    ] = 0,
    reasks: Annotated[
        int, typer.Option(min=0, help="How often a refused rewording is asked for again before the label stays.")
    ] = 2,
    *,
    model: ModelConfig,
    sampling: SamplingConfig,
) -> CommandOutput:
    """Reword goals and step labels as instructions, one request a video; `recipe data prepare --worded` uses them.

    Example: recipe data reword --root data --split test --endpoint http://localhost:8000/v1 --model m --output w.jsonl
    """
    from recipe.artifacts import fingerprint, read_text, require_writable, write_json
    from recipe.data import reword as rewording
    from recipe.data.procedures import write_procedures
    from recipe.models.protocol import ModelRequest, Refusal, unanswered
    from recipe.prompting import packaged

    report_path = output.with_name(f"{output.stem}.report.json")
    require_writable(output)
    require_writable(report_path)
    videos = [video for video in _videos(root, benchmark, procedures, examples) if split in (None, video.split)]
    if not videos:
        where = f" is in split {split}" if split else " has steps"
        raise InputError(f"no video{where}; give others, or choose another split or none.")
    template = packaged("recipe", "reword") if prompt is None else read_text(prompt)
    with open_for_command(with_cache(model, output)) as engine:

        def ask(chats: "Sequence[Chat]", attempt: int) -> list[str | None]:
            requests = [ModelRequest(chat, sampling, attempt, rewording.SCHEMA) for chat in chats]
            outcomes = engine.answer(requests, progress(), refusals="return" if attempt else "raise if all")
            return [
                None if isinstance(outcome, Refusal) or unanswered(outcome) else outcome.text for outcome in outcomes
            ]

        result = rewording.reword(videos, ask, template, bound=new_words, reasks=reasks, seed=sampling.seed)
        report: dict[str, Any] = {
            "output": str(output),
            **result.report,
            "model": {"name": model.model} | engine.identity,
            "prompt": fingerprint(template),
            "sampling": sampling.model_dump(include={"temperature", "max_tokens", "seed"}),
            "new_words": new_words,
            "reasks": reasks,
            "ledger": engine.ledger.numbers(),
        }
    write_procedures(output, result.videos)
    write_json(report_path, report)
    written = f"{report['videos']:,} videos written to {output}, the report to {report_path}"
    return CommandOutput(report, [*_tables(report), written])


def _videos(
    root: Path | None, names: list[str] | None, procedures: Path | None, examples: Path | None
) -> "list[Procedure]":
    """The annotated videos with steps that the options name. Raises InputError and BadParameter."""
    from recipe.cli.inputs import known_benchmarks
    from recipe.data.benchmarks import require_benchmarks, select_procedures
    from recipe.data.examples import read_examples
    from recipe.data.procedures import read_procedures
    from recipe.data.reword import annotated_videos

    if names and root is None:
        raise InputError("--benchmark goes with --root; give both.")
    if (examples is None) == (root is None and procedures is None):
        raise InputError("give either --examples, or --root, --procedures or both: the annotations to reword.")
    if examples is not None:
        return annotated_videos(read_examples(examples))
    videos = list["Procedure"]()
    if root is not None:
        videos, *_ = select_procedures(require_benchmarks(root, known_benchmarks(names)), None, progress())
    return videos + (read_procedures(procedures).procedures if procedures is not None else [])


def _tables(report: dict[str, Any]) -> "list[Table]":
    """Counts, and some rewordings with their labels."""
    from recipe.report.elements import Cell, Table, headings, row

    first = report["first_answers"]
    share = first["new_words_share"]
    counts = {
        "videos": report["videos"],
        "videos asked for again": report["asked_again"],
        "goals": report["goals"],
        "goals in new words": report["worded_goals"],
        "steps": report["steps"],
        "steps in new words": report["worded_steps"],
        **{f"labels kept: {reason}": count for reason, count in report["kept_because"].items()},
        "first answers with every step": first["videos_with_all_steps"],
        "steps that pass in first answers": first["steps_passed"],
        "new words among content words in first answers": Cell(share, 1, percent=True) if share is not None else "",
    }
    return [
        Table(
            caption=f"reworded by {report['model']['name']}",
            first="",
            headings=headings(""),
            rows=tuple(row(name, count) for name, count in counts.items()),
        ),
        Table(
            caption="Some steps",
            first="label",
            headings=headings("reworded"),
            rows=tuple(row(sample["label"], sample["worded"] or "the label stays") for sample in report["samples"]),
        ),
    ]
