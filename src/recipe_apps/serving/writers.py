"""The threads behind the page and what they count: one writes plans, the other asks the corpus about each step."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from recipe.config import FrameConfig
from recipe.errors import RecipeError
from recipe.models.protocol import Answer, Refusal
from recipe.perception.phi import Phi, read_history, undescribed
from recipe.planning.planner import PlanDraft, Planner, Request
from recipe.planning.search import Composition, PlanSearch
from recipe.reward.scorer import Steps
from recipe.text import distinct_plans
from recipe_apps.serving.clips import ClipStore
from recipe_apps.serving.evidence import CorpusEvidence, Row
from recipe_apps.serving.runs import Run, Runs
from recipe_apps.web import refusals
from recipe_apps.web.guard import SECONDS, WebMetrics

_LOG = logging.getLogger(__name__)
_Published = dict[tuple[int, int], tuple[str, Row]]


class PageMetrics(WebMetrics):
    """Counters of one planner page; the length of its queue is read whenever metrics are asked for."""

    def __init__(self, runs: Runs) -> None:
        super().__init__("recipe_page")
        self.ended = self.counter("runs", "Runs that are over, by how they ended.", "state")
        self.first_step = self.histogram("first_step_seconds", "Time from request to first step.", SECONDS)
        self.evidence = self.histogram("evidence_seconds", "Time of asking the corpus about steps.", SECONDS)
        self.tokens = self.counter("tokens", "Tokens written.")
        self.gauge("waiting", "Runs that wait.", follow=lambda: len(runs.waiting))
        self.gauge(
            "running",
            "Runs that are written.",
            follow=lambda: sum(run.state == "running" for run in list(runs.known.values())),
        )


class Writer(threading.Thread):
    """Takes runs from the queue and writes their plans side by side; a run that is over gets no further token."""

    def __init__(
        self,
        runs: Runs,
        planner: Planner,
        evidence: "EvidenceWorker",
        metrics: PageMetrics,
        clips: ClipStore,
        frames: FrameConfig,
        phi: Phi | None = None,
        search: PlanSearch | None = None,
        room: int = 64,
    ) -> None:
        """`room` plans are written at once; with a `search` they are composed."""
        super().__init__(name="writer", daemon=True)
        self._runs, self._planner, self._evidence, self._metrics = runs, planner, evidence, metrics
        self._clips, self._frames, self._phi, self._search, self._room = clips, frames, phi, search, room

    def run(self) -> None:
        """Write until the queue is closed."""
        while (runs := self._runs.take(self._room)) is not None:
            for run in runs:
                if not run.publish("started", {"plans": len(run.plans)}, "running"):
                    continue
                with _ending_on_failure([run]):
                    run.request = Request(run.goal, run.history)
                    if run.clip is not None and run.until is not None:
                        run.request = Request(run.goal, video=self._clips.frames(run.clip, run.until, self._frames))
                    if run.kind == "plan":
                        self._evidence.notify(run)
            if plans := [run for run in runs if run.kind == "plan" and not run.over]:
                with _ending_on_failure(plans):
                    if self._search is None:
                        self._write(plans)
                    else:
                        self._compose(plans, self._search)
            for run in runs:
                if run.kind == "reading" and not run.over:
                    with _ending_on_failure([run]):
                        self._read(run)

    def _write(self, runs: Sequence[Run]) -> None:
        numbered = [(run, number) for run in runs for number in range(len(run.plans))]
        drafts = [PlanDraft(run.request, number, run.seed) for run, number in numbered if run.request is not None]
        for index, steps, outcome, before in self._planner.write(drafts, lambda draft: numbered[draft][0].over):
            run, number = numbered[index]
            run.plans[number] = run.plans[number][:before]
            if steps:
                self._show(run, number, (*run.plans[number], *steps))
            if isinstance(outcome, Refusal):
                run.publish("failed", {"message": outcome.reason}, "failed")
                continue
            if isinstance(outcome, Answer):
                run.count(outcome.tokens_out)
                self._metrics.tokens.inc(outcome.tokens_out)
                run.whole.add(number)
                if outcome.refusal and not run.plans[number]:
                    run.publish("failed", {"message": f"The model refused: {outcome.refusal[:600]}"}, "failed")
                    continue
            if steps or number in run.whole:
                self._evidence.notify(run)

    def _compose(self, runs: Sequence[Run], search: PlanSearch) -> None:
        """Show the steps that each search chooses; a run that is over ends with the level under way."""
        drafts = [PlanDraft(run.request, 0, run.seed) for run in runs if run.request is not None]
        prompts = [(run.goal, run.history) for run in runs]
        for place, begun, outcome in search.stream(drafts, prompts, lambda place: runs[place].over):
            run = runs[place]
            if isinstance(outcome, Refusal):
                run.publish("failed", {"message": outcome.reason}, "failed")
            elif isinstance(outcome, Composition):
                self._metrics.tokens.inc(outcome.record.tokens_out)
                run.search = outcome.record
                run.count(outcome.record.tokens_out)
                run.plans = [plan.steps for plan in outcome.plans[: len(run.plans)]]
                run.whole.update(range(len(run.plans)))
                self._evidence.notify(run)
            else:
                # A beginning stays where the one stood that it continues, so that people can follow it.
                grown, free = list(begun[: len(run.plans)]), list[int]()
                for number, shown in enumerate(run.plans):
                    own = next((steps for steps in grown if shown and steps[: len(shown)] == shown), None)
                    if own is None:
                        free.append(number)
                    else:
                        grown.remove(own)
                        self._show(run, number, own)
                for number, steps in zip(free, grown, strict=False):
                    self._show(run, number, steps)
                self._evidence.notify(run)

    def _show(self, run: Run, number: int, steps: Steps) -> None:
        """Publish what is new of a plan."""
        shown = run.plans[number]
        if not any(run.plans):
            self._metrics.first_step.observe(time.monotonic() - run.begun)
        run.plans[number] = steps
        for place, step in enumerate(steps, start=1):
            if shown[place - 1 : place] != (step,):
                run.publish("step", {"plan": number, "number": place, "text": step})

    def _read(self, run: Run) -> None:
        """Put into words what Phi sees in the run's clip."""
        assert self._phi is not None
        assert run.request is not None
        assert run.request.video is not None
        request = self._phi.request(run.goal, run.request.video)
        run.request = None  # frames are large
        with closing(self._phi.engine.stream_all([request], lambda _: run.over)) as pieces:
            for _, piece in pieces:
                if isinstance(piece, Refusal):
                    run.publish("failed", {"message": piece.reason}, "failed")
                elif isinstance(piece, Answer):
                    run.count(piece.tokens_out)
                    self._metrics.tokens.inc(piece.tokens_out)
                    if reason := undescribed(piece):
                        run.publish("failed", {"message": f"The video was not described: {reason}."}, "failed")
                        return
                    steps = list(read_history(piece.text, cut=piece.cut))
                    run.publish("reading", {"steps": steps, "seconds": run.until})
                    finish(run)


