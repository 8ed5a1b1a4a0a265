"""The evidence behind a reward: gathered, put into words, written as JSON.

No narration decides alone, so the evidence for a step is that of all narrations of the pool that are about the task.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from recipe.artifacts import JsonObject, to_json
from recipe.clock import clock
from recipe.explain.opposites import says_opposite
from recipe.explain.records import (
    AlignedNarration,
    Explanation,
    Ground,
    Links,
    Match,
    OtherPlans,
    StepEvidence,
    best_matches,
)
from recipe.reward.coverage import TaskPrompt
from recipe.reward.grounded import grounded_terms
from recipe.reward.plan_features import FEATURES
from recipe.reward.scorer import Steps
from recipe.reward.verifier import Verifier
from recipe.text import as_steps
from recipe.types import Plan, PooledAlignment, Segment

if TYPE_CHECKING:
    from recipe.reward.embeddings import NarrationIndex

# Contributions below it read 0.000 and are reported as none.
_SMALL = 0.0005

_PAPER = {
    "A(h)": "how well the history alone aligns",
    "A(h + c)": "how well history and plan align",
    "rho": "the plan's progress over the history alone",
}
# Parts of the two rewards, in words.
_GROUNDED = {
    "A(h)": "how well the pool matches the history, step by step",
    "A(h + c)": "how well the pool matches history and plan, step by step",
    "rho": "gain less background, for each step of the plan",
    "gain": "what the plan adds to the pool's narrations beyond the history",
    "background": "what the same plan adds to random narrations",
    "order": "how far the pool confirms the order of the steps, from −1 to 1",
    "price": "what each step costs",
    "relevance": "how close the steps are to the goal and the history, without the corpus",
    "goal_relevance": "the part of relevance that likeness to the goal gives",
    "net": "what the net that was trained on the corpus adds",
}
# Features of a net that the summary names.
_NAMED_FEATURES = 3
# What a control rewards.
_CONTROLS = {"r0": "likeness of the plan's steps to goal and history", "length": "the number of steps"}
# Terms of a grounded reward, in words.
_SOURCES = {
    "corpus": "narrations",
    "goal": "likeness to the goal",
    "history": "likeness to the history",
    "relevance": "likeness to goal and history",
    "price": "the price of steps",
    "frames": "the frames of the history",
    "net": "the net that was trained on the corpus",
}

OTHERS = 8
"""Plans of each kind that `recipe reward explain` scores besides the explained one."""
CLOSE = 0.2
"""Similarity from which on a narration is said to speak of a step: 0 is what any step reaches with 5% of the corpus, 1
the same text."""


# Segments on either side that a quote takes in.
_JOINED = 2
# Seconds without speech that end a sentence.
_PAUSE = 1.0
_ENDS = ".!?…:。！？"
# Words of English that end no sentence.
_OPEN = {
    "a", "an", "the", "my", "your", "our", "their", "its", "this", "these", "every", "and", "or", "but", "nor",
    "because", "if", "when", "while", "until", "as", "than", "that", "which", "who", "to", "of", "with", "into",
    "onto", "from", "for", "at", "by", "about", "between", "through", "without", "i'm", "you're", "we're",
    "they're", "it's", "is", "are", "was", "were", "be", "will", "would", "can", "could", "should", "must",
    "gonna", "wanna", "i'll", "you'll", "we'll", "they'll", "i've", "you've", "we've", "very", "some",
}  # fmt: skip


def explain(
    verifier: Verifier, *, goal: str, history: Sequence[str], continuation: Sequence[str] | Plan, others: int = 0
) -> Explanation:
    """The reward of one continuation, what each of its steps adds, and how the pool aligns with it.

    A step adds R(c) - R(c without it), all scored in one call: n steps cost n + 1 rewards. `others` plans of
    each kind of `_other_plans` are scored, too: a reward means something only compared with others of its prompt.
    Raises as `Verifier.score`.
    """
    h, plan = as_steps(history), as_steps(continuation)
    shorter = [plan[:i] + plan[i + 1 :] for i in range(len(plan))]
    # R(c) - R(c less one step), and no Shapley values: n + 1 rewards in place of 2^n, and what a reader asks.
    reward, *without = verifier.score(history=h, continuations=[plan, *shorter], goal=goal)
    pool = verifier.align(history=h, continuation=plan, goal=goal)
    narrations = tuple(AlignedNarration.of(pooled, verifier.corpus.narration(pooled.hit.narration)) for pooled in pool)
    about = verifier.coverage.narrations_about(TaskPrompt(goal, h), [aligned.index for aligned in narrations])
    evidence = []
    for i, text in enumerate(h + plan):
        missing = without[i - len(h)] if i >= len(h) else None
        grounds = step_grounds(i, text, pool, about, verifier.corpus)
        step = StepEvidence(
            text=text,
            in_history=missing is None,
            without=None if missing is None else missing.total,
            gated_without=missing is not None and missing.gated,
            contribution=None if missing is None else reward.total - missing.total,
            matched_in=len(grounds),
            mean_similarity=sum(ground.similarity for ground in grounds) / len(grounds) if grounds else None,
            grounds=grounds,
        )
        evidence.append(step)
    caution = verifier.config.contrast_problem(len(verifier.corpus)) or ""
    asked = [TaskPrompt(goal, h)] if goal.strip() or h else []
    covered = verifier.coverage.of(asked)[0] if asked and verifier.config.aligns else None
    trained = verifier.config.verifier == "grounded" and verifier.config.grounded.self_trained
    added = verifier.attribution(history=h, continuation=plan, goal=goal) if trained else {}
    attribution = tuple((FEATURES[name], value) for name, value in added.items())
    beside = list[OtherPlans]()
    # A control reads no narrations.
    if others and plan and verifier.config.aligns:
        drawn = _other_plans(verifier.corpus, narrations, h, plan, others)
        scored = iter(verifier.score(history=h, continuations=[p for own in drawn.values() for p in own], goal=goal))
        for name, own in drawn.items():
            beside.append(OtherPlans.of(name, [next(scored).total for _ in own], reward.total))
    return Explanation(
        goal,
        h,
        plan,
        verifier.config,
        reward,
        tuple(evidence),
        narrations,
        about,
        attribution,
        covered,
        caution,
        tuple(beside),
    )


def _other_plans(
    corpus: "NarrationIndex", pool: Sequence[AlignedNarration], history: Steps, plan: Steps, count: int
) -> dict[str, list[Steps]]:
    """Up to `count` plans of each kind for the prompt of `plan`; kinds of which there are none are left out.

    The steps of the plan in other orders; segments of narrations outside the pool, which tell of something else; and
    the segments after the history in the best narrations of the pool, at even distances.
    """
    # The same draws for every prompt, so that an explanation can be repeated.
    random = np.random.default_rng(0)
    order, shuffled = random.permutation(len(corpus)).tolist(), dict[Steps, None]()
    # A short plan has few other orders, so that the tries are bounded.
    for _ in range(4 * count):
        # The dictionary keeps each order once.
        if len(shuffled) < count and (other := tuple(plan[i] for i in random.permutation(len(plan)))) != plan:
            shuffled[other] = None
    near = {aligned.index for aligned in pool}
    far = [corpus.narration(i).segments for i in order[: count + len(near)] if i not in near]
    rest = []
    for aligned in pool:
        done = aligned.history_end(len(history))
        rest.append(aligned.narration.segments[0 if done is None else done + 1 :])
    kinds = {"its steps in other orders": list(shuffled)}
    for name, narrations in (
        ("segments of narrations outside the pool", far),
        ("the next segments of the pool's best narrations", rest),
    ):
        kinds[name] = [
            tuple(segments[k * len(segments) // len(plan)].text for k in range(len(plan)))
            for segments in narrations
            if len(segments) >= len(plan)
        ][:count]
    return {name: plans for name, plans in kinds.items() if plans}


def step_grounds(
    step: int, text: str, pool: Sequence[PooledAlignment], about: Mapping[int, float], corpus: "NarrationIndex"
) -> tuple[Ground, ...]:
    """The best segment of a step in every narration about the task that matches it, the best quote first.

    `about` holds these narrations with their fit to the task. A quote is as good as its similarity times this fit; ties
    are in pool order.
    """
    grounds = []
    for aligned in pool:
        if (number := aligned.hit.narration) not in about:
            continue
        # Only the matches are rounded: rounding all of W takes longer than the alignment.
        W = aligned.similarities
        matches = tuple(Match(i, k, round(float(W[i, k]), 4)) for i, k in aligned.matches if i == step)
        for match in best_matches(matches).values():
            opposite = says_opposite(text, corpus.narration(number).segments[match.segment].text)
            grounds.append(Ground(number, match.segment, match.similarity, opposite))
    return tuple(sorted(grounds, key=lambda ground: -ground.similarity * about[ground.narration]))


def whole_sentence(segments: Sequence[Segment], index: int) -> Segment:
    """A segment to be quoted: a sentence that captions cut is joined from up to `_JOINED` segments on either side.

    >>> said = [Segment("now add the", 1.0, 2.0), Segment("tea leaves.", 2.0, 3.0), Segment("Wait.", 3.0, 4.0)]
    >>> whole_sentence(said, 1), whole_sentence(said, 2).text
    (Segment(text='now add the tea leaves.', start=1.0, end=3.0), 'Wait.')
    """
    first = last = index
    while last + 1 < len(segments) and last - index < _JOINED and _is_cut(segments[last], segments[last + 1]):
        last += 1
    while first > 0 and index - first < _JOINED and _is_cut(segments[first - 1], segments[first]):
        first -= 1
    return Segment(" ".join(own.text for own in segments[first : last + 1]), segments[first].start, segments[last].end)


def _is_cut(segment: Segment, following: Segment) -> bool:
    """Whether a sentence goes on in the next segment: it ends with a word that ends none, or one without a mark before
    one that begins in lower case and has a mark; and there is no pause between them."""
    if segment.end is not None and following.start is not None and following.start - segment.end > _PAUSE:
        return False
    said, text = segment.text.rstrip(), following.text.strip()
    if not said or not text or said[-1] in _ENDS:
        return False
    words = said.lower().replace("’", "'").split()
    return said[-1] in ",;-–" or words[-1] in _OPEN or (text[0].islower() and text[-1] in _ENDS)


def parts(explanation: Explanation) -> list[tuple[str, float, str]]:
    """Name, value and meaning of every part of the reward, the total first."""
    reward = explanation.reward
    total = ("reward", reward.total, explanation.config.scale)
    if not explanation.config.aligns:
        return [total]
    meanings = _GROUNDED if explanation.config.verifier == "grounded" else _PAPER
    named = [
        total,
        ("history alone", reward.aligned_history, meanings["A(h)"]),
        ("history and plan", reward.aligned_full, meanings["A(h + c)"]),
        ("progress", reward.rho, meanings["rho"]),
    ]
    if reward.coverage is not None:
        named.append(("coverage", reward.coverage, "how far the pool covers the prompt, for any plan"))
    if (covered := explanation.coverage) is not None:
        named.append(("fit", covered.fit, f"how near narrations are to the task. {covered.sentence}"))
    further = reward.parts.items()
    return named + [(name.replace("_", " "), value, meanings.get(name, "")) for name, value in further]


def in_words(explanation: Explanation) -> list[str]:
    """The reward in a few sentences: what it is, what the evidence is, which steps earned it and which did not."""
    reward, config = explanation.reward, explanation.config
    sentences = [_verdict(explanation)]
    if explanation.others:
        earned = [
            f"{own.name} earn {_number(own.low)} to {_number(own.high)} ({own.below} of {own.plans} less than it)"
            for own in explanation.others
        ]
        sentences.append(f"For comparison, after the same history: {'; '.join(earned)}.")
    if config.verifier == "grounded" and explanation.continuation:
        terms = _terms(explanation)
        summands = [
            f"{_number(value, sign=True)} from {_SOURCES[name]}"
            for name, value in sorted(terms.items(), key=lambda term: -abs(term[1]))
            if abs(value) >= _SMALL
        ]
        if summands:
            sentences.append(f"It is the sum of {', '.join(summands)}.")
    if features := [pair for pair in explanation.attribution[:_NAMED_FEATURES] if abs(pair[1]) >= _SMALL]:
        moved = ", ".join(f"{words} ({_number(adds, sign=True)})" for words, adds in features)
        sentences.append(f"Compared with an average plan, the net was moved most by {moved}.")
    if explanation.coverage is not None:
        sentences.append(explanation.coverage.sentence)

    steps, pool, about = explanation.plan_evidence, len(explanation.narrations), len(explanation.about)
    if config.aligns and not pool:
        sentences.append("Nothing was aligned: there is no narration or no step to align.")
    elif config.aligns and steps:
        best = sum(step.index is not None for step in explanation.steps[len(explanation.history) :])
        similar = [ground.similarity for step in steps for ground in step.grounds]
        sentences.append(f"The best narration matches {best} of {_count(len(steps), 'plan step')}.")
        if about:
            mean = f", with a mean similarity of {_number(sum(similar) / len(similar), 2)}" if similar else ""
            verb = "is" if about == 1 else "are"
            sentences.append(
                f"Of the pool's {_count(pool, 'narration')}, {about} {verb} about this task; in these a plan step is "
                f"matched in {100 * len(similar) / (about * len(steps)):.0f}%{mean}."
            )
        else:
            sentences.append("No narration is about this task, so none supports a step.")
        if opposites := sum(ground.opposite for step in steps for ground in step.grounds):
            of = _count(len(similar), "matched segment")
            sentences.append(
                f"{opposites} of {of} {'says' if opposites == 1 else 'say'} the opposite and support no step."
            )
        if about and (unmatched := dict.fromkeys(f"“{step.text}”" for step in steps if not step.matched_in)):
            sentences.append(f"Matched in no narration about this task: {', '.join(unmatched)}.")

    added = [(step.contribution or 0.0, index) for index, step in enumerate(steps)]
    if added:
        (most, first), (least, last) = max(added), min(added)
        named = [
            f"step {index + 1}, “{explanation.continuation[index]}”, which adds {_number(value, sign=value > 0)}"
            for value, index in ((most, first), (least, last))
        ]
        if most >= _SMALL:
            closes = steps[first].gated_without and not reward.gated
            gate = "; the gate then closes" if closes else ""
            sentences.append(f"Leaving one step out, the reward falls most without {named[0]}{gate}.")
        if least <= -_SMALL:
            costs = sum(value <= -_SMALL for value, _ in added)
            sentences.append(
                f"The plan would earn more without {costs} of its {_count(len(added), 'step')}, "
                f"most without {named[1]}."
            )
    return [*sentences, *filter(None, [explanation.caution])]


def when(segment: Segment) -> str:
    """A segment's time as a player shows it, empty where it has none.

    >>> when(Segment("stir", 62.5, 70.0)), when(Segment("stir", 3725.0, 3726.0)), when(Segment("stir"))
    ('1:02–1:10', '1:02:05–1:02:06', '')
    """
    if segment.start is None or segment.end is None:
        return ""
    return f"{clock(segment.start)}–{clock(segment.end)}"


def _terms(explanation: Explanation) -> dict[str, float]:
    """The grounded reward by where it comes from, and what a net adds; empty without steps."""
    reward = explanation.reward
    terms = grounded_terms(reward.parts, reward.steps, explanation.config.grounded)
    return terms | ({"net": reward.parts["net"]} if terms and "net" in reward.parts else {})


def _verdict(explanation: Explanation) -> str:
    reward, config = explanation.reward, explanation.config
    if not explanation.continuation:
        return f"Reward {_number(reward.total)}: the plan holds no steps."
    if config.is_function:
        return f"Reward {_number(reward.total)} by {config.verifier}, a function of yours."
    if config.verifier in _CONTROLS:
        return f"Reward {_number(reward.total)} for {_CONTROLS[config.verifier]}: a control, which reads no narrations."
    if config.verifier not in ("paper", "grounded"):
        return f"Reward {_number(reward.total)} by {config.verifier}."
    if config.verifier == "grounded":
        gain, background = (_number(reward.parts.get(name, 0.0)) for name in ("gain", "background"))
        return (
            f"Reward {_number(reward.total)}: the plan adds {gain} to what narrations of this activity say, and "
            f"{background} to random ones."
        )
    if reward.gated:
        return (
            f"Penalty {_number(reward.total)}: the plan's progress over the history, {_number(reward.rho)}, "
            f"stays below the threshold of {config.tau:g}."
        )
    if config.gate == "off":
        return f"Reward {_number(reward.total)}: the plan's progress over the history."
    threshold = f", above the threshold of {config.tau:g}" if config.gate == "on" else ""
    return (
        f"Reward {_number(reward.total)}, the alignment of history and plan with the best narration of the pool; "
        f"progress over the history is {_number(reward.rho)}{threshold}."
    )


def _number(value: float, digits: int = 3, *, sign: bool = False) -> str:
    """A number with a true minus sign; with `sign`, a plus sign too."""
    # + 0.0 makes 0.0 of a -0.0, which would get a sign.
    return f"{round(value, digits) + 0.0:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def as_row(explanation: Explanation, links: Links) -> JsonObject:
    """Everything in an explanation, with links, as plain values for JSON."""
    config, reward, best = explanation.config, explanation.reward, explanation.best
    narrations: dict[int, dict[str, Any]] = {}
    for aligned in explanation.narrations:
        narration = aligned.narration
        narrations[aligned.index] = {
            "narration": aligned.index,
            "video_id": narration.video_id,
            "title": narration.title,
            "source": narration.source,
            "link": links.of(narration),
            "retrieved": aligned.retrieved,
            "score": aligned.score,
            "fit": explanation.about.get(aligned.index),
            "history_end": aligned.history_end(len(explanation.history)),
            "steps": [
                {
                    "step": step.text,
                    "in_history": step.in_history,
                    "segment": step.index,
                    "similarity": step.similarity,
                    "text": step.segment.text if step.segment else None,
                    "start": step.segment.start if step.segment else None,
                    "end": step.segment.end if step.segment else None,
                }
                for step in explanation.grounded(aligned)
            ],
            "matches": [match._asdict() for match in aligned.matches],
            "unmatched_steps": list(aligned.unmatched_steps),
            "unmatched_segments": list(aligned.unmatched_segments),
            "segments": [
                {"text": own.text, "start": own.start, "end": own.end, "link": links.of(narration, own)}
                for own in narration.segments
            ],
            "similarities": [list(row) for row in aligned.similarities],
        }
    steps = list[JsonObject]()
    for step in explanation.evidence:
        grounds = []
        for ground in step.grounds:
            narration_row = narrations[ground.narration]
            row = {"narration": ground.narration, "video_id": narration_row["video_id"], "segment": ground.segment}
            row |= {"similarity": ground.similarity, "opposite": ground.opposite}
            grounds.append(row | narration_row["segments"][ground.segment])
        steps.append(
            {
                "step": step.text,
                "in_history": step.in_history,
                "without": step.without,
                "gated_without": step.gated_without,
                "contribution": step.contribution,
                "matched_in": step.matched_in,
                "mean_similarity": step.mean_similarity,
                "grounds": grounds,
            }
        )
    grounded = config.verifier == "grounded"
    return {
        "goal": explanation.goal,
        "history": list(explanation.history),
        "continuation": list(explanation.continuation),
        "settings": config.model_dump(mode="json"),
        "summary": in_words(explanation),
        "terms": _terms(explanation) if grounded else {},
        "attribution": [{"feature": words, "adds": added} for words, added in explanation.attribution],
        "coverage": None if explanation.coverage is None else explanation.coverage._asdict(),
        "others": [own._asdict() for own in explanation.others],
        "reward": to_json(reward) | {"best_video_id": best.narration.video_id if best else None},
        "steps": steps,
        "about": len(explanation.about),
        "narrations": list(narrations.values()),
    }
