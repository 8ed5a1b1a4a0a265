"""Plans composed step by step: a planner proposes the next step, a verifier rewards it, and the best go on.

At each level every plan that is kept is given candidates for its next step, each candidate makes a longer plan, the
verifier rewards it, and the `width` best are kept. A plan ends where the model ends it. Of the plans that have ended,
the one of the highest reward is taken. Candidates come from one of two sources:

    beam       the model goes on with the text of the plan, `branch` times, up to the end of a step
    recombine  `samples` whole plans are sampled once. The candidates for the step k of a plan are their steps k - 1, k
               and k + 1. A plan may end with a step that ends one of them, and they themselves are candidates, too.

Plans with the same steps are one plan, whatever wrote them. A step that is done or planned already is a candidate as
any other: the verifier decides. A candidate's random numbers belong to the seed, the sample and the text before it, so
that what is composed does not depend on what else is composed beside it, up to rounding.

The verifier sees many more plans here than it does when it chooses among n whole ones, so that its faults are sought
out, too: docs/planning.md says at which budgets its reward rises while plans get worse.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from recipe.config import SearchConfig
from recipe.errors import InputError
from recipe.models.protocol import Answer, ModelRequest, Refusal, Stopped, read_plan
from recipe.models.sampling import Decoding
from recipe.planning.planner import PlanDraft, Planner, Request
from recipe.planning.predictions import Prediction, SearchRecord
from recipe.progress import SILENT, Advance, Progress
from recipe.reward.scorer import Prompt, PromptGroup, Scorer, Steps, batches, score_or_raise
from recipe.text import final_answer, first_list, format_plan
from recipe.types import Example, Plan, Reward

_TOGETHER = 256
"""Examples that are searched side by side: the rewards of all their beginnings are in memory."""
_LINES = 64
"""Lines without a further step after which a plan is at its end: a model may write remarks for ever."""


@dataclass(frozen=True, slots=True)
class BegunPlan:
    """A plan as far as it is composed."""

    steps: Steps = ()
    text: str = ""
    """What the model wrote of it; of a recombined plan its numbered list."""
    tokens: int = 0
    """Tokens of this text."""
    ended: bool = False
    cut: bool = False
    """Whether the limit of tokens ended it."""
    reward: Reward | None = None
    """None until it is rewarded."""

    @property
    def rank(self) -> tuple[bool, float]:
        """Sorts plans, the best first; one without steps is no plan, whatever its reward."""
        return not self.steps, 0.0 if self.reward is None else -self.reward.total


@dataclass(frozen=True, slots=True)
class Composition:
    """The plans that a search ended with."""

    plans: tuple[BegunPlan, ...]
    """The best first, one at least. Where the budget was spent before any plan had ended, the best of those begun."""
    record: SearchRecord
    decoding: Decoding | None
    """How the model's steps were sampled."""

    def answer(self, sample: int) -> Answer:
        """A plan as an answer of the model."""
        plan = self.plans[sample]
        return Answer(plan.text, finish="length" if plan.cut else "stop", decoding=self.decoding)

    def predictions(self, example_id: str, count: int = 1) -> list[Prediction]:
        """The `count` best plans for an example, or as many as there are."""
        made = []
        for sample, plan in enumerate(self.plans[:count]):
            own = Prediction.of(example_id, sample, self.answer(sample), plan.reward)
            made.append(replace(own, steps=plan.steps, search=self.record))
        return made


class SearchLevel(NamedTuple):
    """What came of a draft at one level of its search."""

    draft: int
    """Its place among the drafts."""
    plans: tuple[BegunPlan, ...]
    """Those that go on, the best first."""
    outcome: Composition | Refusal | None = None
    """At the end of the search."""


@dataclass(slots=True)
class _Search:
    """The search for one draft."""

    draft: PlanDraft
    request: ModelRequest
    prompt: Prompt
    """What the scorer reads."""
    going_on: list[BegunPlan] = field(default_factory=lambda: [BegunPlan()])
    """The best first."""
    ended: dict[Steps, BegunPlan] = field(default_factory=dict)
    sampled: list[Steps] = field(default_factory=list)
    """Of `recombine`, the plans whose steps are candidates."""
    rewards: dict[Steps, Reward] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    """Steps that were encoded."""
    tokens_in: int = 0
    tokens_out: int = 0
    decoding: Decoding | None = None
    spent: bool = False
    """Whether a step was beyond the budget."""
    refusal: Refusal | None = None

    def count(self, outcome: Answer | Refusal) -> None:
        """Add an answer to the cost."""
        if isinstance(outcome, Answer):
            self.tokens_in += outcome.tokens_in
            self.tokens_out += outcome.tokens_out
            self.decoding = self.decoding or outcome.decoding


