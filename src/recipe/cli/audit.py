"""`recipe reward audit`: what rewards can and cannot tell apart on the user's own procedures."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli.console import CommandOutput, out, progress, shows
from recipe.cli.flags import SettingsTable, with_settings
from recipe.cli.models import FLAGS, open_for_command, with_cache
from recipe.cli.reward_options import Config, Folder, settings
from recipe.config import FUNCTION_NAME, ModelConfig, RewardConfig, SamplingConfig
from recipe.errors import InputError, require_packages
from recipe.progress import LOADING

if TYPE_CHECKING:
    from recipe.audit.results import Audit
    from recipe.report.elements import Table, TableRow
    from recipe.stats import Interval
    from recipe.types import Procedure

NAMES = ("paper", "paper:history", "paper:full", "paper:own", "grounded")
"""Names that --verifier takes besides settings files and functions; `paper` reads the pool of the settings."""
_PANEL = "Samples of a language model"
WIDEST_NAME, WIDEST_CELL = 22, 14
"""Columns of the terminal that a row's name takes, and a share with its interval."""


@with_settings(
    model=SettingsTable(ModelConfig, FLAGS, _PANEL, names={"model": "--model --sample-model"}, defaults={"model": ""}),
    sampling=SettingsTable(SamplingConfig, ("temperature", "max_tokens"), _PANEL, defaults={"temperature": 1.0}),
)
@shows
def audit(
    folder: Folder,
    procedures: Annotated[list[Path], typer.Option(help="Procedures, or examples; repeat for each file.")],
    verifiers: Annotated[
        list[str] | None,
        typer.Option(
            "--verifier",
            help=f"{', '.join(NAMES)}, module:function or NAME=module:function for a function of yours (docs/own.md), "
            "or NAME=CONFIG.toml; repeat for each. Default: paper and grounded.",
        ),
    ] = None,
    config: Config = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Procedures of each source at most.")] = None,
    seed: Annotated[int, typer.Option(help="Draws procedures, cuts and corruptions.")] = 0,
    attacked: Annotated[int, typer.Option("--attacked", min=1, help="Prompts that the attacks are run on.")] = 40,
    skip_attack: Annotated[bool, typer.Option("--skip-attack", help="Leave the attacks out.")] = False,
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
    samples_per_prompt: Annotated[
        int, typer.Option(min=1, help="Continuations that --sample-model writes.", rich_help_panel=_PANEL)
    ] = 4,
    *,
    model: ModelConfig,
    sampling: SamplingConfig,
) -> CommandOutput:
    """Measure how well rewards distinguish true continuations from corruptions of them.

    The controls `length` and `relevance`, which read no corpus, are always audited, too.

    Example: recipe reward audit --corpus corpora/mine --procedures tasks.jsonl --limit 100 --output audits/mine
    """
    names = verifiers or ["paper", "grounded"]
    if unknown := [name for name in names if not (name in NAMES or "=" in name or FUNCTION_NAME.fullmatch(name))]:
        known = f"{unknown[0]!r} is none of {', '.join(NAMES)}, no module:function and no NAME=CONFIG.toml."
        raise typer.BadParameter(known, param_hint="--verifier")
    titles = [name.partition("=")[0] for name in names]
    if twice := [title for title in titles if titles.count(title) > 1]:
        raise typer.BadParameter(f"{twice[0]!r} is given twice; name each NAME=CONFIG.toml.", param_hint="--verifier")
    if model.model and output is None:
        raise InputError("--sample-model needs --output, the folder that its samples are written to.")
    LOADING.info("loading corpus %s ...", folder)
    from recipe.artifacts import require_writable

    require_packages({"report": "the audit", "cpu": "corpus search"})
    from recipe.audit.measure import Extent, audit_rewards, audited_prompts
    from recipe.audit.samples import PREFIX, prompt_examples, read_samples, sample_file
    from recipe.audit.score import NamedScorer
    from recipe.corpus.store import Corpus
    from recipe.data.examples import write_examples
    from recipe.planning.planner import Planner
    from recipe.planning.prediction_files import write_predictions
    from recipe.reward.embeddings import StepEmbeddings
    from recipe.reward.verifier import Verifier

    if output is not None:
        from recipe.audit.page import DATA, write_audit

        require_writable(output / DATA)
    predictions = read_samples(samples or ())
    chosen, skipped = _read(procedures, skip_bad)
    corpus = Corpus.open(folder)
    embeddings = StepEmbeddings(corpus.encoder)
    extent = Extent(limit, seed, 0 if skip_attack else attacked)
    if prompts_output is not None:
        require_writable(prompts_output)
        _, prompts = audited_prompts(corpus, chosen, embeddings.stacked, extent)
        count = write_examples(prompts_output, prompt_examples(prompts))
        return CommandOutput(
            {"prompts": count, "output": str(prompts_output)}, [f"{count} prompts in {prompts_output}"]
        )
    scorers = {
        title: Verifier(corpus, _settings(name, config), embeddings=embeddings)
        for title, name in zip(titles, names, strict=True)
    }
    if model.model and output is not None:
        _, prompts = audited_prompts(corpus, chosen, embeddings.stacked, extent)
        file = sample_file(output, model.model)
        with open_for_command(with_cache(model, file)) as engine:
            planner = Planner(engine, sampling.model_copy(update={"seed": seed}))
            sampled = planner.predict(prompt_examples(prompts), samples_per_prompt, progress())
        write_predictions(file, sampled)
        predictions[file.stem.removeprefix(PREFIX)] = sampled
    record = {  # what it takes to run the audit again
        "corpus": str(folder),
        "narrations": len(corpus),
        "encoder": corpus.manifest["encoder"]["name"],
        "procedures": [str(path) for path in procedures],
        "verifiers": {name: scorer.config.model_dump(mode="json") for name, scorer in scorers.items()},
    }
    result = audit_rewards(
        [
            NamedScorer(name, scorer, scorer.config.contrast_problem(len(corpus)) or "")
            for name, scorer in scorers.items()
        ],
        corpus,
        chosen,
        embeddings.stacked,
        extent,
        record | ({"skipped_rows": len(skipped)} if skip_bad else {}),
        progress(),
        predictions,
    )
    written = [] if output is None else write_audit(result, output)
    lost = [f"- Unusable rows left out: {len(skipped)}; the first is {skipped[0]}"] if skipped else []
    return CommandOutput(result, [*lost, *_lines(result), *map(str, written)])


