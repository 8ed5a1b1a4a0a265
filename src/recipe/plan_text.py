"""Plans as they are written: the steps in a completion, whether a list, JSON, YAML, HTML, LaTeX or a table."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import islice, takewhile
from textwrap import dedent
from typing import Any

import yaml

from recipe.step_lines import leading_time, listed_steps, plain_steps, shown, unmarked
from recipe.text import final_answer
from recipe.types import Malformed, Plan

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([\w+-]*)[ \t]*$", re.MULTILINE)
_DATA = re.compile(r"(?:```|~~~)[ \t]*(?:jsonc?|json5|ya?ml|xml|html)[ \t]*\n(.*?)(?:```|~~~|\Z)", re.I | re.S)
# Languages of fences that may hold lines of steps.
_LISTING = {"", "text", "txt", "plaintext", "plain", "markdown", "md", "latex", "tex", "list", "plan", "steps"}
_UNSEEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_BRACE = re.compile(
    r"(?:(?:\$+|\\[\[(])\s*)?\\(?:boxed|fbox|framebox|text\w*|emph|underline)\s*(\{)|[{}](?:\s*(?:\$+|\\[\])]))?"
)
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{[^{}\n]*\}(?:\[[^\]\n]*\])?")
_ESCAPED_LINE = re.compile(r"\\n(?=\s*(?:[(\[*]*\d{1,2}\W|[-*•]\s|step))", re.IGNORECASE)
_TAG = re.compile(r"<(?:ol|ul|li|steps?\d*|item|plan|action|tr|td|p|br|div|h[1-6])\b[^<>]*>", re.IGNORECASE)
_ITEM = re.compile(r"li|step\d*|item|action|task|instruction|substep")
# Tags of HTML that end no line.
_WITHIN = frozenset({"td", "th", "b", "i", "em", "strong", "a", "span", "code", "u", "mark", "small", "sub", "sup"})
_JSON = re.compile(r"[{\[]\s*[\"'{\[]")
_WHOLE_JSON = re.compile(r"\s*(?=\{\s*(?:[\"'{}]|[\w ]+:|$)|\[\s*(?:[\"'{\[\]]|$))")
# An item of YAML with named fields.
_MAPPING = re.compile(
    r"^\s*-\s+[\"']?(?:step|number|id|no|action|text|description|instruction|title|name|task)[\"']?:\s", re.I | re.M
)
# Beginnings of JSON that are tried.
_TRIES = 20
_PLANS = {"steps", "plan", "remainingsteps", "nextsteps", "continuation", "actions", "instructions", "substeps"}
# Fields that hold a plan, and those that hold a step; the columns of a table that do, the first that fits.
_STEPS = ("step", "text", "description", "action", "instruction", "task", "content", "title", "name", "label", "what")
_STARTS = ("start", "starttime", "from", "begin", "time", "timestamp")
_ENDS = ("end", "endtime", "to", "until")


def parse_plan(text: str, *, cut: bool = False) -> Plan | Malformed:
    """The steps in the `final_answer` of a completion (`written_steps`), or why there are none.

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
    steps = written_steps(answer)
    return Malformed(steps, text) if isinstance(steps, str) else Plan(steps)


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
    """Empty where the text is malformed."""
    malformed: bool

    @classmethod
    def of(cls, text: str, *, cut: bool = False) -> "Completion":
        """The completion of a text by `parse_plan`.

        >>> Completion.of("1. Boil water")
        Completion(text='1. Boil water', steps=('Boil water',), malformed=False)
        """
        plan = parse_plan(text, cut=cut)
        return cls(text, plan.steps, False) if isinstance(plan, Plan) else cls(text, (), True)


