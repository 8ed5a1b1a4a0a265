"""Plan text to steps and back, and the chat messages of a planner."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from recipe.errors import HALVES, InputError, quoted
from recipe.types import Frames, Malformed, Plan

SYSTEM_PROMPT = (
    "You plan procedures. Given a goal and the steps already done, "
    "write only the remaining steps as a numbered list, one short step per line."
)
"""Asks for the format that `parse_plan` reads; short, because small models read it at every prompt."""

# What opens and what closes a thought; docs/planning.md has the same table with its sources.
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
_TAG_PARTS = frozenset({"<|channel|>", "<|message|>", "<|channel>", "<channel|>"})
"""Tokens that are a tag only with the word behind them."""
_WRAPPER = re.compile(
    r"</?(?:answer|solution|output|response)>|<\|(?:begin|end)_of_solution\|>|<\|(?:START|END)_\w+\|>"
)
"""Around the answer of models that mark it as they mark their thought."""
_TURN = re.compile(
    r"<\|(?:im_end|end|return|eot_id|eom_id|endoftext|end_of_text|end_of_turn)\|>|<end_of_turn>|<turn\|>|</s>"
)
"""Ends a turn, where a decoder leaves special tokens in the text."""

_MARKER = re.compile(
    r"""^\s*(?:>\s*)*(?P<heading>\#{1,6}\s+)?
    (?: step\s+(\d{1,3})(?:\s*(?:of|/)\s*\d{1,3})?\s*(?:[.):：、–—-]|$)(?!\d)
      | [(（\[]\s*(\d{1,3})\s*[)）\]]\s*[.:：、]?
      | (\d{1,3})\s*(?:[.):：．）](?!\d)|、|[–—-]\s+(?!\d))
      | (?:[-*•·‣◦▪●]|[+–—](?=\s))\s*(?:\[[ xX]\](?=\s))?
    )\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[\w+-]*[ \t]*$", re.MULTILINE)
_EMPHASIS = re.compile(r"\*\*|__|`")
_BOLD = re.compile(r"\s*(\*\*|__)(?:(?!\1).)+\1[:：]?\s*")
_WHOLE = re.compile(r"(?:\n|[.!?…。！？][\"'”’)\]*_`]*)[ \t]*\Z")
"""The end of a text whose last line is complete."""
_JSON = re.compile(r"[{\[]\s*[\"{\[]")
_TRIES = 20
"""Beginnings of JSON that are tried."""
_COLUMNS = ("step", "action", "instruction", "description", "task", "what")
"""Headings of the column of steps, the first that fits."""
_STEPS = frozenset({"steps", "plan", "remaining_steps", "next_steps", "continuation", "actions", "instructions"})
_STEP = ("step", "text", "description", "action", "instruction", "title", "name")
"""Fields of JSON that hold a plan, and those that hold a step."""


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
    answer = _WRAPPER.sub("\n", _TURN.split(answer, maxsplit=1)[0])
    return answer[: answer.rfind("\n") + 1] if cut and not _WHOLE.search(answer) else answer


def parse_plan(text: str, *, cut: bool = False) -> Plan | Malformed:
    """The steps written in a completion, or why there are none.

    What is read is the `final_answer`. Where some lines carry a number or a bullet, the steps are those of the first
    list (`first_list`), so that neither a preamble nor what a model goes on with is mistaken for a step; otherwise each
    non-empty line that is no heading is a step. JSON is read where it holds one list of steps, and a table where one
    column holds them.

    >>> parse_plan("Here is the rest:\\n1. Boil water\\n2) Steep the tea\\nEnjoy! Another way:\\n1. Use a bag")
    Plan(steps=('Boil water', 'Steep the tea'))
    >>> parse_plan("1. Boil water\\n2. Steep the te", cut=True)
    Plan(steps=('Boil water',))
    >>> parse_plan("  ").reason
    'the completion is empty'
    """
    answer = final_answer(text, cut=cut)
    if answer is None:
        return Malformed("the completion ends within its thought", text)
    if not answer.strip():
        reason = "is cut off within its first line" if cut and text.strip() else "is empty"
        return Malformed(f"the completion {reason}", text)
    listed = first_list(answer)
    steps = _json_steps(answer, embedded=not listed)
    if isinstance(steps, str):
        return Malformed(steps, text)
    if steps is None and not (steps := listed):
        lines = _lines(answer)
        if any(map(_is_rule, answer.splitlines())):
            if not (steps := _table_steps(answer)):
                return Malformed("the completion is a table, and it is not clear which column holds the steps", text)
        elif not any(map(_MARKER.match, lines)):
            plain = [line for line in answer.splitlines() if not _BOLD.fullmatch(line)]  # bold lines are headings, too
            lines = _lines("\n".join(plain)) or lines
            steps = _worded(
                [line for line in lines if not line.lstrip().startswith("#") and line.rstrip()[-1] not in ":："]
            )
    return Plan(steps) if steps else Malformed("no line of the completion holds a step", text)


