"""All inputs that an experiment lacks are found at once; finished stages are counted."""

from pathlib import Path
from typing import Any

import pytest

from recipe.artifacts import write_json
from recipe.config import parse_config
from recipe.errors import ConfigError
from recipe_studies.experiments.preflight import check_experiment
from recipe_studies.experiments.schedule import RECORDS, _fingerprints
from recipe_studies.experiments.settings import ExperimentConfig
from recipe_studies.experiments.stages import plan_stages

FILES = {"type": "files", "narrations": ["a.jsonl", "b.jsonl"], "benchmarks": ["coin", "crosstask"]}
WORLD = {"type": "world", "narrations": 4, "documents": 4, "train": 60, "test": 20}
SMALL = {"base": {"hidden_size": 32, "layers": 2, "head_size": 16, "vocabulary": 512}}


def experiment(source: dict[str, Any], **values: Any) -> ExperimentConfig:
    given = {"title": "t", "source": source, "corpus": {"encoder": {"name": "hash:64"}}} | SMALL | values
    return parse_config(given, ExperimentConfig, "test")


def test_every_missing_input_has_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").touch()
    checked = check_experiment(experiment(FILES), tmp_path / "run", tmp_path)
    missing = [one.sentence for one in checked.findings if one.state == "missing"]
    assert [subject in line for subject, line in zip(("b.jsonl", "coin", "crosstask", "run"), missing, strict=True)]
    assert not checked.ready
    assert checked.stages == ()


def test_stages_that_are_done_are_marked(tmp_path: Path) -> None:
    config = experiment(WORLD)
    whole = check_experiment(config, tmp_path / "run")
    assert whole.ready
    assert not (tmp_path / "run").exists()
    stages = plan_stages(config)
    base = next(stage for stage in stages if stage.name == "base")
    write_json(
        tmp_path / "run" / RECORDS / "base.json",
        {"fingerprint": _fingerprints(stages)["base"], "done": True, "seconds": 1.0},
    )
    for output in base.outputs:
        (tmp_path / "run" / output).mkdir(parents=True)
    rest = check_experiment(config, tmp_path / "run")
    assert [stage.name for stage in rest.stages if stage.done] == ["base"]
    assert [stage.name for stage in rest.stages] == [stage.name for stage in whole.stages]


def test_settings_of_a_stage_are_checked_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key 'stpes'"):
        check_experiment(experiment(WORLD, base={"stpes": 3}), tmp_path)
