"""The present state of a run, as JSON and as Markdown, made from its events so far and nothing else."""

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel

from recipe.clock import clock
from recipe.report.markdown import markdown_text
from recipe_apps.serving.runs import Run, State


class GroundState(BaseModel):
    """What one narration says of a step."""

    text: str
    video_id: str
    title: str | None
    when: str
    """The moment in the video, as a player shows it; empty where it is not known."""
    link: str | None
    similarity: float


class EvidenceState(BaseModel):
    """What the narrations say of one step."""

    number: int
    """Number of the step, from 1."""
    state: Literal["supported", "unsupported"]
    matched_in: int
    """Narrations about the task that say something close to the step."""
    opposed_in: int = 0
    """Narrations about the task that say its opposite."""
    pool: int
    """Narrations that were compared."""
    about: int
    """Those of them that are about the task, a copy once."""
    grounds: list[GroundState]
    """The first of those that say so."""


class PlanState(BaseModel):
    """One plan. What is not known yet, and what a server without a corpus never knows, is null."""

    plan: int
    """Its number, as in the events, in feedback and in questions about deviation."""
    steps: list[str]
    rank: int | None = None
    """By reward, from 1; null without rewards."""
    reward: float | None = None
    adds: list[float] | None = None
    """The reward of the plan minus that without the step, for each step."""
    samples: int | None = None
    """How many of the run's samples wrote this plan, but for case and white space; null until all are written."""
    evidence: list[EvidenceState] = []


class CoverageState(BaseModel):
    """How far the corpus knows the task."""

    state: Literal["known", "partly", "unknown", "none"]
    value: float | None
    sentence: str


class RunState(BaseModel):
    """The answer to `GET /api/runs/{id}`."""

    id: str
    kind: Literal["plan", "reading"]
    state: State
    position: int
    goal: str
    history: list[str]
    until: float | None
    """With a clip: the seconds up to which it is read, in place of a history."""
    asked: str
    """When the run was asked for: ISO 8601, UTC."""
    coverage: CoverageState | None = None
    plans: list[PlanState]
    """Once all are written: those that differ, the best first."""
    reading: list[str] | None = None
    """The steps that were read in a clip."""
    seconds: float | None = None
    tokens: int | None = None
    """Null where the endpoint did not count them."""
    message: str | None = None
    """Why the run failed or was cancelled."""
    events: int
    """How many events there are so far."""

    @classmethod
    def of(cls, run: Run) -> "RunState":
        """The run, from its events."""
        # The state before the events: a run that ends in between is not shown as done without what its end told.
        names = ("id", "kind", "state", "position", "goal", "history", "until", "asked")
        own = {name: getattr(run, name) for name in names}
        facts: dict[str, Any] = {}
        evidence: dict[tuple[int, int], Any] = {}
        whole: dict[int, Any] = {}
        events = tuple(run.events)
        for event in events:
            fields = dict(line.split(": ", 1) for line in event.decode().split("\n") if line)
            kind, data = fields["event"], json.loads(fields["data"])
            match kind:
                case "step":  # what was said of the step that stood here is not said of this one
                    evidence.pop((data["plan"], data["number"]), None)
                case "evidence":
                    evidence[data["plan"], data["number"]] = data
                case "plan":
                    whole[data["plan"]] = data
                case "coverage" | "ranking":
                    facts[kind] = data
                case "reading":
                    facts["reading"] = data["steps"]
                case "done" | "failed" | "cancelled":
                    facts |= {"seconds": data.get("seconds"), "tokens": data.get("tokens")}
                    facts["message"] = data.get("message") or data.get("reason")
        ranking = facts.pop("ranking", None)
        plans = []
        for number, steps in enumerate(tuple(run.plans)) if ranking is None else ():
            known = [evidence[number, place] for place in range(1, len(steps) + 1) if (number, place) in evidence]
            plans.append({"plan": number, "steps": steps, "evidence": known} | whole.get(number, {}))
        for place, number in enumerate([] if ranking is None else ranking["order"], start=1):
            plans.append(whole[number] | {"rank": None if whole[number]["reward"] is None else place})
        return cls.model_validate(own | {"plans": plans, "events": len(events)} | facts)

    def markdown(self) -> str:
        """Goal, done steps and the plans with their evidence, as a document."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# {markdown_text(self.goal)}\n"
        yield f"{self.asked[:10]}\n"
        if self.coverage is not None:
            yield f"{markdown_text(self.coverage.sentence)}\n"
        yield "## Done\n"
        if self.until is not None:
            yield f"What a clip shows up to {clock(self.until)}."
        elif not self.history:
            yield "Nothing."
        yield from (f"{number}. {markdown_text(step)}" for number, step in enumerate(self.history, start=1))
        for plan in self.plans:
            yield "\n## Plan\n" if len(self.plans) == 1 else f"\n## Plan {plan.plan + 1}\n"
            if plan.reward is not None:
                rank = "" if len(self.plans) == 1 and plan.rank == 1 else f", rank {plan.rank}"
                yield f"Reward {plan.reward:.3f}{rank}.\n"
            said = {row.number: row for row in plan.evidence}
            for number, step in enumerate(plan.steps, start=1):
                yield f"{number}. **{markdown_text(step)}**"
                if (row := said.get(number)) is None or not row.pool:  # nothing was compared
                    continue
                so = "" if row.state == "supported" else "not supported: "
                opposed = f"; {row.opposed_in} for the opposite" if row.opposed_in else ""
                counts = (
                    f"{row.matched_in} of the {row.about} videos about this" if row.about else "no video is about this"
                )
                yield f"   - {so}{counts}{opposed}"
                for ground in row.grounds:
                    parts = filter(None, (ground.title or ground.video_id, ground.when))
                    place = markdown_text(", ".join(parts))
                    link = (ground.link or "").replace(" ", "%20").replace(">", "%3E").replace("<", "%3C")
                    place = (
                        f"[{place.replace(']', ' ')}](<{link}>)" if link.startswith(("https://", "http://")) else place
                    )
                    yield f'   - "{markdown_text(ground.text)}" ({place})'
