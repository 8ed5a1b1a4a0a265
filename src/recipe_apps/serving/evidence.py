"""What a corpus says of a plan, for people: coverage in words, narrations for each step, what changed, and order.

Every figure is the verifier's own: its pool, its alignment, its reward. A step is *supported* where narrations of the
activity gain more by it than narrations of anything else: where what it adds to G_P - G_Q over the plan before it
(`recipe.reward.grounded`) is above `SUPPORT`, and a narration about the task says it. With a verifier that has no such
parts, the reward rises with it. Only narrations about the task are counted and quoted, of near-copies one.
docs/results/serving.md tells how well that separates true steps from steps of other tasks.
"""

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np

from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.evaluation.matching import FLOOR, CosineScale, Likeness, calibrate
from recipe.explain.explain import CLOSE, OTHERS, explain, step_grounds, when, whole_sentence
from recipe.explain.opposites import says_opposite
from recipe.explain.records import Explanation, Links
from recipe.reward.coverage import TaskPrompt, sentence_of_plan
from recipe.reward.embeddings import LruCache
from recipe.reward.scorer import Prompt, PromptGroup, Steps, score_or_raise
from recipe.reward.verifier import Verifier
from recipe.types import PooledAlignment, Reward

SUPPORT = 0.01
"""What a step has to add for it to count as supported."""
# Narrations shown for a step.
_SHOWN = 12
# Similarity that both steps of a pair need in a narration, for it to say in which order they come.
_VOTE = 0.2
# Rewards in memory: of every beginning of the plans under way, and of each plan without one of its steps.
_REWARDS_KEPT = 8_192

Row = dict[str, Any]
PromptedPlan = tuple[Prompt, Steps]


def open_evidence(corpus: Corpus, config: RewardConfig, links: Links) -> "CorpusEvidence":
    """The evidence of a corpus, warmed up, so that the first visitor does not wait. Raises as `Verifier`."""
    evidence, prompt = CorpusEvidence(Verifier(corpus, config), links), ("make tea", ("boil the water",))
    evidence.coverage([prompt])
    evidence.evidence([(prompt, ("pour the water", "wait"))])
    return evidence


def facts_of(evidence: "CorpusEvidence") -> Row | None:
    """Id, narrations, segments and too_small of its corpus, as the page shows them; None of one without a folder."""
    corpus = evidence.verifier.corpus
    if not isinstance(corpus, Corpus):
        return None
    facts = {name: corpus.manifest[name] for name in ("id", "narrations", "segments")}
    return facts | {"too_small": evidence.verifier.config.contrast_problem(len(corpus))}


