"""The paper's corpus at 1/100 of its size: HowToCaption's layout, made texts, and the documented commands on it.

    python benchmarks/howtocaption.py [--videos 12000] [--dimension 1024] [--folder FOLDER]

HowToCaption has 25 million captions of 1.2 million videos. A pickle is written in its published layout, with as many
captions a video: starts out of order, a list of captions for each span, spans of 8 seconds that overlap. Then, each as
a process of its own: a build; the same build killed with SIGKILL when half of its shards are there, and resumed, which
must give the same corpus id; a build that keeps the videos of a test out; verification; a search; 20 steps of GRPO with
a model of a million parameters. Shown for each: seconds of wall time and of processor time over its processes, and the
highest memory of its own, without mapped files. The encoder is `hash:D`, so that the project's own work is measured;
its seconds on the same texts are measured apart.

What 25 million captions take is calculated: time and disk from the measured rates, memory from the sizes of the files.
--videos 300 takes a minute.
"""

import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import add_json, once, processor, table, write_result

from recipe.artifacts import read_json, read_jsonl
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder

PUBLISHED = {"videos": 1_200_000, "captions": 25_000_000}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
VERBS = [
    "chop", "fry", "pour", "boil", "stir", "drain", "fold", "press", "cut", "glue", "sand", "paint", "drill", "screw",
    "clean", "rinse", "peel", "grate", "knead", "roll", "bake", "cool", "measure", "mark", "bend", "tie", "sew",
    "wrap", "lift", "plant", "water", "trim", "attach", "remove", "tighten", "loosen", "check", "fill", "empty",
]  # fmt: skip
THINGS = [
    "onion", "pan", "dough", "board", "screw", "wire", "pipe", "seed", "pot", "fabric", "thread", "paper", "hinge",
    "tyre", "chain", "filter", "bottle", "lid", "shelf", "brush", "tomato", "carrot", "potato", "egg", "butter",
    "flour", "sugar", "salt", "pepper", "cream", "leaf", "stem", "root", "bulb", "lamp", "switch", "plug", "cable",
    "bolt", "nut",
]  # fmt: skip
KINDS = [
    "small", "large", "red", "green", "old", "new", "dry", "wet", "thin", "thick", "soft", "hard", "round", "flat",
    "left", "right", "upper", "lower",
]  # fmt: skip
HOWS = [
    "slowly", "again", "with a knife", "by hand", "until it is soft", "for five minutes", "on both sides",
    "before it dries",
]  # fmt: skip
RECIPE = [sys.executable, "-c", "from recipe.cli import main; main()"]

Result = dict[str, Any]


