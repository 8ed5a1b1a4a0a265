"""Rubrics of criteria on a scale: the prompt that asks for scores, and how an answer is parsed.

A rubric is data, `RubricConfig`: criteria, scale, rules and texts. The paper's, six criteria from 0 to 5, is the file
`prompts/six_criteria.toml`, and one of the user's own is a file like it (docs/own.md).

*Prompt.* Goal, history, reference and prediction are data. They go into the prompt as JSON with every line break
written as an escape, between two lines with a code that is a hash of that JSON: no text can write a line of its own
there, let alone the closing one. Brackets are escapes, too, so that no text can write the special tokens of a chat
template; so are their other forms in Unicode, such as full-width ones. The prompt is filled in one pass, and values
are never read as templates. The paper's fluff rule also caps a "holistic score" that is none of the six criteria: there
is nothing to cap.

*Answer.* Only the text after the judge's thought is read. The last JSON value counts that holds an object, or a list of
`{criterion, score}`, with all criteria at one level: judges that think aloud write drafts first. Weights, maxima and
the like are no scores; two objects within one value that could both be the scores leave the plan unscored.
Where there is no such value, pairs of a criterion and a number are looked for in the text. A score may be written `4`,
`4.0`, `"4"`, `4/5` or `{"score": 4}`, and is clamped to the scale (paper, appendix). One that is no whole number, on
another scale, or given twice with different values is no score, and one criterion without a score leaves the plan
unscored: nothing is guessed.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import islice
from pathlib import Path
from statistics import fmean
from string import Template
from typing import Any, NamedTuple
from unicodedata import normalize

from recipe.artifacts import JsonObject, fingerprint
from recipe.config.base import load_config, parse_config, read_toml
from recipe.config.models import RubricConfig
from recipe.errors import ConfigError, quoted
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.models.protocol import Answer, Chat, unanswered
from recipe.prompting import fill, packaged, visible
from recipe.text import final_answer
from recipe.types import Grades, Unscored, Verdict

PAPERS = "six-criteria"
"""The name of the paper's rubric."""
# In place of the data where the texts around it are identified.
_DATA = {name: f"${name}" for name in ("code", "data", "note", "keys")}
# Characters at the end of an answer that are read.
_READ = 50_000
# Opening braces and brackets that are tried.
_TRIES = 1_000
# Words in keys of objects that repeat the names of the criteria but hold no scores.
_NO_SCORES = frozenset(
    {"weight", "weights", "max", "maximum", "min", "minimum", "scale", "range", "example", "examples", "confidence"}
)
_SCORE_KEYS = ("score", "rating", "grade", "value", "points")
_CRITERION_KEYS = ("criterion", "criteria", "name", "dimension", "metric", "key")
_SCORE = r"(?P<value>[-+]?\d+(?:\.\d+)?)(?:\s{0,3}(?:/|out of)\s{0,3}(?P<scale>\d+(?:\.\d+)?))?"
_SCORE_ALONE = re.compile(rf"\s*{_SCORE}\s*")
# Quotes and emphasis around names and numbers.
_MARKS = r"[\s\"'*_`]{0,8}"
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class _Escapes(dict[int, str]):
    """Escapes of `<>[]`, and of what a reader who normalises takes for these, for a quote or for a backslash."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        forms = char if char.isascii() else f"{normalize('NFKC', char)}{normalize('NFKD', char)}"
        hostile = any(form in ("<>[]" if char.isascii() else '<>[]"\\') for form in forms)
        # As JSON writes it, which gives characters beyond 16 bits two escapes.
        self[code] = f"\\u{code:04x}" if hostile and char.isascii() else json.dumps(char)[1:-1] if hostile else char
        return self[code]


_ESCAPES = _Escapes()


def as_data(fields: dict[str, str | Sequence[str]]) -> str:
    """Texts and lists of texts as JSON, an item a line; what could hide text becomes blank, `<>[]` become escapes.

    >>> print(as_data({"goal": "tea", "prediction": ["pour <b>", 'say "hi"']}))
    {
     "goal": "tea",
     "prediction": [
      "pour \\u003cb\\u003e",
      "say \\"hi\\""
     ]
    }
    """
    lines = []
    for name, value in fields.items():
        texts = [value] if isinstance(value, str) else value
        # The escapes come after JSON's own, so that no text can write a backslash of its own.
        items = [json.dumps(visible(text), ensure_ascii=False).translate(_ESCAPES) for text in texts]
        whole = "[\n  " + ",\n  ".join(items) + "\n ]" if items else "[]"
        lines.append(f" {json.dumps(name)}: {items[0] if isinstance(value, str) else whole}")
    return "{\n" + ",\n".join(lines) + "\n}"


def code_of(data: str) -> str:
    """The code of the lines around data, which the data does not hold.

    >>> code_of("{}")
    '44136fa355b3678a'
    """
    code = sha256(data.encode()).hexdigest()[:16]
    while code in data:
        code = sha256(code.encode()).hexdigest()[:16]
    return code


class ParsedVerdict(NamedTuple):
    """A verdict, and whether it was read as `json` or by `regex`; or why there is none."""

    outcome: Verdict | Grades | Unscored
    how: str = ""


class CriteriaRubric:
    """A rubric of criteria, from its settings.

    >>> rubric = six_criteria()
    >>> rubric.parse('{"logical_progression": 4, "temporal_alignment": 9, "spatial_grounding": 4, "continuation": 3,'
    ... ' "clarity": 2, "semantic_alignment": 4}').outcome.total
    22
    >>> rubric.parse("I cannot judge this.").outcome
    Unscored(reason="the answer holds no verdict: 'I cannot judge this.'")
    """

    def __init__(self, config: RubricConfig) -> None:
        self.config = config
        self.is_papers = config.name == PAPERS
        # Rules whose caps are applied here, where the judge says that they hold.
        self._capping = tuple(rule for rule in config.rules if rule.caps)
        self._template = config.prompt or packaged("recipe.evaluation.judge", "judge")
        lowest, highest = config.lowest, config.highest
        scored = {"type": "integer", "enum": [*range(lowest, highest + 1)]}
        properties: JsonObject = dict.fromkeys(config.criteria, scored)
        properties |= {rule.name: {"type": "boolean"} for rule in self._capping}
        self.schema: JsonObject = {
            "name": "verdict",
            "schema": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
        }
        counted = _counted(config.criteria, "criterion", "criteria")
        ruled = f"the {_counted(config.rules, 'rule')} and " if config.rules else ""
        flags = ", ".join(rule.name for rule in self._capping)
        numbered = "\n".join(f"{number}. {rule.text}" for number, rule in enumerate(config.rules, start=1))
        apply = f"Apply {_counted(config.rules, 'rule')} before you grade:\n{numbered}\n\nThen give"
        self._values = {
            "count": counted,
            "scope": f"{ruled}the {counted}",
            "lowest": str(lowest),
            "highest": str(highest),
            "keys": ", ".join(f'"{name}": ...' for name in properties),
            "flags": f" of a criterion, and true or false for whether a rule holds ({flags})" if flags else "",
            "orders": f" {config.orders}" if config.orders else "",
            "rules": apply if config.rules else "Give",
            "criteria": "\n".join(f"- {name}: {meaning}" for name, meaning in config.criteria.items()),
        }
        self._system = self._filled(config.system or packaged("recipe.evaluation.judge", "judge_system"), {})
        texts = [self._system, self._filled(self._template, _DATA) + "\n", self.schema]
        scale = [] if self.is_papers else [lowest, highest, [rule.caps for rule in config.rules]]
        self.prompt = fingerprint([*texts, *scale])

    @property
    def nothing(self) -> Verdict | Grades:
        """The lowest score on every criterion."""
        return self.verdict(dict.fromkeys(self.config.criteria, float(self.config.lowest)))

    def verdict(self, scores: Mapping[str, float], applied: tuple[str, ...] = ()) -> Verdict | Grades:
        """The verdict of a score for each criterion, on the scale; of the paper's rubric whole numbers are due."""
        if self.is_papers:
            return Verdict(**{name: int(scores[name]) for name in CRITERIA})
        return self.grades(scores, applied)

    def grades(self, scores: Mapping[str, float], applied: tuple[str, ...] = ()) -> Grades:
        """A score for each criterion, which need not be a whole number, with their mean in percent of the scale."""
        lowest, highest = self.config.lowest, self.config.highest
        share = fmean((scores[name] - lowest) / (highest - lowest) for name in self.config.criteria)
        return Grades({name: float(scores[name]) for name in self.config.criteria}, 100 * share, applied)

    def described(self) -> dict[str, str]:
        """Name and scale for a judge's settings; empty of the paper's rubric, which these settings do not name."""
        scale = f"{self.config.lowest} to {self.config.highest}"
        return {} if self.is_papers else {"rubric": self.config.name, "scale": scale}

    def ask(self, case: Case) -> Chat:
        """The chat that asks for the verdict on a case."""
        example = case.example
        data = as_data(
            {
                "goal": example.goal,
                "history": example.history,
                "reference": example.continuation,
                "prediction": case.steps,
            }
        )
        parts = []
        if case.left_out:
            parts.append(f"its last {case.left_out} steps are left out")
        if case.cut:
            parts.append(f"{case.cut} of its steps are cut off in the end, which is marked by an ellipsis")
        note = f" The prediction is too long to be shown whole: {' and '.join(parts)}." if parts else ""
        shown = {"code": code_of(data), "data": data, "note": note}
        return [
            {"role": "system", "content": self._system},
            {"role": "user", "content": self._filled(self._template, shown)},
        ]

    def parse(self, text: str) -> ParsedVerdict:
        """The verdict in a judge's answer."""
        if reason := unanswered(Answer(text)):
            return ParsedVerdict(Unscored(reason))
        names, lowest, highest = tuple(self.config.criteria), self.config.lowest, self.config.highest
        read = (final_answer(text) or "")[-_READ:]
        rules = [rule.name for rule in self._capping]
        objects = _last_objects(read, [*names, *rules])
        if len(objects) > 1:
            shown = quoted(json.dumps(objects[0], default=list))
            return ParsedVerdict(Unscored(f"{len(objects)} objects of the answer hold all criteria, first {shown}"))
        values: dict[str, Any] | None = objects[0] if objects else None
        if values is not None:
            how, numbers_of = "json", {name: {_whole(values[name], highest)} for name in names}
        else:
            how = "regex"
            numbers_of = {name: {_whole(match, highest) for match in _pair(name).finditer(read)} for name in names}
            values = numbers_of
            if rules or not any(numbers_of.values()):
                return ParsedVerdict(Unscored(f"the answer holds no verdict: {quoted(text)}"))
        scores = {}
        for name, numbers in numbers_of.items():
            # Two different numbers for one criterion are no score: nothing is guessed.
            score = next(iter(numbers)) if len(numbers) == 1 else None
            if score is None:
                shown = quoted(json.dumps(values[name], default=list))
                return ParsedVerdict(Unscored(f"{name} is not one whole number from {lowest} to {highest}: {shown}"))
            scores[name] = min(max(score, lowest), highest)
        applied = []
        for rule in self._capping:
            if not isinstance(holds := values[rule.name], bool):
                return ParsedVerdict(Unscored(f"{rule.name} is neither true nor false: {quoted(json.dumps(holds))}"))
            if holds:
                applied.append(rule.name)
                scores |= {name: min(scores[name], most) for name, most in rule.caps.items()}
        return ParsedVerdict(self.verdict(scores, tuple(applied)), how)

    def _filled(self, template: str, data: Mapping[str, str]) -> str:
        values = {**self._values, **data}
        return fill(template, {name: values[name] for name in Template(template).get_identifiers()})


