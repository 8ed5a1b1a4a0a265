"""Whether a text names the opposite of a step: "turn the water back on" of "turn off the water".

Encoders put opposites as near to each other as rewordings (docs/results/planning.md), so that words decide here. What
is known lies in `opposites.toml`: verbs with their particles, and states, of English. A text names one side of a pair
where it has a form of the verb, with the particle within the words behind it; "not" or "never" before it makes it the
other side. Two texts are opposites where each names one side alone, and not the same one, of the same thing: the words
behind both have one in common, or one has nothing but a pronoun there. A step's own verb makes a pair, too, with "not"
or with "un" before it.
"""

import re
import tomllib
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[.,;:!?]")
# Words behind a verb in which its particle is looked for.
_BEHIND = 5
# Words behind a verb in which the thing is named.
_THING = 7
# Words before a verb in which a negation turns it round.
_NEGATED = 3


class _Form(NamedTuple):
    """Words that name one side of a pair of opposites."""

    pair: int
    first: bool
    words: tuple[str, ...]
    around: bool
    """Of a state whose thing is named on either side of it."""
    state: bool
    """Whether its words stand together, in this form alone."""

    def stands(self, words: tuple[str, ...], at: int) -> bool:
        """Whether the form is at a place that holds its first word: whether its other words follow."""
        if self.state:
            return words[at : at + len(self.words)] == self.words
        rest = list(self.words[1:])
        for word in words[at + 1 : at + 1 + _BEHIND]:
            if not rest or word in _lexicon().breaks:
                break
            if word == rest[0]:
                del rest[0]
        return not rest


class _Mention(NamedTuple):
    """A place of a text that names one side of a pair; the pair of a step's own verb is the verb."""

    pair: int | str
    first: bool
    things: frozenset[str]


class _Lexicon(NamedTuple):
    """What `opposites.toml` knows, made ready."""

    forms: dict[str, list[_Form]]
    """By their first word."""
    verbs: dict[str, str]
    """The base of each form of a verb."""
    ignored: re.Pattern[str]
    breaks: frozenset[str]
    negations: frozenset[str]
    no_things: frozenset[str]
    no_verbs: frozenset[str]


def says_opposite(step: str, text: str) -> bool:
    """Whether a text names the opposite of a step, and nowhere the step's own side of that pair.

    >>> says_opposite("turn off the water", "so go ahead and turn the water back on")
    True
    >>> says_opposite("turn off the water", "turn the water on, wait, and turn it off")
    False
    >>> says_opposite("stir the rice", "do not stir it"), says_opposite("stir the rice", "don't forget to stir it")
    (True, False)
    """
    own, said, no_verbs = _words(step), _words(text), _lexicon().no_verbs
    verb = next((_stem(word) for word in own if word not in no_verbs), "")
    mentions = _mentions(text) + _of_verb(said, verb)
    of_step = _mentions(step) + _of_verb(own, verb)
    for pair in {mention.pair for mention in of_step}:
        sides = [mention for mention in of_step if mention.pair == pair]
        about = {
            mention.first
            for mention in mentions
            if mention.pair == pair
            and any(not mention.things or not side.things or mention.things & side.things for side in sides)
        }
        named = {side.first for side in sides}
        # One mention of the own side is enough: narrators name what not to do next to what to do.
        if len(named) == 1 and about and named.isdisjoint(about):  # a step that names both sides has no opposite
            return True
    return False


@lru_cache(maxsize=65_536)
def _words(text: str) -> tuple[str, ...]:
    """Words and signs, in lower case, without what only looks as if it named an opposite."""
    # "can't" first, of which "n't" would leave "ca not".
    plain = " ".join(_WORD.findall(text.lower().replace("’", "'").replace("can't", "can not").replace("n't", " not")))
    return tuple({"into": "in", "onto": "on"}.get(word, word) for word in _lexicon().ignored.sub(" ", plain).split())


