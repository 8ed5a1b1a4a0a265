"""Sentences are made from the figures, and say no more than they do."""

from dataclasses import replace
from pathlib import Path

from recipe.evaluation.validity.measure import Difference
from recipe.stats import Interval
from recipe_studies.experiments import results as r
from recipe_studies.experiments.findings import caveats, headline, summary
from recipe_studies.experiments.settings import (
    AnyExperiment,
    ExperimentConfig,
    FilesSource,
    WorldSource,
    demo_config,
    load_experiment,
)
from recipe_studies.experiments.study import BASE, study_of


def scores(split: str, regime: str, **means: float) -> r.RegimeScores:
    return r.RegimeScores(split, regime, {name: Interval(mean) for name, mean in means.items()}, 10, 10)


def parts(total: float) -> r.RewardParts:
    return r.RewardParts(total, 0.1, 0.2, 0.1, 0.0)


def difference(split: str, regime: str, metric: str, mean: float, half: float | None) -> r.Difference:
    bounds = (None, None) if half is None else (mean - half, mean + half)
    return r.Difference(split, regime, "base", metric, Interval(mean, *bounds))


CURVE = r.Curve(
    "RL",
    tuple(range(1, 21)),
    {
        "reward": tuple(0.1 if step < 10 else 0.3 for step in range(20)),
        "length": tuple(4.0 if step < 10 else 8.0 for step in range(20)),
        "validity": (None, *(0.5 for _ in range(19))),
    },
)
FOUND = r.Results(
    title="t",
    scores=(
        scores("test_cuts", "base", score=0.5, reward=0.2),
        scores("test_cuts", "RL", score=0.55, reward=0.4),
        scores("other", "base", score=0.25, reward=0.2),
        scores("other", "RL", score=0.2, reward=0.4),
    ),
    differences=(
        difference("test_cuts", "RL", "score", 0.05, 0.02),
        difference("test_cuts", "RL", "reward", 0.2, 0.02),
        difference("other", "RL", "score", -0.05, None),
    ),
    curves=(CURVE,),
    costs=(r.Cost("RL", 1.0, 4.0, 0.5),),
    alarms=(r.Alarm("RL", 3, "Plans grew."),),
    hand_made=(r.ProbePlan("true continuation", parts(0.3)), r.ProbePlan("reversed", parts(0.1))),
)


def test_the_sentences_of_a_run_on_the_world() -> None:
    assert summary(FOUND) == (
        "On held-out cut points, exact validity: base 0.500, RL 0.550.",
        "On held-out cut points, difference in exact validity to the base: RL +0.050 [+0.030, +0.070].",
        "On other, exact validity: base 0.250, RL 0.200.",
        "On other, difference in exact validity to the base: RL -0.050.",
        "RL, over its own samples while it trained: the reward went from 0.10 to 0.30, steps in a plan went from 4.00 "
        "to 8.00, exact validity went from 0.50 to 0.50 (means of 5 steps at either end).",
        "The true continuation has reward 0.300, more than each of 1 perturbed plans.",
        "Findings of the watchdog: RL 1.",
        "Share of the reward in the time of a GRPO step: RL 50.0%.",
    )


def test_what_each_reward_gained_comes_first() -> None:
    regimes = {"RL, grounded": (0.1, 0.02), "RL, paper": (0.01, 0.02), "RL, length": (-0.1, 0.02)}
    points = (
        r.Validated(0, 0.0, 0.1, 0.5, 4.0),
        r.Validated(2, 1.5, 0.2, 0.6, 5.0),
        r.Validated(4, 3.0, 0.3, 0.55, 6.0),
    )
    rows = [scores("test_goals", regime, score=0.6, steps=5.2, length_error=0.7) for regime in regimes]
    found = r.Results(
        title="t",
        scores=(scores("test_goals", "base", score=0.5, steps=4.0, length_error=-0.5), *rows),
        differences=tuple(
            change
            for regime, (mean, half) in regimes.items()
            for change in (
                difference("test_goals", regime, "score", mean, half),
                difference("test_goals", regime, "steps", 1.2, 0.5),
            )
        ),
        validations=(
            r.ValidationCurve("RL, grounded", "validity", points, 30, 60, "round"),
            r.ValidationCurve("RL, paper", "validity", (points[0], replace(points[2], measured=0.4)), 30, 60),
            r.ValidationCurve("RL, length", "reward", points[:1], 30, 60),
        ),
    )
    longer = "+1.2 [+0.7, +1.7] against the base and +0.7 against the reference continuation."
    moved = "in 4 steps the reward went from 0.100 to 0.300 and validity from 0.500 to"
    drifted = "plans went from 4.0 to 6.0 steps and are 3.0 nats from the base;"
    assert summary(found)[:6] == (
        "On held-out goals, RL, grounded gained exact validity: +0.100 [+0.080, +0.120] against the base. "
        f"Its plans have 5.2 steps, {longer}",
        "On held-out goals, RL, paper showed no change in exact validity: +0.010 [-0.010, +0.030] against the base. "
        f"Its plans have 5.2 steps, {longer}",
        "On held-out goals, RL, length lost exact validity: -0.100 [-0.120, -0.080] against the base. "
        f"Its plans have 5.2 steps, {longer}",
        f"RL, grounded, on 30 validation prompts: {moved.replace('steps', 'rounds')} 0.550, at most 0.600; {drifted} "
        "round 2 was kept.",
        f"RL, paper, on 30 validation prompts: {moved} 0.400, at most 0.500; {drifted} "
        "no step was better than the base.",
        "RL, length, on 30 validation prompts: in 0 steps the reward went from 0.100 to 0.100; plans went from 4.0 to "
        "4.0 steps and are 0.0 nats from the base; no step was better than the base.",
    )


