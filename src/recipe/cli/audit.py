"""`recipe reward audit`: what rewards can and cannot tell apart on the user's own procedures."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from recipe.cli.console import out, print_json, progress
from recipe.cli.flags import with_flags
from recipe.cli.models import beside, opened
from recipe.cli.reward_options import AsJson, Config, Folder, settings
from recipe.config import ModelConfig, SamplingConfig
from recipe.errors import InputError
from recipe.progress import LOADING

if TYPE_CHECKING:
    from recipe.audit.lodo import Lodo
    from recipe.audit.perturb import AuditPrompt
    from recipe.audit.results import Audit
    from recipe.config import RewardConfig
    from recipe.corpus.store import Corpus
    from recipe.planning.predictions import Prediction
    from recipe.stats import Interval
    from recipe.types import Procedure

NAMES = ("paper", "paper:history", "paper:full", "paper:own", "grounded")
"""What --verifier may name beside files of settings; `paper` reads the pool that the settings say."""
_PANEL = "Samples of a language model"
WIDEST_NAME, WIDEST_CELL = 22, 9
"""Columns of the terminal that a row's name takes, and a share with its interval."""


@with_flags(
    SamplingConfig,
    "sampling",
    _PANEL,
    only=("temperature", "max_tokens", "batch_size"),
    defaults={"temperature": 1.0},
)
@with_flags(ModelConfig, "model_settings", _PANEL, names={"model": ("--sample-model",)}, defaults={"model": ""})
def audit(
    folder: Folder,
    procedures: Annotated[list[Path], typer.Option(help="Procedures, JSON lines; repeat for each file.")],
    verifiers: Annotated[
        list[str] | None,
        typer.Option(
            "--verifier", help=f"{', '.join(NAMES)}, or NAME=CONFIG.toml; repeat for each. Paper and grounded."
        ),
    ] = None,
    config: Config = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Procedures of each source at most.")] = None,
    seed: Annotated[int, typer.Option(help="Draws procedures, cuts and corruptions.")] = 0,
    attacked: Annotated[int, typer.Option("--attacked", min=1, help="Prompts that the attacks are run on.")] = 40,
    skip_attack: Annotated[bool, typer.Option("--skip-attack", help="Leave the attacks out.")] = False,
    protocol: Annotated[
        Literal["pooled", "lodo"],
        typer.Option(help="lodo: leave each source out in turn; may the first verifier be changed for another?"),
    ] = "pooled",
    samples: Annotated[
        list[str] | None,
        typer.Option(help="Predictions for the audited prompts, FILE or NAME=FILE; repeat for each system."),
    ] = None,
    prompts_output: Annotated[
        Path | None, typer.Option(help="Write the audited prompts as examples for recipe plan, and end there.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out unusable rows of --procedures and count them.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Folder for audit.json, audit.html, plots and samples.")] = None,
    as_json: AsJson = False,
    samples_per_prompt: Annotated[
        int, typer.Option(min=1, help="Continuations that --sample-model writes.", rich_help_panel=_PANEL)
    ] = 4,
    *,
    model_settings: ModelConfig,
    sampling: SamplingConfig,
) -> None:
    """Measure how well rewards distinguish true continuations from corruptions of them.

    The controls `length` and `relevance`, which read no corpus, are always audited beside the verifiers.

    Example: recipe reward audit --corpus corpora/mine --procedures tasks.jsonl --limit 100 --output audits/mine

    Example: recipe reward audit --corpus corpora/mine --procedures coin.jsonl --procedures crosstask.jsonl --protocol
    lodo --verifier grounded --verifier cheaper=cheaper.toml
    """
    names = verifiers or ["paper", "grounded"]
    if unknown := [name for name in names if name not in NAMES and "=" not in name]:
        raise typer.BadParameter(
            f"{unknown[0]!r} is none of {', '.join(NAMES)}, and no NAME=CONFIG.toml.", param_hint="--verifier"
        )
    titles = [name.partition("=")[0] for name in names]
    if twice := [title for title in titles if titles.count(title) > 1]:
        raise typer.BadParameter(f"{twice[0]!r} is given twice; name each NAME=CONFIG.toml.", param_hint="--verifier")
    if model_settings.model and output is None:
        raise InputError("--sample-model needs --output, the folder that its samples are written to.")
    LOADING.info("loading corpus %s ...", folder)
    from recipe.artifacts import require_writable, to_json
    from recipe.errors import require_packages

    require_packages({"report": "the audit", "cpu": "corpus search"})
    from recipe.audit.measure import Extent, audit_rewards, audited_prompts
    from recipe.audit.samples import prompt_examples, read_samples
    from recipe.audit.score import NamedScorer
    from recipe.corpus.store import Corpus
    from recipe.data.examples import write_examples
    from recipe.reward.embeddings import StepEmbeddings
    from recipe.reward.verifier import Verifier

    if output is not None:
        from recipe.audit.page import DATA, write_audit

        require_writable(output / DATA)
    predictions = read_samples(samples or ())
    chosen, skipped = _read(procedures, skip_bad)
    corpus = Corpus.open(folder)
    embeddings = StepEmbeddings(corpus.encoder)
    extent = Extent(limit, seed, 0 if skip_attack else attacked, protocol)
    if prompts_output is not None:
        require_writable(prompts_output)
        _, prompts = audited_prompts(corpus, chosen, embeddings.stacked, extent)
        out.print(
            f"{write_examples(prompts_output, prompt_examples(prompts))} prompts in {prompts_output}",
            highlight=False,
            markup=False,
        )
        return
    scorers = {
        title: Verifier(corpus, _settings(name, config), embeddings=embeddings)
        for title, name in zip(titles, names, strict=True)
    }
    if model_settings.model and output is not None:
        _, prompts = audited_prompts(corpus, chosen, embeddings.stacked, extent)
        sampled = sampling.model_copy(update={"seed": seed})
        predictions |= _sampled(model_settings, sampled, prompts, samples_per_prompt, output)
    found = audit_rewards(
        [NamedScorer(name, one, one.config.contrast_problem(len(corpus)) or "") for name, one in scorers.items()],
        corpus,
        chosen,
        embeddings.stacked,
        extent,
        _record(folder, corpus, procedures, {name: scorer.config for name, scorer in scorers.items()})
        | ({"skipped_rows": len(skipped)} if skip_bad else {}),
        progress(),
        predictions,
    )
    written = [] if output is None else write_audit(found, output)
    if as_json:
        print_json(to_json(found))
        return
    if skipped:
        out.print(f"- Unusable rows left out: {len(skipped)}; the first is {skipped[0]}", highlight=False, markup=False)
    _show(found)
    for path in written:
        out.print(path, highlight=False, markup=False, soft_wrap=True)