class EvidenceWorker(threading.Thread):
    """Asks the corpus about the runs that have news; all that has gathered meanwhile is asked in one search."""

    def __init__(self, corpus: CorpusEvidence | None, metrics: PageMetrics) -> None:
        """Without a corpus runs end as they are written."""
        super().__init__(name="evidence", daemon=True)
        self.corpus, self._metrics = corpus, metrics
        # For each run under way the corpus that it is asked about to its end, whatever is served meanwhile, and the
        # last text and row of each of its steps, by plan and number.
        self.known: dict[Run, tuple[CorpusEvidence | None, _Published]] = {}
        self._news: dict[Run, None] = {}
        self._changed = threading.Condition()
        self._closed = False

    def notify(self, run: Run) -> None:
        """Tell that a run has begun, has further steps, or has a plan that is whole."""
        with self._changed:
            self._news[run] = None
            self._changed.notify()

    def close(self) -> None:
        """End once nothing is new."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        """Ask the corpus until closed."""
        while True:
            with self._changed:
                while not self._news:
                    if self._closed:
                        return
                    self._changed.wait()
                runs, self._news = [run for run in self._news if not run.over], {}
            begun = [run for run in runs if run not in self.known]
            self.known |= {run: (self.corpus, {}) for run in begun}
            for corpus in dict.fromkeys(self.known[run][0] for run in runs):
                own = [run for run in runs if self.known[run][0] is corpus]
                with _ending_on_failure(own):
                    self._examine(corpus, own, [run for run in own if run in begun])
            # Of all that are known: one that was cancelled brings no news, and a replaced corpus would stay for it.
            for run in [run for run in self.known if run.over]:
                del self.known[run]

    def _examine(self, corpus: CorpusEvidence | None, runs: Sequence[Run], begun: Sequence[Run]) -> None:
        # What is whole now stays so; a plan that becomes whole in between brings news of its own.
        whole = [run for run in runs if len(run.whole) == len(run.plans)]
        if corpus is None:
            sentence = "No corpus checks this plan: the server was started without one."
            for run in begun:
                run.publish("coverage", {"state": "none", "value": None, "sentence": sentence})
        else:
            coverages = corpus.coverage([(run.goal, run.history) for run in begun])
            for run, coverage in zip(begun, coverages, strict=True):
                run.publish("coverage", coverage)
            # A step counts with its text: the steps of a plan begin again where those that came were a thought, and a
            # search may put another plan in its place.
            grown = [
                (run, number, steps)
                for run in runs
                for number, steps in enumerate(run.plans)
                if any(
                    self.known[run][1].get((number, place), ("",))[0] != step
                    for place, step in enumerate(steps, start=1)
                )
            ]
            if grown:
                started = time.monotonic()
                evidence = corpus.evidence([((run.goal, run.history), steps) for run, _, steps in grown])
                for (run, number, steps), rows in zip(grown, evidence, strict=True):
                    published = self.known[run][1]
                    for row in rows:
                        key, known = (number, row["number"]), (steps[row["number"] - 1], row)
                        if published.get(key) != known:
                            published[key] = known
                            run.publish("evidence", {"plan": number} | row)
                self._metrics.evidence.observe(time.monotonic() - started)
        # The plans of a run that is written, whole and in order, and its end. Equal plans are one.
        for run in whole:
            plans = list(run.plans)
            samples = distinct_plans(plans)
            order = list(samples)
            totals: list[float | None] = [None] * len(plans)
            adds: list[list[float] | None] = [None] * len(plans)
            if corpus is not None:
                rewards, parts = corpus.without_each_step((run.goal, run.history), [plans[number] for number in order])
                for number, reward, added in zip(samples, rewards, parts, strict=True):
                    totals[number], adds[number] = reward.total, added
                # A plan without steps is no plan, whatever its reward.
                order.sort(key=lambda number: (not plans[number], -(totals[number] or 0.0)))
            published = self.known[run][1]
            for number in samples:
                steps = plans[number]
                stored = [published.get((number, place), ("", {})) for place in range(1, len(steps) + 1)]
                plan = {"plan": number, "steps": list(steps), "reward": totals[number], "adds": adds[number]}
                rows = [row for step, (text, row) in zip(steps, stored, strict=True) if text == step]
                run.publish("plan", plan | {"samples": samples[number], "evidence": rows})
            # For each step the number, from 1, of the best plan's step that says the same.
            best = plans[order[0]]
            same: list[list[int | None]] = []
            for number, steps in enumerate(plans):
                if number not in samples:
                    same.append([])
                elif corpus is None:
                    same.append([best.index(step) + 1 if step in best else None for step in steps])
                else:
                    partners = corpus.same(steps, best)
                    same.append([None if partner is None else partner + 1 for partner in partners])
            counts = [samples.get(number, 0) for number in range(len(plans))]
            run.publish("ranking", {"order": order, "rewards": totals, "same": same, "samples": counts})
            finish(run)


def finish(run: Run) -> None:
    """End a run that came to its end."""
    seconds = round(time.monotonic() - run.begun, 3)
    run.publish("done", {"seconds": seconds, "tokens": run.tokens, "search": run.search}, "done")


@contextmanager
def _ending_on_failure(runs: Sequence[Run]) -> Iterator[None]:
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
