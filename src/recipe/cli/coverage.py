"""`recipe reward coverage`: which tasks a corpus covers, before anything is trained."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.cli.console import out, print_json, progress
from recipe.cli.reward_options import AsJson, Config, Folder, settings

if TYPE_CHECKING:
    from recipe.audit.coverage import CoverageReport
    from recipe.config import RewardConfig


def coverage(
    folder: Folder,
    tasks: Annotated[Path, typer.Option(help="Examples or procedures, JSON lines; continuations are not needed.")],
    verifier: Annotated[
        Literal["paper", "grounded"], typer.Option(help="Reward whose quality is predicted.")
    ] = "grounded",
    config: Config = None,
    target: Annotated[
        float, typer.Option(min=50, max=100, help="Audit MEAN in percent that each task is to reach.")
    ] = 85,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of each task at most.")] = 8,
    limit: Annotated[int, typer.Option(min=1, help="Rows of the table, the least covered tasks first.")] = 25,
    seed: Annotated[int, typer.Option(help="Draws cuts and random narrations.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Folder for coverage.json and coverage.html.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how well the corpus covers each task, what the reward is worth there, and how many videos are missing.

    Example: recipe reward coverage --corpus corpora/mine --tasks examples.jsonl --target 85 --output coverage
    """
    from recipe.artifacts import require_writable
    from recipe.audit.coverage import coverage_table, report_json

    if output is not None:
        from recipe.audit.coverage_page import DATA, write_coverage

        require_writable(output / DATA)
    found = _measured(folder, tasks, settings(config, verifier, None), target / 100, prompts, seed)
    written = [] if output is None else write_coverage(found, output)
    if as_json:
        print_json(report_json(found))
        return
    for sentence in (found.answer, *found.cautions):
        out.print(f"- {sentence}", highlight=False, markup=False)
    from recipe.report.terminal import terminal_table

    out.print(terminal_table(coverage_table(found, limit)))
    if len(found.tasks) > limit:
        out.print(f"{len(found.tasks) - limit} more tasks; --limit shows them.", highlight=False)
    for path in written:
        out.print(path, highlight=False, markup=False, soft_wrap=True)


def _measured(
    folder: Path, tasks: Path, config: "RewardConfig", target: float, limit: int, seed: int
) -> "CoverageReport":
    from recipe.audit.coverage import measure_tasks, read_tasks, spread_prompts
    from recipe.corpus.store import Corpus
    from recipe.reward.verifier import Verifier

    chosen = spread_prompts(read_tasks(tasks, seed), limit)
    corpus = Corpus.open(folder)
    record = {"corpus": str(folder), "tasks": str(tasks), "seed": seed, "prompts": limit}
    encoder = corpus.manifest["encoder"]["name"]
    return measure_tasks(Verifier(corpus, config), encoder, chosen, target, seed, record, progress())
