"""Non-speech marks in captions: sounds, music, and who speaks. Nobody says them in the video, so no step is like them.

Removed are

    [Music] [ __ ] [speaks Dutch]    square brackets without a digit, which subtitles keep for what is not said
    (applause) *music* (soft music)  round brackets and asterisks, where at most six words hold one for a sound
    ♪ la la ♪  ♪                     song between two notes, and single notes
    >> JOHN: Now stir.               a change of speaker, and the name of a speaker in capitals
    Narrator: Now stir.              the usual names of speakers in any case, `Speaker 2:` and `SPEAKER_02:`
    [SPEAKER_02]: Now stir.          the same in brackets, as speech recognisers write it, anywhere in a caption

A label in capitals is no name where the whole caption is in capitals, or where it is a word such as TIP or STEP.
"""

import re

_MAY_HOLD = re.compile(r"[\[(*♩♪♫♬>]|:")
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
_TURN = re.compile(r"(?:^|\s)>{2,}\s*")
_SPEAKER = re.compile(r"[\[(]\s*speaker[ _-]?(?:\d+|[A-Z])\s*[\])]\s*:?|(?:^|\s)speaker_\d+\s*:(?=\s)", re.IGNORECASE)
_USUAL = re.compile(
    r"^\s*(speaker[ _-]?(?:\d+|[A-Z]\b)|narrator|host|presenter|interviewer|announcer|instructor|voice-?over|man|woman)"
    r"( \d+)?\s*:\s+",
    re.IGNORECASE,
)
_CAPITALS = re.compile(r"^\s*([A-Z][A-Z.'-]{2,}(?: [A-Z][A-Z.'-]*){0,2}(?: \d)?)\s*:\s+(?=\S)")
_LABELS = {
    "ALSO", "CAUTION", "DANGER", "DIY", "FAQ", "FYI", "HINT", "IMPORTANT", "INGREDIENTS", "MATERIALS", "METHOD", "NOTE",
    "OPTIONAL", "PART", "REMEMBER", "STEP", "SUPPLIES", "TIP", "TIPS", "TOOLS", "WARNING", "YOU",
}  # fmt: skip
"""First words of labels in capitals that name no speaker."""


def without_marks(text: str) -> str:
    """What is said in a caption, without non-speech marks; empty where nothing is.

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
    plain = _without_speaker(plain)
    if plain == text:
        return text
    plain = " ".join(plain.split())
    return plain if any(character.isalnum() for character in plain) else ""


def _kept(found: re.Match[str]) -> str:
    """The brackets as they stand, or a space where they hold a sound."""
    inside = found[1] or found[2]
    return " " if len(inside.split()) <= 6 and _SOUND.search(inside) else found[0]


def _without_speaker(text: str) -> str:
    """The text without a speaker's name at its beginning."""
    if usual := _USUAL.match(text):
        return text[usual.end() :]
    name = _CAPITALS.match(text)
    if name is None or name[1].split()[0] in _LABELS or text[name.end() :].isupper():
        return text
    return text[name.end() :]
