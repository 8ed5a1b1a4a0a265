"""Miniature benchmarks and narrations below one folder of data, and a made-up but plausible report."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from recipe.stats import Interval
from recipe_studies.experiments import results as r

CARDS = "\n".join(["501", "Brew Mint Tea", "http://x", "3", "boil water,add mint,pour tea"]) + "\n"


def coin_video(subset: str, task: str = "PatchKite") -> dict[str, Any]:
    steps = [{"label": label, "segment": [n, n + 1]} for n, label in enumerate(("cut tape", "press tape", "fly"))]
    return {"class": task, "subset": subset, "annotation": steps}


def write_coin(root: Path, videos: dict[str, dict[str, Any]]) -> None:
    (root / "coin").mkdir(parents=True, exist_ok=True)
    (root / "coin" / "COIN.json").write_text(json.dumps({"database": videos}))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """COIN trains on `shared`, which CrossTask tests on; `tea` and `unlisted` are CrossTask's own."""
    root = tmp_path / "data"
    write_coin(root, {"shared": coin_video("training"), "own": coin_video("training"), "held": coin_video("testing")})
    annotations = root / "crosstask" / "crosstask_release" / "annotations"
    annotations.mkdir(parents=True)
    (annotations.parent / "tasks_primary.txt").write_text(CARDS)
    for video in ("shared", "tea", "unlisted"):
        (annotations / f"501_{video}.csv").write_text("1,0,2\n2,3,4\n3,5,6\n")
    splits = root / "crosstask" / "splits"
    splits.mkdir()
    for name, listed in (("train", "tea\n"), ("validation", ""), ("test", "shared\n")):
        (splits / f"{name}.txt").write_text(listed)
    # What configs/teaching-youcook2.toml names.
    (root / "youcook2").mkdir()
    (root / "youcook2" / "procedures.jsonl").write_text('{"video_id": "v", "goal": "tea", "steps": []}\n')
    narrations = root / "narrations"
    narrations.mkdir()
    for name in ("narrations_timed", "youcook2_asr_untimed"):
        (narrations / f"{name}.jsonl").write_text('{"video_id": "v", "sentences": ["boil water", "pour tea"]}\n')
    return root


TEA = ("boil the water", "rinse the teapot")
REFERENCE = (
    "put the tea leaves in the teapot",
    "pour the hot water into the teapot",
    "let the tea steep for some minutes",
    "pour the tea into the cup",
    "stir the tea",
)
PROFILE = {  # regime: score, order, coverage, clean, perfect, steps, repeats, alien, distinct, reward, gated
    "base": (0.52, 0.87, 0.58, 0.73, 0.06, 4.2, 0.17, 0.09, 8.9, 0.264, 0.44),
    "SFT": (0.66, 0.91, 0.72, 0.81, 0.17, 4.4, 0.11, 0.07, 8.4, 0.291, 0.36),
    "RL": (0.53, 0.90, 0.71, 0.49, 0.03, 7.9, 0.36, 0.14, 9.9, 0.348, 0.12),
    "best of 8": (0.67, 0.92, 0.69, 0.79, 0.15, 4.9, 0.15, 0.06, None, 0.371, 0.08),
}
NAMES = ("score", "order", "coverage", "clean", "perfect", "steps", "repeats", "alien", "distinct", "reward", "gated")


def _interval(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half, 100, 24)


def _scores() -> list[r.RegimeScores]:
    rows = []
    for split, shift in (("held-out cut points", 0.0), ("held-out goals", 0.02)):
        for regime, numbers in PROFILE.items():
            metrics = {
                name: _interval(value + (shift if value < 1 else 0), 0.03 + 0.02 * value / 4)
                for name, value in zip(NAMES, numbers, strict=True)
                if value is not None
            }
            if regime in ("SFT", "RL"):
                metrics["kl"] = Interval(0.41 if regime == "RL" else 0.2)
            rows.append(r.RegimeScores(split, regime, metrics, prompts=100, samples=10))
    return rows


def _differences() -> list[r.Difference]:
    return [
        r.Difference(split, regime, "base", name, _interval(PROFILE[regime][n] - PROFILE["base"][n], half))
        for split in ("held-out cut points", "held-out goals")
        for regime in ("SFT", "RL", "best of 8")
        for n, (name, half) in enumerate(zip(NAMES[:7], (0.04, 0.02, 0.03, 0.05, 0.03, 0.4, 0.04), strict=True))
    ]


def _curve() -> r.Curve:
    rng = random.Random(0)
    steps = tuple(range(1, 61))

    def series(start: float, end: float, noise: float, bend: float = 0.0) -> tuple[float, ...]:
        shares = [(step - 1) / 59 for step in steps]
        return tuple(start + (end - start) * s + bend * math.sin(math.pi * s) + rng.gauss(0, noise) for s in shares)

    return r.Curve(
        "RL",
        steps,
        {
            "reward": series(0.264, 0.348, 0.025),
            "length": series(4.2, 7.9, 0.35),
            "validity": series(0.52, 0.51, 0.025, 0.05),
            "kl": series(0.0, 0.42, 0.01),
            "gated": series(0.44, 0.12, 0.05),
            "clipped": (None, *series(0.02, 0.3, 0.03)[1:]),
        },
        seed=0,
    )