class CorpusEvidence:
    """What one verifier's corpus says of plans, and a scale on which steps say the same; for one thread at a time."""

    def __init__(self, verifier: Verifier, links: Links | None = None) -> None:
        self.verifier = verifier
        self.links = links or Links()
        self._scale: CosineScale = calibrate(verifier.embed)
        self._rewards = LruCache[PromptedPlan, Reward](_REWARDS_KEPT)
        self._verifiers = {verifier.config: verifier}

    def explained(self, config: RewardConfig, goal: str, history: Steps, plan: Steps) -> Explanation:
        """Why a plan has its reward, by a reward of these settings on the same corpus and encoder.

        May be asked from any thread. Raises as `Verifier.score`.
        """
        if (verifier := self._verifiers.get(config)) is None:
            verifier = Verifier(self.verifier.corpus, config, embeddings=self.verifier.embeddings)
            self._verifiers[config] = verifier
        return explain(verifier, goal=goal, history=history, continuation=plan, others=OTHERS)

    def coverage(self, prompts: Sequence[Prompt]) -> list[Row]:
        """How far the corpus knows the task of each prompt: `state`, `value` (the fit) and a `sentence`.

        The state is known, partly or unknown; none, without a value, where the corpus is too small to tell.
        """
        rows = list[Row]()
        for covered in self.verifier.coverage.of([TaskPrompt(*prompt) for prompt in prompts]):
            state, value = ("none", None) if covered is None else (covered.state, covered.fit)
            rows.append({"state": state, "value": value, "sentence": sentence_of_plan(covered)})
        return rows

    def rewards(self, plans: Sequence[PromptedPlan]) -> list[Reward]:
        """The reward of each plan for its prompt; one that was scored before is not scored again.

        Raises as `Verifier.score`.
        """
        known: dict[PromptedPlan, Reward] = {}
        unscored: dict[Prompt, list[Steps]] = {}
        for prompt, plan in dict.fromkeys(plans):
            if (reward := self._rewards.get((prompt, plan))) is not None:
                known[prompt, plan] = reward
            else:
                unscored.setdefault(prompt, []).append(plan)
        groups = [PromptGroup(*prompt, own) for prompt, own in unscored.items()]
        for (prompt, own), rewards in zip(unscored.items(), score_or_raise(self.verifier, groups), strict=True):
            for plan, reward in zip(own, rewards, strict=True):
                known[prompt, plan] = reward
                self._rewards.put((prompt, plan), reward)
        return [known[key] for key in plans]

    def gains(self, plans: Sequence[PromptedPlan]) -> list[list[float]]:
        """For each plan what each of its steps adds to G_P - G_Q over the plan before it.

        A plan that grows by a step costs one reward: its earlier beginnings were scored before. With a verifier without
        these parts a gain is what the step adds to the reward. Raises as `Verifier.score`.
        """
        # The gain of step n is D(c_1..n) - D(c_1..n-1), with D = G_P - G_Q of the grounded reward (docs/reward.md).
        rewards = self.rewards([(prompt, plan[:end]) for prompt, plan in plans for end in range(len(plan) + 1)])
        values = iter(
            reward.parts["gain"] - reward.parts["background"]
            if {"gain", "background"} <= reward.parts.keys()
            else reward.total
            for reward in rewards
        )
        return [[after - before for before, after in pairwise(islice(values, len(plan) + 1))] for _, plan in plans]

    def without_each_step(self, prompt: Prompt, plans: Sequence[Steps]) -> tuple[list[Reward], list[list[float]]]:
        """The reward of each plan of a prompt, and what each step adds: R(c) - R(c without it). Raises as `score`."""
        shorter = [plan[:index] + plan[index + 1 :] for plan in plans for index in range(len(plan))]
        rewards = self.rewards([(prompt, plan) for plan in (*plans, *shorter)])
        whole, without = rewards[: len(plans)], iter(rewards[len(plans) :])
        return whole, [
            [reward.total - next(without).total for _ in plan] for reward, plan in zip(whole, plans, strict=True)
        ]

    def evidence(self, plans: Sequence[PromptedPlan]) -> list[list[Row]]:
        """For each plan what the pool says of each of its steps. Raises as `Verifier.align`.

        The whole plan is aligned: a matching is one-to-one, so that a further step can take a segment from one before.
        """
        evidence = []
        groups = [PromptGroup(*prompt, [plan]) for prompt, plan in plans]
        for group, pool, gains in zip(groups, self.verifier.align_groups(groups), self.gains(plans), strict=True):
            rows, about = [], self._about(group.goal, group.history, pool)
            for number, gain in enumerate(gains, start=1):
                text = group.plans[0][number - 1]
                grounds = step_grounds(len(group.history) + number - 1, text, pool, about, self.verifier.corpus)
                near = [ground for ground in grounds if ground.similarity >= CLOSE]
                close = [ground for ground in near if not ground.opposite]
                opposed = len(near) - len(close)
                rows.append(
                    {
                        "number": number,
                        "state": "supported" if gain > SUPPORT and len(close) > opposed else "unsupported",
                        "matched_in": len(close),
                        "opposed_in": opposed,
                        "pool": len(pool),
                        "about": len(about),
                        "grounds": [self._ground(*ground[:3]) for ground in close[:_SHOWN]],
                    }
                )
            evidence.append(rows)
        return evidence

    def same(self, steps: Sequence[str], others: Sequence[str]) -> list[int | None]:
        """For each step the index of the other step that says the same, if there is one."""
        likeness = Likeness(self.verifier.embed, self._scale, [*steps, *others])
        partners: list[int | None] = [None] * len(steps)
        for pair in likeness.pairs(steps, others):
            if pair.likeness >= FLOOR and not says_opposite(steps[pair.first], others[pair.second]):
                partners[pair.first] = pair.second
        return partners

    def deviation(self, goal: str, before: Steps, plan: Steps, now: Sequence[str]) -> Row:
        """What of a plan is done, skipped and open, given the whole history `now`, which may repeat that `before`.

        A planned step is skipped where a later planned step is done. For each skipped step, `orders` tells how many
        narrations say that it comes before the next step that was done, and how many say the opposite.
        """
        partners = self.same(now, (*before, *plan))
        done_by = {
            partner - len(before): index
            for index, partner in enumerate(partners)
            if partner is not None and partner >= len(before)
        }
        for index in sorted(done_by):  # of steps with one text the first counts as done
            if (first := plan.index(plan[index])) not in done_by:
                done_by[first] = done_by.pop(index)
        last = max(done_by, default=-1)
        skipped = [index for index in range(last) if index not in done_by]
        # The next step that was done stands for all later ones. Of two steps that say the same, no narration tells
        # which comes first.
        pairs = [(plan[index], plan[min(other for other in done_by if other > index)]) for index in skipped]
        return {
            "steps": [
                {
                    "number": index + 1,
                    "text": text,
                    "state": "done" if index in done_by else "skipped" if index < last else "open",
                    "by": done_by.get(index),
                }
                for index, text in enumerate(plan)
            ],
            "unexpected": [index for index, partner in enumerate(partners) if partner is None],
            "rest": [text for index, text in enumerate(plan) if index not in done_by],
            "orders": [
                self.order(goal, before, first, then) for first, then in pairs if self.same([first], [then]) == [None]
            ],
        }

    def order(self, goal: str, history: Steps, first: str, second: str) -> Row:
        """How many narrations about the task say `first` before `second`, and how many the opposite, with their words.

        A narration votes by the pair of segments in which both steps are most alike, each with a similarity of 0.2 at
        least and none that says the opposite. Raises as `Verifier.align`.
        """
        pool = self.verifier.align(goal=goal, history=history, continuation=(first, second))
        grounds: list[Row] = []
        votes = {True: 0, False: 0}
        about = self._about(goal, history, pool)
        for aligned in pool:
            if aligned.hit.narration not in about:
                continue
            W = aligned.similarities[len(history) :]  # [2, L]
            similarities = np.where(W >= _VOTE, W, 0.0)
            said = self.verifier.corpus.narration(aligned.hit.narration).segments
            for row, index in np.argwhere(similarities):
                if says_opposite((first, second)[row], said[index].text):
                    similarities[row, index] = 0.0
            # The pair i != j with the largest W[0, i] W[1, j] says both steps; where i < j, the first comes first.
            products = np.outer(similarities[0], similarities[1])
            np.fill_diagonal(products, 0.0)  # one segment that says both tells no order
            if not products.size or not products.max():
                continue
            segments = [int(index) for index in np.unravel_index(products.argmax(), products.shape)]
            says = segments[0] < segments[1]
            votes[says] += 1
            if says and len(grounds) < _SHOWN:
                number = aligned.hit.narration
                rows = [self._ground(number, segment, float(W[i, segment])) for i, segment in enumerate(segments)]
                grounds.append({"before": rows[0], "after": rows[1]})
        return {
            "before": first,
            "after": second,
            "says": votes[True],
            "against": votes[False],
            "about": len(about),
            "grounds": grounds,
        }

    def _about(self, goal: str, history: Steps, pool: Sequence[PooledAlignment]) -> dict[int, float]:
        numbers = [aligned.hit.narration for aligned in pool]
        return self.verifier.coverage.narrations_about(TaskPrompt(goal, history), numbers)

    def _ground(self, number: int, segment: int, similarity: float) -> Row:
        narration = self.verifier.corpus.narration(number)
        said = whole_sentence(narration.segments, segment)
        return {
            "text": said.text,
            "video_id": narration.video_id,
            "title": narration.title,
            "when": when(said),
            "link": self.links.of(narration, said),
            "similarity": round(similarity, 3),
        }
