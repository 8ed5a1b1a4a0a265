"""Miniature benchmarks and narrations below one folder of data, and a made-up but plausible report."""

import json
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


REGIMES = {"base": 0.52, "SFT": 0.66, "RL": 0.53, "best of 8": 0.67}
TEXTS = ("put the tea leaves in the teapot", "let the tea steep", "stir <b>the tea</b> & more", "stir the tea")


def build_results() -> r.Results:
    """A whole report on the embedded world, with plausible figures."""
    rng = random.Random(0)
    splits, metrics = ("held-out cut points", "held-out goals"), ("score", "order", "clean", "steps", "reward", "gated")

    def interval(mean: float) -> Interval:
        return Interval(mean, mean - 0.04, mean + 0.04, 100, 24)

    def plan(regime: str, *statuses: Any) -> r.ShownPlan:
        lines = tuple(r.PlanLine(text, status) for text, status in zip(TEXTS, statuses, strict=False))
        return r.ShownPlan(regime, lines, 0.5, 0.3)

    steps = tuple(range(1, 31))
    series: dict[str, tuple[float | None, ...]] = {
        name: tuple(start + rng.gauss(0, 0.02) for _ in steps)
        for name, start in (("reward", 0.3), ("length", 5.0), ("validity", 0.5), ("kl", 0.2), ("gated", 0.3))
    }
    plans = (
        plan("reference", *["valid"] * 4),
        *(plan(regime, "out-of-order", "valid", "alien", "repeat") for regime in REGIMES),
    )
    return r.Results(
        title="RECIPE on the embedded world",
        summary=("The paper's reward rises while plans grow.", "Their exact validity does not follow."),
        provenance=r.Provenance("2030-01-02T03:04:05+00:00", "recipe demo", (0,), {"torch": "2"}, "CPU, 2 cores"),
        stages=(r.StageTime("draw the data", 2.1, "1500 narrations"), r.StageTime("GRPO", 171.9)),
        scores=tuple(
            r.RegimeScores(split, regime, {name: interval(value) for name in metrics}, prompts=100, samples=10)
            for split in splits
            for regime, value in REGIMES.items()
        ),
        differences=tuple(
            r.Difference(split, regime, "base", name, interval(REGIMES[regime] - REGIMES["base"]))
            for split in splits
            for regime in [*REGIMES][1:]
            for name in metrics[:4]
        ),
        curves=(r.Curve("RL", steps, series | {"clipped": (None, *series["kl"][1:])}, seed=0),),
        rerankings=tuple(r.Reranking(s, "base", 8, interval(0.52), interval(0.67), interval(0.86)) for s in splits),
        lengths=tuple(r.PlanLengths(s, name, (0, 3, 9, 4)) for s in splits for name in ("reference", *REGIMES)),
        prompts=tuple(r.ShownPrompt(split, "make tea", ("boil the water",), plans) for split in splits),
        caveats=("One seed: the intervals cover the choice of prompts, not the luck of training.",),
    )


@pytest.fixture(scope="session")
def fake_results() -> r.Results:
    return build_results()


@pytest.fixture(scope="session")
def fake_real_results() -> r.Results:
    """A report on real data: no exact validity, one split."""
    whole = build_results()
    scores = [
        r.RegimeScores("crosstask", row.regime, {name: row.metrics[name] for name in ("steps", "reward")}, 40, 10)
        for row in whole.scores[:3:2]
    ]
    [curve] = whole.curves
    shown = r.ShownPlan("RL", tuple(map(r.PlanLine, TEXTS)), reward=0.3)
    return r.Results(
        title="RECIPE on CrossTask",
        provenance=whole.provenance,
        scores=tuple(scores),
        curves=(r.Curve("RL", curve.steps, {name: curve.series[name] for name in ("reward", "length")}),),
        prompts=(r.ShownPrompt("crosstask", "Make Pancakes", (), (shown,)),),
    )
