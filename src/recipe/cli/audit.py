"""`recipe reward audit`: what rewards can and cannot tell apart on the user's own procedures."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from recipe.cli.console import out, print_json, progress
from recipe.cli.reward_options import AsJson, Config, Folder, settings

if TYPE_CHECKING:
    from recipe.audit.results import Audit
    from recipe.config import RewardConfig
    from recipe.corpus.store import Corpus
    from recipe.stats import Interval

NAMES = ("paper", "paper:history", "paper:full", "paper:own", "grounded")
"""What --verifier may name; `paper` reads the pool that the settings say."""
WIDEST_NAME, WIDEST_CELL = 22, 9
"""Columns of the terminal that a row's name takes, and a share with its interval."""


def audit(
    folder: Folder,
    procedures: Annotated[list[Path], typer.Option(help="Procedures, JSON lines; repeat for each file.")],
    verifiers: Annotated[
        list[str] | None, typer.Option("--verifier", help=f"{', '.join(NAMES)}; repeat for each. Paper and grounded.")
    ] = None,
    config: Config = None,
    classes: Annotated[
        Literal["v1", "v2"], typer.Option(help="Edition of the classes: v1 has 16, v2 adds what policies write.")
    ] = "v2",
    limit: Annotated[int | None, typer.Option(min=1, help="Procedures of each source at most.")] = None,
    seed: Annotated[int, typer.Option(help="Draws procedures, cuts and corruptions.")] = 0,
    attacked: Annotated[int, typer.Option("--attacked", min=1, help="Prompts that the greedy attack is run on.")] = 40,
    skip_attack: Annotated[bool, typer.Option("--skip-attack", help="Leave the greedy attack out.")] = False,
    output: Annotated[Path | None, typer.Option(help="Folder for audit.json, audit.html and plots.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how well rewards distinguish true continuations from corruptions of them.

    The controls `length` and `relevance`, which read no corpus, are always audited beside the verifiers.

    Example: recipe reward audit --corpus corpora/mine --procedures tasks.jsonl --limit 100 --output audits/mine
    """
    names = verifiers or ["paper", "grounded"]
    if unknown := [name for name in names if name not in NAMES]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(NAMES)}.", param_hint="--verifier")
    from recipe.artifacts import require_writable
    from recipe.audit.measure import Extent, audit_rewards
    from recipe.audit.results import rewards_json
    from recipe.audit.score import NamedScorer
    from recipe.corpus.store import Corpus
    from recipe.data.procedures import read_procedures
    from recipe.reward.embeddings import StepEmbeddings
    from recipe.reward.verifier import Verifier

    if output is not None:
        from recipe.audit.page import DATA, write_audit

        require_writable(output / DATA)
    chosen = [one for path in procedures for one in read_procedures(path).procedures]
    corpus = Corpus.open(folder)
    embeddings = StepEmbeddings(corpus.encoder)
    scorers = {name: Verifier(corpus, _settings(name, config), embeddings=embeddings) for name in names}
    found = audit_rewards(
        [NamedScorer(name, scorer) for name, scorer in scorers.items()],
        corpus,
        chosen,
        embeddings.stacked,
        Extent(limit, seed, 0 if skip_attack else attacked, classes),
        _record(folder, corpus, procedures, {name: scorer.config for name, scorer in scorers.items()}),
        progress(),
    )
    written = [] if output is None else write_audit(found, output)
    if as_json:
        print_json(rewards_json(found))
        return
    _show(found)
    for path in written:
        out.print(path, highlight=False, markup=False, soft_wrap=True)


def _settings(name: str, config: Path | None) -> "RewardConfig":
    """The settings of a verifier by its name: the file's, or the defaults, with the method and pool of the name."""
    method, _, pool = name.partition(":")
    return settings(config, method, pool or None)


def _record(
    folder: Path, corpus: "Corpus", procedures: Sequence[Path], configs: "dict[str, RewardConfig]"
) -> dict[str, Any]:
    """What it takes to run the audit again."""
    return {
        "corpus": str(folder),
        "narrations": len(corpus),
        "encoder": corpus.manifest["encoder"]["name"],
        "procedures": [str(path) for path in procedures],
        "verifiers": {name: one.model_dump(mode="json") for name, one in configs.items()},
    }


def _show(found: "Audit") -> None:
    """The sentences, then a table: rewards as columns."""
    from recipe.audit.classes import CORRUPTIONS, GROUP_OF, GROUPS

    for sentence in (found.answer, *found.findings):
        out.print(f"- {sentence}", highlight=False, markup=False)
    table = Table("", box=None, padding=(0, 1))
    rewards = found.rewards
    fits = WIDEST_NAME + sum(max(len(one.name), WIDEST_CELL) + 2 for one in rewards) <= out.width
    cell = partial(_cell, bounded=fits)
    for one in rewards:
        table.add_column(one.name, justify="right", overflow="fold")
    table.add_row("[bold]mean", *(cell(one.mean) for one in rewards))
    table.add_row("[bold]worst", *(cell(one.worst) for one in rewards))
    for group in GROUPS:
        names = [
            name for name in CORRUPTIONS if GROUP_OF[name] == group and any(name in one.classes for one in rewards)
        ]
        if names:
            table.add_section()
            table.add_row(f"[bold]{group}", *(cell(one.groups.get(group)) for one in rewards))
        for name in names:
            table.add_row(f" {name}", *(cell(one.classes.get(name)) for one in rewards))
    table.add_section()
    table.add_row("alternative", *(cell(one.alternative) for one in rewards))
    table.add_section()
    table.add_row("r with length", *(_optional(one.length_correlation, "{:+.2f}") for one in rewards))
    table.add_row("true ones gated", *(f"{one.gated:.0%}" for one in rewards))
    table.add_row("coverage", *(_optional(one.coverage, "{:.2f}") for one in rewards))
    table.add_row("seconds", *(f"{one.seconds:.1f}" for one in rewards))
    out.print(table)


def _cell(share: "Interval | None", bounded: bool) -> str:
    """P(true > corrupted) in percent, green where it is above 50 for sure, red where below; with its 95% interval."""
    if share is None:
        return "-"
    if share.low is None or share.high is None:
        return f"{100 * share.mean:.0f}"
    colour = "green" if share.low > 0.5 else "red" if share.high < 0.5 else "default"
    ends = f" [dim]{100 * share.low:.0f}-{100 * share.high:.0f}[/]" if bounded else ""
    return f"[{colour}]{100 * share.mean:.0f}[/]{ends}"


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
