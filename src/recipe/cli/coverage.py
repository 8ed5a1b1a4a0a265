"""`recipe reward coverage`: which tasks a corpus covers, before anything is trained."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from recipe.cli.console import CommandOutput, progress, shows
from recipe.cli.reward_options import Config, Folder, settings


@shows
def coverage(
    folder: Folder,
    tasks: Annotated[Path, typer.Option(help="Procedures, or examples; continuations are not needed.")],
    verifier: Annotated[
        Literal["paper", "grounded"], typer.Option(help="Reward whose quality is predicted.")
    ] = "grounded",
    config: Config = None,
    target: Annotated[
        float, typer.Option(min=50, max=100, help="Percent of comparisons in which the true plan is to be preferred.")
    ] = 85,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of each task at most.")] = 8,
    limit: Annotated[int, typer.Option(min=1, help="Rows of the table, the least covered tasks first.")] = 25,
    seed: Annotated[int, typer.Option(help="Draws the cuts of procedures.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Folder for coverage.json and coverage.html.")] = None,
) -> CommandOutput:
    """Show how well the corpus covers each task, what the reward is worth there, and how many videos are missing.

    Example: recipe reward coverage --corpus corpora/mine --tasks examples.jsonl --target 85 --output coverage
    """
    from recipe.artifacts import require_writable
    from recipe.audit.coverage import measure_tasks, read_tasks, spread_prompts
    from recipe.corpus.store import Corpus
    from recipe.reward.verifier import Verifier

    if output is not None:
        from recipe.audit.coverage_page import DATA, write_coverage

        require_writable(output / DATA)
    chosen = spread_prompts(read_tasks(tasks, seed), prompts)
    opened = Corpus.open(folder)
    record = {"corpus": str(folder), "tasks": str(tasks), "seed": seed, "prompts": prompts}
    scorer = Verifier(opened, settings(config, verifier, None))
    encoder = opened.manifest["encoder"]["name"]
    report = measure_tasks(scorer, encoder, chosen, target / 100, record, progress())
    written = [] if output is None else write_coverage(report, output)
    rest = len(report.tasks) - limit
    more = [f"{rest} more tasks; --limit shows them."] if rest > 0 else []
    sentences = (f"- {sentence}" for sentence in (report.answer, *report.cautions))
    return CommandOutput(report.to_json(), [*sentences, report.table(limit, brief=True), *more, *map(str, written)])
