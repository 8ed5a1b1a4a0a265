"""Goals and step labels in a model's words: each video's annotation as instructions, checked against its labels.

The paper's references are worded as instructions ("Drizzle extra-virgin olive oil, approximately 1 tablespoon, evenly
across the platter"), and two examples of one label have different words (appendix, qualitative results). Annotations
hold labels ("brake on"). One request a video asks for its goal and its steps in order.

A rewording must claim what the annotation claims. Its *content words* are its numbers and its words without endings,
but for function words and adverbs in -ly. A rewording is refused

    of a step    where more than `new_words` content words are in no label of the video and not in its goal
    of a goal    where more than `new_words` content words are not in the goal
    of both      where it lacks more than half of the content words of its own label
    of all       where the answer has another number of steps

The first content word may be new, because it names the action, unless it is a number. What is refused is asked for
again, and then stays the label. Videos of one goal share one wording of it, the first that passes, and two goals never
get the same words: whatever groups videos by goal groups them as before.

The file of rewordings is a file of procedures (`recipe.data.procedures`) whose texts are the new ones.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recipe.artifacts import JsonObject, fingerprint
from recipe.data.procedures import procedure_rows
from recipe.errors import InputError, listed
from recipe.plan_text import plan_steps
from recipe.prompting import fence, fill, json_object
from recipe.text import final_answer, format_plan
from recipe.types import Example, Procedure, Step

SCHEMA: JsonObject = {
    "name": "rewording",
    "schema": {
        "type": "object",
        "properties": {"goal": {"type": "string"}, "steps": {"type": "array", "items": {"type": "string"}}},
        "required": ["goal", "steps"],
        "additionalProperties": False,
    },
}
"""The form of an answer, for endpoints that take a schema."""
KEPT_SHARE = 0.5
"""Share of a label's content words that its rewording has at least; the paper's references have 0.5 to 1."""
SAMPLES = 10
"""Rewordings that a report shows with their labels."""
_WORD = re.compile(r"[^\W_]+")
_GOAL = re.compile(r"^[\s*_#>-]*goal[\s*_]*:[\s*_]*(?P<goal>\S.*?)[\s*_]*$", re.IGNORECASE | re.MULTILINE)
# Without "off", "out" and "without": they turn a claim round.
_FUNCTION_WORDS = (
    "a about above across after against all along also an and any are around as at away back be been before being "
    "below beneath between both but by down during each every for from has have if in inside into is it its just "
    "let more of on once one onto or other outside over own so some than that the their them then there these they "
    "this those through throughout to together toward towards under until up upon use used using was were when "
    "where which while whole will with within you your yourself"
)
_NO_CONTENT = frozenset(_FUNCTION_WORDS.split())
# The first that fits goes, so that "es" stands before "s".
_ENDINGS = ("ing", "ed", "es", "s", "e")
Ask = Callable[[Sequence[list[dict[str, str]]], int], Sequence[str | None]]
"""From chats and the number of the attempt to the text of each answer, None where none came."""


@dataclass(frozen=True, slots=True)
class Rewording:
    """Videos with their goals and steps in new words, and the counts of how they were made."""

    videos: list[Procedure]
    report: JsonObject


def content_words(text: str) -> list[str]:
    """Numbers and words in order, without endings, function words and adverbs in -ly.

    >>> content_words("Carefully chop the 2 tomatoes."), content_words("chopped tomato")
    (['chop', '2', 'tomato'], ['chop', 'tomato'])
    """
    stems = []
    for word in _WORD.findall(text.casefold()):
        if word in _NO_CONTENT or (word.endswith("ly") and len(word) > 4):  # "fly" is no adverb
            continue
        for ending in _ENDINGS:
            # The ending of a short word is its own: "ring", "red".
            if word.endswith(ending) and len(word) - len(ending) >= 3:
                word = word.removesuffix(ending)
                break
        if len(word) > 3 and word[-1] == word[-2]:  # chopp(ed)
            word = word[:-1]
        stems.append(f"{word[:-1]}y" if word.endswith("i") else word)  # berri(es)
    return stems


def new_words(text: str, known: Iterable[str]) -> list[str]:
    """The content words of a text that are in no known text, but for the first, which names the action.

    >>> new_words("Sprinkle fresh basil over the tomato.", ["season the tomato", "serve"])
    ['fresh', 'basil']
    """
    of_known = {word for label in known for word in content_words(label)}
    words = content_words(text)
    return [word for at, word in enumerate(words) if word not in of_known and (at > 0 or word.isdigit())]


def annotated_videos(examples: Iterable[Example]) -> list[Procedure]:
    """The videos that examples were cut from, in order of first appearance, their steps without times.

    Raises InputError for an example whose steps are no annotation or are worded already, and where two examples of a
    video have different ones.
    """
    videos: dict[tuple[str, str], Procedure] = {}
    for example in examples:
        remedy = "give the examples that `recipe data prepare` cut from the labels"
        if example.supervision != "annotated" or example.worded:
            kind = "worded already" if example.worded else "of a pseudo-trace"
            raise InputError(f"the steps of example {example.example_id!r} are {kind}; {remedy}.")
        steps = tuple(Step(text) for text in (*example.history, *example.continuation))
        video = Procedure(example.source, example.video_id or example.example_id, example.goal, steps, example.split)
        known = videos.setdefault((video.source, video.video_id), video)
        if (known.goal, known.steps) != (video.goal, video.steps):
            raise InputError(
                f"example {example.example_id!r} has another goal or other steps than its video; {remedy}."
            )
    return list(videos.values())


def reword(
    videos: Sequence[Procedure], ask: Ask, template: str, *, bound: int = 0, reasks: int = 2, seed: int = 0
) -> Rewording:
    """The videos in a model's words; `template` is a prompt that takes `$goal` and `$steps`.

    `bound` is the number of new content words that a text may have, `reasks` how often a refused one is asked for
    again; `seed` draws the samples of the report. Raises InputError for a template that takes other names, and as
    `ask` does.
    """
    chats = []
    try:
        for video in videos:
            steps_text = fence(format_plan([_line(step.text) for step in video.steps]))
            values = {"goal": fence(_line(video.goal)), "steps": steps_text}
            chats.append([{"role": "user", "content": fill(template, values)}])
    except ValueError as error:
        raise InputError(f"{error}; let the prompt take $goal and $steps, and write a plain dollar as $$.") from None
    labels: dict[str, set[str]] = {}
    for video in videos:
        labels.setdefault(video.source, set()).add(video.goal)
    steps: list[list[str | None]] = [[None] * len(video.steps) for video in videos]
    reasons: list[list[str]] = [["no answer"] * len(video.steps) for video in videos]
    goals: dict[tuple[str, str], str] = {}
    requests, first = list[int](), Counter[str]()
    for attempt in range(reasks + 1):
        todo = [at for at, video in enumerate(videos) if None in steps[at] or (video.source, video.goal) not in goals]
        if not todo:
            break
        requests.append(len(todo))
        for at, answer in zip(todo, ask([chats[at] for at in todo], attempt), strict=True):
            # JSON, or a line `Goal:` and a list.
            video, text = videos[at], final_answer(answer or "") or ""
            goal = (json_object(text) or {}).get("goal")
            if goal is None and (match := _GOAL.search(text)):
                goal, text = match["goal"], _GOAL.sub("", text)
            goal = _line(goal) if isinstance(goal, str) else ""
            texts = tuple(_line(step) for step in plan_steps(text)) or None
            known = [video.goal, *(step.text for step in video.steps)]
            key = (video.source, video.goal)
            # Words of other goals: with one wording for two goals, what groups videos by goal would join them.
            same = {worded.casefold() for (source, _), worded in goals.items() if source == video.source}
            same |= {other.casefold() for other in labels[video.source] - {video.goal}}
            free = goal and key not in goals and goal.casefold() not in same
            if free and not _problem(goal, video.goal, [video.goal], bound):
                goals[key] = goal
            if texts is None or len(texts) != len(video.steps):
                reasons[at] = ["no answer" if texts is None else "other number of steps"] * len(video.steps)
                continue
            reasons[at] = [
                _problem(text, step.text, known, bound) for text, step in zip(texts, video.steps, strict=True)
            ]
            steps[at] = [
                kept or (None if problem else text)
                for kept, text, problem in zip(steps[at], texts, reasons[at], strict=True)
            ]
            # Of first answers alone: what is asked again is chosen for its faults.
            if attempt == 0:
                first.update(answered=1, passed=reasons[at].count(""))
                first.update(words=sum(len(content_words(text)) for text in texts))
                first.update(new=sum(len(new_words(text, known)) for text in texts))
    worded = [
        replace(
            video,
            goal=goals.get((video.source, video.goal), video.goal),
            steps=tuple(replace(step, text=text or step.text) for step, text in zip(video.steps, texts, strict=True)),
        )
        for video, texts in zip(videos, steps, strict=True)
    ]
    kept = Counter(
        why
        for own, texts in zip(reasons, steps, strict=True)
        for why, text in zip(own, texts, strict=True)
        if text is None
    )
    # Some steps with their rewordings, None where the label stays, drawn by a hash of seed, video and step.
    rows: list[JsonObject] = [
        {"source": video.source, "video_id": video.video_id, "step": at, "label": step.text, "worded": text}
        for video, texts in zip(videos, steps, strict=True)
        for at, (step, text) in enumerate(zip(video.steps, texts, strict=True))
    ]
    rows.sort(key=lambda row: fingerprint([seed, row["source"], row["video_id"], row["step"]]))
    total = sum(len(video.steps) for video in videos)
    report: JsonObject = {
        "videos": len(videos),
        "steps": total,
        "worded_steps": total - kept.total(),
        "kept_labels": kept.total(),
        "kept_because": dict(kept.most_common()),
        "goals": len({(video.source, video.goal) for video in videos}),
        "worded_goals": len(goals),
        "answers": sum(requests),
        "asked_again": requests[1] if len(requests) > 1 else 0,
        "first_answers": {
            "videos_with_all_steps": first["answered"],
            "steps_passed": first["passed"],
            "new_words_share": first["new"] / first["words"] if first["words"] else None,
        },
        "samples": rows[:SAMPLES],
    }
    return Rewording(worded, report)


def _line(text: str) -> str:
    return " ".join(text.split())


def _problem(text: str, label: str, known: Sequence[str], bound: int) -> str:
    """Why a rewording of a label is refused, empty where it passes."""
    if len(new_words(text, known)) > bound:
        return "new words"
    wanted = set(content_words(label))
    return "lost words" if len(wanted & set(content_words(text))) < KEPT_SHARE * len(wanted) else ""


def with_wording(examples: Sequence[Example], videos: Iterable[Procedure], path: Path) -> list[Example]:
    """The examples in the words of a file that `recipe data reword` wrote, by video and step; `videos` are all known.

    The examples of one source and split are all in the file, or none is: those stay as they are. Raises InputError with
    file, line and field for a video that is not known, another number of steps or split, and a goal that has two
    wordings or shares one with another goal; and for a split that is there in part, or a file for none of the examples.
    """
    known = {(video.source, video.video_id): video for video in videos}
    worded: dict[tuple[str, str], Procedure] = {}
    goals: dict[tuple[str, str], str] = {}
    labels: dict[tuple[str, str], str] = {}
    remedy = "give the file that `recipe data reword` wrote for this data"
    for line, written in procedure_rows(path):
        row = written.procedure()
        video = known.get((row.source, row.video_id))
        if video is None:
            problem = f"video {row.video_id!r} of source {row.source!r} is not in the data"
            raise InputError.at(path, problem, remedy, line=line, field="video_id")
        if len(row.steps) != len(video.steps):
            problem = f"{len(row.steps)} steps stand for the {len(video.steps)} of video {row.video_id!r}"
            raise InputError.at(path, problem, remedy, line=line, field="steps")
        text = goals.setdefault((row.source, video.goal), row.goal)
        if text != row.goal or labels.setdefault((row.source, row.goal), video.goal) != video.goal:
            problem = f"goal {video.goal!r} has two wordings, or shares one with another goal"
            raise InputError.at(path, problem, "reword all videos in one run", line=line, field="goal")
        if worded.setdefault((row.source, row.video_id), row).steps != row.steps:
            problem = f"video {row.video_id!r} of source {row.source!r} has other words in a line before"
            raise InputError.at(path, problem, "keep one of its rows", line=line, field="video_id")
    groups: dict[tuple[str, str], list[Example]] = {}
    for example in examples:
        groups.setdefault((example.source, example.split), []).append(example)
    for (source, split), group in groups.items():
        absent = list(dict.fromkeys(item.video_id for item in group if (source, item.video_id) not in worded))
        if absent and any((source, item.video_id) in worded for item in group):
            problem = f"it lacks {len(absent):,} of the videos of {source}, split {split!r} ({listed(absent)})"
            raise InputError.at(path, problem, "reword all videos of a split, or none")
    rewritten = []
    for example in examples:
        if (video := worded.get((example.source, example.video_id))) is not None:
            texts, cut = tuple(step.text for step in video.steps), example.cut
            steps_done, steps_ahead = texts[:cut], texts[cut:]
            example = replace(example, goal=video.goal, history=steps_done, continuation=steps_ahead, worded=True)
        rewritten.append(example)
    if not any(example.worded for example in rewritten):
        raise InputError.at(path, "none of the examples is of its videos", remedy)
    return rewritten
