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
_METRICS: JsonObject = {
    "*": [{"name": "inspect_ai/mean", "options": {}}, {"name": "inspect_ai/stderr", "options": {"cluster": "video"}}]
}


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
    verdicts: dict[PlanId, list[Judgement]] = {}
    for judgement in judged:
        if judgement.control == control:
            verdicts.setdefault(judgement.plan_id, []).append(judgement)
    if unknown := sorted({plan.example_id for plan in verdicts} - set(examples)):
        remedy = "give the examples that were planned for"
        raise InputError(f"{len(unknown)} examples of the rows are not in --examples, first {unknown[0]!r}; {remedy}.")
    if not verdicts:
        known = ", ".join(sorted({row.control for row in judged if row.control})) or "none"
        raise InputError(f"no plan of control {control!r} was judged; controls among the rows: {known}.")

    # Means over the verdicts of each plan that has one, then over the scored samples of each example.
    means = Measure.plan_values(verdict_rows(row for rows in verdicts.values() for row in rows))
    # The accuracy is in percent: of the paper's rubric the total, which is beside it, of 30.
    criteria = tuple(dict.fromkeys(name for own in means.values() for name in own if name != "accuracy"))
    named = ("accuracy", *(criteria or CRITERIA), "total")
    values = {plan: own | {"total": sum(own[name] for name in criteria)} for plan, own in means.items()}
    order = {name: number for number, name in enumerate(examples)}
    plans = sorted(verdicts, key=lambda plan: (order[plan.example_id], plan.sample))
    ids = list(dict.fromkeys(plan.example_id for plan in plans))
    scored: dict[str, list[dict[str, float]]] = {name: [] for name in ids}
    first = {plan.example_id: verdicts[plan][0].steps for plan in reversed(plans)}
    for plan in plans:
        scored[plan.example_id] += [values[plan]] if plan in values else []
    of_example = {
        name: {value: float(np.mean([verdict[value] for verdict in own])) for value in named}
        for name, own in scored.items()
        if own
    }

    model = f"control: {control}" if control else scores.system
    when = (created or datetime.now(UTC)).isoformat(timespec="seconds")
    code = fingerprint([to_json(scores), model, when, ids])
    judge = scores.judge or JudgeIdentity("", "llm")
    metrics: dict[str, JsonObject] = {}
    for name in named if of_example else ():
        numbers = [means[name] for means in of_example.values()]
        error = standard_error(numbers, [video_of(examples[example]) for example in of_example])
        stderr = {"name": "stderr", "value": 0.0 if error is None else error, "params": {"cluster": "video"}}
        metrics[name] = {"mean": {"name": "mean", "value": fmean(numbers), "params": {}}, "stderr": stderr}
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": code[:22],
            "run_id": code[22:44],
            "created": when,
            "task": "recipe_judge",
            "task_id": code[40:62],
            "task_version": 0,
            "task_attribs": {},
            "task_args": {},
            "dataset": {
                "name": ", ".join(sorted({examples[name].source for name in ids})) or "examples",
                "samples": len(ids),
                "sample_ids": ids,
            },
            "model": model,
            "model_generate_config": {},
            "model_args": {},
            "model_roles": {"grader": {"model": judge.model or judge.name, "config": {}, "args": {}}},
            "config": {"epochs": 1 + max(plan.sample for plan in plans), "epochs_reducer": ["mean"]},
            "packages": installed(["recipe-planner"]),
            "metadata": {"judge": to_json(judge), "system": scores.system},
            "scorers": [{"name": SCORER, "options": {}, "metrics": [_METRICS], "metadata": {}}],
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": len(plans),
            "completed_samples": len(plans),
            "scores": [
                {
                    "name": name,
                    "scorer": SCORER,
                    "reducer": "mean",
                    "scored_samples": len(of_example),
                    "unscored_samples": len(ids) - len(of_example),
                    "params": {},
                    "metrics": metrics.get(name, {}),
                }
                for name in named
            ],
            # Inspect has no mean over datasets of their means; it is here with its interval, as the scores have it.
            "metadata": {}
            if control
            else {"macro_accuracy": to_json(scores.of("split")), "datasets": to_json(scores.of("dataset"))},
        },
        "stats": {"started_at": when, "completed_at": when, "model_usage": {}, "role_usage": {}},
        "invalidated": False,
        "tags": [],
        "metadata": {},
        "samples": [_sample(examples[plan.example_id], verdicts[plan], values.get(plan), model) for plan in plans],
        "reductions": [
            {
                "scorer": SCORER,
                "samples": [
                    {
                        "value": of_example.get(name, float("nan")),
                        "answer": format_plan(first[name]),
                        "history": [],
                        "sample_id": name,
                    }
                    for name in ids
                ],
            }
        ],
    }


def _sample(example: Example, verdicts: Sequence[Judgement], values: dict[str, float] | None, model: str) -> JsonObject:
    """One plan with its verdicts; `values` are their means, None without one."""
    first = verdicts[0]
    question = f"Goal: {example.goal}\n\nDone so far:\n{format_plan(example.history) or 'nothing yet'}"
    answer = format_plan(first.steps)
    message = {"role": "assistant", "content": answer, "source": "generate", "model": model}
    reasons = [row.outcome.reason for row in verdicts if isinstance(row.outcome, Unscored)]
    texts = [row.text or row.how for row in verdicts]
    score: JsonObject = {
        "value": values or float("nan"),
        "answer": answer,
        "explanation": "\n\n".join([*texts, *(f"unscored: {reason}" for reason in reasons)]),
        "metadata": {"judge": first.judge, "how": [row.how for row in verdicts], "repeats": len(verdicts)},
        "history": [],
    }
    if reasons and values is None:
        score["reason"] = reasons[0]
    return {
        "id": example.example_id,
        "epoch": 1 + first.sample,
        "input": question,
        "target": format_plan(example.continuation),
        "messages": [{"role": "user", "content": question, "source": "input"}, message],
        "output": {"model": model, "choices": [{"message": message, "stop_reason": "stop"}], "completion": answer},
        "scores": {SCORER: score},
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


def file_name(log: JsonObject) -> str:
    """The name that Inspect gives a log; its viewer lists no JSON file whose name does not begin with a time."""
    spec = log["eval"]
    when = spec["created"].replace(":", "-").replace("+", "-")
    return f"{when}_{spec['task']}_{spec['task_id']}.json"


def write_log(path: Path, log: JsonObject) -> None:
    """Write a log, all or nothing; halves of characters, which Inspect does not read, become question marks."""
    text = json.dumps(log, indent=2, ensure_ascii=False)
    write_text(path, text.encode("utf-8", "replace").decode() + "\n")
