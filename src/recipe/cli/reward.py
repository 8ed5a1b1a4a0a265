"""Commands of `recipe reward`: what continuations earn, and what recorded completions show."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BeforeValidator, Field

from recipe.artifacts import require_writable, to_json, write_jsonl
from recipe.cli.console import CommandGroup, CommandOutput, progress, shows
from recipe.cli.reward_options import Config, Folder, Method, Pool, after, open_verifier
from recipe.errors import InputError
from recipe.plan_text import plan_steps
from recipe.reward.scorer import PromptGroup, batches, score_or_raise
from recipe.rows import Steps, Text, Texts
from recipe.tables import read_rows

if TYPE_CHECKING:
    from recipe.report.elements import Table

MOST_ROWS = 16
"""Rows of the table of `watch`, at most."""
COLUMNS = {
    "length": "steps",
    "reward": "reward",
    "length_pay": "with length",
    "copied": "copied",
    "repeated": "repeated",
    "gated": "gated",
    "still": "all equal",
    "clipped": "cut",
}
"""Statistics of `watch`, with their headings."""
DIGITS = {"length": 1, "reward": 3, "length_pay": 2}
"""After the point, of those that are no shares."""


def _written_steps(plan: object) -> object:
    """The steps of a completion's text; of a list the tuple that a plan is."""
    return plan_steps(plan) if isinstance(plan, str) else tuple(plan) if isinstance(plan, list) else plan


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A line of `score --input`."""

    goal: Text
    history: Steps
    continuations: Annotated[tuple[Annotated[Texts, BeforeValidator(_written_steps)], ...], Field(min_length=1)]
    """Each a list of steps or the text of a completion; both may hold no step."""


app = CommandGroup(
    {
        "score": "recipe.cli.reward:score",
        "audit": "recipe.cli.audit:audit",
        "coverage": "recipe.cli.coverage:coverage",
        "explain": "recipe.cli.explain:explain",
        "self-train": "recipe.cli.self_train:self_train",
        "watch": "recipe.cli.reward:watch",
    },
    help="Score continuations against a corpus, and show the evidence.",
)


@shows
def score(
    folder: Folder,
    rows: Annotated[
        Path | None,
        typer.Option("--input", help='JSON lines {"goal", "history": [...], "continuations": [[...], ...]}.'),
    ] = None,
    goal: Annotated[str, typer.Option(help="The goal, where there is no --input.")] = "",
    history: Annotated[list[str] | None, typer.Option(help="A step that is done; repeat for each.")] = None,
    continuation: Annotated[list[str] | None, typer.Option(help="A plan, one step a line; repeat for each.")] = None,
    method: Method = None,
    pool: Pool = None,
    config: Config = None,
    output: Annotated[Path | None, typer.Option(help="Write the rewards here, JSON lines.")] = None,
) -> CommandOutput:
    """Score continuations, with every part of the reward; one without steps is scored as the formula says.

    Example: recipe reward score --corpus corpora/mine --goal "Make tea" --history "Boil water"
    --continuation "Pour the water" --continuation "Lift the car"
    """

    if rows is None and not (goal or history or continuation):
        raise InputError("there is nothing to score; give --input, or --goal, --history and --continuation.")
    if rows is not None:
        if goal or history or continuation:
            raise InputError("Prompts come from --input or from --goal, --history, --continuation; not from both.")
        read = [*read_rows(rows, _Prompt, unknown="ignore")]
        prompts = [PromptGroup(row.goal, row.history, [*row.continuations]) for _, row in read]
        places = [f"{rows}, line {line}" for line, _ in read]
    else:
        for option, value in (("--goal", [goal]), ("--history", history), ("--continuation", continuation)):
            if not value or any(not text.strip() for text in value if option != "--continuation"):
                raise InputError(f"{option} is missing or empty; give it a text.")
        prompts = [PromptGroup(goal, tuple(history or ()), [plan_steps(text) for text in continuation or ()])]
        places = []
    if output is not None:
        require_writable(output)
    verifier = open_verifier(folder, config, method, pool)
    results = list[dict[str, Any]]()
    with progress().task("scoring prompts", len(prompts)) as advance:
        for batch in batches(prompts):
            for prompt, rewards in zip(batch, score_or_raise(verifier, batch, places[len(results) :]), strict=True):
                earned = []
                for plan, reward in zip(prompt.plans, rewards, strict=True):
                    best = reward.best_narration
                    video_id = None if best is None else verifier.corpus.narration(best).video_id
                    earned.append({"continuation": list(plan)} | to_json(reward) | {"best_video_id": video_id})
                results.append({"goal": prompt.goal, "history": list(prompt.history), "rewards": earned})
            advance(len(batch))
    if output is not None:
        write_jsonl(output, results)
        return CommandOutput(results, [f"{output}: {len(results)} prompts scored."])
    return CommandOutput(results, _rewards(results, verifier.config.aligns))


def _rewards(results: list[dict[str, Any]], aligned: bool) -> "Iterator[Table]":
    """A table for each prompt; without figures of an alignment where there is none."""
    from recipe.report.elements import Cell, Table, headings, row

    columns = headings("reward", "history alone", "history and plan", "progress", "gate", "narration")
    for result in results:
        rows = []
        for reward in result["rewards"]:
            own = (reward[key] if aligned else None for key in ("aligned_history", "aligned_full", "rho"))
            numbers = [Cell(value, 3) for value in (reward["total"], *own)]
            gate = "below" if reward["gated"] else "open" if aligned else "none"
            plan = "\n".join(reward["continuation"]) or "(holds no steps)"
            rows.append(row(plan, *numbers, gate, reward["best_video_id"] or "none"))
        yield Table(f"{result['goal']}, {after(result['history'])}", "continuation", columns, tuple(rows))


@shows
def watch(
    records: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="Run folder, folder of JSON-lines files, or one such file.")
    ],
) -> CommandOutput:
    """Replay a run's completions: plan length, copies, repeats, reward, and warnings.

    Records of any trainer are accepted: JSON lines {"step", "goal", "history": [...], "completion", "reward"}.

    Example: recipe reward watch runs/demo/grpo
    """
    from recipe.report.elements import Cell, Table, headings, row
    from recipe.reward.watchdog import Watchdog, read_records

    watchdog = Watchdog.after(read_records(records))
    # Means over stretches of steps of equal length.
    steps, rows = watchdog.steps, []
    size = -(-len(steps) // MOST_ROWS)
    for start in range(0, len(steps), size):
        stretch = steps[start : start + size]
        first, last = stretch[0].step, stretch[-1].step
        cells = []
        for name in COLUMNS:
            values: list[Any] = [value for step in stretch if (value := getattr(step, name)) is not None]
            mean = sum(values) / len(values) if values else None
            cells.append(Cell(mean, DIGITS.get(name, 0), percent=name not in DIGITS, signed=name == "length_pay"))
        rows.append(row(str(first) if first == last else f"{first}-{last}", *cells))
    table = Table("", "step", headings(*COLUMNS.values()), tuple(rows))
    lines = []
    for finding in watchdog.findings:
        ended = "" if finding.until is None else f" (until step {finding.until})"
        lines.append(f"- {finding.sentence}{ended}")
    value = {
        "steps": [step._asdict() for step in steps],
        "findings": [finding._asdict() for finding in watchdog.findings],
    }
    return CommandOutput(value, [table, *(lines or [f"No warnings in {len(steps)} steps."])])
