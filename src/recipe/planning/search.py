"""Plans composed step by step: a verifier chooses each next step by the best whole plan that begins with it.

The model samples `samples` whole plans once. At the level k each beginning that is kept has k chosen steps. Behind them
stands what is behind a step k - 1, k or k + 1 of a sampled plan, with that step, to the end of the plan. The verifier
rewards these whole plans. A beginning of k + 1 steps is worth as much as the best plan that was found to begin so, and
the `width` best go on. At the end the plan of the highest reward is taken, of all that were found.

Every plan that is rewarded ends where the model ended one. A beginning itself is not rewarded: the verifier would
choose the step that adds most by itself, leave out what comes before it, and end too early.

Plans with the same steps are one plan, whatever wrote them. A step that is done or planned already is a candidate as
any other: the verifier decides. A sampled plan's random numbers belong to the seed, the sample and the prompt, so that
what is composed does not depend on what else is composed with it, up to rounding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from recipe.config.planning import SearchConfig
from recipe.errors import InputError
from recipe.models.protocol import Answer, ModelRequest, Refusal, Stopped
from recipe.planning.planner import PlanDraft, Planner, Request, prediction_of, read_plan
from recipe.planning.predictions import Prediction, SearchRecord
from recipe.progress import SILENT, Advance, Progress
from recipe.reward.scorer import Prompt, PromptGroup, Scorer, Steps, batches, score_or_raise
from recipe.text import format_plan
from recipe.types import Example, Plan, Reward

# Examples that are searched side by side: the rewards of all plans that are found are in memory.
_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class SearchedPlan:
    """A whole plan that a search came upon."""

    steps: Steps
    answer: Answer
    """What the model wrote; of a recombined plan its numbered list."""
    reward: Reward | None = None
    """None where the budget was spent before."""

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Sorts plans, the best first; one without steps is no plan, whatever its reward."""
        return not self.steps, self.reward is None, 0.0 if self.reward is None else -self.reward.total


@dataclass(frozen=True, slots=True)
class Composition:
    """The plans that a search ended with."""

    plans: tuple[SearchedPlan, ...]
    """Those that have a reward, the best first; the first that the model wrote where the budget allowed no reward."""
    record: SearchRecord


class SearchLevel(NamedTuple):
    """What came of a draft at one level of its search."""

    draft: int
    """Its place among the drafts."""
    begun: tuple[Steps, ...]
    """The steps that are chosen, of each plan that goes on, the best first."""
    outcome: Composition | Refusal | None = None
    """At the end of the search."""


@dataclass(slots=True)
class _Search:
    """The search for one draft."""

    draft: PlanDraft
    request: ModelRequest
    prompt: Prompt
    """What the scorer reads."""
    begun: tuple[Steps, ...] = ((),)
    """The beginnings that go on, all of one length; the best first."""
    plans: dict[Steps, SearchedPlan] = field(default_factory=dict)
    sampled: list[SearchedPlan] = field(default_factory=list)
    """The plans that the model wrote, whose steps are candidates."""
    texts: set[str] = field(default_factory=set)
    """Steps that were encoded."""
    tokens_in: int = 0
    tokens_out: int = 0
    spent: bool = False
    """Whether a plan was beyond the budget."""
    refusal: Refusal | None = None

    def recombined(self) -> list[SearchedPlan]:
        """The beginnings, each with the ends of sampled plans that may stand at about this place."""
        plans = []
        for begun in self.begun:
            place = len(begun)
            for sampled in self.sampled:
                # A plan that left a step out, or has one more, is shifted by one place.
                for start in range(max(place - 1, 0), min(place + 2, len(sampled.steps))):
                    steps = (*begun, *sampled.steps[start:])
                    plans.append(SearchedPlan(steps, Answer(format_plan(steps), decoding=sampled.answer.decoding)))
        return plans

    def choose(self, width: int) -> None:
        """Choose the next step of the beginnings that go on; none goes on once the budget is spent."""
        place = len(self.begun[0])
        best: dict[Steps, SearchedPlan] = {}
        # The best first: a longer beginning is worth as much as the first plan here that begins so.
        for plan in sorted(self.plans.values(), key=lambda plan: plan.rank):
            if len(plan.steps) > place and plan.steps[:place] in self.begun and plan.reward is not None:
                best.setdefault(plan.steps[: place + 1], plan)
        self.begun = () if self.spent else tuple(best)[:width]

    def composition(self, config: SearchConfig) -> Composition:
        """The plans at the end of a search by these settings."""
        ranked = sorted(self.plans.values(), key=lambda plan: plan.rank)
        rewarded = [plan for plan in ranked if plan.reward is not None]
        record = SearchRecord(
            **config.model_dump(),
            spent=self.spent,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            encodings=len(self.texts),
            rewards=len(rewarded),
        )
        # Without a reward a plan is no choice of the search: what the model wrote first is the answer.
        return Composition(tuple(rewarded or ranked[:1]), record)


