"""What people say about plans, kept on disk in the formats that `recipe evaluate` reads.

A folder holds four files of JSON lines, each rewritten whole on every change:

    examples.jsonl       a row for each run: goal, history, and as continuation the plan that feedback leaves, without
                         rejected steps and with corrected ones
    predictions.jsonl    a row for each plan that was shown
    ratings.jsonl        a row for each person and plan, with scores by criterion and a comment
    steps.jsonl          a row for each verdict on a step: keep, reject, correct

`example_id` is the id of the run, `sample` the number of the plan.

A file may be absent or empty. If its last line is cut off, as by an interrupted copy, the rows before it are read,
and the original file is kept in the same folder under another name.
"""

import logging
import os
import threading
from itertools import count
from pathlib import Path
from typing import Any

from recipe.artifacts import atomic_path, json_line, read_jsonl, write_jsonl
from recipe.errors import InputError
from recipe_apps.serving.messages import FeedbackRequest
from recipe_apps.serving.runs import Run
from recipe_apps.web.refusals import Refusal

_LOG = logging.getLogger(__name__)
SOURCE = "served"
# For each file the fields that tell its rows apart: a second row with the same values replaces the first.
_KEYS = {
    "examples.jsonl": ("example_id",),
    "predictions.jsonl": ("example_id", "sample"),
    "ratings.jsonl": ("example_id", "sample", "rater"),
    "steps.jsonl": ("example_id", "sample", "rater", "step"),
}

# Further fields that are read again.
_NEEDED = {"steps.jsonl": ("verdict", "was")}

Row = dict[str, Any]


class FeedbackStore:
    """Feedback in a folder, which several runs of the server may share one after the other; for one process."""

    def __init__(self, folder: Path) -> None:
        """Open or create the folder. Raises InputError for a line that is no row, other than a last one that is cut."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = threading.Lock()
        self._rows: dict[str, dict[tuple[Any, ...], Row]] = {name: {} for name in _KEYS}
        for name in _KEYS:
            self._read(name)

    def add(self, run: Run, feedback: FeedbackRequest, text: str | None) -> None:
        """Keep feedback on a run; a later word of the same person on the same thing takes the place of the first.

        `text` is the corrected step. Raises Refusal for a plan or a step that there is not.
        """
        if run.kind != "plan" or feedback.plan >= len(run.plans):
            raise Refusal("invalid_field", f"This run has no plan {feedback.plan}; plans are numbered from 0.")
        plan = run.plans[feedback.plan]
        if feedback.step is not None and feedback.step > len(plan):
            problem = f"Plan {feedback.plan} has {len(plan)} steps; there is no step {feedback.step}."
            raise Refusal("invalid_field", problem)
        rater = " ".join(feedback.rater.split()) or "someone"
        of_plan: Row = {"example_id": run.id, "sample": feedback.plan}
        with self._lock:
            for number, steps in enumerate(run.plans):
                if steps:
                    self._put("predictions.jsonl", {"example_id": run.id, "steps": list(steps), "sample": number})
            if feedback.step is not None:
                row = of_plan | {"step": feedback.step, "rater": rater, "verdict": feedback.verdict}
                self._put("steps.jsonl", row | {"was": plan[feedback.step - 1], "text": text})
            comment = feedback.comment.strip()
            if feedback.scores or comment:
                self._put("ratings.jsonl", of_plan | {"rater": rater} | feedback.scores | {"comment": comment})
            # The example's continuation is what all verdicts on the plan's steps leave of it.
            # Steps that nobody judged stay as they were written.
            left: list[str | None] = [*plan]
            for row in self._rows["steps.jsonl"].values():
                if row.items() >= of_plan.items() and row["step"] <= len(left):
                    verdicts = {"keep": row["was"], "reject": None, "correct": row["text"]}
                    left[row["step"] - 1] = verdicts[row["verdict"]]
            example = {
                "example_id": run.id,
                "source": SOURCE,
                "video_id": run.id,
                "goal": run.goal,
                "history": list(run.history),
                "continuation": [step for step in left if step] or list(plan),
                "cut": len(run.history),
                "split": "test",
            }
            self._put("examples.jsonl", example)
            for name, rows in self._rows.items():
                write_jsonl(self._folder / name, rows.values())

    def ratings(self) -> list[Row]:
        """The rows of `ratings.jsonl`."""
        with self._lock:
            return list(self._rows["ratings.jsonl"].values())

    def _read(self, name: str) -> None:
        path = self._folder / name
        content = path.read_bytes() if path.exists() else b""
        rows, feed, last = content.rpartition(b"\n")
        if last.strip():  # every row ends with a line feed
            try:
                json_line(path, rows.count(b"\n") + len(feed) + 1, last.decode())
            except (InputError, UnicodeDecodeError):
                aside = next(other for n in count(1) if not (other := path.with_name(f"{name}.damaged-{n}")).exists())
                os.link(path, aside)  # before the rows replace it: a kill in between leaves both
                content = rows + feed
                with atomic_path(path) as partial:
                    partial.write_bytes(content)
                _LOG.warning("%s: the last line is cut and left out; the file as it was is %s", path, aside.name)
        if not content.strip():
            return
        needed = (*_KEYS[name], *_NEEDED.get(name, ()))
        for number, row in read_jsonl(path):
            if bad := next((field for field in needed if not isinstance(row.get(field), str | int)), None):
                problem, remedy = "the field is missing or of the wrong kind", "correct it, or give another folder"
                raise InputError.at(path, problem, remedy, line=number, field=bad)
            self._put(name, row)

    def _put(self, name: str, row: Row) -> None:
        self._rows[name][tuple(row.get(field) for field in _KEYS[name])] = row
