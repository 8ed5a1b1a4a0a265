"""Plan text to steps and back, and the chat messages of a planner."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from recipe.errors import HALVES, InputError, quoted
from recipe.types import Frames, Plan

SYSTEM_PROMPT = (
    "You plan procedures. Given a goal and the steps already done, "
    "write only the remaining steps as a numbered list, one short step per line."
)
"""Asks for the format that `parse_plan` reads; short, because small models read it at every prompt."""

# What opens and what closes a thought; docs/planning.md names them for users.
_TAGS = (
    # DeepSeek-R1, Qwen3, QwQ, GLM-4.5; <seed:think> of Seed-OSS; <thought> of Gemini; others as a prompt asks.
    (r"(?i:<\s*(?:[\w-]+[:_])?(?:think|thinking|thoughts?|reason|reasoning|scratchpad)\b[^<>]*>)",
     r"(?i:<\s*/\s*(?:[\w-]+[:_])?(?:think|thinking|thoughts?|reason|reasoning|scratchpad)\s*>)"),
    (r"\[THINK\]", r"\[/THINK\]"),  # Magistral
    (r"◁think▷", r"◁/think▷"),  # Kimi
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),  # Sky-T1, OpenThinker
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Command A Reasoning
    (r"<\|channel>\s*thought", r"<channel\|>"),  # Gemma 4
    (r"<\|channel\|>\s*(?:analysis|commentary)", r"<\|channel\|>\s*final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"),
    (r"\Aanalysis(?=[A-Z'\"])", r"assistantfinal"),  # gpt-oss, with its special tokens and where a decoder drops them
    (r"(?i:Here(?: is|'s|’s) my thought process:)", r"(?i:Here(?: is|'s|’s) my response:)"),  # Granite 3.2
)  # fmt: skip
_OPENS, _CLOSES = (re.compile("|".join(pair)) for pair in zip(*_TAGS, strict=True))
# Tokens that are a tag only with the word behind them.
_TAG_PARTS = frozenset({"<|channel|>", "<|message|>", "<|channel>", "<channel|>"})
# Around the answer of models that mark it as they mark their thought.
_WRAPPER = re.compile(
    r"</?(?:answer|solution|output|response)>|<\|(?:begin|end)_of_solution\|>|<\|(?:START|END)_\w+\|>"
)
# Ends a turn, where a decoder leaves special tokens in the text.
_TURN = re.compile(
    r"<\|(?:im_end|end|return|eot_id|eom_id|endoftext|end_of_text|end_of_turn)\|>|<end_of_turn>|<turn\|>|</s>"
)

# The end of a text whose last line is complete.
_WHOLE = re.compile(r"(?:\n|[.!?…。！？][\"'”’)\]*_`]*)[ \t]*\Z")


def is_thought_token(token: str) -> bool:
    """Whether a special token is a tag that opens or closes a thought, or a part of one.

    >>> is_thought_token("[THINK]"), is_thought_token("<|im_end|>")
    (True, False)
    """
    return token in _TAG_PARTS or bool(_OPENS.search(token) or _CLOSES.search(token))


def _behind_thoughts(text: str) -> str:
    *_, end = (0, *(tag.end() for tag in _CLOSES.finditer(text)))
    return text[end:]


def open_thought(text: str) -> str:
    """The tag that opens the thought within which a text ends, empty where it ends within none.

    >>> open_thought("<|im_start|>assistant\\n<think>\\n"), open_thought("<think></think>\\n")
    ('<think>', '')
    """
    tag = _OPENS.search(_behind_thoughts(text))
    return tag[0] if tag else ""


def final_answer(text: str, *, cut: bool = False) -> str | None:
    """What a model says after its thought, without the tags around it; None where the text ends within a thought.

    What counts is the text behind the last tag that closes a thought, and the whole text where there is none. The tag
    that opens it may stand in the prompt. Of a text that was `cut` at its limit of tokens, a last line that does not
    end is left out.

    >>> final_answer("<think>\\n1. Use a bag\\n</think>\\n1. Boil water"), final_answer("<think>Let me see")
    ('\\n1. Boil water', None)
    """
    answer = _behind_thoughts(text)
    if _OPENS.search(answer):
        return None
    # Only the first turn: behind it, a decoder that goes on writes what others would say.
    answer = _WRAPPER.sub("\n", _TURN.split(answer, maxsplit=1)[0])
    return answer[: answer.rfind("\n") + 1] if cut and not _WHOLE.search(answer) else answer


def as_steps(texts: object) -> tuple[str, ...]:
    """The steps of a list of texts or of a plan, as a tuple. Raises InputError for anything else, with its remedy.

    >>> as_steps(["boil the water", "pour it"])
    ('boil the water', 'pour it')
    """
    if isinstance(texts, Plan):
        return texts.steps
    if isinstance(texts, str):
        raise InputError(f"Steps are a list of texts, not one text; write [{quoted(texts)}].")
    if not isinstance(texts, Iterable):
        raise InputError(f"Steps are a list of texts, not {texts!r}; write them in square brackets.")
    steps = tuple(texts)
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, str):
            nested = isinstance(step, Sequence | Plan)
            kind = "a list of steps itself" if nested else f"of type {type(step).__name__}"
            remedy = "give one plan here, a flat list of texts" if nested else "give texts"
            raise InputError(f"Steps are a list of texts, and step {number} is {kind}; {remedy}.")
        whole_text(f"text of step {number}", step)
    return steps


def whole_text(name: str, value: object) -> str:
    """The value where it is a text without half a character (a lone surrogate). Raises InputError with the name."""
    if not isinstance(value, str):
        raise InputError(f"the {name} is {value!r:.160}; give it as a text.")
    if HALVES.search(value):
        raise InputError(f"the {name} holds half a character ({quoted(value)}); repair or remove it.")
    return value


def format_plan(steps: Sequence[str]) -> str:
    """Steps as the numbered list that `parse_plan` reads.

    >>> format_plan(["Boil water", "Steep the tea"])
    '1. Boil water\\n2. Steep the tea'
    """
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))


def distinct_plans(plans: Sequence[Sequence[str]]) -> dict[int, int]:
    """The place of each plan that no earlier one equals, with how many equal it, itself among them.

    Plans are equal where their steps are, but for case and white space. A plan without steps equals none.

    >>> distinct_plans([["Boil  water"], ["Wait"], ["boil water"], []])
    {0: 2, 1: 1, 3: 1}
    """
    first, counts = dict[tuple[str, ...], int](), dict[int, int]()
    for place, steps in enumerate(plans):
        key = tuple(" ".join(step.casefold().split()) for step in steps)
        at = first.setdefault(key, place) if key else place
        counts[at] = counts.get(at, 0) + 1
    return counts


def planner_messages(goal: str, history: Sequence[str]) -> list[dict[str, str]]:
    """The chat that asks a planner for the steps after `history`; the reply is the assistant's turn."""
    done = format_plan(history) if history else "nothing yet"
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": f"Goal: {goal}\nDone:\n{done}"}]


