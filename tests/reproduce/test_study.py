"""Regimes and scales are small TOML files; a table asks for the runs of its rows and no more."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.reproduce.conftest import benchmarks, planned

from recipe.artifacts import write_json
from recipe.config import BestOfNConfig, GRPOConfig, RewardConfig, SFTConfig
from recipe.errors import ConfigError, InputError
from recipe_studies.experiments.schedule import RECORDS
from recipe_studies.experiments.stages import Training
from recipe_studies.reproduce.expand import ScaleRuns, expand
from recipe_studies.reproduce.run import finished_tables
from recipe_studies.reproduce.study import Endpoints, PaperStudy, names, regime, scale, sized, training_config
from recipe_studies.reproduce.tables import FRONTIER, SPLITS, TABLES, table

PATHS: dict[str, Any] = {"model": "m", "examples": "e.jsonl", "output": "o"}


def study(*wanted: str, **more: Any) -> PaperStudy:
    return PaperStudy(tables=wanted, scales=("tiny",), **{"data": None, **more})


def trainings(made: ScaleRuns) -> dict[str, Training]:
    return {stage.name: stage.settings for stage in made.stages if isinstance(stage.settings, Training)}


@pytest.mark.parametrize("name", names("regimes"))
def test_a_regime_changes_only_what_it_names(name: str) -> None:
    chosen, default = regime(name), GRPOConfig(**PATHS, corpus=Path("c"))
    if chosen.grpo is not None:
        made = training_config(scale("0.5b"), chosen, "grpo", {**PATHS, "corpus": "c"}, 0)
        apart = {key for key in GRPOConfig.model_fields if getattr(made, key) != getattr(default, key)}
        # The paper's learning rate, group, KL weight, clipping.
        assert apart <= {"micro_batch", "reward", "steps"}
        assert made.steps == chosen.share * scale("0.5b").grpo["steps"]
        changed = {
            key for key in RewardConfig.model_fields if getattr(made.reward, key) != getattr(RewardConfig(), key)
        }
        assert len(changed) <= 1
    if chosen.sft is not None:
        assert training_config(scale("0.5b"), chosen, "sft", PATHS, 0) == SFTConfig(**PATHS)


AGAINST_THE_PAPER = {
    ("Qwen2.5-0.5B", "SFT on pseudo-labels is worse than the base", "in-domain"),
    ("Qwen2.5-0.5B", "RL is better than SFT on pseudo-labels from the same corpus", "in-domain"),
    ("Qwen2.5-0.5B", "RL with 100% weak examples is like RL without", "in-domain"),
    ("Qwen2.5-3B", "RL, in reverse, is better in-domain than zero-shot", "in-domain"),
}
"""Claims that the paper's own figures of a scale do not bear out; the last one says so itself."""


def test_the_papers_own_figures_bear_its_claims_out() -> None:
    """So each row stands beside the figures that are its own, and each claim has its direction and margin."""
    count, against = 0, set[tuple[str, str, str]]()
    for paper, title in itertools.product(TABLES, ("Qwen2.5-0.5B", "Qwen2.5-3B", "Qwen2.5-7B")):
        rows = {row.name: row for row in paper.rows}
        for row in paper.rows:  # a title begins with the paper's name of the row, which calls RL's row otherwise once
            printed_name = row.row.replace("whole reward", "RECIPE-RL").lower()
            assert row.title.replace(" with ", " w/ ").lower().startswith(printed_name)
        for claim in paper.claims:
            assert {*claim.firsts, claim.second} <= {FRONTIER, *rows}
            if FRONTIER in claim.firsts or (claim.scales and title not in claim.scales):
                continue
            for split in claim.splits or SPLITS:
                printed = [paper.published_value(rows[name], title, split) for name in claim.firsts]
                first = max((value for value in printed if value is not None), default=None)
                second = paper.published_value(rows[claim.second], title, claim.against or split)
                if first is None or second is None:
                    continue
                gap, margin, count = first - second, claim.margin_in(split) + 1e-9, count + 1
                if not {"above": gap > 0, "not below": gap > -margin, "like": abs(gap) < margin}[claim.direction]:
                    against.add((title, claim.sentence.partition(" (")[0], split))
    assert (count, against) == (167, AGAINST_THE_PAPER)
    main = table("main")
    assert main.published_value(main.rows[1], "2M, from nothing", "in-domain") == 39.2  # beside the 3B model
    for name, row in (("weak", "rl-weak-50"), ("ablation", "pool-own"), ("vpa", "vidassist-recipe-rl")):
        [own] = [own for own in table(name).rows if own.name == row]
        assert table(name).published_value(own, "Qwen2.5-3B", "zero-shot") is None  # the paper has no such row


