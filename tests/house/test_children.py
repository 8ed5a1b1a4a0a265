"""Processes that we start run nothing of the current folder; a model's own code needs the user's flag."""

import builtins
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import recipe
from recipe import cli
from recipe.config import SFTConfig, load_config
from recipe.errors import ConfigError, InputError

HOSTILE = ("json", "pickle", "struct", "numpy", "random", "av", "zlib", "signal", "typing", "multiprocessing", "recipe")
SAFE = "import sys; sys.exit('' in sys.path)"
HOME = Path(recipe.__file__).parents[1]

UNPICKLE = """
from recipe.data.unpickle import unpickled
assert [key for key, _, _ in unpickled(Path("n.pickle"), "latin-1")] == ["v"]
"""
SCORE = """
from recipe_apps.service.process import ScoringProcess
class Scorer:
    def score_groups(self, groups): return [[] for _ in groups]
if __name__ == "__main__":
    process = ScoringProcess(Scorer)
    process.start()
    assert process.score_groups([]) == []
    process.close()
"""
STAGES = """
from recipe_studies.experiments.schedule import Stage, run_stages
from recipe.progress import SILENT
def work(folder, settings, progress): (folder / "made").write_text("x")
if __name__ == "__main__":
    run_stages(Path("run"), [Stage("one", work, None, ("made",))], 1, SILENT)
    assert Path("run/made").exists()
"""
CLIP = """
from recipe.perception.uploads import UploadReader
from recipe.errors import InputError
try:
    UploadReader(1).probe(Path("n.pickle").resolve(), 60)
except InputError as error:
    assert "n.pickle: not a video" in str(error), error
else:
    raise AssertionError
"""
DEVICES = """
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.types import Narration, Segment
if __name__ == "__main__":
    told = [Narration(f"video{n}", (Segment("boil the water", 0, 5),)) for n in range(4)]
    config = CorpusConfig(encoder=EncoderConfig(name="hash:64"), shard_size=2)
    build_corpus(told, Path("corpus"), config, devices=["cpu", "cpu"])
"""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder of data in which modules lie that say that they ran."""
    folder = tmp_path / "data"
    for name in HOSTILE:
        (folder / name).mkdir(parents=True)
        code = f"from os import open, O_CREAT\nopen({str(tmp_path / 'ran')!r}, O_CREAT)\nraise SystemExit(3)\n"
        (folder / name / "__init__.py").write_text(code)
        (folder / f"{name}.py").write_text(code)
    (folder / "n.pickle").write_bytes(pickle.dumps({"v": {"start": [1], "end": [2], "text": ["x"]}}))
    return folder


def run(trap: Path, tmp_path: Path, code: str) -> None:
    """Run a script that lies elsewhere, as a console script does, in the folder of the trap."""
    script = tmp_path / "bin" / "script.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"from pathlib import Path\n{code}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(HOME)
    ended = subprocess.run(
        [sys.executable, script], cwd=trap, env=environment, capture_output=True, text=True, timeout=500
    )
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "needs"),
    [
        pytest.param(UNPICKLE, (), id="pickle"),
        pytest.param(CLIP, ("av",), id="clip"),
        pytest.param(SCORE, ("fastapi",), id="reward service"),
        pytest.param(STAGES, (), id="stages"),
        pytest.param(DEVICES, ("numba",), id="devices"),
    ],
)
def test_nothing_of_the_current_folder_runs(trap: Path, tmp_path: Path, code: str, needs: tuple[str, ...]) -> None:
    for name in needs:
        pytest.importorskip(name)
    run(trap, tmp_path, code)


def test_the_current_folder_on_this_process_own_path_is_left_out(trap: Path, tmp_path: Path) -> None:
    # As `python -m` and `python -c` begin: the current folder in front, here put there once the modules are loaded.
    for entry in ("", str(trap)):
        code = f"import recipe.data.unpickle, sys\nsys.path.insert(0, {entry!r})\n{UNPICKLE}"
        run(trap, tmp_path, code)


def test_a_model_runs_no_code_whatever_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = pytest.importorskip("recipe.models.checkpoints")
    own = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model", "AutoTokenizer": ["own.Tokenizer", None]}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": own}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Tokenizer", "auto_map": own}))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "model.safetensors").touch()
    monkeypatch.setattr(builtins, "input", lambda *_: "y")  # transformers may ask
    for load in (checkpoints.load_checkpoint, checkpoints.load_reader):
        with pytest.raises(InputError):
            load(str(tmp_path))
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("key", ["trust_remote_code", "corpus.encoder.trust_remote_code", "x.0.trust_remote_code"])
def test_no_file_makes_a_models_code_run(tmp_path: Path, key: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"{key} = true\n")
    with pytest.raises(ConfigError, match="trust_remote_code") as caught:
        load_config(path, SFTConfig)
    assert "not taken from a file" in str(caught.value)
    path.write_text("")
    with pytest.raises(ConfigError, match="unknown key"):
        load_config(path, SFTConfig, [f"{key}=true"])


def test_processes_that_libraries_start_for_a_command_leave_the_current_folder_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setattr(cli, "run", lambda _: subprocess.run([sys.executable, "-c", SAFE], check=False).returncode)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert "PYTHONSAFEPATH" not in os.environ