class PlanSearch:
    """Composes plans of what a planner proposes by the rewards of a scorer."""

    def __init__(self, planner: Planner, scorer: Scorer, config: SearchConfig) -> None:
        """Raises InputError for `beam` where the planner's engine cannot go on with a text that is begun."""
        self._planner, self._scorer, self.config = planner, scorer, config
        if config.search == "beam" and not planner.engine.continues:
            raise InputError(
                "this model is not known to go on with an answer that is begun, as --search beam needs; take --search "
                "recombine, or --set model.continues=true for an endpoint of vLLM."
            )

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
                    if isinstance(outcome, Composition):
                        predictions += outcome.predictions(example.example_id, count)
                    elif unanswered is None:
                        raise InputError(outcome.reason)
                    else:
                        unanswered[example.example_id] = outcome.reason
                drafts.clear()
        return predictions

    def stream(
        self,
        drafts: Sequence[PlanDraft],
        prompts: Sequence[Prompt] | None = None,
        stopped: Stopped = lambda _: False,
    ) -> Iterator[SearchLevel]:
        """Each level of each draft's search as it ends; all drafts are searched side by side.

        `prompts` are what the scorer reads, in place of the drafts' own goals and histories. A draft that is `stopped`
        is searched no further than its level, and has no outcome. Raises what the engine raises, and ComputeError,
        CorpusError or InputError where a plan has no reward.
        """
        own_prompts = [(draft.request.goal, draft.request.history) for draft in drafts] if prompts is None else prompts
        requests = self._planner.requests(drafts)
        searches = [_Search(*one) for one in zip(drafts, requests, own_prompts, strict=True)]
        live = dict(enumerate(searches))
        if self.config.search == "recombine":
            self._sample(searches)
        while live := {place: search for place, search in live.items() if not stopped(place)}:
            # The level of all searches at once: one call of the engine, and one of the scorer.
            own = list(live.values())
            candidates = self._written(own) if self.config.search == "beam" else list(map(_recombined, own))
            self._reward(own, candidates)
            for (place, search), proposed in zip(list(live.items()), candidates, strict=True):
                rest = self._choose(search, proposed)
                if search.going_on and search.refusal is None:
                    yield SearchLevel(place, tuple(search.going_on))
                else:
                    del live[place]
                    yield SearchLevel(place, (), search.refusal or self._composition(search, rest))

    def _sample(self, searches: Sequence[_Search]) -> None:
        """Sample the whole plans that `recombine` composes of, and reward them."""
        count = self.config.samples
        requests = [
            replace(search.request, sample=search.draft.sample * count + number)
            for search in searches
            for number in range(count)
        ]
        outcomes = iter(self._planner.engine.answer(requests))
        whole: list[list[BegunPlan]] = []
        for search in searches:
            whole.append([])
            for _, outcome in zip(range(count), outcomes, strict=False):
                search.count(outcome)
                if isinstance(outcome, Refusal):
                    search.refusal = outcome
                    continue
                plan, text = read_plan(outcome), outcome.text or outcome.refusal
                steps = plan.steps if isinstance(plan, Plan) else ()
                search.sampled.append(steps)
                whole[-1].append(BegunPlan(steps, text, outcome.tokens_out, ended=True, cut=outcome.cut))
        self._reward(searches, whole)
        for search, plans in zip(searches, whole, strict=True):
            for plan in _rewarded(search, plans):
                search.ended.setdefault(plan.steps, plan)

    def _written(self, searches: Sequence[_Search]) -> list[list[BegunPlan]]:
        """For each search its plans, each with `branch` further steps or ends that the model writes."""
        # A search begins with `width` times the empty plan, so that its first level has as many candidates as others.
        most, branch = self.config.width * self.config.branch, self.config.branch
        begun, numbers = list[tuple[_Search, BegunPlan]](), list[int]()
        for search in searches:
            for plan in search.going_on:
                count = branch if plan.text else most
                begun += [(search, plan)] * count
                numbers += range(count)
        written: list[BegunPlan] = [plan for _, plan in begun]
        # A line may hold no step, such as a remark before the list: the model goes on behind it.
        waiting, blank = list(range(len(begun))), 0
        for _ in range(_LINES):
            requests = [
                replace(
                    begun[at][0].request,
                    sample=begun[at][0].draft.sample * most + numbers[at],
                    begun=written[at].text,
                    line=True,
                )
                for at in waiting
            ]
            outcomes = self._planner.engine.answer(requests)
            for at, outcome in zip(waiting, outcomes, strict=True):
                begun[at][0].count(outcome)
                if isinstance(outcome, Refusal) and not written[at].text:
                    begun[at][0].refusal = outcome
                written[at] = _grown(written[at], outcome, begun[at][0].request.sampling.max_tokens)
            blank = 0 if any(not isinstance(one, Answer) or one.text != "\n" for one in outcomes) else blank + 1
            if blank == 2:
                raise InputError(
                    "the model writes line breaks only where a plan should go on; its chat template may drop the one "
                    "that ends a step: take --search recombine."
                )
            waiting = [at for at in waiting if not written[at].ended and written[at].steps == begun[at][1].steps]
            if not waiting:
                break
        for at in waiting:
            written[at] = replace(written[at], ended=True)
        of: dict[int, list[BegunPlan]] = {id(search): [] for search in searches}
        for (search, _), plan in zip(begun, written, strict=True):
            of[id(search)].append(plan)
        return list(of.values())

    def _reward(self, searches: Sequence[_Search], candidates: Sequence[Sequence[BegunPlan]]) -> None:
        """Reward the candidates that are new, in one call, as far as the budget of each search goes."""
        budget, asked, groups = self.config.budget, list[_Search](), list[PromptGroup]()
        for search, plans in zip(searches, candidates, strict=True):
            new = list[Steps]()
            for steps in dict.fromkeys(plan.steps for plan in plans if plan.steps not in search.rewards):
                texts = search.texts.union(steps)
                if budget is not None and len(texts) > budget:
                    search.spent = True
                else:
                    search.texts = texts
                    new.append(steps)
            if new:
                asked.append(search)
                groups.append(PromptGroup(*search.prompt, new))
        rewards = [own for batch in batches(groups) for own in score_or_raise(self._scorer, batch)]
        for search, group, own in zip(asked, groups, rewards, strict=True):
            search.rewards |= zip(group.plans, own, strict=True)

    def _choose(self, search: _Search, candidates: Iterable[BegunPlan]) -> list[BegunPlan]:
        """Keep the best candidates; those that go on, also where the budget lets none go on."""
        ranked = sorted(_rewarded(search, candidates), key=lambda plan: plan.rank)
        for plan in ranked:
            if plan.ended:
                search.ended.setdefault(plan.steps, plan)
        # Plans that end now have as many steps as those that go on, and compete with them for the places.
        best = ranked[: self.config.width]
        search.going_on = [] if search.spent else [plan for plan in best if not plan.ended]
        return [plan for plan in ranked if not plan.ended]

    def _composition(self, search: _Search, rest: Sequence[BegunPlan]) -> Composition:
        plans = sorted(search.ended.values(), key=lambda plan: plan.rank)
        if not plans or not plans[0].steps:
            plans = [*rest, *plans]
        config = self.config
        record = SearchRecord(
            search=config.search,
            width=config.width,
            branch=config.branch if config.search == "beam" else None,
            samples=config.samples if config.search == "recombine" else None,
            budget=config.budget,
            spent=search.spent,
            tokens_in=search.tokens_in,
            tokens_out=search.tokens_out,
            encodings=len(search.texts),
            rewards=len(search.rewards),
        )
        return Composition(tuple(plans) or (BegunPlan(),), record, search.decoding)