def test_seeds_are_told_beside_the_mean() -> None:
    runs = tuple(replace(difference("test_cuts", "RL", "score", mean, 0.02), seed=n) for n, mean in enumerate((0.1, 0)))
    sentence = summary(replace(FOUND, by_seed=runs))[1]
    assert "RL +0.050 [+0.030, +0.070] (seeds +0.100, +0.000; 1 of 2 intervals exclude 0)" in sentence


def test_perturbed_plans_with_as_high_a_reward_are_named() -> None:
    plans = (
        r.ProbePlan("reversed", parts(0.1)),
        r.ProbePlan("true continuation", parts(0.3)),
        r.ProbePlan("every step said twice", parts(0.3)),
        r.ProbePlan("small talk", parts(0.4)),
    )
    [sentence] = summary(r.Results(title="t", hand_made=plans))
    assert sentence.endswith("no less: every step said twice (0.300), small talk (0.400).")


def test_runs_of_several_seeds_are_averaged() -> None:
    curves = tuple(
        r.Curve("RL", (1, 2, 3, 4), {"reward": (0.0, 0.2, 0.4, last)}, seed) for seed, last in ((0, 1), (1, 0))
    )
    sentence, _ = summary(r.Results(title="t", curves=curves))
    assert (
        "over its own samples of 2 seeds while it trained: the reward went from 0.00 to 0.50 (first and last step)"
        in sentence
    )


def caveats_of(config: AnyExperiment) -> str:
    return " ".join(caveats(study_of(config)))


def test_caveats_fit_the_experiment() -> None:
    world = caveats_of(ExperimentConfig(title="t", source=WorldSource()))
    files = caveats_of(
        ExperimentConfig(title="t", source=FilesSource(type="files", narrations=("n",), benchmarks=("coin",)))
    )
    compared = caveats_of(load_experiment(Path(__file__).parents[2] / "configs" / "verifiers-world.toml"))
    video = caveats_of(demo_config("video"))
    assert "SFT learns from gold continuations" in world
    assert "No exact validity is known here" in files
    assert "RL on exact validity is rewarded by the task graphs" in compared
    assert "Blank frames" in video
    assert all("the paper's scale" in text for text in (world, files, compared, video))
    assert all("over 3 seeds" in text for text in (compared, video))


def test_the_headline_names_no_leader_where_an_interval_holds_zero() -> None:
    def against(regime: str, low: float, high: float) -> Difference:
        return Difference("test_cuts", regime, BASE, "score", Interval((low + high) / 2, low, high))

    names = ("base", "up", "even", "down")
    rows = tuple(r.RegimeScores("test_cuts", name, {"score": Interval(0.5)}, 9, 1) for name in names)
    values = against("even", -0.01, 0.03), against("up", 0.05, 0.09), against("down", -0.3, -0.1)
    above, below, unclear = headline(r.Results("t", scores=rows, differences=values))
    assert "above the base: up +0.070 [+0.050, +0.090]." in above
    assert "below the base: down -0.200" in below
    assert "no difference" in unclear
    assert "even +0.010" in unclear
    assert headline(r.Results("t", summary=tuple("abcd"))) == ("a", "b", "c")