def _lengths() -> list[r.PlanLengths]:
    centres = {"reference": 4.3, "base": 4.2, "SFT": 4.4, "RL": 7.9, "best of 8": 4.9}
    return [
        r.PlanLengths(split, regime, tuple(round(300 * math.exp(-(((n - c) / (0.25 * c)) ** 2))) for n in range(15)))
        for split in ("held-out cut points", "held-out goals")
        for regime, c in centres.items()
    ]


def _prompt(split: str) -> r.ShownPrompt:
    valid = tuple(r.PlanLine(text, "valid") for text in REFERENCE)
    spoiled = (
        r.PlanLine("pour the tea into the cup", "out-of-order"),
        r.PlanLine("put the tea leaves in the teapot", "valid"),
        r.PlanLine("bring the water to a boil", "repeat"),
        r.PlanLine("let the tea brew", "valid"),
        r.PlanLine("press down on the flat tire with a very long and unlikely description of it", "alien"),
        r.PlanLine("let the tea brew", "repeat"),
        r.PlanLine("stir <b>the tea</b> & more", "valid"),
    )
    plans = (
        r.ShownPlan("reference", valid, 1.0, 0.33),
        r.ShownPlan("base", spoiled[:4], 0.47, 0.21),
        r.ShownPlan("SFT", valid[:4], 0.89, 0.31),
        r.ShownPlan("RL", spoiled, 0.41, 0.37),
        r.ShownPlan("best of 8", valid[1:], 0.81, 0.34),
    )
    return r.ShownPrompt(split, "make tea", TEA, plans)


def _hand_made() -> list[r.ProbePlan]:
    rows = {
        "true continuation": (0.33, 1.0, 0.31, 0.42, 0.16, 0.2),
        "every step said twice": (0.40, 0.62, 0.31, 0.47, 0.23, 0.1),
        "history, then the true continuation": (0.38, 0.7, 0.31, 0.45, 0.2, 0.12),
        "history copied": (-0.12, 0.0, 0.31, 0.32, 0.02, 0.9),
        "small talk, twelve lines": (0.31, 0.0, 0.31, 0.40, 0.13, 0.3),
    }
    return [
        r.ProbePlan(name, r.RewardParts(total, before, after, rho, gated, 60), validity)
        for name, (total, validity, before, after, rho, gated) in rows.items()
    ]


def build_results() -> r.Results:
    """A whole report on the embedded world."""
    return r.Results(
        title="RECIPE on the embedded world",
        summary=(
            "The paper's reward rises from 0.264 to 0.348 while plans grow from 4.2 to 7.9 steps.",
            "Their exact validity does not follow: the reward pays for length, not for new steps.",
            "Choosing among eight samples of the untrained base by the same verifier raises validity to 0.67.",
        ),
        provenance=r.Provenance(
            created="2030-01-02T03:04:05+00:00",
            command="recipe demo",
            seeds=(0,),
            versions={"recipe-planner": "0.1.0", "python": "3.11.2", "torch": "2.13.0", "trl": "1.16.0"},
            device="CPU, 2 cores",
            settings={"GRPO": "steps 60, group_size 4, learning_rate 0.001", "sampling": "temperature 0.7"},
            data={"corpus": "1500 narrations, 28500 segments", "test": "200 examples"},
        ),
        stages=(
            r.StageTime("draw the data", 2.1, "1500 narrations, 12400 examples"),
            r.StageTime("build the corpus", 41.0, "28500 segments"),
            r.StageTime("train the base planner", 210.4),
            r.StageTime("GRPO", 171.9, "60 steps of 32 completions"),
            r.StageTime("plans after RL", 0.4),
        ),
        scores=tuple(_scores()),
        differences=tuple(_differences()),
        curves=(_curve(),),
        rerankings=tuple(
            r.Reranking(split, "base", 8, _interval(0.52, 0.04), _interval(0.67, 0.04), _interval(0.86, 0.03))
            for split in ("held-out cut points", "held-out goals")
        ),
        lengths=tuple(_lengths()),
        prompts=(_prompt("held-out cut points"), _prompt("held-out goals")),
        hand_made=tuple(_hand_made()),
        caveats=(
            "A 1.8-million-parameter planner on a made-up world says nothing about the paper's scale.",
            "One seed: the intervals cover the choice of prompts, not the luck of training.",
        ),
    )


def build_real_results() -> r.Results:
    """A report on real data: no exact validity, one split, no probe plans."""
    whole = build_results()
    kept = ("steps", "reward", "gated", "distinct")
    scores = [
        r.RegimeScores(
            "crosstask", row.regime, {name: row.metrics[name] for name in kept if name in row.metrics}, 40, 10
        )
        for row in whole.scores[:3:2]
    ]
    [curve] = whole.curves
    lines = tuple(r.PlanLine(text) for text in REFERENCE)
    return r.Results(
        title="RECIPE on CrossTask",
        summary=("Reward before and after training.",),
        provenance=whole.provenance,
        stages=whole.stages,
        scores=tuple(scores),
        curves=(r.Curve("RL", curve.steps, {name: curve.series[name] for name in ("reward", "length")}),),
        prompts=(
            r.ShownPrompt(
                "crosstask",
                "Make Pancakes",
                (),
                (r.ShownPlan("reference", lines), r.ShownPlan("RL", lines[:2], reward=0.3)),
            ),
        ),
    )


@pytest.fixture(scope="session")
def fake_results() -> r.Results:
    return build_results()


@pytest.fixture(scope="session")
def fake_real_results() -> r.Results:
    return build_real_results()