def videos(count: int, seed: int = 0) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Videos in the published layout, {"start": [...], "end": [...], "text": [[caption, ...], ...]}, out of order."""
    draw = np.random.default_rng(seed)

    def caption() -> str:
        (first, second), (tool, thing, other) = draw.choice(VERBS, 2), draw.choice(THINGS, 3)
        kind, how = KINDS[draw.integers(len(KINDS))], HOWS[draw.integers(len(HOWS))]
        return f"{first.capitalize()} the {kind} {thing} and {second} the {tool} {other} {how}"

    for _ in range(count):
        spans = int(np.clip(draw.lognormal(np.log(18.5) - 0.18, 0.6), 2, 120))
        start = draw.permutation(np.sort(draw.integers(0, 9 * spans, spans))).tolist()
        text = [[caption() for _ in range(1 + (draw.random() < 0.125))] for _ in range(spans)]
        yield (
            "".join(draw.choice(list(LETTERS), 11)),
            {"start": start, "end": [second + 8 for second in start], "text": text},
        )


def write_inputs(folder: Path, count: int) -> Result:
    """The pickle, and examples: training ones of their own texts, test ones of videos that are in the pickle."""
    made = dict(videos(count))
    (folder / "howtocaption").mkdir(parents=True)
    with (folder / "howtocaption" / "howtocaption.pickle").open("wb") as file:
        pickle.dump(made, file)
    rows = []
    for split, source in (("train", list(videos(200, seed=1))), ("test", list(made.items())[: max(3, count // 100)])):
        for video_id, spans in source:
            steps = [texts[0].lower() for texts in spans["text"][:4]]
            row = {"source": "coin", "video_id": video_id, "cut": 1, "split": split, "supervision": "annotated"}
            texts = {"goal": steps[0].split(" and ")[0], "history": steps[:1], "continuation": steps[1:]}
            rows.append({"example_id": f"coin/{video_id}/1", **row, **texts})
    (folder / "examples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {
        "videos": len(made),
        "captions": sum(len(texts) for spans in made.values() for texts in spans["text"]),
        "distinct captions": len({text for spans in made.values() for texts in spans["text"] for text in texts}),
        "test videos": max(3, count // 100),
        "pickle_mb": (folder / "howtocaption" / "howtocaption.pickle").stat().st_size / 1e6,
    }


def run(arguments: Sequence[object], kill_when: Callable[[], bool] = lambda: False) -> Result:
    """`recipe ARGUMENTS` to its end, or until it is killed. Raises RuntimeError where it fails."""
    began, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [*RECIPE, *map(str, arguments)], stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )
        killed = False
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            peak = max(peak, own_memory(process.pid))
            if not killed and kill_when():
                os.killpg(process.pid, signal.SIGKILL)
                killed = True
            time.sleep(0.02)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    if process.returncode and not killed:
        raise RuntimeError(f"recipe {' '.join(map(str, arguments))} ended with {process.returncode}: {text[-2000:]}")
    return {
        "wall_s": time.perf_counter() - began,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "own_memory_gb": peak / 1e9,
        "killed": killed,
    }


def own_memory(session: int) -> int:
    """Bytes that the processes of a session hold now, without mapped files."""
    held = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getsid(int(folder.name)) == session:
                    lines = (folder / "status").read_text().splitlines()
                    held += next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)
            except (ProcessLookupError, FileNotFoundError):
                continue  # it has ended since
    return held


def encoder_seconds(folder: Path, dimension: int) -> Result:
    """The encoder alone on every caption, in parts of the size of a shard's."""
    with (folder / "howtocaption" / "howtocaption.pickle").open("rb") as file:
        made = pickle.load(file)
    texts = [text for spans in made.values() for captions in spans["text"] for text in captions]
    encoder = open_encoder(EncoderConfig(name=f"hash:{dimension}"))
    parts = [texts[first : first + 20_000] for first in range(0, len(texts), 20_000)]
    wall, cpu = once(lambda: [encoder.encode(part).shape for part in parts], 1)
    return {"wall_s": wall, "cpu_s": cpu}