def plan_steps(text: str, *, cut: bool = False) -> tuple[str, ...]:
    """The steps of a completion (`parse_plan`), none where it is malformed.

    >>> plan_steps("1. Boil water"), plan_steps(" ")
    (('Boil water',), ())
    """
    plan = parse_plan(text, cut=cut)
    return plan.steps if isinstance(plan, Plan) else ()


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that a policy wrote, with the plan in it: read once, and handed on from the trainer to the record."""

    text: str
    steps: tuple[str, ...]
    """None where the text is malformed."""
    malformed: bool

    @classmethod
    def of(cls, text: str, *, cut: bool = False) -> "Completion":
        """The completion of a text by `parse_plan`.

        >>> Completion.of("1. Boil water")
        Completion(text='1. Boil water', steps=('Boil water',), malformed=False)
        """
        plan = parse_plan(text, cut=cut)
        return cls(text, plan.steps, False) if isinstance(plan, Plan) else cls(text, (), True)


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


def first_list(text: str) -> tuple[str, ...]:
    """The steps of the first list in a text, none where no line carries a number or a bullet.

    The list ends where its numbers begin again. It ends, too, where a line without a mark stands that is not indented,
    unless the numbers go on behind it: a heading or a remark between steps. A number that slips back behind another
    ends nothing. A mark alone has the next line as its text. Markdown headings with numbers are the steps only where
    no other line has a mark.

    >>> first_list("1. Boil water\\nNow the tea:\\n2. Steep it\\n1. Serve")
    ('Boil water', 'Steep it')
    >>> first_list("- boil water\\n  for a minute\\n- steep the tea\\nTips:\\n- use fresh water")
    ('boil water', 'steep the tea')
    """
    lines = _lines(text)
    marks = [_MARKER.match(line) for line in lines]
    items = any(mark and mark["heading"] is None for mark in marks)
    steps: list[str] = []
    first, last, section = None, 0, 0
    begun, interrupted, bare = False, False, False
    for line, mark in zip(lines, marks, strict=True):
        if mark is None:
            if bare and begun and not interrupted:
                steps.append(line)
            else:
                interrupted = interrupted or (begun and not line[0].isspace())
            bare = False
            continue
        number = next((int(digits) for digits in mark.groups()[1:] if digits), None)
        if items and mark["heading"] is not None:  # of a section, whose numbers begin again
            interrupted = begun and (number is None or number <= section)
            section, first, last = number or section, None, 0
            continue
        if number is None:
            if interrupted:
                break
        elif number < last + interrupted and (interrupted or number <= (first or 0)):
            break
        else:
            first, last = number if first is None else first, number
        begun, interrupted, bare = True, False, not line[mark.end() :].strip()
        steps.append(line)
    return _worded(steps)


def every_list(text: str) -> tuple[str, ...]:
    """The steps of all lists in a text; where no line carries a number or a bullet, each non-empty line is a step.

    >>> every_list("First:\\n- boil water\\nThen:\\n- steep the tea")
    ('boil water', 'steep the tea')
    """
    lines = _lines(text)
    return _worded([line for line in lines if _MARKER.match(line)] or lines)


def _json_steps(answer: str, *, embedded: bool) -> tuple[str, ...] | str | None:
    """The steps in an answer of JSON, or why there are none; None where it is no JSON.

    With `embedded`, other text may stand before it.
    """
    decoder, problem = json.JSONDecoder(), None
    whole = re.match(r"\s*(?:(?:```|~~~)[\w+-]*\s)?\s*(?=[{\[]\s*(?:[\"'{\[\]}]|$))", answer)
    begins = [whole.end()] if whole else [begin.start() for begin in _JSON.finditer(answer)] if embedded else []
    for begin in begins[:_TRIES]:
        try:
            value, _ = decoder.raw_decode(answer, begin)
        except (ValueError, RecursionError):
            problem = "the completion is JSON that cannot be read" if whole else problem
        else:
            if (steps := _steps_of(value)) is not None:
                return _worded(steps)
            problem = "the completion is JSON without one list of steps"
    return problem


def _steps_of(value: Any) -> list[str] | None:
    """The steps that a JSON value lists, a line each; None where it is no list of steps."""
    if isinstance(value, dict):
        plans = [held for name, held in value.items() if re.sub(r"[\s-]+", "_", name.strip().casefold()) in _STEPS]
        numbered = [re.fullmatch(r"\s*(?:step)?[\s_-]*\d+\s*", name, re.IGNORECASE) for name in value]
        if value and all(numbered):
            plans = [list(value.values())]
        elif not plans:
            plans = [held for held in value.values() if isinstance(held, list)]
        return _steps_of(plans[0]) if len(plans) == 1 else None
    if isinstance(value, str):
        plan = parse_plan(value)
        return list(plan.steps) if isinstance(plan, Plan) else []
    if not isinstance(value, list):
        return None
    steps = list[str]()
    for item in value:
        step = next((item[name] for name in _STEP if name in item), None) if isinstance(item, dict) else item
        if not isinstance(step, str):
            return None
        steps.append(" ".join(step.split()))
    return steps


def _table_steps(answer: str) -> tuple[str, ...]:
    """The steps in the first Markdown table of an answer, none where it is not clear which column holds them."""
    rows = [line for line in answer.splitlines() if "|" in line]
    rule = next(at for at, line in enumerate(rows) if _is_rule(line))
    cells = [[_EMPHASIS.sub("", cell).strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    if rule != 1 or len(cells) < 3 or len({len(row) for row in (cells[0], *cells[2:])}) != 1:
        return ()
    columns = dict(zip(cells[0], zip(*cells[2:], strict=True), strict=True))
    worded = {
        name.casefold(): column
        for name, column in columns.items()
        if any(any(map(str.isalpha, _MARKER.sub("", f"{cell}."))) for cell in column)
    }
    if len(worded) == 1:
        return _worded(next(iter(worded.values())))
    named = next((worded[name] for key in _COLUMNS for name in worded if key in name), ())
    return _worded(named)


def _is_rule(line: str) -> bool:
    """Whether a line is the one below a table's heading."""
    return "|" in line and "-" in line and not line.strip("|:+- \t")


def _lines(text: str) -> list[str]:
    """The lines that hold a letter or a number, without emphasis and fences."""
    lines = _EMPHASIS.sub("", _FENCE.sub("", text)).splitlines()
    return [line for line in lines if any(map(str.isalnum, line))]


def _worded(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines without their marks, those that hold a word or a number."""
    stripped = (_MARKER.sub("", line).strip() for line in lines)
    return tuple(step for step in stripped if any(char.isalnum() for char in step))


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
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": f"Goal: {goal}\nDone:\n{done}"},
    ]


def video_messages(goal: str, video: Frames) -> list[dict[str, Any]]:
    """The chat that asks for the steps after what `video` shows: the clip stands where `planner_messages` writes it."""
    parts = [{"type": "text", "text": f"Goal: {goal}\nDone:\n"}, {"type": "video", "video": video}]
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": parts}]


_SAME_WORDS = 0.75
"""Share of common words from which on two lines count as the same."""
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