@pytest.mark.thorough
def test_a_run_that_two_tables_need_is_planned_once() -> None:
    both, main = planned(study("main", "ablation", "diversity")), planned(study("main"))
    names_of = [stage.name for stage in both.stages]
    assert len(names_of) == len(set(names_of))
    shared = {stage.name: stage for stage in both.stages}
    assert all(shared[stage.name] == stage for stage in main.stages)
    assert len(trainings(both)) == 1 + 9 * 3  # base; rl, SFT, five ablations, two pools with three seeds


def test_controls_are_trained_beside_the_regimes_with_the_same_settings() -> None:
    plain, made = (planned(study("main", seeds=(0, 1), controls=on)) for on in (False, True))
    added = {stage.name: stage for stage in made.stages if stage not in plain.stages}
    trained = trainings(made)

    def apart(first: Any, second: Any) -> set[str]:
        return {n for n in type(first).model_fields if getattr(first, n) != getattr(second, n)} - {"output"}

    rl = trained["grpo-rl-1"].config
    for name, verifier, changed in (
        ("control-r0", "r0", {"reward"}),
        ("control-length", "length", {"reward"}),
        ("control-wrong", "grounded", {"reward", "corpus"}),
    ):
        config = trained[f"grpo-{name}-1"].config
        assert isinstance(config, GRPOConfig)
        assert (config.reward.verifier, apart(config, rl)) == (verifier, changed)
        assert str(config.corpus) in added[f"grpo-{name}-1"].needs
        assert {f"plans-{name}-0", f"scores-{name}-0"} <= set(added)
    assert added["corpus-wrong"].outputs == ("corpus-wrong",)
    rounds = trained["best-of-n-control-random-1"].config
    grounded = trainings(planned(study("regimes", seeds=(1,))))["best-of-n-rounds-grounded-1"].config
    assert isinstance(rounds, BestOfNConfig)
    assert (rounds.choose, apart(rounds, grounded)) == ("random", {"choose"})


def test_the_mixtures_have_examples_of_their_own_where_pseudo_traces_may_lack(tmp_path: Path) -> None:
    benchmarks(tmp_path)
    files = {"data": tmp_path}
    on_world, on_files = (planned(study("main", "weak", seeds=(1,), **more)) for more in ({}, files))
    own = trainings(on_files)
    assert str(own["grpo-rl-1"].config.examples) == "data/annotated.jsonl"
    assert str(own["grpo-rl-weak-0-1"].config.examples) == "data/weak-0.jsonl"
    assert {name.rpartition("-")[0] for name in set(own) - set(trainings(on_world))} == {
        "grpo-rl-weak-0",
        "sft-sft-weak-0",
    }
    for name, same in (("rl-weak-0", "rl"), ("sft-weak-0", "sft-annotated")):
        [run] = on_world.runs_of(name)
        assert run.file("scores") == f"scores/{same}-1.jsonl"
    assert on_world.table_stages(table("weak")) <= {stage.name for stage in on_world.stages}


def test_stages_that_may_compute_on_a_gpu(tmp_path: Path) -> None:
    benchmarks(tmp_path)
    server = {"model": "m", "endpoint": "http://127.0.0.1:1/v1"}
    files = {"data": tmp_path, "seeds": (0,)}
    roles = {"judge": server, "assessor": server, "frontier": {"m": server}}
    served = {**files, "endpoints": Endpoints.model_validate(roles)}
    beside = {"data", "supervision", "prompts", "vpa"}
    for more, asked in (
        ({"seeds": (0,)}, {"scores"}),
        (files, set()),
        (served, {"scores", "diversity", "controls", "vidassist", "llm", "agent"}),
    ):
        wanted = study("main", "diversity", "vpa", "video", "frontier", **more)
        made = planned(wanted, "3b" if len(more) > 1 else "tiny")
        without = {stage.name for stage in made.stages if not stage.gpu}
        kinds = {name.removeprefix("video-").partition("-")[0] for name in without}
        assert kinds == beside | asked | ({"plans"} if "endpoints" in more else set())
        assert {name for name in without if name.startswith("plans")} <= {"plans-m"}
        searched = {"vidassist-original-base", "vidassist-original-oracle-base"}
        assert {name for name in without if name.startswith("vidassist")} <= searched
        assert {name for name in without if name.startswith("vpa")} == {"vpa-samples", "vpa-floors"}


