"""Decoding compared with ffmpeg alone: seconds and peak memory for the frames a model is shown.

    python benchmarks/decode.py [VIDEO ...] [--quick] [--keep FOLDER]

Two samplings of each video: 2 frames a second, and 32 evenly spread. Besides the videos given, two are made: ten
minutes of 1280x720, and an hour of 640x360 for 32 frames (30 a second, B-frames, a keyframe every 5 seconds).

* recipe: `read_frames`, which jumps to keyframes where that saves decoding, and holds the images.
* recipe, no jumps: the same frames by decoding every one.
* ffmpeg: `ffmpeg -i VIDEO -vf fps=...,scale=... -f rawvideo -pix_fmt rgb24`, written to nowhere, so that it holds none.
* ffmpeg, seeking: one `ffmpeg -ss TIME -i VIDEO -frames:v 1` for each of the 32.

Each run is a process of its own, in turns; times are the best of the rounds, in processor time over all cores, which
tells more than wall time on a machine that others use too (wall time is in the JSON). Of Python the time is that of
reading, without the start of the interpreter, and the memory that of the whole process, libraries included. Needs the
extra `video`; without an ffmpeg on the PATH its columns are left out. Some minutes; --quick half a minute.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from common import add_json, processor, write_result

FPS, UNIFORM = "2 fps", "32 uniform"
RECIPE, PLAIN, FFMPEG, SEEKING = "recipe", "recipe, no jumps", "ffmpeg", "ffmpeg, seeking"
SMALL = 64 * 28 * 28
"""`max_pixels` of samplings of more than 128 frames: what a model is shown of long videos."""
LONG = "_360p"
"""In the name of the video that is made for its length alone."""
SECONDS = 20
"""Length of the made videos' pattern, which is then repeated."""


class Run(NamedTuple):
    """One process: seconds of wall time, of processor time, peak of resident memory."""

    seconds: float
    processor_seconds: float
    megabytes: float


class Task(NamedTuple):
    """A video and how it is sampled."""

    video: Path
    sampling: str
    minutes: float
    frames: int
    width: int
    height: int
    times: tuple[float, ...]

    @property
    def images_mb(self) -> float:
        return self.frames * self.width * self.height * 3 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="*", type=Path, metavar="VIDEO")
    parser.add_argument("--quick", action="store_true", help="make videos of one and two minutes")
    parser.add_argument("--keep", type=Path, help="folder for the made videos, used again when they are there")
    add_json(parser, "video")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
        return
    ffmpeg = shutil.which("ffmpeg")
    print(processor())
    print(version(ffmpeg) if ffmpeg else "ffmpeg is not on the PATH: its columns are left out")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        lengths = (1, 2) if options.quick else (10, 60)
        made = [make(folder, 1280, 720, lengths[0]), make(folder, 640, 360, lengths[1])]
        start = spawn([sys.executable, __file__, "--child", json.dumps({"kind": "start"})])
        print(f"Python with its libraries alone: {start.seconds:.2f} s, {start.megabytes:.0f} MB\n")
        rows = [measured(task, ffmpeg) for video in (*options.videos, *made) for task in tasks(video)]
    columns, cells = table(rows)
    print("\n".join(" | ".join(line) for line in (columns, *cells)))
    known = version(ffmpeg) if ffmpeg else None
    write_result(
        options.json,
        {"ffmpeg": known, "start": start._asdict(), "rows": rows},
        title="Decoding compared with ffmpeg",
        guide="video.md",
        body=[
            "Processor seconds, over all cores, for each minute of video; in brackets the peak of memory in MB, of "
            "which Python "
            f"with its libraries is {start.megabytes:.0f}. The ratio is that of recipe to ffmpeg. "
            f"{known or 'No ffmpeg'}.",
            {"columns": columns, "rows": cells},
        ],
        partial=options.quick,
    )