@cache
def six_criteria() -> CriteriaRubric:
    """The paper's rubric."""
    text = files("recipe.evaluation.judge").joinpath("prompts", f"{PAPERS.replace('-', '_')}.toml")
    raw = read_toml(text.read_text(encoding="utf-8"))
    return CriteriaRubric(parse_config(raw, RubricConfig, PAPERS))


def read_rubric(path: Path | str) -> CriteriaRubric:
    """The rubric of a file. Raises ConfigError with the key that is missing, unknown or cannot be used."""
    config = load_config(path, RubricConfig)
    if config.name == PAPERS:
        raise ConfigError(f"{path}: key 'name': {PAPERS!r} is the paper's rubric; give yours another name.")
    return CriteriaRubric(config)


def _counted(items: Sized, noun: str, nouns: str = "") -> str:
    """`six criteria`, `one rule`."""
    number = len(items)
    words = _NUMBERS[number] if number < len(_NUMBERS) else str(number)
    return f"{words} {noun if number == 1 else nouns or f'{noun}s'}"


@cache
def _pair(name: str) -> re.Pattern[str]:
    """A criterion and its score in a text without JSON."""
    return re.compile(
        # After the start of a line or a mark, so that "the predicted continuation: 3 steps" is no score.
        rf"(?:^|[^\w\s])[ \t]{{0,8}}(?:\d{{1,2}}[.)]\s{{0,8}})?{_MARKS}{name.replace('_', '[ _-]{1,3}')}{_MARKS}"
        rf"(?:\([^()\n]{{0,40}}\){_MARKS})?(?:(?:score|rating){_MARKS})?[:=|]{_MARKS}"
        rf"{_SCORE}(?!\.?\w|[%/])(?=[\"'*_`\s]{{0,8}}(?:$|[,;|)}}\]\n(.–—-]))",
        re.IGNORECASE | re.MULTILINE,
    )


