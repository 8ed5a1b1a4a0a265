"""Names that were removed from the program: what happened to each, and what to use instead.

The only trace of them in the code. Whoever gives such a name gets its sentence in place of "unknown".
"""

from collections.abc import Mapping, Sequence

REMOVED: Mapping[str, str] = {
    "recipe corpus adapt": "rewards gained nothing from an adapted encoder; build the corpus with a general one "
    "(--encoder minilm)",
    "recipe corpus caption": "captions in place of speech gained nothing; build the corpus from the speech itself",
    "recipe reward audit --protocol": "leaving one source out is a script now; run benchmarks/lodo.py of the project",
    "grounded.language_model": "the order of steps by a language model gained nothing on average; leave it out",
    "grounded.model_order": "it was the weight of `language_model`, which was removed too; leave it out",
    "grounded.permutations": "it belonged to `language_model`, which was removed too; leave it out",
    "adaptation": "it belonged to `recipe corpus adapt`, from which rewards gained nothing; leave it out",
}
"""Keyed by what a user writes: a command, a command with an option or with an option and its value, a key of the
settings with its table, or a key with a value (`search=beam`)."""


def removed_setting(key: str, value: object = None) -> str | None:
    """The sentence for a dotted key, or for this value of it; None where neither was removed.

    The table may lie in other tables: `reward.grounded.x` is answered by `grounded.x`.

    >>> removed_setting("corpus.adaptation")[:44]
    "'corpus.adaptation' was removed: it belonged"
    """
    parts = key.split(".")
    for start in range(len(parts)):
        name = ".".join(parts[start:])
        for row, shown in ((name, key), (f"{name}={value}", f"{key}={value}")):
            if row in REMOVED:
                return f"{shown!r} was removed: {REMOVED[row]}."
    return None


def removed_option(command: str, words: Sequence[str]) -> str | None:
    """The sentence for the first removed command, option or value of an option among the words after `command`."""
    line = [word for given in words for word in (given.split("=", 1) if given.startswith("--") else [given])]
    for start in range(len(line)):
        for length in (1, 2):
            row = " ".join([command, *line[start : start + length]])
            if row in REMOVED:
                return f"`{row}` was removed: {REMOVED[row]}."
    return None