def tasks(video: Path) -> list[Task]:
    """Both samplings of a video, as this project would do them; of the longest the sparse one alone."""
    samplings = [UNIFORM] if LONG in video.name else [FPS, UNIFORM]
    return [Task(video, *answer(kind="plan", video=str(video), sampling=one)) for one in samplings]


def measured(task: Task, ffmpeg: str | None) -> dict[str, Any]:
    """All systems at one task, in turns: three rounds of a short one."""
    long, uniform = LONG in task.video.name, task.sampling == UNIFORM
    systems = [RECIPE] if long else [RECIPE, PLAIN]
    if ffmpeg:
        # Of a short clip, seeking would be the start of 32 processes and no more.
        systems += [FFMPEG, SEEKING] if uniform and task.minutes > 0.5 else [FFMPEG]
    best: dict[str, Run] = {}
    for _ in range(3 if task.minutes <= 1 else 1):
        for system in systems:
            run = once(task, system, ffmpeg or "")
            known = best.get(system, run)
            best[system] = Run(min(run[0], known[0]), min(run[1], known[1]), max(run[2], known[2]))
    told = ", ".join(f"{name} {run.processor_seconds:.2f} s" for name, run in best.items())
    print(f"{task.video.name}, {task.sampling}: {told}", flush=True)
    runs = {name: run._asdict() for name, run in best.items()}
    kept = {key: value for key, value in task._asdict().items() if key not in ("video", "times")}
    return {"video": task.video.name, **kept, "images_mb": task.images_mb, "runs": runs}


def once(task: Task, system: str, ffmpeg: str) -> Run:
    if system in (RECIPE, PLAIN):
        request = {"kind": system, "video": str(task.video), "sampling": task.sampling}
        return spawn([sys.executable, __file__, "--child", json.dumps(request)], inside=True)
    output = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-y", os.devnull]
    begin, size = [ffmpeg, "-v", "error", "-nostdin"], f"scale={task.width}:{task.height}"
    if system == FFMPEG:
        rate = task.frames / (task.minutes * 60)
        return spawn([*begin, "-i", str(task.video), "-vf", f"fps={rate:.6f},{size}", *output])
    runs = [
        spawn([*begin, "-ss", f"{one:.6f}", "-i", str(task.video), "-frames:v", "1", "-vf", size, *output])
        for one in task.times
    ]
    return Run(sum(run[0] for run in runs), sum(run[1] for run in runs), max(run[2] for run in runs))


