"""Names that were removed from the program: what happened to each, and what to use instead.

The only trace of them in the code. Whoever gives such a name gets its sentence in place of "unknown".
"""

from collections.abc import Mapping, Sequence

REMOVED: Mapping[str, str] = {
    "recipe corpus adapt": "rewards gained nothing from an adapted encoder; build the corpus with a general one "
    "(--encoder minilm)",
    "recipe corpus caption": "captions in place of speech gained nothing; build the corpus from the speech itself",
    "recipe reward audit --protocol": "leaving one source out is a script now; run benchmarks/lodo.py of the project",
    "GroundedConfig.language_model": "the order of steps by a language model gained nothing on average; leave it out",
    "GroundedConfig.model_order": "it was the weight of `language_model`, which was removed too; leave it out",
    "GroundedConfig.permutations": "it belonged to `language_model`, which was removed too; leave it out",
    "RewardConfig.frames": "frames as evidence gained nothing in the reward; leave the table out",
    "recipe reward explain --videos": "it belonged to frames as evidence, from which the reward gained nothing",
}
"""Keyed by what a user wrote: a command; a command with an option, or with an option and its value; a class of settings
with a key, or with a key and its value (`SearchConfig.search=beam`)."""


def removed_setting(table: str, key: str, value: object = None) -> str | None:
    """What happened to a key of a class of settings, or to this value of it; None where neither was removed.

    >>> removed_setting("GroundedConfig", "permutations")
    'it belonged to `language_model`, which was removed too; leave it out'
    """
    return REMOVED.get(f"{table}.{key}") or REMOVED.get(f"{table}.{key}={value}")


def removed_option(command: str, words: Sequence[str]) -> str | None:
    """The sentence for the first removed command, option or value of an option among the words after `command`."""
    line = [word for given in words for word in (given.split("=", 1) if given.startswith("--") else [given])]
    for start in range(len(line)):
        for length in (1, 2):
            row = " ".join([command, *line[start : start + length]])
            if row in REMOVED:
                return f"`{row}` was removed: {REMOVED[row]}."
    return None
