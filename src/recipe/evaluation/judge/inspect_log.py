"""Verdicts as a log of Inspect AI (version 2 of its JSON format), for its viewer and whatever else reads its logs.

Inspect AI is not needed to write one. Each example is a sample, each of a system's samples of it an epoch; the system
stands as the model and the judge as the model in the role `grader`. What is unscored is NaN, as Inspect writes it, and
is in no metric. Standard errors cluster by video by Inspect's own formula, which is that of `recipe.stats`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from recipe.artifacts import JsonObject, fingerprint, installed, to_json, write_text
from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement, verdict_rows
from recipe.evaluation.measures import Measure
from recipe.evaluation.scores import JudgeIdentity, PlanId, Scores
from recipe.stats import standard_error, video_of
from recipe.text import format_plan
from recipe.types import Example, Unscored

SCORER = "recipe_rubric"
VALUES = ("accuracy", *CRITERIA, "total")
"""Scores of each plan; accuracy is the total in percent of 30."""
_METRICS: JsonObject = {
    "*": [{"name": "inspect_ai/mean", "options": {}}, {"name": "inspect_ai/stderr", "options": {"cluster": "video"}}]
}


class _Plan(NamedTuple):
    """All verdicts on one plan."""

    example: Example
    rows: list[Judgement]
    values: dict[str, float] | None
    """Means over the verdicts; None without one."""


def inspect_log(
    scores: Scores,
    judged: Sequence[Judgement],
    examples: Mapping[str, Example],
    control: str = "",
    created: datetime | None = None,
) -> JsonObject:
    """The log of a system's plans, or of one kind of `control` plans; `created` is now unless given.

    Raises InputError where no such plan was judged, and for a plan whose example is not among `examples`.
    """
    plans = _plans(judged, examples, control)
    if not plans:
        known = ", ".join(sorted({row.control for row in judged if row.control})) or "none"
        raise InputError(f"no plan of control {control!r} was judged; controls among the rows: {known}.")
    named = f"control: {control}" if control else scores.system
    when = (created or datetime.now(UTC)).isoformat(timespec="seconds")
    return {
        "version": 2,
        "status": "success",
        "eval": _spec(scores, plans, named, when),
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": _results(scores, plans, control),
        "stats": {"started_at": when, "completed_at": when, "model_usage": {}, "role_usage": {}},
        "invalidated": False,
        "tags": [],
        "metadata": {},
        "samples": [_sample(plan, named) for plan in plans],
        "reductions": [{"scorer": SCORER, "samples": [_reduction(group) for group in _by_example(plans)]}],
    }


def file_name(log: JsonObject) -> str:
    """The name that Inspect gives a log; its viewer lists no JSON file whose name does not begin with a time."""
    spec = log["eval"]
    when = spec["created"].replace(":", "-").replace("+", "-")
    return f"{when}_{spec['task']}_{spec['task_id']}.json"


def write_log(path: Path, log: JsonObject) -> None:
    """Write a log, all or nothing; halves of characters, which Inspect does not read, become question marks."""
    text = json.dumps(log, indent=2, ensure_ascii=False)
    write_text(path, text.encode("utf-8", "replace").decode() + "\n")


def _plans(judged: Sequence[Judgement], examples: Mapping[str, Example], control: str) -> list[_Plan]:
    """The plans in the order of examples and samples."""
    grouped: dict[PlanId, list[Judgement]] = {}
    for one in judged:
        if one.control == control:
            grouped.setdefault(one.plan_id, []).append(one)
    means = Measure.plan_values(verdict_rows(row for rows in grouped.values() for row in rows))
    means = {plan: own | {"total": sum(own[name] for name in CRITERIA)} for plan, own in means.items()}
    unknown = sorted({plan.example_id for plan in grouped} - set(examples))
    if unknown:
        remedy = "give the examples that were planned for"
        raise InputError(f"{len(unknown)} examples of the rows are not in --examples, first {unknown[0]!r}; {remedy}.")
    order = {name: place for place, name in enumerate(examples)}
    plans = sorted(grouped, key=lambda plan: (order[plan.example_id], plan.sample))
    return [_Plan(examples[plan.example_id], grouped[plan], means.get(plan)) for plan in plans]


def _by_example(plans: Sequence[_Plan]) -> list[list[_Plan]]:
    groups: dict[str, list[_Plan]] = {}
    for plan in plans:
        groups.setdefault(plan.example.example_id, []).append(plan)
    return list(groups.values())


def _spec(scores: Scores, plans: Sequence[_Plan], model: str, when: str) -> JsonObject:
    ids = list(dict.fromkeys(plan.example.example_id for plan in plans))
    datasets = sorted({plan.example.source for plan in plans})
    code = fingerprint([to_json(scores), model, when, ids])
    judge = scores.judge or JudgeIdentity("", "llm")
    return {
        "eval_id": code[:22],
        "run_id": code[22:44],
        "created": when,
        "task": "recipe_judge",
        "task_id": code[40:62],
        "task_version": 0,
        "task_attribs": {},
        "task_args": {},
        "dataset": {"name": ", ".join(datasets) or "examples", "samples": len(ids), "sample_ids": ids},
        "model": model,
        "model_generate_config": {},
        "model_args": {},
        "model_roles": {"grader": {"model": judge.model or judge.name, "config": {}, "args": {}}},
        "config": {"epochs": _epochs(plans), "epochs_reducer": ["mean"]},
        "packages": installed(["recipe-planner"]),
        "metadata": {"judge": to_json(judge), "system": scores.system},
        "scorers": [{"name": SCORER, "options": {}, "metrics": [_METRICS], "metadata": {}}],
    }


def _epochs(plans: Sequence[_Plan]) -> int:
    return 1 + max(row.sample for plan in plans for row in plan.rows)


def _results(scores: Scores, plans: Sequence[_Plan], control: str) -> JsonObject:
    groups = [(group[0].example, values) for group in _by_example(plans) if (values := _mean_values(group))]
    videos = [video_of(example) for example, _ in groups]
    unscored = len(_by_example(plans)) - len(groups)
    return {
        "total_samples": len(plans),
        "completed_samples": len(plans),
        "scores": [
            {
                "name": name,
                "scorer": SCORER,
                "reducer": "mean",
                "scored_samples": len(groups),
                "unscored_samples": unscored,
                "params": {},
                "metrics": _metrics([values[name] for _, values in groups], videos),
            }
            for name in VALUES
        ],
        # Inspect has no mean over datasets of their means; it is here with its interval, as the scores have it.
        "metadata": {}
        if control
        else {"macro_accuracy": to_json(scores.of("split")), "datasets": to_json(scores.of("dataset"))},
    }


def _metrics(values: Sequence[float], videos: Sequence[str]) -> JsonObject:
    if not values:
        return {}
    error = standard_error(values, videos)
    return {
        "mean": {"name": "mean", "value": fmean(values), "params": {}},
        "stderr": {"name": "stderr", "value": 0.0 if error is None else error, "params": {"cluster": "video"}},
    }


def _mean_values(group: Sequence[_Plan]) -> dict[str, float] | None:
    """Means over the scored samples of an example."""
    scored = [values for plan in group if (values := plan.values)]
    return {name: float(np.mean([values[name] for values in scored])) for name in VALUES} if scored else None


def _sample(plan: _Plan, model: str) -> JsonObject:
    example, first = plan.example, plan.rows[0]
    shown, answer = _question(example), format_plan(first.steps)
    return {
        "id": example.example_id,
        "epoch": 1 + first.sample,
        "input": shown,
        "target": format_plan(example.continuation),
        "messages": [{"role": "user", "content": shown, "source": "input"}, _answer(answer, model)],
        "output": {
            "model": model,
            "choices": [{"message": _answer(answer, model), "stop_reason": "stop"}],
            "completion": answer,
        },
        "scores": {SCORER: _score(plan, answer)},
        "metadata": {
            "video": video_of(example),
            "dataset": example.source,
            "split": example.split,
            "goal": example.goal,
            "control": first.control,
            "flags": list(first.flags),
        },
        "store": {},
        "events": [],
        "model_usage": {},
        "uuid": fingerprint([model, example.example_id, first.sample, first.control])[:22],
        "attachments": {},
    }


def _question(example: Example) -> str:
    return f"Goal: {example.goal}\n\nDone so far:\n{format_plan(example.history) or 'nothing yet'}"


def _answer(text: str, model: str) -> JsonObject:
    return {"role": "assistant", "content": text, "source": "generate", "model": model}


def _score(plan: _Plan, answer: str) -> JsonObject:
    answers = [row.text or row.how for row in plan.rows]
    reasons = [row.outcome.reason for row in plan.rows if isinstance(row.outcome, Unscored)]
    score: JsonObject = {
        "value": plan.values or float("nan"),
        "answer": answer,
        "explanation": "\n\n".join([*answers, *(f"unscored: {reason}" for reason in reasons)]),
        "metadata": {"judge": plan.rows[0].judge, "how": [row.how for row in plan.rows], "repeats": len(plan.rows)},
        "history": [],
    }
    return score | ({"reason": reasons[0]} if reasons and plan.values is None else {})


def _reduction(group: Sequence[_Plan]) -> JsonObject:
    answer = format_plan(group[0].rows[0].steps)
    value = _mean_values(group) or float("nan")
    return {"value": value, "answer": answer, "history": [], "sample_id": group[0].example.example_id}