def _last_objects(text: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The different objects that have these keys, in any spelling, in the last JSON value with such an object."""
    text = text[-_READ:]
    decoder, end, objects = json.JSONDecoder(object_pairs_hook=_plain_keys), 0, list[dict[str, Any]]()
    for opening in islice(re.finditer(r"[{\[]", text), _TRIES):
        if opening.start() < end:  # within a value that was read
            continue
        try:
            value, end = decoder.raw_decode(text, opening.start())
            held = [own for own in _objects(value) if all(name in own for name in names)]
        except (ValueError, RecursionError):
            continue
        objects = [own for place, own in enumerate(held) if own not in held[:place]] or objects
    return objects


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects within a JSON value that may be scores; a list of {criterion, score} is one."""
    if isinstance(value, dict):
        yield value
        for key, below in value.items():
            if not _NO_SCORES.intersection(key.split("_")):
                yield from _objects(below)
    elif isinstance(value, list):
        pairs = [_named_score(item) for item in value]
        if pairs and all(pairs):
            yield _plain_keys([pair for pair in pairs if pair])
        for item in value:
            yield from _objects(item)


def _named_score(item: Any) -> tuple[str, Any] | None:
    """Criterion and score of an item of a list of them; None for anything else."""
    if not isinstance(item, dict):
        return None
    names = [item[key] for key in _CRITERION_KEYS if isinstance(item.get(key), str)]
    scores = [item[key] for key in _SCORE_KEYS if key in item]
    return (names[0], scores[0]) if len(names) == len(scores) == 1 else None


def _plain_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's keys in lower case; a tuple, which no JSON holds, where one key has two different values."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        name = re.sub(r"[\s_-]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key.strip()).lower())
        values[name] = (values[name], value) if name in values and values[name] != value else value
    return values


def _whole(value: Any, highest: int) -> int | None:
    """A score as a whole number, None where it is none: a JSON value, or a match of a number with its scale."""
    if isinstance(value, dict):
        scores = [value[key] for key in _SCORE_KEYS if key in value]
        value = scores[0] if len(scores) == 1 else None
    if isinstance(value, str):
        value = _SCORE_ALONE.fullmatch(value)
    if isinstance(value, re.Match):
        if value["scale"] is not None and float(value["scale"]) != highest:
            return None
        value = float(value["value"])
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        return None
    return int(value) if value == int(value) else None