def written_steps(answer: str, *, every: bool = False, times: bool = False) -> tuple[str, ...] | str:
    """The steps in an answer, or why there are none: those of the first list, or with `every` of all lists.

    With `times`, the time before a step stays, and that of JSON and tables is written before it.

    >>> written_steps('{"steps": [{"step": 1, "action": "Boil water", "time": "0:05"}]}', times=True)
    ('0:05 Boil water',)
    """
    answer = _UNSEEN.sub("", answer)
    fenced = _DATA.search(answer)
    inner = dedent(_without_commands(fenced[1] if fenced else _FENCE.sub("", answer)))
    # JSON within a text may begin at any brace; of an answer that is JSON as a whole, no other reading is tried.
    begins = [0] if _WHOLE_JSON.match(inner) else [begin.start() for begin in islice(_JSON.finditer(inner), _TRIES)]
    embedded = _json_steps(inner, begins, times) if begins else ""
    if begins == [0] or isinstance(embedded, tuple):
        return embedded
    if not begins:
        inner = _ESCAPED_LINE.sub("\n", inner)
    if _TAG.search(inner):
        reader = _Html()
        reader.feed(inner)
        reader.close()
        inner = "".join(reader.parts)
    elif mapping := _MAPPING.search(inner):
        block = takewhile(lambda line: line[:1] in " -", inner[mapping.start() :].splitlines())
        steps = _steps_of(_yaml("\n".join(block)), times)
        return _worded(steps or (), times) or "the completion is YAML without one list of steps"
    rows = _rows(inner)
    if rows and not listed_steps(inner[: inner.index(rows[0][0])], times=times):
        problem = "the completion is a table, and it is not clear which column holds the steps"
        return _worded(_column(rows, times), times) or problem
    if steps := listed_steps(inner, every=every, times=times):
        return steps
    if not _LISTING.issuperset(language.casefold() for language in _FENCE.findall(answer)):
        return embedded or "the completion is code"
    return embedded or plain_steps(inner)


def _without_commands(text: str) -> str:
    """A text without LaTeX's boxes and environments around what they hold."""
    parts, commands, end = list[str](), list[bool](), 0
    for brace in _BRACE.finditer(text):
        if brace[0][0] == "}":
            command = bool(commands) and commands.pop()
        else:
            command = bool(brace[1])
            commands.append(command)
        if command:
            parts.append(text[end : brace.start()])
            end = brace.end()
    return _ENVIRONMENT.sub("", "".join(parts) + text[end:])


class _Html(HTMLParser):
    """Writes the lists, tables and headings of HTML or XML as those of Markdown."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if _ITEM.fullmatch(tag):
            self.parts.append(f"\n{'  ' * self._depth}- ")
            # Bounded: tags that are never closed would indent each line more than the last.
            self._depth = min(self._depth + 1, 20)
        elif tag in ("td", "th"):
            self.parts.append("| ")
        elif re.fullmatch(r"p|br|div|tr|h[1-6]", tag):
            self.parts.append("\n" + "  " * self._depth + ("# " if tag[0] == "h" else ""))

    def handle_endtag(self, tag: str) -> None:
        if _ITEM.fullmatch(tag):
            self._depth = max(0, self._depth - 1)
        if tag not in _WITHIN:
            self.parts.append("|" if tag == "tr" else "\n" + "  " * (self._depth + 1) * bool(self._depth))

    def handle_data(self, data: str) -> None:
        self.parts.append(re.sub(r"\s*\n\s*", " ", data) if self._depth else data)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        # Python 3.11 raises it for a section of no known kind, such as "<![temp]>"; a browser reads a comment.
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i, report)


def _yaml(text: str) -> Any:
    """What YAML holds, which JSON with single quotes or a comma too many is, too; None where it cannot be read."""
    # PyYAML is slow; no plan is as long or holds as many brackets.
    if len(text) >= 50_000 or text.count("{") + text.count("[") >= 300:
        return None
    try:
        # No plan needs aliases, and nine lines of them may stand for a billion steps.
        if "&" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            return None
        return yaml.safe_load(text)
    # A tag that does not fit its value, such as `!!bool tea`, ends in errors of Python's own.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError):
        return None


def _json_steps(text: str, begins: Sequence[int], times: bool) -> tuple[str, ...] | str:
    """The steps in the JSON that begins at one of these places, one value or one a line, or why there are none."""
    # Not strict: models write line feeds as they are into texts of JSON.
    decoder, problem = json.JSONDecoder(strict=False), "the completion is JSON that cannot be read"
    for begin in begins:
        values, end = list[Any](), begin
        try:
            while (start := _WHOLE_JSON.match(text, end)) and (end == begin or text[end - 1] != ","):
                value, end = decoder.raw_decode(text, start.end())
                values.append(value)
        except (ValueError, RecursionError):
            # Models write single quotes, comments and commas too many, all of which YAML reads.
            if not values and (value := _yaml(text[begin : max(text.rfind("}"), text.rfind("]")) + 1])) is not None:
                values = [value]
        steps = _steps_of(values[0] if len(values) == 1 else values, times) if values else None
        if steps and (worded := _worded(steps, times)):
            return worded
        problem = "the completion is JSON without one list of steps" if values else problem
    return problem


def _worded(steps: Iterable[str], times: bool) -> tuple[str, ...]:
    """The texts of steps as Markdown shows them, without marks; those that say nothing are left out."""
    return tuple(filter(None, unmarked(map(shown, steps), times=times)))


def _steps_of(value: Any, times: bool) -> Sequence[str] | None:
    """The steps that a value of JSON or YAML lists; None where it is no list of steps."""
    try:
        return _steps_within(value, times)
    except RecursionError:  # the parser of JSON in C goes deeper than Python does
        return None


def _steps_within(value: Any, times: bool) -> Sequence[str] | None:
    if isinstance(value, str):
        written = written_steps(value, times=times)
        return None if isinstance(written, str) else written
    if isinstance(value, dict):
        held = [below for name, below in _by_name(value).items() if name in _PLANS]
        if not held and value and not any(map(_says, map(str, value))):
            held = [[*value.values()]]
        held = held or [below for below in value.values() if isinstance(below, list)]
        held = held or [below for below in value.values() if isinstance(below, dict)]
        return _steps_within(held[0], times) if len(held) == 1 else None
    if not isinstance(value, list):
        return None
    steps = list[str]()
    for item in value:
        own: Sequence[str] | None = [item] if isinstance(item, str) else None
        if isinstance(item, dict):
            own = _steps_of_item(_by_name(item), times)
        if own is None:
            return None
        steps += own
    return steps


def _steps_of_item(fields: Mapping[str, Any], times: bool) -> Sequence[str] | None:
    """The steps below an item of a list, or the one that its fields say; None where it is not clear what they say."""
    if below := [value for name, value in fields.items() if name in _PLANS and isinstance(value, list) and value]:
        return _steps_within(below[0], times) if len(below) == 1 else None
    said = {name: value for name, value in fields.items() if isinstance(value, str) and _says(value)}
    texts = [said[name] for name in _STEPS if name in said]
    if not texts and len(texts := [text for text in said.values() if not leading_time(text)]) != 1:
        return None
    objects = [said[name] for name in ("object", "target", "item") if name in said]
    step = " ".join([texts[0], *objects]) if texts[0] == said.get("action") else texts[0]
    start, end = (next((fields[name] for name in names if name in fields), None) for names in (_STARTS, _ENDS))
    both = start if isinstance(start, list) else [start, end]
    clocks = [f"{time}s" if isinstance(time, int | float) else str(time) for time in both if time is not None]
    return [f"{' - '.join(clocks)} {step}" if times and clocks else step]


def _by_name(value: Mapping[Any, Any]) -> dict[str, Any]:
    """An object's values by their names without case, spaces and marks."""
    return {re.sub(r"[\W_]+", "", str(name)).casefold(): below for name, below in value.items()}


