"""The threads behind the page and what they count: one writes plans, the other asks the corpus about each step."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial

from recipe.config import FrameConfig
from recipe.errors import RecipeError
from recipe.models.protocol import Answer, Refusal, unanswered
from recipe.perception.phi import Phi, read_history
from recipe.planning.planner import Draft, Planner, Request
from recipe.reward.scorer import PromptGroup
from recipe_apps.serving.clips import ClipStore
from recipe_apps.serving.evidence import Row, Witness
from recipe_apps.serving.runs import Run, Runs
from recipe_apps.web import refusals
from recipe_apps.web.guard import SECONDS, WebMetrics

_LOG = logging.getLogger(__name__)


class PageMetrics(WebMetrics):
    """Counters of one planner page."""

    def __init__(self) -> None:
        super().__init__("recipe_page")
        self.ended = self.counter("runs", "Runs that are over, by how they ended.", "state")
        self.first_step = self.histogram("first_step_seconds", "Time from request to first step.", SECONDS)
        self.evidence = self.histogram("evidence_seconds", "Time of asking the corpus about steps.", SECONDS)
        self.tokens = self.counter("tokens", "Tokens written.")

    def follow(self, waiting: Callable[[], float], under_way: Callable[[], float]) -> None:
        """Read the queue whenever metrics are asked for."""
        self.gauge("waiting", "Runs that wait.", follow=waiting)
        self.gauge("running", "Runs that are written.", follow=under_way)


class Writer(threading.Thread):
    """Takes runs from the queue and writes their plans side by side; a run that is over gets no further token."""

    def __init__(
        self,
        runs: Runs,
        planner: Planner,
        examiner: "Examiner",
        metrics: PageMetrics,
        clips: ClipStore,
        frames: FrameConfig,
        phi: Phi | None = None,
        room: int = 64,
    ) -> None:
        """`room` plans are written at once."""
        super().__init__(name="writer", daemon=True)
        self._runs, self._planner, self._examiner, self._metrics = runs, planner, examiner, metrics
        self._clips, self._frames, self._phi, self._room = clips, frames, phi, room

    def run(self) -> None:
        """Write until the queue is closed."""
        while (taken := self._runs.take(self._room)) is not None:
            begun = [run for run in taken if self._begin(run)]
            if plans := [run for run in begun if run.kind == "plan"]:
                with failing(plans):
                    self._write(plans)
            for run in begun:
                if run.kind == "reading":
                    with failing([run]):
                        self._read(run)

    def _begin(self, run: Run) -> bool:
        """Say that a run has begun, and read its clip; False where it is over."""
        if not run.publish("started", {"plans": len(run.plans)}, "running"):
            return False
        with failing([run]):
            run.request = Request(run.goal, run.history)
            if run.clip is not None and run.until is not None:
                run.request = Request(run.goal, video=self._clips.frames(run.clip, run.until, self._frames))
            if run.kind == "plan":
                self._examiner.begin(run)
        return not run.over

    def _write(self, runs: Sequence[Run]) -> None:
        places = [(run, number) for run in runs for number in range(len(run.plans))]
        drafts = [Draft(run.request, number, run.seed) for run, number in places if run.request is not None]
        for place, steps, outcome, before in self._planner.write(drafts, lambda at: places[at][0].over):
            run, number = places[place]
            plan = run.plans[number]
            plan.steps = plan.steps[:before]
            for step in steps:
                if not any(one.steps for one in run.plans):
                    self._metrics.first_step.observe(time.monotonic() - run.begun)
                plan.steps += (step,)
                run.publish("step", {"plan": number, "number": len(plan.steps), "text": step})
            if isinstance(outcome, Refusal):
                run.publish("failed", {"message": outcome.reason}, "failed")
                continue
            if isinstance(outcome, Answer):
                run.tokens += outcome.tokens_out
                self._metrics.tokens.inc(outcome.tokens_out)
                plan.whole = True
                if outcome.refusal and not plan.steps:
                    run.publish("failed", {"message": f"The model refused: {outcome.refusal[:600]}"}, "failed")
                    continue
            if steps or plan.whole:
                self._examiner.look(run)

    def _read(self, run: Run) -> None:
        """What Phi sees in the run's clip."""
        assert self._phi is not None
        assert run.request is not None
        assert run.request.video is not None
        asked = self._phi.request(run.goal, run.request.video)
        run.request = None  # frames are large
        with closing(self._phi.engine.stream_all([asked], lambda _: run.over)) as pieces:
            for _, piece in pieces:
                if isinstance(piece, Refusal):
                    run.publish("failed", {"message": piece.reason}, "failed")
                elif isinstance(piece, Answer):
                    run.tokens = piece.tokens_out
                    self._metrics.tokens.inc(piece.tokens_out)
                    if reason := unanswered(piece, whole=False):
                        run.publish("failed", {"message": f"The video was not described: {reason}."}, "failed")
                        return
                    steps = list(read_history(piece.text, cut=piece.cut))
                    run.publish("reading", {"steps": steps, "seconds": run.until})
                    finish(run)


