"""Write what this version writes into `tests/house/formats/VERSION.tar.gz`, for the versions after it to read.

Run it once for a release: `python packaging/formats.py`.
"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import recipe

ROOT = Path(__file__).resolve().parent.parent
BASE = """examples = "examples.jsonl"
output = "base"
hidden_size = 32
layers = 1
head_size = 16
vocabulary = 512
context = 256
steps = 20
learning_rate = 2e-2
batch_tokens = 256
bf16 = false
"""
GRPO = """model = "base/model"
examples = "examples.jsonl"
corpus = "corpus"
output = "grpo"
steps = 2
prompts_per_step = 2
group_size = 2
max_completion_tokens = 12
save_every = 1
metrics = []
bf16 = false
"""
PROMPT = {
    "goal": "brew green tea",
    "history": ["boil the water"],
    "continuations": [["pour the water"], ["steep the tea", "serve"]],
}
COMMANDS = (
    ("corpus", "build", "subtitles", "--output", "corpus", "--encoder", "hash:64", "--shard-size", "8"),
    ("train", "base", "base.toml"),
    ("train", "grpo", "grpo.toml"),
    ("reward", "score", "--corpus", "corpus", "--input", "prompts.jsonl", "--output", "scored.jsonl"),
    *(
        ("evaluate", *kind, "predictions.jsonl", "--examples", "examples.jsonl", "--output", f"{kind[0]}.json")
        for kind in (
            ("match", "--encoder", "hash:64"),
            ("validity",),
            ("judge", "--judge", "proxy", "--encoder", "hash:64"),
        )
    ),
    ("demo", "--quick"),
    ("board", "init", "--demo", "--encoder", "hash:64", "--database", "board.db"),
    ("board", "worker", "--until-empty", "--database", "board.db"),
)
KEPT = (
    *("corpus", "examples.jsonl", "predictions.jsonl", "prompts.jsonl", "scored.jsonl", "base.toml", "grpo.toml"),
    *("match.json", "match.rows.jsonl", "validity.json", "validity.rows.jsonl", "judge.json", "judge.rows.jsonl"),
    *("base", "grpo/run.json", "grpo/metrics.jsonl", "grpo/completions", "grpo/checkpoints/checkpoint-1"),
    *("runs/demo/report.json", "runs/demo/grpo/metrics.jsonl", "board.db"),
)
"""Of the GRPO run what is there after the first of two steps, so that it is to be finished."""


def recipe_command(*words: str, cwd: Path) -> None:
    """Run a command of this version."""
    subprocess.run([sys.executable, "-m", "recipe", *words], cwd=cwd, check=True, stdin=subprocess.DEVNULL)


def _without_this_machine(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """An entry of the archive; None for a corpus's record of where its inputs lay, which only a further build reads."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return None if entry.name == "corpus/inputs.json" else entry


def main() -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        shutil.copytree(ROOT / "examples/subtitles", folder / "subtitles")  # inputs are recorded by their paths
        recipe_command("world", "examples", "--split", "test_goals", "--count", "6", "--output", "e.jsonl", cwd=folder)
        rows = [json.loads(line) | {"split": "train"} for line in (folder / "e.jsonl").read_text("utf-8").splitlines()]
        plans = [{"example_id": row["example_id"], "steps": row["continuation"][::-1]} for row in rows]
        for name, lines in (("examples", rows), ("predictions", plans), ("prompts", [PROMPT])):
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        (folder / "base.toml").write_text(BASE, "utf-8")
        (folder / "grpo.toml").write_text(GRPO, "utf-8")
        for words in COMMANDS:
            recipe_command(*words, cwd=folder)
        metrics = folder / "grpo/metrics.jsonl"
        metrics.write_text("".join(metrics.read_text("utf-8").splitlines(keepends=True)[:1]), "utf-8")
        (folder / "grpo/completions/step-00002.jsonl").unlink()
        target = ROOT / "tests/house/formats" / f"{recipe.__version__}.tar.gz"
        target.parent.mkdir(exist_ok=True)
        with tarfile.open(target, "w:gz") as archive:
            for name in KEPT:
                archive.add(folder / name, name, filter=_without_this_machine)
    print(f"{target} {target.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