def _says(text: str) -> bool:
    """Whether a text is more than a number or a mark.

    >>> _says("Step 1"), _says("2"), _says("Stir")
    (False, False, True)
    """
    return any(map(str.isalpha, "".join(unmarked([re.sub(r"[\s_]+", " ", text).strip() + "."]))))


def _rows(text: str) -> list[list[str]]:
    """The rows of the first table of a text, each as it is written and then its cells; none where there is no table."""
    rows = list[list[str]]()
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if "|" in line and (not rows or len(cells) == len(rows[0]) - 1):
            rows.append([line, *cells])
        elif rows:
            break
    framed = len(rows) > 1 and len(rows[0]) > 2 and all(line.lstrip()[0] == "|" for line, *_ in rows)
    return rows if framed or any(_is_rule(line) for line, *_ in rows) else []


def _is_rule(line: str) -> bool:
    """Whether a line is the one below a table's heading."""
    return "-" in line and not line.strip("|:+- \t")


def _column(rows: Sequence[Sequence[str]], times: bool) -> list[str]:
    """The cells of the column of steps, none where it is not clear which that is."""
    ruled = next((place for place, (line, *_) in enumerate(rows) if _is_rule(line)), 0)
    cells = [[shown(cell) for cell in row] for _, *row in rows]
    titled = ruled == 1 or any(cell.casefold() in _STEPS for cell in cells[0])
    heading = [cell.casefold() if titled else "" for cell in cells[0]]
    body = cells[ruled + 1 if ruled else titled :]
    columns = [*zip(*body, strict=True)]
    says = [[_says(cell) and not leading_time(cell) for cell in column] for column in columns]
    worded = [place for place, column in enumerate(says) if any(column)]
    named = [place for key in _STEPS for place in worded if key in heading[place]]
    if not (chosen := worded if len(worded) == 1 else named):
        return []
    clocks = [place for place, column in enumerate(columns) if place != chosen[0] and all(map(leading_time, column))]
    timed = [" - ".join(row[place] for place in clocks[:2]) + " " if times and clocks else "" for row in body]
    return [time + step for time, step in zip(timed, columns[chosen[0]], strict=True) if _says(step)]
