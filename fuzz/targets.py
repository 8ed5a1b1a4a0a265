"""What the campaign feeds: everything that reads what users, models and peers give, each with inputs to begin from."""

import contextlib
import gzip
import io
import json
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import apps
import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from recipe import config
from recipe.audit.coverage import read_tasks
from recipe.config.base import changed_values
from recipe.corpus.excluded import read_excluded
from recipe.data.examples import read_examples
from recipe.data.histories import read_histories
from recipe.data.narrations import ReadingOptions, read_narrations
from recipe.data.procedures import read_procedures
from recipe.data.task_graphs import read_task_graphs
from recipe.errors import RecipeError
from recipe.evaluation.agreement import read_ratings
from recipe.evaluation.diversity import judges
from recipe.evaluation.judge.rubric import six_criteria
from recipe.evaluation.judge.verdicts import CRITERIA, read_verdicts
from recipe.evaluation.scores import read_rows, read_scores
from recipe.models.endpoint.wire import Unreadable, parse_completion, parse_piece
from recipe.perception.frames import read_frames
from recipe.perception.phi import read_history, read_trace
from recipe.plan_text import parse_plan
from recipe.planning.prediction_files import read_predictions
from recipe.planning.vidassist.methods import read_score
from recipe.reward.watchdog import read_records
from recipe.types import Example
from recipe_apps.board.validation import check_submission
from recipe_apps.service.messages import ScoreRequest
from recipe_apps.service.nemo_gym import VerifyRequest
from recipe_apps.service.openrlhf import GetReward
from recipe_apps.serving.messages import DeviationRequest, FeedbackRequest, RunRequest
from recipe_apps.web.refusals import Refusal, read
from recipe_studies.experiments.results import load_results
from recipe_studies.experiments.settings import load_experiment

EXPECTED = (RecipeError, Refusal, Unreadable, OSError)
"""What a reader may raise: a sentence for the user, a refusal for the client, or the system's own error."""


CONFIGS = Path(__file__).parents[1] / "configs"


class Target(NamedTuple):
    """A reader, the name of the file that it is given, and valid inputs."""

    run: Callable[[Path], object]
    file: str
    seeds: tuple[bytes, ...]


