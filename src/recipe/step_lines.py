"""Steps that are listed line by line: which lines are items, what marks stand before them, and how they nest.

The marks are more than Markdown has, and lines nest as models write them and not by CommonMark, where two spaces below
`1.` nest nothing, `2.` begins no list behind a text, and `Tips:` below a bullet belongs to it. Within a line, a parser
of Markdown reads.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt

from recipe.clock import read_clock

NO_STEP = "no line of the completion holds a step"

# A number is read from its first digit and as a whole: else a long run of digits would cost the patterns its square.
_CLOCK = r"(?<!\d)\d++(?::\d\d){1,2}(?:\.\d++)?"
_NUMBER = r"(?<!\d)\d++(?:\.\d++)?"
_SECONDS = rf"{_NUMBER}\s*(?:s|secs?|seconds)\b"
_TO = r"\s*(?:-->|->|-|–|—|→|~|to|until)\s*"
TIMES = (
    rf"[\[(<]\s*(?P<start>{_CLOCK}|{_SECONDS})(?:{_TO}(?P<end>{_CLOCK}|{_SECONDS}))?\s*[\])>]",
    rf"(?P<start>{_CLOCK})(?:{_TO}(?P<end>{_CLOCK}))?",
    rf"(?P<start>{_SECONDS}|{_NUMBER}){_TO}(?P<end>{_SECONDS})",
)
"""Patterns of a start, or a start and an end, as a clock shows them or in seconds."""
_LEADING_TIMES = [re.compile(rf"\s*(?:from\s+)?{time}\s*[-–—:.,|]*\s*", re.IGNORECASE) for time in TIMES]

# The word for a step in languages that people plan in.
_STEP = (
    "(?:step|stage|phase|schritt|(?:é|e\u0301?)tape|paso|passo|etapa|stap|krok|steg|trin|vaihe|lépés|adım|langkah|bước|"
    "шаг|крок|этап|βήμα|שלב|(?:ال)?خطوة|चरण|ステップ|手順|步骤|步驟|단계)"
)
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii", "xiii", "xiv", "xv")
_HAN = "[一二三四五六七八九十]+"
_LABEL = (
    rf"{_STEP}(?:[\s_\#-]*(\d{{1,3}}|{_HAN})|[\s_-]+(?:({'|'.join(_WORDS)}|[ivx]+|[a-h])(?!\w)|[^\W\d_]+(?=\s*[:：])))?"
    r"\s*(?:(?:of|/|von|de|sur)\s*\d{1,3}\s*)?(?:\([^()]{1,30}\)\s*)?(?:[.):：、,–—|→-]+(?!\d)|$)"
)
_COUNTED = (
    rf"第\s*(\d{{1,3}}|{_HAN})\s*[步个個歩阶段骤驟]*\s*[:：、,，.。]?"
    rf"|(\d{{1,3}})\s*단계\s*[:.]?|({_HAN})\s*[、.．:：]"
)
_CIRCLED = r"(?:([①-⓿❶-➓㈠-㈩㊀-㊉])|([0-9])\ufe0f?\u20e3|(🔟))\s*[.:)]?"
# Marks that need no other line to be one: a named group for each kind, and within it a group for its number.
_MARK = re.compile(
    rf"""
      (?P<label>{_LABEL}) | (?P<named>[^\W\d_]+\s+{_STEP}\s*[:：]) | (?P<counted>{_COUNTED}) | (?P<circled>{_CIRCLED})
    | (?P<bracketed>[(（\[【]\s*(\d{{1,3}})\s*[)）\]】]\s*[.:：、]?)
    | (?P<dotted>(\d{{1,2}}(?:\.\d{{1,2}})+)[.):]+(?=\s))
    | (?P<number>(\d{{1,3}})\.?[ºª]\s*[.:)-]* | \#\s?(\d{{1,3}})\b\s*[.):-]*
        | (?:["“'](?!.*["”'],?\s*$))?(?:no\.\s*)?(\d{{1,3}})(?:\s*/\s*\d{{1,3}}|st|nd|rd|th)?\s*
          (?:[.):：．）]+(?!\d)|、|(?:[–—-]+|[-=]?>|→)\s+(?!\d)))
    | (?P<bullet>(?:[-*•·‣⁃∙▪●○◦◆◇■□▶▸➤➢✓✔✗✘☐☑☒✅⬜→⇒➔➜➡▷]\ufe0f?|[-=]>|--|[+–—>](?=\s)|\\item\b)
        (?:\s*\[[ xX]?\](?=\s))?)
    | (?P<box>\[[ xX✓✔]?\](?=\s))
    """,
    re.IGNORECASE | re.VERBOSE,
)
_KINDS = frozenset(_MARK.groupindex.values())
# Marks only where they count up from line to line.
_COUNTING = {
    "letter": re.compile(r"[(\[]?([a-z])[.)\]:]\s+", re.IGNORECASE),
    "roman": re.compile(r"[(\[]?([ivx]{1,5})[.)\]:]\s+", re.IGNORECASE),
    "dotted": re.compile(r"(\d{1,2}(?:\.\d{1,2})+)\s+(?=\D)"),
    "ordinal": re.compile(rf"({'|'.join(_ORDINALS)}|next|then|finally|lastly)(?:ly)?[,:)]\s*", re.IGNORECASE),
    "bare": re.compile(rf"(?:{_STEP}\s*)?(\d{{1,2}})(?:\s+|[,;|*]\s*)(?=\D)", re.IGNORECASE),
    "word": re.compile(r"(?!option|way|plan|variant)([^\d\n]{2,30}?)(\d{1,2})\s*[:：]\s*", re.IGNORECASE),
}
_INLINE_NUMBER = re.compile(
    rf"(?:(?<=[\s.;:,，。；：])|^)(?:[(（]?(?:(\d{{1,2}})|([a-h]))[.)、:：）]+(?!\d)|{_LABEL}|{_COUNTED}|{_CIRCLED})",
    re.IGNORECASE,
)
_INLINE_BULLET = re.compile(r"\s+(?=[•▪●‣]\s)")
_ARROW = re.compile(r"\s(?:→|->|=>|⇒|➔|➜)\s")
_SYMBOLS = re.compile("(?:[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff][\ufe0f\u200d]?)+\\s+")

# Begins the title of a list that is not the plan.
_ASIDE = re.compile(
    r"(?:the |your )?(?:ingredients|materials|supplies|tools|equipment|utensils|what you|you(?:['’]ll| will)? need|"
    r"notes?|tips?|warnings?|cautions?|safety|remarks?|alternativ|another|variation|(?:already )?done|completed|"
    r"history)",
    re.IGNORECASE,
)
# What begins a line that speaks to the reader.
_COURTESY = re.compile(
    r"(?:sure|(?:goal|task|notes?|tips?)(?=:)|remember|certainly|of course|absolutely|okay|here(?:['’]s| is| are)|"
    r"below|enjoy|bon app|good luck|let me know|hope|happy|sorry|unfortunately|as an ai|thank|feel free|"
    r"the (?:remaining|next|last|final) steps?|you (?:should|need|can|could|must|have to)|that['’]s (?:it|all)|"
    r"you(?:['’]re| are) (?:done|ready|welcome)|"
    r"i(?:['’](?:m|ll|d)| (?:am|cannot|can|can['’]t|could|don['’]t|do not|hope|need|see|think|would|will|have)))\b"
    r"|(?:none|nothing|n/a|no (?:more|further|remaining) steps?)\W*$",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(#{1,6})\s+|(?=(\*\*|__)(?:(?!\2).)+\2[:：]?\s*$)")
_SENTENCE_END = re.compile(r"[.!?]\s+(?=[A-Z])")
_CODE = re.compile(r"[{}|]|</?\w+>|\w\(\)|[=;]\s*$|==|:=|^[\"'].*[\"']\s*:|^\s*(?:import|def|class|return|from)\s")
_MARKDOWN = MarkdownIt("commonmark", {"maxNesting": 10}).enable("strikethrough")


@dataclass(slots=True)
class _Line:
    """A line that says something: its text without marks, the kind of its first mark, and the number that counts it."""

    text: str
    indent: int = 0
    heading: int = 0
    """Level of a heading, 7 for a line in bold; 0 for any other line."""
    paragraph: int = 0
    kind: str = ""
    number: int | None = None


def listed_steps(text: str, *, every: bool = False, times: bool = False) -> tuple[str, ...]:
    """The steps of the lines that carry a mark, those that have none below them; none where no line has a mark.

    They are those of the first list, or with `every` of all lists; the plan's list ends where its numbers begin again,
    and where a text stands that is not indented, unless its numbers go on behind that text or what follows stands below
    the last item. Sections under headings of one kind are one list. With `times`, the time before a step stays.

    >>> listed_steps("Sure!\\n1. Make tea\\n   a. Boil water\\n   b. Steep it\\n2. Serve\\nEnjoy!")
    ('Boil water', 'Steep it', 'Serve')
    """
    lines = _lines(text, every, times)
    return _items(lines, every) if any(line.kind for line in lines) else ()


def plain_steps(text: str) -> tuple[str, ...] | str:
    """The steps of lines without marks, one in each, or why there are none.

    >>> plain_steps("What remains:\\nboil water\\nsteep the tea")
    ('boil water', 'steep the tea')
    >>> plain_steps("I cannot see the video.")
    'no line of the completion holds a step'
    """
    lines = _lines(text, every=False, times=False)
    if any(line.kind for line in lines):
        return NO_STEP
    said = [line for line in lines if not _is_remark(line.text)]
    level = max((line.heading for line in said), default=0) if all(line.heading for line in said) else 0
    said = [line for line in said if line.heading == level]
    if level and len(said) < 2:
        return NO_STEP
    sizes = Counter(line.paragraph for line in said)
    # Where others have several lines, a first or last paragraph of one line speaks of the plan.
    around = {min(sizes), max(sizes)} if sizes and max(sizes.values()) > 1 else set[int]()
    steps = [line.text for line in said if sizes[line.paragraph] > 1 or line.paragraph not in around]
    if len(steps) == 1:
        steps = [step.strip() for step in _ARROW.split(steps[0])]
    if any(map(_CODE.search, text.splitlines())):
        return "the completion is in a form that is not read"
    sentences = max((len(_SENTENCE_END.findall(step)) + 1 for step in steps), default=0)
    if sentences > 2 or (sentences > 1 and len(steps) == 1):
        return "the completion is prose without a list"
    return tuple(steps) or NO_STEP


def unmarked(steps: Iterable[str], *, times: bool = True) -> tuple[str, ...]:
    """Steps without the numbers and bullets before them, and unless `times` without times; empty where no more is said.

    >>> unmarked(["1. Boil water", "2) Wait 2 minutes", "2 eggs", "3."])
    ('Boil water', 'Wait 2 minutes', '2 eggs', '')
    """
    lines = [_Line(" ".join(step.split())) for step in steps]
    _take_marks(lines, times)
    return tuple(line.text if any(map(str.isalnum, line.text)) else "" for line in lines)


def leading_time(line: str) -> re.Match[str] | None:
    """The time that a line begins with: a match with its `start` and `end`."""
    return next((match for pattern in _LEADING_TIMES if (match := pattern.match(line))), None)


def shown(text: str) -> str:
    """What Markdown shows of a line.

    >>> shown("**Boil** [water](https://example.org) &amp; wait")
    'Boil water & wait'
    """
    [line] = _MARKDOWN.parseInline(text)
    parts = [part.content for part in line.children or () if part.type in ("text", "code_inline", "text_special")]
    return re.sub(r"\*\*|__|`", "", "".join(parts)).strip()


def _lines(text: str, every: bool, times: bool) -> list[_Line]:
    """The lines of a text that hold a letter or a number, their marks taken off; unless `every`, of the plan alone.

    What stands below a title such as `Ingredients:` or `Tips:` is left out, up to the next title or the next number.
    """
    lines, paragraph, aside, last = list[_Line](), 0, False, 0
    for raw in text.splitlines():
        if not any(map(str.isalnum, raw)) and "🔟" not in raw:
            paragraph += not raw.strip()
            continue
        quoted = re.sub(r"^\s*(?:>\s?)+", "", raw)
        inner = quoted.strip()
        heading = _HEADING.match(inner)
        level = (len(heading[1]) if heading[1] else 7) if heading else 0
        indent = len(quoted[: len(quoted) - len(quoted.lstrip())].expandtabs(4))
        said = shown(inner[heading.end() :] if heading else inner)
        mark = _MARK.match(said)
        number = _number(mark) if mark else None
        if not mark and (level or said.endswith((":", "：")) or (aside and said.casefold() in ("steps", "plan"))):
            aside = not every and bool(_ASIDE.match(said))
        aside = aside and (number is None or not 0 < last == number - 1)
        last = last if aside or number is None else number
        if not aside:
            lines.append(_Line(said, indent, level, paragraph))
    _take_marks(lines, times)
    # A list that has a line for each item is not taken apart: its items may hold numbers of their own.
    if sum(line.number is not None for line in lines) < 2 and (parted := _parted(text)):
        return _lines(parted, every, times)
    return lines


def _parted(text: str) -> str:
    """A text whose lines with several items are split into one line an item; empty where there are none such."""
    lines, parted = list[str](), False
    for line in text.splitlines():
        plain = re.sub(r"\*\*|__", "", line)
        marks = list[re.Match[str]]()
        for mark in _INLINE_NUMBER.finditer(plain):
            alike = not marks or mark.lastindex == marks[0].lastindex
            if alike and mark.lastindex and _value(mark[mark.lastindex]) == len(marks) + 1:
                marks.append(mark)
        if len(marks) > 1 and re.search(r"(?:^|[^\w\s)])\s*$", plain[: marks[0].start()]):
            pieces = [plain[start:end] for start, end in pairwise([0, *(mark.start() for mark in marks), len(plain)])]
            pieces = [re.sub(r"[\s,;→>=-]+(?:and\s*|then\s*)?$", "", piece) for piece in pieces if piece.strip()]
        else:
            pieces = _INLINE_BULLET.split(line) if re.match(r"\s*[•▪●‣]", line) else [line]
        lines, parted = lines + pieces, parted or len(pieces) > 1
    return "\n".join(lines) if parted else ""


def _number(mark: re.Match[str]) -> int | None:
    """The number in a match of `_MARK`."""
    digits = next((text for group, text in enumerate(mark.groups(), start=1) if text and group not in _KINDS), None)
    return _value(digits) if digits else None


def _value(digits: str) -> int:
    """The number that a mark writes.

    >>> [_value(digits) for digits in ("7", "1.12", "③", "十二", "two", "iv", "c", "🔟")]
    [7, 112, 3, 12, 2, 4, 3, 10]
    """
    word = digits.casefold()
    if word.replace(".", "").isdecimal():
        # To the base 100, so that 1.10 comes after 1.9; each part has two digits at most.
        return sum(100**place * int(part) for place, part in enumerate(reversed(word.split("."))))
    for words in (_WORDS, _ORDINALS, _ROMAN):
        if word in words:
            return words.index(word) + 1
    if len(word) == 1 and "a" <= word <= "z":
        return ord(word) - ord("a") + 1
    return 10 if word == "🔟" else int(sum(unicodedata.numeric(char, 0) for char in word))


def _take_marks(lines: Sequence[_Line], times: bool) -> None:
    """Take the marks off lines, as many as stand there, and note the first of each."""
    quoted = False
    # Twice: a mark may also stand behind a time or a symbol.
    for _ in range(2):
        before = [(line.text, line.kind, line.number) for line in lines]
        for line in lines:
            while (mark := _MARK.match(line.text)) and not (line.kind and mark.end() == len(line.text)):
                kind = str(mark.lastgroup)
                quoted = quoted or mark[0][0] in "\"“'"
                style = re.sub(r"[\w\s]", "", mark[0])[:1] if kind == "number" else ""
                _take(line, mark, kind + style, _number(mark))
        for kind, pattern in _COUNTING.items():
            _take_counting(lines, kind, pattern)
        marked = any(line.kind for line in lines)
        for line in lines:
            if (mark := _SYMBOLS.match(line.text)) and (line.kind or not (marked or _is_remark(line.text))):
                _take(line, mark, "symbol")
        _take_times(lines, times)
        if before == [(line.text, line.kind, line.number) for line in lines]:
            break
    for line in lines:
        if line.kind:
            line.text = line.text.strip(" ;|\\\t→")
        if quoted and line.text.endswith(('"', "”", "'")) and line.text.count(line.text[-1]) == 1:
            line.text = line.text[:-1]


def _take(line: _Line, mark: re.Match[str], kind: str, number: int | None = None) -> None:
    """Take a mark off, and note its kind where it is the first, and its number where none was there."""
    line.text = line.text[mark.end() :].lstrip()
    line.kind = line.kind or kind
    line.number = number if line.number is None else line.number


def _take_counting(lines: Sequence[_Line], kind: str, pattern: re.Pattern[str]) -> None:
    """Take off marks that count up from line to line: on lines without a mark, or on all that have one."""
    matches = [pattern.match(line.text) for line in lines]
    if kind == "word":
        first = next((match[1].casefold() for match in matches if match), "")
        matches = [match if match and match[1].casefold() == first else None for match in matches]
    within = kind != "bare" and all(match for line, match in zip(lines, matches, strict=True) if line.kind)
    counted, last, known = list[tuple[_Line, re.Match[str], int]](), 0, 0
    for line, match in zip(lines, matches, strict=True):
        if match and (within or not line.kind):
            digits = match.groups()[-1].casefold()
            value = ord(digits) - ord("a") + 1 if kind == "letter" else _value(digits)
            value = value or last + 1  # `next`, `finally`
            # Of a dotted number the last part counts up, which is the last two digits of `_value`.
            if value % 100 not in (last % 100 + 1, 1):
                return
            counted.append((line, match, value))
            last = value
        elif line.number is not None and not within:
            last, known = line.number, known + 1
    highest = max((value % 100 for _, _, value in counted), default=0)
    if highest > 1 and (len(counted) > 1 or (known and kind == "bare")):
        for line, match, value in counted:
            _take(line, match, kind, value)


def _take_times(lines: Sequence[_Line], times: bool) -> None:
    """Take off the times before steps, or with `times` note that a line begins with one."""
    timed = [(line, time) for line in lines if (time := leading_time(line.text))]
    starts = [read_clock(re.sub(r"[^\d:.]", "", time["start"])) or 0.0 for _, time in timed]
    # A time that stands alone may belong to its step, such as "5:00 in the oven": times of a list rise.
    rising = len(starts) > 1 and all(early < late for early, late in pairwise(starts))
    for line, time in timed:
        if times:
            line.kind = line.kind or "time"
        elif rising or time["end"] or time[0].lstrip()[:1] in "[(<":
            _take(line, time, "time")


def _is_remark(text: str) -> bool:
    """Whether a line announces something or speaks to the reader."""
    return text.rstrip().endswith((":", "：")) or bool(_COURTESY.match(_SYMBOLS.sub("", text, count=1)))


def _items(lines: Sequence[_Line], every: bool) -> tuple[str, ...]:
    """The items that have none below them (`listed_steps`)."""
    items: list[tuple[_Line, int]] = []  # with their depth
    levels: list[_Line] = []  # the last item of each depth
    kept = 0  # items that belong to the list whatever follows
    first = 0  # number of the first item
    barrier = 0  # of the lines since the last item: 1 for a text that is not indented, 2 for a title
    section = 0  # level of the heading above the first item
    before: _Line | None = None  # the item that the line before this is, or goes on with
    for line in lines:
        if not line.kind:
            title = bool(line.heading) or line.text.endswith((":", "："))
            if before and not before.text and not title:
                before.text, before = line.text, None
            elif before and line.indent > before.indent and line.text[0].islower() and before.text[-1] not in ".!?:;":
                before.text += f" {line.text}"
            else:
                before = None
                if not items:
                    section = line.heading or section
                elif line.heading and line.heading == section:
                    levels, barrier = [], 0
                elif title or not levels or line.indent <= levels[0].indent + 1:
                    barrier = max(barrier, 2 if title else 1)
                if every and barrier:
                    levels, barrier = [], 0
            continue
        if (levels or line.kind == "bullet") and not line.number and _COURTESY.match(line.text):
            continue
        # Headings lie above every line, and nest by their level; one in bold has none.
        if line.heading % 7:
            # Below 0 and rising with the level: any heading lies above any line, and a deeper one below a higher.
            line.indent = line.heading - 9
        # One blank more or less is no other level: models do not count them.
        while levels and levels[-1].indent > line.indent + 1:
            levels.pop()
        beside = [depth for depth, level in enumerate(levels) if level.indent >= line.indent - 1]
        alike = [depth for depth in beside if levels[depth].kind == line.kind]
        if line.number:
            follows = [depth for depth in beside if levels[depth].number == line.number - 1]
            slipped = levels and (levels[-1].kind, levels[-1].number) == (line.kind, line.number - 1)
            alike = alike or follows or ([len(levels) - 1] if slipped else [])
        depth = alike[-1] if alike else len(levels)
        if levels and not every:
            deeper = line.indent > levels[-1].indent + 1
            last = levels[0].number or 0
            if line.number is None:
                if depth == 0 and barrier:
                    break
            elif depth == 0:
                if line.number < last + bool(barrier) and (barrier or line.number <= first):
                    break
                barrier = 0
            elif barrier and not alike and not deeper:
                break
        if depth == 0 and not levels:
            first = line.number or 0
        if alike:
            line.kind = levels[depth].kind
        levels[depth:] = [line]
        items.append((line, depth))
        kept = kept if barrier > 1 else len(items)
        before = line
    ended = (_Line(""), 0)
    leaves = [line.text for (line, depth), (_, below) in pairwise([*items[:kept], ended]) if below <= depth]
    steps = [step for step in leaves if any(map(str.isalnum, step))]
    quoted = len(steps) > 1 and all(step[0] == step[-1] in "\"'" for step in steps)
    return tuple(step[1:-1] if quoted else step for step in steps)
