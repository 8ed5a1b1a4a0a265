"""Marks in captions of what nobody says: sounds, music, and the names of those who speak."""

import re
from collections import Counter
from collections.abc import Sequence

# Most captions hold none of these, and one search is all that they cost.
_MAY_HOLD = re.compile(r"[\[(*♩♪♫♬>:：]")
# Without digits: "[2] spoons" is said.
_SQUARE = re.compile(r"\[[^\[\]\d]{0,60}\]")
_ROUND = re.compile(r"\(([^()]{1,60})\)|\*([^*]{1,60})\*")
_SOUND = re.compile(
    r"\b(music|applau\w*|clap(s|ping)|cheer(s|ing)|laugh\w*|chuckl\w*|giggl\w*|sigh(s|ing)?|gasp(s|ing)?|cough(s|ing)?"
    r"|sneez\w*|sniff(s|ing)?|grunt(s|ing)?|groan(s|ing)?|hum(s|ming)|sing(s|ing)|whistl(es|ing)|bark(s|ing)|silence"
    r"|inaudible|indistinct|unintelligible|crosstalk|foreign|noises?|sizzl\w*|beep(s|ing)?|buzz(es|ing)?|whoosh\w*"
    r"|chatter(s|ing)?|speak(s|ing)|bell rings|clears throat|no audio)\b",
    re.IGNORECASE,
)
_SONG = re.compile(r"[♩♪♫♬][^♩♪♫♬]*[♩♪♫♬]")
_NOTES = re.compile(r"[♩♪♫♬]+")
# Two signs or more: one alone may be a comparison.
_TURN = re.compile(r"(?:^|\s)>{2,}\s*")
_SPEAKER = re.compile(
    r"[\[(]\s*sp(?:ea)?k(?:er)?[ _-]?(?:\d+|[A-Z])\s*[\])]\s*:?|(?:^|\s)sp(?:ea)?k(?:er)?_\d+\s*:(?=\s)", re.IGNORECASE
)
_USUAL = re.compile(
    r"^\s*(?:[-\u2013\u2014*]\s*)?(?:unknown speaker|narrator|host|presenter|interviewer|announcer|instructor|man|woman"
    r"|voice-?over|(?:speaker|sprecher(?:in)?|orateur|locuteur|intervenant|hablante|orador|falante|parlante|relatore"
    r"|spreker|talare|спикер|说话人|說話人|发言人|發言人|話者|スピーカー|화자)[ _-]?(?:\d+|[A-Z]\b))(?: \d+)?"
    r"\s*(?::\s+|：\s*)",
    re.IGNORECASE,
)
# JOHN, DR. SMITH, MARY-ANN 2.
_CAPITALS = re.compile(r"^\s*([A-Z][A-Z.'-]{2,}(?: [A-Z][A-Z.'-]*){0,2}(?: \d)?)\s*:\s+(?=\S)")
# First words of labels that name no speaker.
_LABEL_WORDS = """also amount answer attention aufgabe bonus caution chapter challenge cons danger day diy episode
    equipment example exercise faq final finally first fun fyi goal here hint idea important ingredient ingredients
    instruction instructions item key last later lesson level material materials method minute mistake myth next no
    note notice now one option optional part phase please plus point problem procedure pros question quick quote
    reason recap recipe remember reminder result rule second section serving servings size so solution stage start
    step stop summary supplies task technique then third time tip tips title today tool tools top topic total trick
    two use version video warning watch ways website what when why yes yield you achtung anleitung frage hinweis merke
    schritt tipp warnung zutaten astuce conseil ingrédients remarque étape consejo ingredientes nota paso atenção dica
    passo consiglio ingredienti 注意 提示 步骤"""
_LABELS = frozenset(_LABEL_WORDS.split())
# A name before a colon, with a dash before it, a role behind it or brackets around it.
_HEAD = re.compile(
    r"\s*(?:(?:[-\u2013\u2014*\u2022]|>{2,})\s*)?(?P<open>[\[(])?\s*"
    r"(?P<name>(?:(?:Dr|Mr|Mrs|Ms|Prof|St)\. )?[^\W\d_][\w'\u2019.-]*(?: (?:&|[\w'\u2019.-]+)){0,3}?)"
    r"(?:\s*\([^()\d]{1,30}\))?\s*(?(open)[\])])\s*(?::\s+|：\s*)(?=\S)"
)
_NAME = re.compile(r"(?:[A-ZÀ-ÞА-Я][\w'\u2019.-]*|de|da|van|von|der|del|la|le|al|bin|&|\d+)(?: |$)")
_AMOUNT = re.compile(r"\d|(?:one|two|three|four|five|six|eight|ten|half)\b", re.IGNORECASE)
# Share of captions with a head from which a file is one that names its speakers.
_SHARE = 0.8