class Examiner(threading.Thread):
    """Asks the corpus about the runs that have news; all that has gathered meanwhile is asked in one search."""

    def __init__(self, witness: Witness | None, metrics: PageMetrics) -> None:
        """Without a witness runs end as they are written."""
        super().__init__(name="examiner", daemon=True)
        self._witness, self._metrics = witness, metrics
        self._new: dict[str, Run] = {}
        self._news: dict[str, Run] = {}
        self._shown: dict[str, dict[tuple[int, int, str], Row]] = {}
        self._changed = threading.Condition()
        self._closed = False

    def begin(self, run: Run) -> None:
        """A run has begun: its prompt is known."""
        with self._changed:
            self._new[run.id] = run
            self._changed.notify()

    def look(self, run: Run) -> None:
        """A run has steps that are new, or a plan that is whole."""
        with self._changed:
            self._news[run.id] = run
            self._changed.notify()

    def close(self) -> None:
        """End once nothing is new."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        """Examine until closed."""
        while True:
            with self._changed:
                while not self._new and not self._news:
                    if self._closed:
                        return
                    self._changed.wait()
                new, news = list(self._new.values()), list(self._news.values())
                self._new, self._news = {}, {}
            for work in (partial(self._cover, new), partial(self._examine, news)):
                with failing([*new, *news]):
                    work()
            for run in (*new, *news):
                if run.over:
                    self._shown.pop(run.id, None)

    def _cover(self, runs: Sequence[Run]) -> None:
        runs = [run for run in runs if not run.over]
        if self._witness is None:
            sentence = "No corpus checks this plan: the server was started without one."
            for run in runs:
                run.publish("coverage", {"state": "none", "value": None, "sentence": sentence})
            return
        found = self._witness.coverage([(run.goal, run.history) for run in runs])
        for run, coverage in zip(runs, found, strict=True):
            run.publish("coverage", coverage._asdict())

    def _examine(self, runs: Sequence[Run]) -> None:
        runs = [run for run in runs if not run.over]
        # What is whole now stays so; a plan that becomes whole in between brings news of its own.
        whole = [run for run in runs if all(plan.whole for plan in run.plans)]
        if self._witness is not None:
            asked = [(run, number, plan.steps) for run in runs for number, plan in enumerate(run.plans) if plan.steps]
            # A step counts with its text: the steps of a plan begin again where those that came were a thought.
            asked = [one for one in asked if (one[1], len(one[2]), one[2][-1]) not in self._shown.get(one[0].id, {})]
            groups = [PromptGroup(run.goal, run.history, [steps]) for run, _, steps in asked]
            began = time.monotonic()
            for (run, number, steps), rows in zip(asked, self._witness.evidence(groups) if groups else [], strict=True):
                shown = self._shown.setdefault(run.id, {})
                for row in rows:
                    key = (number, row["number"], steps[row["number"] - 1])
                    if shown.get(key) != row:
                        shown[key] = row
                        run.publish("evidence", {"plan": number} | row)
            if groups:
                self._metrics.evidence.observe(time.monotonic() - began)
        for run in whole:
            self._rank(run)

    def _rank(self, run: Run) -> None:
        """The plans of a run that is written, whole and in order, and its end."""
        plans = [plan.steps for plan in run.plans]
        count = len(plans)
        order, totals = list(range(count)), [None] * count
        adds: list[list[float] | None] = [None] * count
        rewards: Sequence[float | None] = totals
        if self._witness is not None:
            scored, parts = self._witness.rewards((run.goal, run.history), plans)
            rewards, adds = [one.total for one in scored], [*parts]
            # A plan without steps is no plan, whatever its reward.
            order.sort(key=lambda number: (not plans[number], -scored[number].total))
        shown = self._shown.get(run.id, {})
        for number, steps in enumerate(plans):
            evidence = [shown[key] for key in ((number, *one) for one in enumerate(steps, 1)) if key in shown]
            row = {"plan": number, "steps": list(steps), "reward": rewards[number], "adds": adds[number]}
            run.publish("plan", row | {"evidence": evidence})
        same = [self._same(steps, plans[order[0]]) for steps in plans]
        run.publish("ranking", {"order": order, "rewards": list(rewards), "same": same})
        finish(run)

    def _same(self, steps: Sequence[str], best: Sequence[str]) -> list[int | None]:
        """For each step the number, from 1, of the best plan's step that says the same."""
        if self._witness is None:
            return [best.index(step) + 1 if step in best else None for step in steps]
        return [None if place is None else place + 1 for place in self._witness.same(steps, best)]


def finish(run: Run) -> None:
    """End a run that came to its end."""
    run.publish("done", {"seconds": round(time.monotonic() - run.begun, 3), "tokens": run.tokens}, "done")


@contextmanager
def failing(runs: Sequence[Run]) -> Iterator[None]:
    """End these runs with the reason where the work on them fails; a fault of the program is logged."""
    try:
        yield
        return
    except refusals.Refusal as refused:
        message = refused.message
    except RecipeError as error:
        _LOG.warning("%d runs failed: %s", len(runs), error)
        message = str(error)
    except Exception:  # noqa: BLE001 - logged with its traceback
        _LOG.exception("%d runs failed", len(runs))
        message = "The server failed; its log tells why. Try again."
    for run in runs:
        run.publish("failed", {"message": message}, "failed")
