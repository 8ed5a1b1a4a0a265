"""What people say of plans, kept on disk in the formats that `recipe evaluate` reads.

A folder holds four files of JSON lines, each written anew and whole with every change:

    examples.jsonl       a row for each run: goal, history, and as continuation the plan that feedback leaves, without
                         rejected steps and with corrected ones
    predictions.jsonl    a row for each plan that was shown
    ratings.jsonl        a row for each person and plan, with scores by criterion and a comment
    steps.jsonl          a row for each verdict on a step: keep, reject, correct

`example_id` is the id of the run, `sample` the number of the plan.
"""

import threading
from pathlib import Path
from typing import Any

from recipe.artifacts import read_jsonl, write_jsonl
from recipe_apps.serving.messages import FeedbackRequest
from recipe_apps.serving.runs import Run
from recipe_apps.web.refusals import Refusal

SOURCE = "served"
FILES = ("examples.jsonl", "predictions.jsonl", "ratings.jsonl", "steps.jsonl")

Row = dict[str, Any]


class FeedbackStore:
    """Feedback in a folder, which several runs of the server may share one after the other; for one process."""

    def __init__(self, folder: Path) -> None:
        """Open or create the folder. Raises InputError for files that are not its own."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = threading.Lock()
        self._rows: dict[str, dict[tuple[Any, ...], Row]] = {name: {} for name in FILES}
        for name in FILES:
            if (folder / name).exists():
                for _, row in read_jsonl(folder / name):
                    self._rows[name][_key(name, row)] = row

    def add(self, run: Run, said: FeedbackRequest, text: str | None) -> None:
        """Keep feedback on a run; a later word of the same person on the same thing takes the place of the first.

        `text` is the corrected step. Raises Refusal for a plan or a step that there is not.
        """
        if run.kind != "plan" or said.plan >= len(run.plans):
            raise Refusal("invalid_field", f"This run has no plan {said.plan}; plans are numbered from 0.")
        steps = run.plans[said.plan].steps
        if said.step is not None and said.step > len(steps):
            raise Refusal("invalid_field", f"Plan {said.plan} has {len(steps)} steps; there is no step {said.step}.")
        rater = " ".join(said.rater.split()) or "someone"
        with self._lock:
            for number, plan in enumerate(run.plans):
                if plan.steps:
                    self._put("predictions.jsonl", {"example_id": run.id, "steps": list(plan.steps), "sample": number})
            if said.step is not None:
                row: Row = {"example_id": run.id, "sample": said.plan, "step": said.step, "rater": rater}
                row |= {"verdict": said.verdict, "was": steps[said.step - 1], "text": text}
                self._put("steps.jsonl", row)
            if said.scores or said.comment.strip():
                row = {"example_id": run.id, "sample": said.plan, "rater": rater} | said.scores
                self._put("ratings.jsonl", row | {"comment": said.comment.strip()})
            self._put("examples.jsonl", self._example(run, said.plan))
            for name in FILES:
                write_jsonl(self._folder / name, self._rows[name].values())

    def ratings(self) -> list[Row]:
        """The rows of `ratings.jsonl`."""
        with self._lock:
            return list(self._rows["ratings.jsonl"].values())

    def _put(self, name: str, row: Row) -> None:
        self._rows[name][_key(name, row)] = row

    def _example(self, run: Run, plan: int) -> Row:
        """The run as an example whose continuation is what the verdicts on the plan's steps leave of it."""
        steps: list[str | None] = [*run.plans[plan].steps]
        for row in self._rows["steps.jsonl"].values():
            if (row["example_id"], row["sample"]) == (run.id, plan) and row["step"] <= len(steps):
                steps[row["step"] - 1] = {"keep": row["was"], "reject": None, "correct": row["text"]}[row["verdict"]]
        left = [step for step in steps if step] or list(run.plans[plan].steps)
        return {
            "example_id": run.id,
            "source": SOURCE,
            "video_id": run.id,
            "goal": run.goal,
            "history": list(run.history),
            "continuation": left,
            "cut": len(run.history),
            "split": "test",
        }


def _key(name: str, row: Row) -> tuple[Any, ...]:
    """What a row is of: a second row with the same key replaces the first."""
    fields = {
        "examples.jsonl": ("example_id",),
        "predictions.jsonl": ("example_id", "sample"),
        "ratings.jsonl": ("example_id", "sample", "rater"),
        "steps.jsonl": ("example_id", "sample", "rater", "step"),
    }[name]
    return tuple(row.get(field) for field in fields)