def _grown(plan: BegunPlan, outcome: Answer | Refusal, longest: int) -> BegunPlan:
    """A plan with a further line that the model wrote; it has ended where the line has no end."""
    if isinstance(outcome, Refusal):  # the plan fills the model's context
        return replace(plan, ended=True, cut=True)
    text, tokens = plan.text + (outcome.text or outcome.refusal), plan.tokens + outcome.tokens_out
    cut = outcome.cut or tokens > longest
    if not cut and "\n" in outcome.text:
        return BegunPlan(first_list(final_answer(text) or ""), text, tokens)
    whole = read_plan(Answer(plan.text if tokens > longest else text, finish="length" if cut else "stop"))
    return BegunPlan(whole.steps if isinstance(whole, Plan) else (), text, tokens, ended=True, cut=cut)


def _recombined(search: _Search) -> list[BegunPlan]:
    """The plans of a search, each with one more of the steps that stand at about this place in the sampled plans."""
    lasts = {steps[-1] for steps in search.sampled if steps}
    plans = []
    for plan in search.going_on:
        place = len(plan.steps)
        near = (step for steps in search.sampled for step in steps[max(place - 1, 0) : place + 2])
        for step in dict.fromkeys(near):
            steps = (*plan.steps, step)
            longer = BegunPlan(steps, format_plan(steps))
            plans += [longer, replace(longer, ended=True)] if step in lasts else [longer]
    return plans


def _rewarded(search: _Search, plans: Iterable[BegunPlan]) -> list[BegunPlan]:
    """The plans that have a reward, with it, each once."""
    distinct: dict[tuple[Steps, bool], BegunPlan] = {}
    for plan in plans:
        if (reward := search.rewards.get(plan.steps)) is not None:
            distinct.setdefault((plan.steps, plan.ended), replace(plan, reward=reward))
    return list(distinct.values())