def video_messages(goal: str, video: Frames) -> list[dict[str, Any]]:
    """As `planner_messages`, with the clip `video` in place of the written history."""
    parts = [{"type": "text", "text": f"Goal: {goal}\nDone:\n"}, {"type": "video", "video": video}]
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": parts}]


# Share of common words from which on two lines count as the same.
_SAME_WORDS = 0.75
_FUNCTION_WORDS = frozenset(
    {"a", "an", "the", "some", "it", "its", "of", "to", "in", "into", "on", "onto", "at", "with", "and"}
    | {"then", "now", "next", "first", "finally", "please"}
)
_WORD = re.compile(r"\w+")


def same_goal(goal: str) -> str:
    """A goal as it is compared: case and space do not tell goals apart."""
    return " ".join(goal.casefold().split())


def copied_share(history: Sequence[str], plan: Sequence[str]) -> float:
    """Share of a plan's lines that repeat a step of the history; 0 for a plan without lines.

    >>> copied_share(["Add the eggs."], ["now add eggs", "whisk"])
    0.5
    """
    done = [content_words(step) for step in history]
    return sum(is_among(content_words(line), done) for line in plan) / len(plan) if plan else 0.0


def is_among(line: frozenset[str], before: Iterable[frozenset[str]]) -> bool:
    """Whether the words of a line (`content_words`) are nearly those of an earlier line."""
    return any(line == earlier or len(line & earlier) >= _SAME_WORDS * len(line | earlier) for earlier in before)


@lru_cache(maxsize=65_536)
def content_words(line: str) -> frozenset[str]:
    """The words of a line without function words; all of them where it has no others."""
    words = frozenset(_WORD.findall(line.casefold()))
    return words - _FUNCTION_WORDS or words