def test_regimes_start_from_the_right_model_and_examples() -> None:
    made = trainings(planned(study("regimes", "weak", "video", seeds=(5,))))
    for name, model, examples in (
        ("grpo-sft-rl-5", "runs/sft-rl-5/sft/model", "data/annotated.jsonl"),
        ("grpo-rl-weak-75-5", "base/model", "data/weak-75.jsonl"),
        ("sft-sft-ht100m-5", "base/model", "data/pseudo.jsonl"),
        ("video-grpo-video-rl-weak-5", "vision/aligned/model", "data/weak-100.jsonl"),
    ):
        run: Any = made[name].config
        assert (run.seed, run.model, str(run.examples)) == (5, model, examples)
        assert (run.input, made[name].shown) == (("video", "data/train.jsonl") if "video" in name else ("text", ""))
    hub = planned(dataclasses.replace(study("main"), scales=("3b",), engine="vllm"))
    assert {stage.settings.model.engine for stage in hub.stages if stage.name.startswith("plans")} == {"vllm"}
    for training in trainings(hub).values():
        run = training.config
        assert (run.model, training.is_external_model) == ("Qwen/Qwen2.5-3B-Instruct", True)
        assert run.rollouts == "vllm"


def test_tables_without_their_data_are_named_and_left_out(tmp_path: Path) -> None:
    made = planned(study("main", "frontier"))
    assert [one.name for one in made.tables] == ["main"]
    assert any("frontier" in sentence for sentence in made.missing)
    with pytest.raises(InputError):
        planned(study("frontier"))
    files = dataclasses.replace(study("main"), data=tmp_path)
    with pytest.raises(InputError, match="recipe data list"):
        planned(files)
    (tmp_path / "coin").mkdir()
    (tmp_path / "coin" / "COIN.json").write_text("{}")
    with pytest.raises(InputError, match="narrations"):
        planned(files)
    (tmp_path / "narrations").mkdir()
    (tmp_path / "narrations" / "n.jsonl").write_text("{}\n")
    missing = planned(files).missing
    assert len(missing) == 6
    assert all("home page" in sentence for sentence in missing)  # where the other six benchmarks come from


def test_video_on_benchmarks_trains_on_crosstask_alone(tmp_path: Path) -> None:
    benchmarks(tmp_path)
    wanted = dataclasses.replace(study("video"), data=tmp_path, scales=("3b",))
    made = planned(wanted)
    data = next(stage.settings for stage in made.stages if stage.name == "video-data")
    assert data.source.benchmarks == ("crosstask", "niv")
    run = trainings(made)["video-sft-video-sft-weak-0"].config
    assert isinstance(run, SFTConfig)
    assert (run.model, run.input, run.videos) == ("Qwen/Qwen2.5-VL-3B-Instruct", "video", tmp_path / "videos")
    assert str(run.examples) == "data/weak-100.jsonl"
    assert (run.max_tokens, run.frames.count) == (8192, 32)


@pytest.mark.thorough
def test_a_page_shows_what_is_finished_with_its_own_settings(tmp_path: Path) -> None:
    for stage in planned(study("main", "qualitative", seeds=(0, 1))).stages:
        for output in stage.outputs:
            (tmp_path / output).mkdir(parents=True)
        write_json(tmp_path / RECORDS / f"{stage.name}.json", {"identity": stage.identity, "done": True})

    def finished(**settings: Any) -> list[str]:
        whole = expand(dataclasses.replace(study("all"), **settings), "tiny")
        return [paper.name for paper in finished_tables(whole, tmp_path)]

    assert finished(seeds=(0, 1)) == ["main", "qualitative"]
    assert finished(seeds=(1,)) == ["main", "qualitative"]
    assert finished(seeds=(0, 1, 2)) == []
    assert finished(seeds=(0, 1), quick=True) == []
    (tmp_path / "scores" / "sft-annotated-1.jsonl").rmdir()
    assert finished(seeds=(0, 1)) == ["main"]


def test_changes_are_made_in_the_scale() -> None:
    assert sized("tiny", quick=True, changes=["grpo.steps=7", "test=5"]).grpo["steps"] == 7
    with pytest.raises(ConfigError, match="unknown key 'stps'; did you mean 'steps'"):
        sized("tiny", quick=False, changes=["grpo.stps=7"])