def lines(*rows: object) -> bytes:
    """Rows as JSON lines."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _narrations(path: Path, **options: Any) -> None:
    for bad in ("error", "skip"):
        try:
            for _ in read_narrations(path, "keep-first", ReadingOptions.model_validate({"bad": bad, **options})):
                pass
        except EXPECTED:
            if bad == "skip":
                raise


def _text(reader: Callable[[str], object]) -> Callable[[Path], object]:
    return lambda path: reader(path.read_bytes().decode("utf-8", "replace"))


def _body(kind: type[BaseModel]) -> Callable[[Path], object]:
    return lambda path: read(path.read_bytes(), kind)


def _completion(path: Path) -> None:
    body = path.read_bytes()
    with contextlib.suppress(Unreadable):
        parse_completion(body, 1.0)
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return
    parse_piece(event)


def _sent(service: Callable[[], apps.Service]) -> Callable[[Path], object]:
    return lambda path: service().send(path)


def _settings(kind: type[config.Settings]) -> Callable[[Path], object]:
    return lambda path: config.load_config(path, kind)


def _changes(path: Path) -> None:
    changed_values({"lora": {"rank": 8}}, path.read_bytes().decode("utf-8", "replace").split("\n"))


QUESTIONS = (
    Example("a", "s", "v", "make tea", ("boil water",), ("pour it",), 1, "test"),
    Example("b", "s", "w", "fly a kite", ("cut the paper",), ("tie the string",), 1, "test"),
)


def _submission(path: Path) -> None:
    checked = check_submission(path.read_bytes(), {one.example_id: one for one in QUESTIONS}, 2, other_ids=("c",))
    for problem in checked.problems:
        problem.sentence()


TIMED = {"video_id": "tea", "title": "t", "segments": [{"start": 0, "end": 4.5, "text": "boil the water"}]}
SAID = {"video_id": "kite", "sentences": ["cut the paper", "tie the string"]}
CAPTIONS = {"v": {"start": [1, 5], "end": [3, 9], "text": ["boil it", "pour it"]}}
SCORED = {"v": {"start": [1], "end": [3], "text": [[("boil it", 0.5), ("pour it", 0.2)]]}}
STEPS = {"source": "s", "video_id": "v", "goal": "g", "split": "train", "steps": [{"text": "a", "start": 1, "end": 2}]}
EXAMPLE = {"example_id": "a", "goal": "g", "history": ["b"], "continuation": ["c", "d"], "cut": 1, "split": "test"}
PLAN = {"example_id": "a", "steps": ["pour it", "drink"], "sample": 0, "reward": 0.5, "text": "1. pour it"}
GRAPH = {"goal": "g", "steps": {"0": "START", "1": "a", "2": "b", "3": "END"}, "edges": [[0, 1], [1, 2], [2, 3]]}
SIX = dict.fromkeys(CRITERIA, 3)
VERDICT = {"example_id": "a", "scores": SIX, "judge": "j", "sample": 0, "repeat": 0}
RATING = {"example_id": "a", "rater": "r", "system": "s", **SIX}
ROLLOUT = {"step": 1, "goal": "g", "history": ["a"], "completion": "1. b", "reward": {"total": 0.5, "gated": False}}
TASK = {"source": "s", "goal": "g", "steps": [{"text": "a"}, {"text": "b"}], "video_id": "v"}
OWN = {"goal": "t", "url": "https://example.org", "steps": ["a", "b"]}
TRANSCRIPTS: tuple[object, ...] = (
    {
        "wireMagic": "pb3",
        "events": [{"tStartMs": 0, "id": 1}, {"tStartMs": 9, "dDurationMs": 9, "segs": [{"utf8": "boil"}]}],
    },
    {"transcription": [{"offsets": {"from": 0, "to": 4000}, "text": " boil"}]},
    [{"text": "boil", "start": 0.1, "duration": 1.5}],
)
OTHER_SUBTITLES = (
    b"2a\n00:01,5 -> 00:02\nboil\n\nit\n\n-00:00:03;05 --> 00:00:04:05\npour\n",
    b"0:00:01.000,0:00:02.000\nboil[br]it\n",
    b"[Events]\nFormat: Start, End, Text\nDialogue: 0:00:01.00,0:00:02.00,{\\an8}boil,\\Nit\n",
    b"[ti:tea]\n[00:01.00][00:02.00]boil\n",
    b'<tt xmlns:p="p" p:frameRate="25"><body><p begin="00:00:01:05" end="2s">boil<br/>it</p></body></tt>',
    b'<timedtext format="3"><body><p t="1" d="9"><s>boil</s><s t="3"> it</s></p></body></timedtext>',
)
SUBTITLES = (
    b"WEBVTT\n\n00:00:01.000 --> 00:00:03.000\nboil the <c>water</c>\n\n00:04.000 --> 00:05.000\npour &amp; stir\n"
)
TABLE = b'start,end,text\n0,1,boil\n2,3.5,"pour, stir"\n'
ANSWER = {
    "choices": [{"message": {"content": "1. a"}, "delta": {"content": "x"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}


def _zipped(*files: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return stream.getvalue()


def _tarred(*files: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _parquet() -> bytes:
    stream = io.BytesIO()
    pq.write_table(
        pa.table({"video_id": ["a", "a"], "start": [0.0, 2.0], "end": [1.0, 3.0], "text": ["x", "y"]}), stream
    )
    return stream.getvalue()


def _pickled(value: object) -> tuple[bytes, ...]:
    return tuple(pickle.dumps(value, protocol) for protocol in (0, 2, 5))


def _filmed(container: str) -> bytes:
    """A video of three small frames."""
    stream = io.BytesIO()
    with av.open(stream, "w", format=container) as file:
        track = file.add_stream("mpeg4", rate=4)
        track.width = track.height = 16
        for shade in (0, 90, 200):
            file.mux(track.encode(av.VideoFrame.from_ndarray(np.full((16, 16, 3), shade, dtype=np.uint8))))
        file.mux(track.encode(None))
    return stream.getvalue()


@cache
def targets() -> Mapping[str, Target]:
    """All targets by name."""
    members = (("a.vtt", SUBTITLES), ("b.jsonl", lines(SAID)), ("c.csv", TABLE))
    readers: dict[str, tuple[Callable[[Path], object], str, tuple[bytes, ...]]] = {
        "narrations": (_narrations, "n.jsonl", (lines(TIMED, SAID), lines(STEPS), lines(OWN, OWN))),
        "howto100m": (_narrations, "raw_caption.json", (json.dumps(CAPTIONS).encode(),)),
        "align": (_narrations, "htm_align.json", (b'{"v": [[1, 0.5, 2.5, "add oil"], [0, 3, 4, "stir"]]}',)),
        "whisperx": (_narrations, "w.json", (json.dumps({"segments": TIMED["segments"], "language": "en"}).encode(),)),
        "table": (_narrations, "v.csv", (TABLE, b"video_id,start,end,text\nv,0,1,boil\n")),
        "subtitles": (_narrations, "v.vtt", (SUBTITLES, b"1\n00:00:01,000 --> 00:00:02,000\nboil\n", *OTHER_SUBTITLES)),
        "transcript": (_narrations, "v.json3", tuple(json.dumps(one).encode() for one in TRANSCRIPTS)),
        "pickle": (
            _narrations,
            "n.pickle",
            (
                *_pickled(CAPTIONS),
                *_pickled(SCORED),
                *_pickled({"v": zlib.compress(json.dumps(CAPTIONS["v"]).encode())}),
            ),
        ),
        "parquet": (_narrations, "n.parquet", (_parquet(),)),
        "zip": (_narrations, "n.zip", (_zipped(*members),)),
        "tar": (_narrations, "n.tar.gz", (_tarred(*members),)),
        "gzip": (_narrations, "n.jsonl.gz", (gzip.compress(lines(TIMED, SAID)),)),
        "utf-16": (partial(_narrations, encoding="utf-16"), "n.jsonl", (lines(TIMED).decode().encode("utf-16"),)),
        "procedures": (partial(read_procedures, on_bad="skip"), "p.jsonl", (lines(STEPS, STEPS | {"video_id": "w"}),)),
        "procedure array": (
            partial(read_procedures, on_bad="skip"),
            "p.json",
            (json.dumps([STEPS, EXAMPLE]).encode(),),
        ),
        "procedure table": (read_examples, "p.csv", (b'goal,steps,until\ng,"a\nb",\nh,"[""c"", ""d""]",1.5\n',)),
        "examples": (read_examples, "e.jsonl", (lines(EXAMPLE, EXAMPLE | {"example_id": "b"}),)),
        "predictions": (read_predictions, "p.jsonl", (lines(PLAN, PLAN | {"sample": 1}),)),
        "histories": (
            read_histories,
            "h.jsonl",
            (lines({"example_id": "a", "history": ["x"], "until": 3.5}),),
        ),
        "excluded": (read_excluded, "x.jsonl", (lines(EXAMPLE), lines(STEPS), lines(SAID), b"v1\nv2, v3\n")),
        "tasks": (read_tasks, "t.jsonl", (lines(EXAMPLE), lines(TASK))),
        "graphs": (read_task_graphs, "g.json", (json.dumps(GRAPH).encode(), json.dumps([GRAPH]).encode())),
        "verdicts": (read_verdicts, "v.jsonl", (lines(VERDICT),)),
        "ratings": (read_ratings, "r.jsonl", (lines(RATING),)),
        "rating table": (
            read_ratings,
            "r.csv",
            (",".join(RATING).encode() + b"\n" + ",".join(map(str, RATING.values())).encode() + b"\n",),
        ),
        "rows": (
            read_rows,
            "p.jsonl",
            (lines({"example_id": "a", "sample": 0, "metrics": {"diversity": 0.5}, "details": {"second": 1}}),),
        ),
        "rollouts": (lambda path: [*_taken(read_records(path))], "r.jsonl", (lines(ROLLOUT, ROLLOUT | {"step": 2}),)),
        "scores": (read_scores, "s.json", (b'{"measure": "match", "system": "s", "identity": {}, "groups": []}',)),
        "report": (load_results, "report.json", (b'{"title": "t", "summary": [], "scores": []}',)),
        "verdict text": (
            _text(six_criteria().parse),
            "v.txt",
            (b'Goal: 4\n{"goal": 4, "order": "3/5"}', b"**Order:** 3"),
        ),
        "level text": (_text(judges.parse), "v.txt", (b'{"score": 0.25}', b"**Score:** 1")),
        "number text": (_text(read_score), "v.txt", (b"0.5", b"Score: 7/10")),
        "plan text": (
            _text(parse_plan),
            "p.txt",
            (
                b"Here:\n1. Boil\n2) Pour\n- stir\n",
                b"**1.** `a`\n\n* b",
                b"<think>1. a\n</think>\n### 1. b\n[THINK]c[/THINK]",
                b'```json\n{"steps": ["a", {"step": "b"}]}\n```',
                b"| Step | Action |\n|---|---|\n| 1 | a |\n",
            ),
        ),
        "seen text": (_text(read_history), "p.txt", (b"1. Pour\n2. Stir\n", b"nothing yet")),
        "trace text": (
            _text(partial(read_trace, duration=60.0)),
            "p.txt",
            (b"0:01 Pour\n0:09 - 0:12 Stir\n", b"00:05 - 00:12 Pour\n[0:03] Stir (5s)"),
        ),
        "video": (
            lambda path: read_frames(path, config.FrameConfig(count=2)),
            "v.mp4",
            tuple(map(_filmed, ("mp4", "matroska", "avi", "mpegts"))),
        ),
        "completion": (_completion, "a.json", (json.dumps(ANSWER).encode(), b"<html>502</html>")),
        "score body": (_body(ScoreRequest), "b.json", (b'{"goal": "g", "history": ["a"], "continuations": [["b"]]}',)),
        "openrlhf body": (_body(GetReward), "b.json", (b'{"query": ["p a"], "prompts": ["p"], "labels": ["{}"]}',)),
        "nemo body": (
            _body(VerifyRequest),
            "b.json",
            (b'{"responses_create_params": {}, "response": {"output": [{"content": "1. a"}]}, "goal": "g"}',),
        ),
        "run body": (_body(RunRequest), "b.json", (b'{"goal": "g", "history": ["a"], "plans": 4}',)),
        "deviation body": (_body(DeviationRequest), "b.json", (b'{"history": ["a"], "plan": 0}',)),
        "feedback body": (
            _body(FeedbackRequest),
            "b.json",
            (b'{"plan": 0, "step": 1, "verdict": "correct", "text": "x", "comment": "c"}',),
        ),
        "submission": (_submission, "s.jsonl", (lines(PLAN, PLAN | {"example_id": "b"}),)),
        "changes": (_changes, "c.txt", (b"lora.rank=8\nmodel=smollm2", b"a.b.c=[1, 2]")),
        "experiment": (load_experiment, "e.toml", tuple(map(Path.read_bytes, sorted(CONFIGS.glob("[ntv]*.toml"))))),
    }
    model = b'model = "m"\nexamples = "e.jsonl"\noutput = "o"\n'
    tables = b"[lora]\nrank = 8\n"
    settings = {
        "SFTConfig": model + b"epochs = 2\n" + tables,
        "GRPOConfig": model + b'corpus = "c"\nsteps = 3\nbeta = 0.1\n' + tables + b'[reward]\nverifier = "grounded"\n',
        "BestOfNConfig": model + b'corpus = "c"\nrounds = 2\nn = 4\n' + tables,
        "BaseModelConfig": b'examples = "e.jsonl"\noutput = "o"\nsteps = 3\nvocabulary = 512\n',
        "RewardConfig": b'verifier = "grounded"\nalpha = 0.5\n[grounded]\nprice = 0.1\n',
        "CorpusConfig": b'shard_size = 256\n[encoder]\nname = "hash:64"\ndtype = "float32"\n',
        "ModelConfig": b'model = "m"\nendpoint = "http://localhost:8000/v1"\nconcurrency = 4\n',
    }
    for name, seed in settings.items():
        readers[name] = (_settings(getattr(config, name)), "c.toml", (seed,))
    for name, (service, requests) in apps.SERVICES.items():
        readers[name] = (_sent(service), "request", requests)
    readers["manifest"] = (apps.changed_manifest, "m.json", ((apps.corpus() / apps.MANIFEST).read_bytes(),))
    return {name: Target(*target) for name, target in readers.items()}


def _taken(rows: Iterator[object]) -> Iterator[object]:
    yield from rows