def _read(files: Sequence[Path], skip_bad: bool) -> "tuple[list[Procedure], list[str]]":
    """The procedures of all files, and why rows were left out. Raises InputError that counts the unusable rows."""
    from recipe.data.procedures import read_procedures

    read = [read_procedures(path, "skip") for path in files]
    skipped = [reason for file in read for _, reason in file.skipped]
    if skipped and not skip_bad:
        rows = "1 row is" if len(skipped) == 1 else f"{len(skipped)} rows are"
        raise InputError(f"{skipped[0]} {rows} unusable; --skip-bad leaves them out.")
    return [procedure for file in read for procedure in file.procedures], skipped


def _settings(name: str, config: Path | None) -> "RewardConfig":
    """The settings of a verifier: those of its own file, else the common file's or the defaults, with the method and
    pool of the name, or with its function."""
    of = name.partition("=")[2] or name
    if name not in NAMES and FUNCTION_NAME.fullmatch(of):
        return settings(config, of, None)
    if "=" in name:
        return settings(Path(of), None, None)
    method, _, pool = name.partition(":")
    return settings(config, method, pool or None)


def _lines(audited: "Audit") -> "Iterator[str | Table]":
    """The sentences, then a table with rewards as columns, then what holds without each source."""
    from recipe.audit.attack import BEST_OF
    from recipe.audit.classes import CORRUPTIONS, GROUP_OF, GROUPS
    from recipe.report.elements import Cell, Table, headings, row

    yield from (f"- {sentence}" for sentence in (audited.answer, *audited.findings))
    rewards = audited.rewards
    # Intervals are shown where the rewards are so few that the terminal has room for them.
    bounded = WIDEST_NAME + sum(max(len(reward.name), WIDEST_CELL) + 2 for reward in rewards) <= out.width

    def share(name: str, shares: "Iterable[Interval | None]", section: str = "") -> "TableRow":
        # The reason why there is no interval is in the page and in the JSON: a terminal has no room for it.
        cells = (
            Cell(value, 0, percent=True, part="all" if bounded and value and value.low is not None else "mean")
            for value in shares
        )
        return row(name, *cells, section=section)

    rows = [
        share("mean", (reward.mean for reward in rewards)),
        share("worst class", (reward.worst for reward in rewards)),
    ]
    for group in GROUPS:
        rows.append(share(group, (reward.groups.get(group) for reward in rewards), group))
        names = (name for name in CORRUPTIONS if GROUP_OF[name] == group)
        rows += [share(name, (reward.classes.get(name) for reward in rewards), group) for name in names]
    rows = [line for line in rows if any(cell.value is not None for cell in line.cells)]
    rows.append(share("alternative", (reward.alternative for reward in rewards), "other figures"))
    for system in dict.fromkeys(system for reward in rewards for system in reward.samples):
        own = (reward.samples[system].true_wins if system in reward.samples else None for reward in rewards)
        rows.append(share(f"samples: {system}", own, "other figures"))
    for name, attacks in (
        ("greedy attack wins", [reward.attack for reward in rewards]),
        (f"best of {BEST_OF} wins", [reward.best_of for reward in rewards]),
    ):
        if any(attacks):
            wins = (None if attack is None else attack.beats_true.mean for attack in attacks)
            rows.append(row(name, *(Cell(value, 0, percent=True) for value in wins), section="other figures"))
    for name, cells in (
        ("correlation with length", [Cell(reward.length_correlation, 2, signed=True) for reward in rewards]),
        ("true ones gated", [Cell(reward.gated, 0, percent=True) for reward in rewards]),
        ("coverage", [Cell(reward.coverage, 2) for reward in rewards]),
        ("seconds", [Cell(reward.seconds, 1) for reward in rewards]),
    ):
        rows.append(row(name, *cells, section="other figures"))
    yield Table(
        "How often the true continuation earns more", "", headings(*(reward.name for reward in rewards)), tuple(rows)
    )