def _read(files: Sequence[Path], skip_bad: bool) -> "tuple[list[Procedure], list[str]]":
    """The procedures of all files, and why rows were left out. Raises InputError that counts the unusable rows."""
    from recipe.data.procedures import read_procedures

    read = [read_procedures(path, "skip") for path in files]
    skipped = [row.reason for file in read for row in file.skipped]
    if skipped and not skip_bad:
        rows = "1 row is" if len(skipped) == 1 else f"{len(skipped)} rows are"
        raise InputError(f"{skipped[0]} {rows} unusable; --skip-bad leaves them out.")
    return [procedure for file in read for procedure in file.procedures], skipped


def _settings(name: str, config: Path | None) -> "RewardConfig":
    """The settings of a verifier: those of its own file, else the common file's or the defaults, with the method and
    pool of the name."""
    if "=" in name:
        return settings(Path(name.partition("=")[2]), None, None)
    method, _, pool = name.partition(":")
    return settings(config, method, pool or None)


def _sampled(
    model_settings: ModelConfig, sampling: SamplingConfig, prompts: "Sequence[AuditPrompt]", count: int, output: Path
) -> "dict[str, list[Prediction]]":
    """What the model writes for the prompts, kept in the output folder."""
    from recipe.audit.samples import PREFIX, prompt_examples, sample_file
    from recipe.planning.planner import Planner
    from recipe.planning.predictions import write_predictions

    file = sample_file(output, model_settings.model)
    with opened(beside(model_settings, file)) as model:
        predictions = Planner(model, sampling).predict(prompt_examples(prompts), count, progress())
    write_predictions(file, predictions)
    return {file.stem.removeprefix(PREFIX): predictions}


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
    from recipe.audit.attack import BEST_OF
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
    for system in dict.fromkeys(system for one in rewards for system in one.samples):
        shares = (one.samples[system].true_wins if system in one.samples else None for one in rewards)
        table.add_row(f"samples: {system}", *(cell(share) for share in shares))
    for name, attacks in (
        ("greedy attack wins", [one.attack for one in rewards]),
        (f"best of {BEST_OF} wins", [one.best_of for one in rewards]),
    ):
        if any(attacks):
            table.add_row(name, *(f"{attack.beats_true.mean:.0%}" if attack else "-" for attack in attacks))
    table.add_section()
    table.add_row("r with length", *(_optional(one.length_correlation, "{:+.2f}") for one in rewards))
    table.add_row("true ones gated", *(f"{one.gated:.0%}" for one in rewards))
    table.add_row("coverage", *(_optional(one.coverage, "{:.2f}") for one in rewards))
    table.add_row("seconds", *(f"{one.seconds:.1f}" for one in rewards))
    out.print(table)
    if found.lodo is not None:
        _show_sources(found.lodo)


def _show_sources(found: "Lodo") -> None:
    """What is chosen without each source, and MEAN, WORST and the worst of the gaming classes by source."""
    from recipe.audit.lodo import points

    chosen = Table("left out", "chosen on the others", "against the default", "against relevance", box=None)
    for one in found.left_out:
        chosen.add_row(one.source, one.chosen, points(one.over_default), points(one.over_relevance))
    chosen.add_row("mean", "", points(found.over_default), points(found.over_relevance))
    out.print(chosen)
    table = Table("MEAN / WORST / gaming", *(one.source for one in found.left_out), box=None)
    for name, by in found.figures.items():
        cells = ([own.mean.mean, own.worst, own.gaming_worst] for own in (by[one.source] for one in found.left_out))
        table.add_row(name, *(" / ".join("-" if x is None else f"{100 * x:.0f}" for x in own) for own in cells))
    out.print(table)


def _cell(share: "Interval | None", bounded: bool) -> str:
    """P(true > corrupted) in percent, green where it is above 50 for sure, red where below; with its 95% interval."""
    if share is None:
        return "-"
    if share.low is None or share.high is None:
        return f"{100 * share.mean:.0f}" + (f" [dim]{share.reason}[/]" if bounded and share.reason else "")
    colour = "green" if share.low > 0.5 else "red" if share.high < 0.5 else "default"
    ends = f" [dim]{100 * share.low:.0f}-{100 * share.high:.0f}[/]" if bounded else ""
    return f"[{colour}]{100 * share.mean:.0f}[/]{ends}"


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