def measure(folder: Path, count: int, dimension: int, shard: int) -> Result:
    """All of it, in `folder`."""
    result: Result = {"input": write_inputs(folder, count), "steps": {}}
    steps = result["steps"]

    def build(name: str, *more: object) -> list[object]:
        options = ("--encoder", f"hash:{dimension}", "--shard-size", shard)
        return ["corpus", "build", folder / "howtocaption", "--output", folder / name, *options, *more]

    def note(name: str, done: Result) -> None:
        steps[name] = done
        memory = done.get("own_memory_gb", 0)
        print(f"{name:28} {done['wall_s']:8.1f} s {done['cpu_s']:8.1f} s of processor {memory:6.2f} GB", flush=True)

    note("encoder alone", encoder_seconds(folder, dimension))
    ten = folder / "ten" / "howtocaption.pickle"
    ten.parent.mkdir()
    ten.write_bytes(pickle.dumps(dict(videos(10))))
    start = ["corpus", "build", ten, "--output", folder / "start", "--encoder", f"hash:{dimension}"]
    note("build of ten videos", run(start))
    note("build", run(build("whole")))
    shards = -(-result["input"]["videos"] // shard)
    half = folder / "killed" / "shards" / f"{shards // 2:05d}"
    note("build, killed at half", run(build("killed"), half.is_dir))
    if not steps["build, killed at half"]["killed"]:
        raise RuntimeError("the build ended before it was killed")
    note("the same, resumed", run(build("killed")))
    ids = [read_json(folder / name / "manifest.json")["id"] for name in ("whole", "killed")]
    result["same id"] = ids[0] == ids[1]
    if not result["same id"]:
        raise RuntimeError(f"the resumed corpus has the id {ids[1]} and the unbroken one {ids[0]}")
    examples = folder / "examples.jsonl"
    note("build with --exclude", run(build("clean", "--exclude", examples, "--exclude-split", "test")))
    kept = read_json(folder / "clean" / "manifest.json")
    result["kept with --exclude"] = {"videos": kept["narrations"], "captions": kept["segments"]}
    note("verify", run(["corpus", "verify", folder / "whole", "--sample", 256]))
    note("info --against", run(["corpus", "info", folder / "clean", "--against", examples, "--split", "test"]))
    for name in ("first search", "search"):  # the first one of an installation compiles
        note(name, run(["corpus", "search", folder / "whole", "chop the onion", "fry it by hand", "-k", 25]))
    files = [path for path in (folder / "whole").rglob("*") if path.is_file()]
    result["disk_gb"] = {
        name: sum(path.stat().st_size for path in files if name in ("all", path.name)) / 1e9
        for name in ("all", "embeddings.npy", "codes.npy", "segments.parquet")
    }
    base, grpo = folder / "base.toml", folder / "grpo.toml"
    common = f'examples = "{examples}"\nsplit = "train"\n'
    base.write_text(common + f'output = "{folder}/base"\nhidden_size = 128\nlayers = 2\ncontext = 512\nsteps = 100\n')
    grpo.write_text(
        common + f'model = "{folder}/base/model"\ncorpus = "{folder}/clean"\noutput = "{folder}/grpo"\nsteps = 20\n'
        "max_completion_tokens = 64\n"
    )
    note("train base, 100 steps", run(["train", "base", base]))
    note("train grpo, 20 steps", run(["train", "grpo", grpo]))
    rows = [row for _, row in read_jsonl(folder / "grpo" / "metrics.jsonl")]
    result["grpo"] = {
        "steps": len(rows),
        "reward_seconds_a_step": float(np.median([row["reward_seconds"] for row in rows])),
        "step_seconds": float(np.median([row["step_seconds"] for row in rows])),
    }
    result["calculated for 25 million captions"] = calculated(result, dimension)
    return result | {"setting": {"dimension": dimension, "shard": shard, "processor": processor()}}


def calculated(result: Result, dimension: int) -> Result:
    """What the published corpus takes by the measured rates; the encoder is left out, and calculated by itself."""
    steps, captions = result["steps"], result["input"]["captions"]
    times = PUBLISHED["captions"] / captions
    own = steps["build"]["cpu_s"] - steps["build of ten videos"]["cpu_s"] - steps["encoder alone"]["cpu_s"]
    return {
        "build without its encoder, processor hours": own * times / 3600,
        "verify, processor hours": steps["verify"]["cpu_s"] * times / 3600,
        "disk_gb": {name: size * times for name, size in result["disk_gb"].items()},
        "vectors_gb": 2e-9 * PUBLISHED["captions"] * dimension,
        "codes_gb": 1e-9 * PUBLISHED["captions"] * (-(-dimension // 64) * 64),
        "pickle_gb": result["input"]["pickle_mb"] * times / 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=PUBLISHED["videos"] // 100)
    parser.add_argument("--dimension", type=int, default=1024)
    parser.add_argument("--shard", type=int, default=1024, help="narrations in a shard")
    parser.add_argument("--folder", type=Path, help="where the files are made and left; without it, a temporary one")
    add_json(parser, "training-howtocaption")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (arguments.folder or Path(name) / "howtocaption").absolute()
        result = measure(folder, arguments.videos, arguments.dimension, arguments.shard)
    print(json.dumps({key: value for key, value in result.items() if key != "steps"}, indent=2))
    write_result(
        arguments.json,
        result,
        title="The paper's corpus at 1/100 of its size",
        guide="training.md",
        body=body(result),
        partial=arguments.videos < parser.get_default("videos"),
    )


def body(result: Result) -> list[str | dict[str, Any]]:
    """What was measured, and what is calculated from it."""
    captions = result["input"]["captions"]
    rows = {
        name: {
            "wall, s": done["wall_s"],
            "processor, s": done["cpu_s"],
            "processor s a million captions": done["cpu_s"] / captions * 1e6,
            "memory, GB": done.get("own_memory_gb"),
        }
        for name, done in result["steps"].items()
    }
    larger = result["calculated for 25 million captions"]
    return [
        f"{result['input']['videos']:,} videos and {captions:,} captions in HowToCaption's layout, made texts; the "
        "encoder is "
        f"hash:{result['setting']['dimension']}. The corpus of a killed and resumed build has the same id.",
        table(rows, "measured"),
        table({"GRPO": result["grpo"], "kept with --exclude": result["kept with --exclude"]}),
        table({name: {"": value} for name, value in larger.items()}, "calculated for 25 million captions"),
    ]


if __name__ == "__main__":
    main()
