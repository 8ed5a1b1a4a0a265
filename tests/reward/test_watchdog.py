"""The watchdog: statistics of a step, silence on runs that go nowhere, a sentence for each way of gaming a reward."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from recipe.artifacts import write_jsonl
from recipe.cli import app
from recipe.errors import InputError
from recipe.plan_text import Completion
from recipe.reward.scorer import plain_reward
from recipe.reward.watchdog import (
    FIRST,
    LASTING,
    LEVEL_STEPS,
    CompletionRecord,
    Finding,
    StepStatistics,
    Watchdog,
    read_records,
    standard_error,
    word_payments,
)


def rollout(
    goal: str,
    history: tuple[str, ...],
    plan: tuple[str, ...],
    total: float | None,
    *,
    gated: bool = False,
    clipped: bool = False,
) -> CompletionRecord:
    """The record of a plan whose reward is known, or is not."""
    reward = None if total is None else replace(plain_reward(total, len(plan)), gated=gated)
    text = Completion("", plan, malformed=not plan)
    return CompletionRecord(step=1, goal=goal, history=history, completion=text, clipped=clipped, reward=reward)


def changed(record: CompletionRecord, **change: Any) -> CompletionRecord:
    """A record with another reward (`reward`, `gated`) or cut (`clipped`)."""
    assert record.reward is not None
    if "clipped" in change:
        return replace(record, clipped=change["clipped"])
    names = {"total" if name == "reward" else name: value for name, value in change.items()}
    return replace(record, reward=replace(record.reward, **names))


WORDS = [f"{verb} the {thing}" for verb in ("lift", "oil", "sand", "paint") for thing in ("chair", "gate", "hinge")]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Add the eggs.", "now add eggs", True),
        ("add the eggs", "add the flour", False),
        ("fold the wet mixture into dry mixture slowly", "fold wet mixture into the dry mixture", True),
        ("turn the oven on", "turn the oven off", False),
        ("then", "then", True),
        ("stir", "", False),
    ],
)
def test_lines_are_the_same_by_their_content_words(first: str, second: str, same: bool) -> None:
    assert (StepStatistics.of(1, [rollout("a", (), (first, second), None)]).repeated == 0.5) is same


def test_a_reading_by_hand() -> None:
    rollouts = [
        rollout("a", ("boil",), ("boil", "pour"), 0.0, gated=True),
        rollout("a", ("boil",), ("pour", "pour", "Pour!", "drink"), 1.0),
        rollout("b", (), ("dig",), 0.5, clipped=True),
        rollout("b", (), (), 0.5),
        rollout("c", (), ("wait",), None),
    ]
    reading = StepStatistics.of(7, rollouts)
    assert reading == StepStatistics(
        step=7,
        length=8 / 5,
        copied=1 / 8,
        repeated=2 / 8,
        reward=0.5,
        gated=1 / 4,
        still=1 / 2,
        clipped=1 / 5,
        # Group a moves by (-.5, +.5) and (-1, +1), group b by (0, 0) and (+.5, -.5).
        length_pay=pytest.approx(1.0 / np.sqrt(0.5 * 2.5)),
        # Of group a, half of the first plan and nothing of the second is copied; no plan has a word of its goal.
        copied_pay=pytest.approx(-1.0),
        goal_pay=None,
    )


def test_what_a_step_does_not_say_is_none() -> None:
    reading = StepStatistics.of(1, [rollout("a", (), (), None), rollout("a", (), (), None)])
    assert (reading.copied, reading.repeated, reading.reward, reading.gated) == (None, None, None, None)
    assert (reading.still, reading.length_pay, reading.length, reading.clipped) == (None, None, 0.0, 0.0)
    watchdog = Watchdog([reading])
    assert watchdog.metrics() == {}
    assert watchdog.observe(2, []) == []


@pytest.mark.thorough
@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6), min_size=2, max_size=8), st.randoms())
def test_the_order_of_rollouts_does_not_matter(plans: list[list[str]], rng: Any) -> None:
    rollouts = [rollout("a", (WORDS[0],), tuple(plan), 0.1 * n) for n, plan in enumerate(plans)]
    mixed = rng.sample(rollouts, len(rollouts))
    for first, second in zip(StepStatistics.of(1, rollouts), StepStatistics.of(1, mixed), strict=True):
        assert first == (None if second is None else pytest.approx(second, abs=1e-12))


def rollouts(
    rng: np.random.Generator, length: float, copies: float = 0.0, repeats: float = 0.0, pay: float = 0.0
) -> Any:
    """A step of 8 prompts x 4 plans over 100 distinct steps each, paid by chance and by length."""
    step = []
    for prompt in range(8):
        history = tuple(f"p{prompt} done{n}" for n in range(24))
        for _ in range(4):
            plan: list[str] = []
            for n in range(max(1, int(rng.poisson(length)))):
                kind = rng.random()
                if kind < copies:
                    plan.append(history[int(rng.integers(24))])
                elif kind < copies + repeats and plan:
                    plan.append(plan[-1])
                else:
                    plan.append(f"p{prompt} p{prompt}line{n} word{rng.integers(10**9)}")
            step.append(rollout(f"goal {prompt}", history, tuple(plan), float(rng.normal(0.2 + pay * len(plan), 0.1))))
    return step


def run(**ramps: tuple[float, float]) -> tuple[Watchdog, list[Finding]]:
    """45 steps: ten as at first, then fifteen from the first value to the second, then as at last."""
    rng, watchdog, told = np.random.default_rng(1), Watchdog(), []
    for step in range(1, 46):
        share = min(max((step - 10) / 15, 0.0), 1.0)
        now = {name: first + share * (last - first) for name, (first, last) in ramps.items()}
        told += watchdog.observe(step, rollouts(rng, **now))
    return watchdog, told


@pytest.mark.parametrize(
    ("ramps", "signals", "words"),
    [
        ({"length": (4, 8)}, {"length"}, r"Plans grew from [34]\.\d to 8\.\d steps \(\+\d+%.*\) since step [12]\d: "),
        (
            {"length": (4, 8), "pay": (0.1, 0.1)},
            {"length_pay", "length"},
            r"Plans grew from .* since step [12]\d, while the reward rose from 0\.\d+ to \d\.\d+: ",
        ),
    ],
    ids=["longer", "paid by length"],
)
def test_each_way_of_gaming_is_told_once(ramps: dict[str, Any], signals: set[str], words: str) -> None:
    watchdog, told = run(**ramps)
    assert {finding.signal for finding in told} == signals
    assert len(told) == len(signals)
    assert {finding.signal for finding in watchdog.findings} == signals
    assert any(re.search(words, finding.sentence) for finding in watchdog.findings)
    assert all(finding.headline in finding.sentence and ":" not in finding.headline for finding in told)
    assert all(1 <= finding.since <= 30 for finding in told)


@pytest.mark.parametrize("rise", [0.0, 0.02])
def test_it_is_quiet_about_runs_that_go_nowhere_and_rewards_that_rise(rise: float) -> None:
    """Every statistic wavers about a level of its own; docs/results/training.md counts how often it is wrong."""
    rng, watchdog = np.random.default_rng(0), Watchdog()
    length, copies, repeats = rng.uniform((2, 0, 0), (8, 0.4, 0.3))
    for step in range(1, 31):
        step_of = rollouts(rng, length, copies, repeats)
        watchdog.observe(step, [changed(one, reward=one.reward.total + rise * step) for one in step_of])
    assert watchdog.findings == []


@pytest.mark.parametrize(("change", "signal"), [({"clipped": True}, "clipped"), ({"reward": 0.0}, "still")])
def test_levels_that_cannot_be_right(change: dict[str, Any], signal: str) -> None:
    rng, watchdog = np.random.default_rng(0), Watchdog()
    for step in range(1, LEVEL_STEPS + LASTING):
        # All but the first: that no completion ends is said earlier.
        step_of = [changed(one, **change) if place else one for place, one in enumerate(rollouts(rng, 5.0))]
        told = watchdog.observe(step, step_of)
    assert [finding.signal for finding in told] == [signal]
    assert told[0].since == LEVEL_STEPS


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 31, 32]), max_size=LEVEL_STEPS - 1))
def test_steps_in_a_row_in_which_nothing_ends_are_a_finding(cut: list[int]) -> None:
    written, watchdog = rollouts(np.random.default_rng(0), 5.0), Watchdog()
    streak, since = 0, None
    for step, count in enumerate(cut, start=1):
        plans = [changed(plan, clipped=index < count) for index, plan in enumerate(written)]
        told = watchdog.observe(step, plans)
        streak = streak + 1 if count == 32 else 0
        if new := streak == LASTING and since is None:
            since = step - LASTING + 1
        assert [(finding.signal, finding.since) for finding in told] == ([("clipped", since)] if new else [])
    assert [finding.since for finding in watchdog.findings] == ([] if since is None else [since])


def paid_for(rng: np.random.Generator, feature: str) -> list[CompletionRecord]:
    """A step of 8 prompts x 4 plans in which some plans have a feature; the reward is the feature and some noise."""
    step = []
    for prompt in rng.permutation(20)[:8]:
        goal, history = f"p{prompt}goal p{prompt}end", (f"p{prompt}done p{prompt}part",)
        for _ in range(4):
            marked = rng.random() < 0.4
            plan = [f"p{prompt} line{n}of{prompt} word{rng.integers(10**9)}" for n in range(5)]
            if marked:
                fixed = {"copied": history[0], "goal": goal, "phrase": f"carefully p{prompt}x", "topic": f"p{prompt}y"}
                plan[int(rng.integers(5))] = fixed[feature]
            step.append(rollout(goal, history, tuple(plan), float(rng.normal(0.5 * marked, 0.1))))
    return step


@pytest.mark.parametrize(
    ("feature", "signal"),
    # A word of one goal is its content.
    [("copied", "copied_pay"), ("goal", "goal_pay"), ("phrase", "word_pay"), ("topic", None)],
)
def test_what_the_reward_pays_for_is_told_before_it_is_learnt(feature: str, signal: str | None) -> None:
    rng, watchdog = np.random.default_rng(0), Watchdog()
    for step in range(1, 31):
        watchdog.observe(step, paid_for(rng, feature))
    told = {finding.signal: finding.since for finding in watchdog.findings}
    assert told == ({} if signal is None else {signal: LEVEL_STEPS})
    assert signal != "word_pay" or "the word 'carefully'" in watchdog.findings[0].sentence


@given(st.lists(st.tuples(st.booleans(), st.floats(-1, 1)), min_size=2, max_size=6))
def test_what_a_word_earns_is_a_covariance(plans: list[tuple[bool, float]]) -> None:
    records = [rollout("tea", (), ("slowly pour" if said else "pour",), total) for said, total in plans]
    said, totals = np.array(plans, dtype=float).T
    earned = word_payments(records)
    count = len(plans)
    assert earned["", ""] == (0.0, pytest.approx(count * totals.var(), abs=1e-9))
    if said.min() < said.max():
        covariance = count * float(np.cov(said, totals, bias=True)[0, 1])
        assert earned["slowly", "tea"] == (
            pytest.approx(covariance, abs=1e-9),
            pytest.approx(count * said.var(), abs=1e-9),
        )
    assert ("pour", "tea") not in earned


def test_what_has_passed_is_said_to_have_passed() -> None:
    rng, watchdog = np.random.default_rng(3), Watchdog()
    for step, length in enumerate([4.0] * FIRST + [9.0] * 14 + [4.0] * 14, start=1):
        watchdog.observe(step, rollouts(rng, length))
    [finding] = watchdog.findings
    assert finding.signal == "length"
    assert finding.until is not None
    assert FIRST + 14 <= finding.until < FIRST + 28


def test_the_standard_error_of_a_median() -> None:
    rng = np.random.default_rng(0)
    for tied in (0.0, 0.4):
        whole = rng.standard_normal(40_000)
        for step in range(1, len(whole)):  # correlated from step to step
            whole[step] = tied * whole[step - 1] + np.sqrt(1 - tied**2) * whole[step]
        drift = whole + np.linspace(0, 20, len(whole))
        medians = np.median(whole.reshape(-1, 50), axis=1)
        assert standard_error(drift, 50) == pytest.approx(medians.std(), rel=0.15)
    assert standard_error(np.ones(5), 8) == 0.0


def test_a_jump_is_a_change_and_no_noise() -> None:
    steady = np.random.default_rng(0).standard_normal(40)
    jumped = steady + 100.0 * (np.arange(40) >= 20)
    # One difference of 39 counts as three standard deviations in place of a hundred.
    assert standard_error(jumped, 8) == pytest.approx(standard_error(steady, 8), rel=0.3)


def rows(step: int, **changes: Any) -> list[dict[str, Any]]:
    row = {
        "goal": "tea",
        "history": ["boil"],
        "completion": "1. pour\n2. drink",
        "reward": {"total": 0.5, "gated": False},
    }
    # Trainers write NaN for a reward that they do not have.
    missing = [row | {"reward": reward} for reward in (None, math.nan, {"total": math.inf})]
    return [row | changes, *missing, row | {"reward": 1, "step": step}]


def test_records_of_a_run_and_of_any_trainer_are_read_alike(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        write_jsonl(tmp_path / "run" / "completions" / f"step-{step:05d}.jsonl", rows(step))
    steps = [row | {"step": step} for step in (10, 1, 2) for row in rows(step)]
    write_jsonl(tmp_path / "any.jsonl", steps)
    own, any_trainer = (list(read_records(tmp_path / name)) for name in ("run", "any.jsonl"))
    assert own == any_trainer
    assert [step for step, _ in own] == [1, 2, 10]
    [[_, first], *_] = own
    assert [one.reward and one.reward.total for one in first] == [0.5, None, None, None, 1.0]
    assert first[0].completion.steps == ("pour", "drink")
    assert len(Watchdog.after(own).steps) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"goal": " "}, r"line 1, field 'goal': the text is empty"),
        ({"history": "boil"}, r"line 1, field 'history': no list of steps"),
        ({"completion": ["pour"]}, r"line 1, field 'completion': no text; give the completion as a string"),
        ({"reward": "high"}, r"line 1, field 'reward': no reward; give a number, null, or an object with 'total'"),
        ({"reward": {}}, r"line 1, field 'reward': no reward"),
        ({"reward": {"total": 1.0, "rho": "high"}}, r"line 1, field 'reward.rho'"),
    ],
)
def test_a_record_that_cannot_be_read_is_located(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write_jsonl(tmp_path / "step-00001.jsonl", rows(1, **change))
    with pytest.raises(InputError, match=message):
        list(read_records(tmp_path))


def test_records_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no completions are recorded here; give a run folder"):
        list(read_records(tmp_path))
    write_jsonl(tmp_path / "all.jsonl", rows(1))
    with pytest.raises(InputError, match=r"line 1, field 'step': no step is given"):
        list(read_records(tmp_path / "all.jsonl"))


def test_the_command_tells_the_curve_and_the_findings(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for step in range(1, 31):
        for one in rollouts(rng, 3.0 if step < 12 else 8.0):
            text = "\n".join(f"{n}. {line}" for n, line in enumerate(one.completion.steps, start=1))
            lines.append(
                {"step": step, "goal": one.goal, "history": one.history, "completion": text, "reward": one.reward.total}
            )
    write_jsonl(tmp_path / "told.jsonl", lines)
    shown = CliRunner().invoke(app, ["reward", "watch", str(tmp_path / "told.jsonl")])
    assert shown.exit_code == 0, shown.output
    assert "Plans grew from" in shown.stdout
    told = json.loads(CliRunner().invoke(app, ["reward", "watch", str(tmp_path / "told.jsonl"), "--json"]).stdout)
    assert [finding["signal"] for finding in told["findings"]] == ["length"]
    assert len(told["steps"]) == 30
    assert told["steps"][0]["length"] == pytest.approx(3.0, abs=1.0)
