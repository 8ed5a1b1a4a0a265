"""Sentences are made from the figures, and say no more than they do."""

import re
from dataclasses import replace

from recipe.evaluation.metrics import Difference
from recipe.stats import Interval
from recipe_studies.experiments import results as r
from recipe_studies.experiments.findings import headline, summary
from recipe_studies.experiments.study import BASE


def scores(split: str, regime: str, **means: float) -> r.RegimeScores:
    return r.RegimeScores(split, regime, {name: Interval(mean) for name, mean in means.items()}, 10, 10)


def difference(split: str, regime: str, metric: str, mean: float, half: float | None) -> r.Difference:
    bounds = (None, None) if half is None else (mean - half, mean + half)
    return r.Difference(split, regime, "base", metric, Interval(mean, *bounds))


def test_each_part_of_a_run_is_told_with_its_figures() -> None:
    series = {"reward": (*10 * (0.1,), *10 * (0.3,)), "length": (*10 * (4.0,), *10 * (8.0,))}
    series |= {"validity": (None, *19 * (0.5,))}  # type: ignore[dict-item]
    differences = [difference("test_cuts", "RL", *change) for change in (("score", 0.05, 0.02), ("reward", 0.2, 0.02))]
    means, gain, trained, alarms, cost = summary(
        r.Results(
            title="t",
            scores=tuple(scores("test_cuts", name, score=mean) for name, mean in (("base", 0.5), ("RL", 0.55))),
            differences=tuple(differences),
            curves=(r.Curve("RL", tuple(range(1, 21)), series),),
            costs=(r.StepTimes("RL", 1.0, 4.0, 0.5),),
            alarms=(r.Alarm("RL", 3, "Plans grew."),),
        )
    )
    assert "base 0.500, RL 0.550" in means
    assert "RL +0.050 [+0.030, +0.070]" in gain
    assert re.findall(r"\d[\d.]*\d|\d", trained) == ["0.10", "0.30", "4.00", "8.00", "0.50", "0.50", "5"]
    assert "RL 1" in alarms
    assert "RL 50.0%" in cost


def test_the_headline_names_no_leader_where_an_interval_holds_zero() -> None:
    def against(regime: str, low: float, high: float) -> Difference:
        return Difference("test_cuts", regime, BASE, "score", Interval((low + high) / 2, low, high))

    names = ("base", "up", "even", "down")
    rows = tuple(r.RegimeScores("test_cuts", name, {"score": Interval(0.5)}, 9, 1) for name in names)
    values = against("even", -0.01, 0.03), against("up", 0.05, 0.09), against("down", -0.3, -0.1)
    above, below, unclear = headline(r.Results("t", scores=rows, differences=values))
    assert "above the base: up +0.070 [+0.050, +0.090]." in above
    assert "below the base: down −0.200" in below
    assert "no difference" in unclear
    assert "even +0.010" in unclear
    assert headline(r.Results("t", summary=tuple("abcd"))) == ("a", "b", "c")


def test_what_each_reward_gained_comes_first() -> None:
    regimes = {"RL, grounded": (0.1, 0.02), "RL, paper": (0.01, 0.02), "RL, length": (-0.1, 0.02)}
    points = (
        r.Validated(0, 0.0, 0.1, 0.5, 4.0),
        r.Validated(2, 1.5, 0.2, 0.6, 5.0),
        r.Validated(4, 3.0, 0.3, 0.55, 6.0),
    )
    changes = [(name, "score", *change) for name, change in regimes.items()]
    changes += [(name, "steps", 1.2, 0.5) for name in regimes]
    found = r.Results(
        title="t",
        scores=tuple(scores("test_goals", name, score=0.5, steps=4.0, length_error=0.5) for name in ("base", *regimes)),
        differences=tuple(difference("test_goals", *change) for change in changes),
        validations=(
            r.ValidationCurve("RL, grounded", "validity", points, 30, 60, "round"),
            r.ValidationCurve("RL, paper", "validity", (points[0], replace(points[2], measured=0.4)), 30, 60),
            r.ValidationCurve("RL, length", "reward", points, 30, 60),
        ),
    )
    sentences = summary(found)
    for said, verb, regime in ((sentences[0], "gained", "RL, grounded"), (sentences[2], "lost", "RL, length")):
        assert f"{regime} {verb} exact validity" in said
        assert "+1.2 [+0.7, +1.7] against the base and +0.5 against the reference" in said
    assert sentences[1] == "On held-out goals, RL, paper kept the base: on validation prompts nothing was better."
    assert "round 2 was kept" in sentences[3]
    assert "no step was better than the base" in sentences[4]