@lru_cache(maxsize=65_536)
def _mentions(text: str) -> tuple[_Mention, ...]:
    """The sides of known pairs that a text names. Of forms at one place the longest counts: "pull out" is no "pull"."""
    lexicon, words, mentions = _lexicon(), _words(text), list[_Mention]()
    for at, word in enumerate(words):
        verb = lexicon.verbs.get(word, word)
        forms = [form for form in lexicon.forms.get(verb, ()) if form.stands(words, at)]
        longest = max((len(form.words) for form in forms), default=0)
        for form in forms:
            if len(form.words) == longest:
                things = _things(words, at, form.words, before=form.around)
                mentions.append(_Mention(form.pair, form.first != _is_negated(words, at), things))
    return tuple(mentions)


def _of_verb(words: tuple[str, ...], verb: str) -> tuple[_Mention, ...]:
    """Mentions of a step's own verb, by its stem: as it is, negated, or with "un" added or taken away."""
    mentions = []
    for at, word in enumerate(words):
        stem = _stem(word)
        if verb and (stem == verb or f"un{stem}" == verb or stem == f"un{verb}"):
            mentions.append(_Mention(verb, (stem == verb) != _is_negated(words, at), _things(words, at, (word,))))
    return tuple(mentions)


def _things(words: tuple[str, ...], at: int, form: tuple[str, ...], *, before: bool = False) -> frozenset[str]:
    """Stems of what the words behind a place name, up to the next break; with `before` also of the words before it."""
    lexicon, named = _lexicon(), list[str]()
    for way in (words[at + 1 : at + 1 + _THING], reversed(words[max(at - _THING, 0) : at]) if before else ()):
        for word in way:
            if word in lexicon.breaks:
                break
            named.append(word)
    return frozenset(_stem(word) for word in named if word not in lexicon.no_things and word not in form)


def _is_negated(words: tuple[str, ...], at: int) -> bool:
    for word in reversed(words[max(at - _NEGATED, 0) : at]):
        if word in _lexicon().breaks:
            return False
        if word in _lexicon().negations:
            return True
    return False


def _stem(word: str) -> str:
    """A word without the endings of its forms, enough to tell whether two are forms of one word.

    >>> _stem("stirring"), _stem("stirs"), _stem("slices") == _stem("slicing") == _stem("slice")
    ('stir', 'stir', True)
    """
    # The longest ending first; three letters stay, so that "sing" is not the verb "s".
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    # Of forms that double a consonant: "stirr" of "stirring" is "stir".
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


@cache
def _lexicon() -> _Lexicon:
    content: dict[str, Any] = tomllib.loads(files(__package__).joinpath("opposites.toml").read_text(encoding="utf-8"))
    forms: dict[str, list[_Form]] = {}
    verbs: dict[str, str] = {}
    for number, pair in enumerate(content["opposites"]):
        states = pair.get("states", "")
        for side in ("first", "second"):
            for entry in pair[side]:
                words = tuple(entry.split())
                form = _Form(number, side == "first", words, states == "around", bool(states))
                forms.setdefault(words[0], []).append(form)
                if not states:
                    verbs |= dict.fromkeys(_forms(words[0], content["irregular"]), words[0])
    # The longest first: of alternatives a pattern takes the first that matches.
    ignored = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(content['ignored'], key=len, reverse=True)))})\b")
    breaks, negations, no_things = (frozenset(content[name].split()) for name in ("breaks", "negations", "no_things"))
    return _Lexicon(forms, verbs, ignored, breaks, negations, no_things, no_things | breaks | negations)


def _forms(verb: str, irregular: dict[str, list[str]]) -> list[str]:
    """The forms of a verb, and some that no text has."""
    short = verb.removesuffix("e")
    forms = [
        verb,
        verb + "s",
        verb + "es",
        short + "ed",
        short + "ing",
        verb + verb[-1] + "ed",
        verb + verb[-1] + "ing",
    ]
    if verb.endswith("y"):
        forms += [verb[:-1] + "ied", verb[:-1] + "ies"]
    return forms + irregular.get(verb, [])