def spawn(command: list[str], inside: bool = False) -> Run:
    """Run a process; with `inside`, its times are those that it prints."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    spent = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    wall, processor_time = json.loads(printed) if inside else spent
    return Run(wall, processor_time, usage.ru_maxrss / 1024)


def answer(**request: Any) -> Any:
    """What a process of this script prints: this one stays small, since a child's peak begins with its parent's."""
    printed = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(request)], stdout=subprocess.PIPE, check=True
    ).stdout
    return json.loads(printed)


def child(request: dict[str, Any]) -> None:
    """Plan, read or make a video, and print what `answer` or `spawn` asked for."""
    from recipe.config import FrameConfig
    from recipe.perception.footage import open_footage
    from recipe.perception.frames import image, pose, probe, read_frames, sampling_grid, shown_at

    if request["kind"] == "start":
        return
    if request["kind"] == "make":
        write(Path(request["path"]), request["width"], request["height"], request["minutes"])
        return
    video, uniform = Path(request["video"]), request["sampling"] == UNIFORM
    info = probe(video)
    many = info.duration * 2 > 128 and not uniform
    config = FrameConfig(
        count=32 if uniform else None, max_frames=100_000, min_pixels=1, **({"max_pixels": SMALL} if many else {})
    )
    if request["kind"] == "plan":
        times = sampling_grid(config, 0.0, info.duration)[0].tolist()
        with open_footage(video) as footage:
            height, width, _ = pose(footage.first.frame, footage.aspect, config.max_pixels).shape
        print(json.dumps([request["sampling"], info.duration / 60, len(times), width, height, times]))
        return
    begin, busy = time.perf_counter(), time.process_time()
    if request["kind"] == RECIPE:
        read_frames(video, config)
    else:
        with open_footage(video) as footage:
            shape = pose(footage.first.frame, footage.aspect, config.max_pixels)
            times = sampling_grid(config, 0.0, footage.end)[0]
            held = [image(shown.frame, shape) for shown in shown_at(footage, times, float("inf"))]
            assert len(held) == len(times)
    print(json.dumps([time.perf_counter() - begin, time.process_time() - busy]))


def make(folder: Path, width: int, height: int, minutes: int) -> Path:
    """A video of so many minutes; one that is there already is kept."""
    path = folder / f"made_{minutes}min_{height}p.mp4"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        request = {"kind": "make", "path": str(path), "width": width, "height": height, "minutes": minutes}
        subprocess.run([sys.executable, __file__, "--child", json.dumps(request)], check=True)
    return path


def write(path: Path, width: int, height: int, minutes: int) -> None:
    """A texture that moves under faint grain, encoded once, then repeated without encoding."""
    import av
    import numpy as np

    random = np.random.default_rng(0)
    texture = random.integers(30, 220, (2 * height // 40, 2 * width // 40), np.uint8).repeat(40, 0).repeat(40, 1)
    grain = random.integers(0, 3, (4, height, width), np.uint8)
    colour = np.full((height // 2, width), 118, np.uint8)
    pattern, partial = path.with_name("pattern.mp4"), path.with_name("partial.mp4")
    with av.open(str(pattern), "w") as output:
        stream = output.add_stream("libx264", rate=30, options={"preset": "superfast", "bf": "2", "crf": "23"})
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = width, height, "yuv420p", 150
        for number in range(30 * SECONDS):
            down, across = number * height // (60 * SECONDS), number * width // (60 * SECONDS)
            seen = texture[down : down + height, across : across + width] + grain[number % 4]
            output.mux(stream.encode(av.VideoFrame.from_ndarray(np.concatenate([seen, colour]), format="yuv420p")))
        output.mux(stream.encode(None))
    with av.open(str(partial), "w") as output:
        stream = None
        for turn in range(minutes * 60 // SECONDS):
            with av.open(str(pattern)) as source:
                stream = stream or output.add_stream_from_template(source.streams.video[0])
                for packet in source.demux(video=0):
                    if packet.dts is not None:
                        offset = int(turn * SECONDS / packet.time_base)
                        packet.pts, packet.dts, packet.stream = packet.pts + offset, packet.dts + offset, stream
                        output.mux(packet)
    pattern.unlink()
    partial.rename(path)


def table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Columns and cells: processor seconds a minute of video with the peak of memory, and the ratio to ffmpeg."""
    heads = [
        "video, sampling",
        "frames",
        "images, MB",
        "recipe: s/min (peak MB)",
        "no jumps",
        "ffmpeg",
        "seeking",
        "ratio",
    ]
    lines = []
    for row in rows:
        cells = [f"{row['video']}, {row['sampling']}", f"{row['frames']} x {row['width']}x{row['height']}"]
        cells.append(f"{row['images_mb']:.0f}")
        for name in (RECIPE, PLAIN, FFMPEG, SEEKING):
            run = row["runs"].get(name)
            cells.append(f"{run['processor_seconds'] / row['minutes']:.2f} ({run['megabytes']:.0f})" if run else "")
        peer = row["runs"].get(FFMPEG)
        cells.append(f"{row['runs'][RECIPE]['processor_seconds'] / peer['processor_seconds']:.2f}" if peer else "")
        lines.append(cells)
    return heads, lines


def version(ffmpeg: str) -> str:
    printed = subprocess.run([ffmpeg, "-version"], stdout=subprocess.PIPE, check=True, text=True).stdout
    return " ".join(printed.split()[:3])


if __name__ == "__main__":
    main()