def without_marks(text: str) -> str:
    """What is said in a caption, without non-speech marks; empty where nothing is. Nobody says them in the video.

        [Music] [ __ ] [speaks Dutch]    square brackets without a digit, which subtitles keep for what is not said
        (applause) *music* (soft music)  round brackets and asterisks, where at most six words hold one for a sound
        ♪ la la ♪  ♪                     song between two notes, and single notes
        >> JOHN: Now stir.               a change of speaker, and the name of a speaker in capitals
        Narrator: Now stir.              the usual names of speakers in any case, `Speaker 2:` and `SPEAKER_02:`
        [SPEAKER_02]: Now stir.          the same in brackets, as speech recognisers write it, anywhere in a caption

    A label in capitals is no name where the whole caption is in capitals, or where it is a word such as TIP or STEP.

    >>> without_marks("[Music] now stir (laughs) the tea ♪"), without_marks(">> ANNA: Stir it.")
    ('now stir the tea', 'Stir it.')
    >>> without_marks("add water (two cups): stir"), without_marks("TIP: use [2] spoons")
    ('add water (two cups): stir', 'TIP: use [2] spoons')
    """
    if not _MAY_HOLD.search(text):
        return text
    plain = _SQUARE.sub(" ", _SPEAKER.sub(" ", text))
    plain = _ROUND.sub(_kept, plain)
    plain = _NOTES.sub(" ", _SONG.sub(" ", plain))
    plain = _TURN.sub(" ", plain)
    if plain != text:
        plain = plain.lstrip(" :,-") if plain[:1] == " " else plain
    # A speaker's name at the beginning.
    if usual := _USUAL.match(plain):
        plain = plain[usual.end() :]
    elif (name := _CAPITALS.match(plain)) and name[1].split()[0].casefold() not in _LABELS:
        plain = plain if plain[name.end() :].isupper() else plain[name.end() :]
    if plain == text:
        return text
    plain = " ".join(plain.split())
    return plain if any(character.isalnum() for character in plain) else ""


def _kept(brackets: re.Match[str]) -> str:
    """The brackets as they stand, or a space where they hold a sound."""
    inside = brackets[1] or brackets[2]
    return " " if len(inside.split()) <= 6 and _SOUND.search(inside) else brackets[0]


def speakers(texts: Sequence[str]) -> frozenset[str]:
    """The names before a colon at the beginning of captions that are those of speakers, by all captions of a narration.

    `Tom: Now stir.` names a speaker, `Butter: two spoons.` does not, and one caption cannot tell. Where most captions
    begin with a name, and names return, all of them are speakers. Elsewhere a name returns, is written as one, begins
    no list of amounts, is no word of speech, and is of two words, or comes three times, or many captions have names.
    """
    heads = [head for text in texts if (":" in text or "：" in text) and (head := _head(text))]
    counts = Counter(name for name, _ in heads)
    # No name returns, and one caption cannot tell.
    if len(counts) == len(heads):
        return frozenset()
    if len(heads) >= _SHARE * len(texts) and 2 * len(counts) <= len(heads):
        return frozenset(counts)
    said = {word for text in texts for word in re.findall(r"\b[^\W\d_A-Z]\w+", text)}
    amounts = Counter(name for name, rest in heads if _AMOUNT.match(rest))
    names = {
        name: n
        for name, n in counts.items()
        # More than half of them with amounts behind: a list of ingredients.
        if n > max(1, 2 * amounts[name])
        and "".join(_NAME.findall(name)) == name
        and not {word.casefold() for word in name.split()} <= said
    }
    many = len(names) > 1 or 2 * len(heads) >= len(texts)
    return frozenset(name for name, n in names.items() if many or " " in name or n > 2)


def without_speaker(text: str, names: frozenset[str]) -> tuple[str, str]:
    """What is said in a caption, and the speaker that it names, one of `names`, or an empty text."""
    head = _head(text)
    return (head[1], head[0]) if head and head[0] in names else (text, "")


def _head(text: str) -> tuple[str, str] | None:
    """What stands before the colon of a caption and may be a name, and what is said; None for a caption without."""
    match = _HEAD.match(text)
    known = match is not None and match["name"].split()[0].casefold().strip(".") in _LABELS
    return (match["name"], text[match.end() :]) if match and not known else None