class PlanSearch:
    """Composes plans of what a planner writes by the rewards of a scorer."""

    def __init__(self, planner: Planner, scorer: Scorer, config: SearchConfig) -> None:
        self._planner, self.config = planner, config
        # May be replaced; searches under way keep theirs.
        self.scorer = scorer

    def compose(
        self, drafts: Sequence[PlanDraft], prompts: Sequence[Prompt] | None = None, advance: Advance = lambda _: None
    ) -> list[Composition | Refusal]:
        """The plans of each draft, in order, or the refusal of its chat. Raises as `stream`."""
        outcomes: dict[int, Composition | Refusal] = {}
        for place, _, outcome in self.stream(drafts, prompts):
            if outcome is not None:
                outcomes[place] = outcome
                advance(1)
        return [outcomes[place] for place in range(len(drafts))]

    def predict(
        self,
        examples: Sequence[Example],
        count: int = 1,
        progress: Progress = SILENT,
        see: Callable[[Example], Request] = Request.of,
        unanswered: dict[str, str] | None = None,
    ) -> list[Prediction]:
        """The `count` best plans of each example, with their rewards, as `Planner.predict` gives its plans.

        The scorer reads the history of the example, also where `see` makes a request that shows a clip.
        """
        predictions, drafts = list[Prediction](), list[PlanDraft]()
        with progress.task("composing plans", total=len(examples)) as advance:
            for number, example in enumerate(examples, start=1):
                drafts.append(PlanDraft(see(example)))
                alone = drafts[-1].request.video is not None  # frames are large
                if len(drafts) < _TOGETHER and number < len(examples) and not alone:
                    continue
                own = examples[number - len(drafts) : number]
                prompts = [(example.goal, example.history) for example in own]
                for example, outcome in zip(own, self.compose(drafts, prompts, advance), strict=True):
                    if isinstance(outcome, Refusal):
                        if unanswered is None:
                            raise InputError(outcome.reason)
                        unanswered[example.example_id] = outcome.reason
                        continue
                    for sample, plan in enumerate(outcome.plans[:count]):
                        made = prediction_of(example.example_id, sample, plan.answer, plan.reward)
                        predictions.append(replace(made, steps=plan.steps, search=outcome.record))
                drafts.clear()
        return predictions

    def stream(
        self, drafts: Sequence[PlanDraft], prompts: Sequence[Prompt] | None = None, stopped: Stopped = lambda _: False
    ) -> Iterator[SearchLevel]:
        """Each level of each draft's search as it ends; all drafts are searched side by side.

        `prompts` are what the scorer reads, in place of the drafts' own goals and histories. A draft that is `stopped`
        is searched no further than its level, and has no outcome. Raises what the engine raises, and ComputeError,
        CorpusError or InputError where a plan has no reward.
        """
        own_prompts = [(draft.request.goal, draft.request.history) for draft in drafts] if prompts is None else prompts
        requests = self._planner.requests(drafts)
        scorer = self.scorer
        live = {place: _Search(*parts) for place, parts in enumerate(zip(drafts, requests, own_prompts, strict=True))}
        searches = list(live.values())
        self._sample(searches)
        self._reward(scorer, searches, [search.sampled for search in searches])
        while live := {place: search for place, search in live.items() if not stopped(place)}:
            # The level of all searches at once, in one call of the scorer.
            searches = list(live.values())
            self._reward(scorer, searches, [search.recombined() for search in searches])
            for place, search in list(live.items()):
                search.choose(self.config.width)
                if search.begun and search.refusal is None:
                    yield SearchLevel(place, search.begun)
                else:
                    del live[place]
                    yield SearchLevel(place, (), search.refusal or search.composition(self.config))

    def _sample(self, searches: Sequence[_Search]) -> None:
        """Give each search the whole plans that the model writes, in one call of the engine."""
        count = self.config.samples
        asked = [
            # Numbers of their own: two drafts of one request must not get the same samples.
            (search, replace(search.request, sample=search.draft.sample * count + number))
            for search in searches
            for number in range(count)
        ]
        outcomes = self._planner.engine.answer([request for _, request in asked])
        for (search, _), outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, Answer):
                search.tokens_in += outcome.tokens_in
                search.tokens_out += outcome.tokens_out
                plan = read_plan(outcome)
                steps = plan.steps if isinstance(plan, Plan) else ()
                search.sampled.append(SearchedPlan(steps, outcome))
            else:
                search.refusal = outcome

    def _reward(
        self, scorer: Scorer, searches: Sequence[_Search], candidates: Sequence[Iterable[SearchedPlan]]
    ) -> None:
        """Reward the plans that are new, in one call, as far as the budget of each search goes."""
        budget, asked, groups = self.config.budget, list[_Search](), list[PromptGroup]()
        for search, plans in zip(searches, candidates, strict=True):
            affordable = list[Steps]()
            for plan in plans:
                if plan.steps in search.plans:
                    continue
                # Also where the budget does not allow its reward: without any reward it may be the answer.
                search.plans[plan.steps] = plan
                texts = search.texts.union(plan.steps)
                # The budget counts what a reward costs: encodings of distinct steps.
                if budget is not None and len(texts) > budget:
                    search.spent = True
                else:
                    search.texts = texts
                    affordable.append(plan.steps)
            if affordable:
                asked.append(search)
                groups.append(PromptGroup(*search.prompt, affordable))
        rewards = [own for batch in batches(groups) for own in score_or_raise(scorer, batch)]
        for search, group, own in zip(asked, groups, rewards, strict=True):
            for steps, reward in zip(group.plans, own, strict=True):
                search.plans[steps] = replace(search.plans[steps], reward=reward)
