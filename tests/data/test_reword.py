"""Rewordings claim what the annotation claims, and reach the examples by video and step."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.data.conftest import Recipe
from tests.models.endpoint_server import completion, serving

from recipe.data.examples import read_examples, write_examples
from recipe.data.procedures import read_procedures, write_procedures
from recipe.data.reword import Rewording, annotated_videos, new_words, reword, with_wording
from recipe.data.supervision import cut_at
from recipe.errors import InputError
from recipe.types import Procedure, Step

TEMPLATE = "$goal\n$steps"
GOAL = "patch kite"
LABELS = ("cut the tape", "press tape on kite", "brake on")
GOOD = ("Cut the tape carefully.", "Firmly press the tape onto the kite.", "Put the brake on.")


def video(name: str = "v", goal: str = GOAL, labels: Sequence[str] = LABELS, split: str = "test") -> Procedure:
    steps = tuple(Step(text, float(at), at + 1.0) for at, text in enumerate(labels))
    return Procedure("s", name, goal, steps, split)


def answer(goal: str = "Patch the kite", steps: Sequence[str] = GOOD) -> str:
    return json.dumps({"goal": goal, "steps": list(steps)})


def worded(videos: Sequence[Procedure], *answers: Sequence[str | None], bound: int = 0) -> Rewording:
    """The rewording by answers to each attempt, in order of the chats that are asked for then."""
    found = reword(videos, lambda chats, at: answers[at][: len(chats)], TEMPLATE, bound=bound, reasks=len(answers) - 1)
    assert [len(one.steps) for one in found.videos] == [len(one.steps) for one in videos]
    return found


def texts(found: Rewording, at: int = 0) -> tuple[str, ...]:
    return tuple(step.text for step in found.videos[at].steps)


def test_a_word_is_new_where_no_label_has_it_and_the_action_may_be() -> None:
    known = ["add 2 tomatoes to the bowl", "stirring"]
    assert new_words("Carefully tip the 2 tomatoes into the bowl, and stir.", known) == []
    assert new_words("Tip 3 fresh tomatoes into the bowl.", known) == ["3", "fresh"]
    assert new_words("3 tomatoes in the bowl", known) == ["3"]
    assert new_words("Turn the brake off.", ["brake on"]) == ["off"]


def test_what_passes_is_taken_and_times_and_labels_elsewhere_stay() -> None:
    found = worded([video()], [answer()])
    assert found.videos == [
        replace(
            video(),
            goal="Patch the kite",
            steps=tuple(replace(step, text=text) for step, text in zip(video().steps, GOOD, strict=True)),
        )
    ]
    assert (found.report["worded_steps"], found.report["kept_labels"], found.report["asked_again"]) == (3, 0, 0)
    in_list = "Goal: Patch the kite\n" + "\n".join(f"{at}. {text}" for at, text in enumerate(GOOD, 1))
    assert worded([video()], [in_list]).videos == found.videos


@pytest.mark.parametrize(
    ("bad", "why", "kept"),
    [
        (answer(steps=[GOOD[0], "Press the tape on the kite with scissors.", GOOD[2]]), "new words", (1,)),
        (answer(steps=[GOOD[0], GOOD[0], GOOD[2]]), "lost words", (1,)),
        (answer(steps=GOOD[:2]), "other number of steps", (0, 1, 2)),
        (answer(steps=[*GOOD, "Fly the kite."]), "other number of steps", (0, 1, 2)),
        (answer(steps=[GOOD[0], " ", GOOD[2]]), "other number of steps", (0, 1, 2)),
        ("I cannot help with that.\n\nSorry", "no answer", (0, 1, 2)),
        ("", "no answer", (0, 1, 2)),
        (None, "no answer", (0, 1, 2)),
    ],
)
def test_what_is_refused_is_asked_for_again_and_then_stays_the_label(
    bad: str | None, why: str, kept: tuple[int, ...]
) -> None:
    assert texts(worded([video()], [bad], [answer()])) == GOOD
    found = worded([video()], [bad], [bad])
    assert texts(found) == tuple(LABELS[at] if at in kept else GOOD[at] for at in range(3))
    assert found.report["kept_because"] == {why: len(kept)}
    assert found.report["asked_again"] == 1


def test_a_step_that_passed_is_not_worded_again_and_a_bound_lets_new_words_in() -> None:
    other = ("Cut tape.", "Press tape on the kite.", "Brake on.")
    first = answer(steps=[GOOD[0], "Press the tape on the kite with scissors.", GOOD[2]])
    assert texts(worded([video()], [first], [answer(steps=other)])) == (GOOD[0], other[1], GOOD[2])
    assert "scissors" in texts(worded([video()], [first], bound=1))[1]


def test_videos_of_one_goal_share_its_words_and_two_goals_never_do() -> None:
    videos = [video("a"), video("b"), video("c", "fix kite"), video("d", "fly")]
    found = worded(
        videos, [answer("Patch the kite"), answer("Patch a kite"), answer("Patch the kite"), answer("Fix kite")]
    )
    assert [one.goal for one in found.videos] == ["Patch the kite", "Patch the kite", "fix kite", "fly"]
    assert (found.report["goals"], found.report["worded_goals"]) == (3, 1)


def test_videos_come_back_from_the_examples_that_were_cut_from_them() -> None:
    plain = replace(video(), steps=tuple(Step(text) for text in LABELS))
    cuts = [cut_at(video(), 1), cut_at(video(), 2)]
    assert annotated_videos(cuts) == [plain]
    for change in ({"supervision": "weak"}, {"worded": True}, {"continuation": ("else",)}, {"goal": "else"}):
        with pytest.raises(InputError, match="s/v/2"):
            annotated_videos([cuts[0], replace(cuts[1], **change)])


def test_every_cut_of_a_video_is_in_the_words_of_the_file(tmp_path: Path) -> None:
    path, found = tmp_path / "worded.jsonl", worded([video()], [answer()]).videos
    write_procedures(path, found)
    examples = [cut_at(video(), at) for at in (0, 1, 2)] + [cut_at(video("other", split="train"), 1)]
    rewritten = with_wording(examples, [video(), video("other", split="train")], path)
    for before, after in zip(examples[:3], rewritten[:3], strict=True):
        assert after == replace(cut_at(found[0], before.cut), worded=True)
    assert rewritten[3] == examples[3]
    write_examples(tmp_path / "examples.jsonl", rewritten)
    assert read_examples(tmp_path / "examples.jsonl") == rewritten
    rows = [json.loads(line) for line in (tmp_path / "examples.jsonl").read_text().splitlines()]
    assert [row["worded"] for row in rows] == [True, True, True, False]


@pytest.mark.parametrize(
    ("rows", "line", "field"),
    [
        ([video("a"), video("nobody")], "line 2", "video_id"),
        ([video("a"), replace(video("b"), source="else")], "line 2", "video_id"),
        ([video("a", labels=LABELS[:2])], "line 1", "steps"),
        ([video("a", "Patch the kite"), video("b", "Patch a kite")], "line 2", "goal"),
        ([video("a", "Fly"), video("c", "Fly")], "line 2", "goal"),
        ([video("a")], "", r"\(b\)"),
        ([video("train")], "", "none of the examples"),
        ([video("a"), video("b"), video("a", labels=GOOD)], "line 3", "video_id"),
    ],
)
def test_a_file_of_other_data_is_refused(tmp_path: Path, rows: list[Procedure], line: str, field: str) -> None:
    path = tmp_path / "worded.jsonl"
    write_procedures(path, rows)
    known = [video("a"), video("b"), video("c", "fly"), video("train", split="train")]
    examples = [cut_at(one, 1) for one in known[:2]]
    with pytest.raises(InputError, match=f"worded.jsonl.*{line}.*{field}") as refused:
        with_wording(examples, known, path)
    assert "\n" not in str(refused.value)


def test_a_file_of_examples_in_the_words_of_its_videos_is_taken_as_well(tmp_path: Path) -> None:
    path, found = tmp_path / "worded.jsonl", worded([video()], [answer()]).videos
    write_examples(path, [cut_at(found[0], at) for at in (1, 2)])
    [rewritten] = with_wording([cut_at(video(), 1)], [video()], path)
    assert rewritten.history + rewritten.continuation == GOOD


def test_rewordings_are_paid_for_once_and_reach_the_examples(recipe: Recipe, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    videos = [video("a"), video("b"), video("c", "fly kite", ("hold kite", "run"))]
    write_procedures(tmp_path / "own.jsonl", videos)
    replies = {"hold": answer("Fly the kite", ("Hold the kite.", "Run with a dog.")), "cut": answer()}

    def reply(body: dict[str, Any], _: int) -> Any:
        asked = body["messages"][-1]["content"]
        return completion(next(text for word, text in replies.items() if f"{word} " in asked))

    output = tmp_path / "w.jsonl"
    with serving(reply) as server:
        command = (
            "reword", "--procedures", tmp_path / "own.jsonl", "--endpoint", server.url, "--model", "m", "--reasks", 1,
            "--concurrency", 1, "--output", output,
        )  # fmt: skip
        code, _, err = recipe(*command, "--max-calls", 1)
        assert (code, len(server.requests)) == (1, 1), err
        assert not output.exists()
        code, out, _ = recipe(*command, "--json")
        assert code == 0
        # Videos a and b have the same labels, and are one request; c is asked for twice.
        assert len(server.requests) == 3
        assert server.requests[0]["response_format"]["json_schema"]["name"] == "rewording"
        before, report = output.read_bytes(), json.loads(out)
        assert report == json.loads((tmp_path / "w.report.json").read_text())
        assert recipe(*command)[0] == 0
        assert (len(server.requests), output.read_bytes()) == (3, before)
    assert (report["steps"], report["kept_labels"], report["asked_again"]) == (8, 1, 1)
    assert report["first_answers"]["steps_passed"] == 7
    assert 0 < report["first_answers"]["new_words_share"] < 0.1
    assert {one["label"]: one["worded"] for one in report["samples"]}["run"] is None
    assert len(report["samples"]) == 8
    assert [one.goal for one in read_procedures(output).procedures] == ["Patch the kite"] * 2 + ["Fly the kite"]

    prepared = tmp_path / "e.jsonl"
    prepare = ("prepare", "--procedures", tmp_path / "own.jsonl", "--output", prepared, "--cuts-test", "all")
    code, out, _ = recipe(*prepare, "--worded", output, "--json")
    assert (code, json.loads(out)["worded"]) == (0, 5)
    assert read_examples(prepared)[0].history == GOOD[:1]
    assert recipe(*prepare)[0] == 0
    assert [one.worded for one in read_examples(prepared)] == [False] * 5
    write_procedures(output, [video("nobody")])
    code, _, err = recipe(*prepare, "--worded", output)
    assert code == 1
    assert "line 1, field 'video_id'" in err


@pytest.mark.parametrize("text", ["$goal alone", "$goal $steps $more", "$goal $steps $"])
def test_a_prompt_that_takes_other_names_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"\$goal and \$steps"):
        reword([video()], lambda chats, at: [answer()], text)
