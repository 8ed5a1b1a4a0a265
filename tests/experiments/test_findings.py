"""Sentences are made from the figures, and say no more than they do."""

from recipe.experiments import results as r
from recipe.experiments.findings import WINDOW, caveats, summary
from recipe.experiments.settings import ExperimentConfig, FilesSource, WorldSource
from recipe.stats import Interval


def scores(split: str, regime: str, **means: float) -> r.Scores:
    return r.Scores(split, regime, {name: Interval(mean) for name, mean in means.items()}, 10, 10)


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
    hand_made=(r.HandMade("true continuation", parts(0.3)), r.HandMade("reversed", parts(0.1))),
)


def test_the_sentences_of_a_run_on_the_world() -> None:
    rows = [{"reward_seconds": 1.0, "step_seconds": 4.0}, {"reward_seconds": 3.0, "step_seconds": 4.0}, {"step": 3}]
    assert summary(FOUND, rows) == (
        "On held-out cut points, exact validity: base 0.500, RL 0.550. Against the base: RL +0.050 [+0.030, +0.070].",
        "On other, exact validity: base 0.250, RL 0.200. Against the base: RL -0.050.",
        "While RL trained, over its own samples, the reward went from 0.10 to 0.30, steps in a plan went from 4.00 to "
        f"8.00, exact validity went from 0.50 to 0.50 (means of {WINDOW} steps at either end).",
        "The verifier pays the true continuation 0.300, more than each of 1 spoiled plans.",
        "The reward took 50.0% of the time of a GRPO step.",
    )


def test_without_exact_validity_the_reward_is_told() -> None:
    found = r.Results(
        title="t",
        scores=(scores("coin", "base", reward=0.2), scores("coin", "RL", reward=0.4)),
        differences=(difference("coin", "RL", "reward", 0.2, 0.1), difference("coin", "RL", "steps", 1.0, 0.1)),
    )
    [sentence] = summary(found, [])
    assert sentence == "On coin, reward: base 0.200, RL 0.400. Against the base: RL +0.200 [+0.100, +0.300]."


def test_spoiled_plans_that_are_paid_as_much_are_named() -> None:
    plans = (
        r.HandMade("reversed", parts(0.1)),
        r.HandMade("true continuation", parts(0.3)),
        r.HandMade("every step said twice", parts(0.3)),
        r.HandMade("small talk", parts(0.4)),
    )
    [sentence] = summary(r.Results(title="t", hand_made=plans), [])
    assert sentence == (
        "The verifier pays the true continuation 0.300, and no less for: every step said twice (0.300), "
        "small talk (0.400)."
    )


def test_a_short_run_is_averaged_over_halves() -> None:
    curve = r.Curve("RL", (1, 2, 3, 4), {"reward": (0.0, 0.2, 0.4, 0.6)})
    [sentence] = summary(r.Results(title="t", curves=(curve,)), [])
    assert "the reward went from 0.10 to 0.50 (means of 2 steps at either end)" in sentence


def test_caveats_fit_the_source() -> None:
    world = caveats(ExperimentConfig(title="t", source=WorldSource()))
    files = caveats(
        ExperimentConfig(title="t", source=FilesSource(type="files", narrations=("n",), benchmarks=("coin",)))
    )
    assert any("SFT learns from gold continuations" in caveat for caveat in world)
    assert any("No exact validity is known here" in caveat for caveat in files)
    assert {caveat for caveat in world if caveat in files}
