"""Controls of agreement with a reference, and systems that do not beat them."""

import numpy as np
import pytest

pytest.importorskip("scipy")
from recipe.evaluation.controls import GOAL, HISTORY, LABELS, control_differences, control_plans, random_samples
from recipe.evaluation.metrics import Difference, control_sentences
from recipe.evaluation.validity.measure import PromptMeans
from recipe.planning.predictions import Prediction
from recipe.stats import Interval
from recipe.types import Example


def of_video(name: str, video: str, goal: str, *steps: str, done: int = 1) -> Example:
    return Example(name, "set", video, goal, steps[:done], steps[done:], done)


TEA = of_video("a", "v1", "make tea", "boil", "pour", "sip")
AGAIN = of_video("b", "v1", "Make  Tea", "boil", "pour", "spill", done=2)
OTHER = of_video("c", "v2", "make tea", "boil", "steep", "serve")
ALONE = of_video("d", "v3", "fix a tap", "close it", "open it")


def test_controls_are_the_goal_the_history_and_labels_of_other_videos() -> None:
    annotated = (TEA, AGAIN, OTHER, ALONE)
    found = control_plans(annotated, annotated)
    assert {name: plan.steps for name, plan in found[GOAL].items()}["b"] == ("Make  Tea",)
    assert found[HISTORY]["b"].steps == ("boil", "pour")
    assert set(found[LABELS]) == {"a", "b", "c"}
    for name in "ab":
        assert set(found[LABELS][name].steps) < {"boil", "steep", "serve"}
    assert set(found[LABELS]["c"].steps) < {"boil", "pour", "sip", "spill"}
    assert all(len(set(plan.steps)) == 2 for plan in found[LABELS].values())


def test_controls_depend_on_the_example_and_the_seed_alone() -> None:
    annotated = (TEA, AGAIN, OTHER, ALONE)
    assert control_plans([TEA], annotated[::-1])[LABELS]["a"] == control_plans(annotated, annotated)[LABELS]["a"]
    drawn = {control_plans([TEA], annotated, seed)[LABELS]["a"].steps for seed in range(20)}
    assert len(drawn) == 6
    assert LABELS not in control_plans([ALONE], annotated)


def test_a_random_sample_is_one_of_its_prompts() -> None:
    samples = [Prediction(name, (f"{name} {sample}",), sample) for name in "ab" for sample in range(5)]
    drawn = [random_samples(samples, seed) for seed in range(40)]
    assert all({name: one.example_id for name, one in each.items()} == {"a": "a", "b": "b"} for each in drawn)
    assert {each["a"].sample for each in drawn} == set(range(5))
    assert random_samples(samples[::-1]) == random_samples(samples)


def means(names: str, values: list[float]) -> PromptMeans:
    goals = tuple(f"goal {name}" for name in names)
    return PromptMeans(tuple(names), goals, 1, {"matched_f1": np.array(values)})


def test_a_system_is_compared_on_the_prompts_that_have_the_control() -> None:
    controls = {"control: x": means("ca", [0.5, 0.0]), "control: none": means("z", [1.0])}
    [one] = control_differences("test", {"RL": means("abc", [1.0, 9.0, 0.25])}, controls, "matched_f1")
    assert (one.regime, one.baseline, one.value.observations) == ("RL", "control: x", 2)
    assert one.value.mean == pytest.approx((1.0 - 0.25) / 2)
    assert control_differences("test", {"RL": means("a", [1.0])}, controls, "score") == ()


def test_only_an_interval_above_zero_beats_a_control() -> None:
    for bounds, said_of in (((0.2, 0.1, 0.3), 0), ((0.2, -0.1, 0.5), 1), ((0.2,), 1), ((-0.2, -0.3, -0.1), 1)):
        difference = Difference("t", "RL", "control: x", "matched_f1", Interval(*bounds))
        assert len(control_sentences([difference])) == said_of

    def said(names: str, system: float, control: float) -> list[str]:
        controls = {"control: x": means(names, [control] * len(names))}
        differences = control_differences("t", {"RL": means(names, [system] * len(names))}, controls, "matched_f1")
        return control_sentences(differences)

    assert said("abcdef", 1.0, 0.0) == []
    [sentence] = said("abcdef", 0.0, 0.5)
    assert "RL does not beat this control" in sentence
    assert "x: −0.500" in sentence
    assert len(said("abc", 1.0, 0.0)) == 1  # three that are alike are no proof