def test_the_page_says_first_what_to_do() -> None:
    points = r.Validated(0, 0.0, 0.1, 0.5, 4.0), r.Validated(1, 1.5, 0.2, 0.6, 5.0)
    gains = {"SFT": 0.2, "trained on grounded": 0.1, "trained on paper": 0.0, "best of 8, grounded": 0.01}
    found = r.Results(
        title="t",
        scores=tuple(scores("test_goals", name, score=0.5) for name in ("base", *gains)),
        differences=tuple(difference("test_goals", name, "score", gain, 0.02) for name, gain in gains.items()),
        validations=(
            r.ValidationCurve("trained on grounded", "validity", points, 30, 60, "round"),
            r.ValidationCurve("trained on paper", "validity", points[:1], 30, 60, "round"),
        ),
    )
    choose, tune, train = headline(found)
    assert "best of 8, grounded +0.010 [−0.010, +0.030]" in choose
    assert "SFT +0.200" in tune
    assert "trained on grounded +0.100 [+0.080, +0.120]; trained on paper kept the base" in train
    assert "trained on paper kept the base" in next(one for one in summary(found) if "difference in" in one)
    # What is not told from 0 is neither advised nor advised against.
    advice = {choose}
    for gain in (0.3, -0.3):
        own = difference("test_goals", "best of 8, grounded", "score", gain, 0.02)
        advice.add(headline(replace(found, differences=(*found.differences[:-1], own)))[0])
    assert len({sentence.partition(" (")[0] for sentence in advice}) == 3
    # A study without SFT does not say what it did not compare.
    assert not headline(replace(found, differences=found.differences[1:]))[0].startswith("Train")


def test_a_run_that_kept_the_base_has_no_figure_in_any_list() -> None:
    base, better = r.Validated(0, 0.0, 0.1, 0.5, 4.0), r.Validated(1, 1.5, 0.2, 0.6, 5.0)
    name = "covering narrations"
    by_seed = [Difference("test_goals", name, BASE, "score", Interval(0.1, 0.0, 0.2), seed=1)]
    by_seed.append(Difference("test_goals", name, BASE, "score", Interval(0.0, 0.0, 0.0), seed=2))
    found = r.Results(
        title="t",
        scores=tuple(scores("test_goals", regime, score=0.5) for regime in ("base", name)),
        differences=(difference("test_goals", name, "score", 0.05, 0.02),),
        by_seed=tuple(by_seed),
        validations=(
            r.ValidationCurve(name, "validity", (base, better), 30, 60, "round", 1),
            r.ValidationCurve(name, "validity", (base,), 30, 60, "round", 2),
        ),
    )
    assert any(f"seeds +0.100, {r.KEPT}" in sentence for sentence in summary(found))
    alone = replace(found, by_seed=found.by_seed[1:], validations=found.validations[1:])
    for sentence in (*summary(alone), *headline(alone)):
        assert " 0.000" not in sentence


def test_runs_of_several_seeds_are_averaged() -> None:
    rewards = ((0.0, 0.2, 0.4, 1.0), (0.0, 0.2, 0.4, 0.0))
    curves = tuple(r.Curve("RL", (1, 2, 3, 4), {"reward": row}, seed) for seed, row in enumerate(rewards))
    sentence, _ = summary(r.Results(title="t", curves=curves))
    assert "of 2 seeds while it trained: the reward went from 0.00 to 0.50" in sentence
