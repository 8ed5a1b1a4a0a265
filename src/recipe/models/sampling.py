"""The decoding card: how a completion was sampled, every field with its value and with who set it."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from recipe.config.models import SamplingConfig
from recipe.errors import InputError
from recipe.rows import from_json

Checkpoint = Callable[[], Mapping[str, float]]
"""The sampling fields of a checkpoint's generation_config.json."""


class Setting(NamedTuple):
    """One field of a decoding card."""

    value: int | float | None
    """None where it is not known."""
    by: Literal["ours", "user", "checkpoint", "host"]
    """Who set it: this program, the user with `extra_body`, the checkpoint's generation_config.json, or the host, which
    refuses the field."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a completion was sampled; equal cards are one policy of one model."""

    temperature: Setting
    max_tokens: Setting
    top_p: Setting
    top_k: Setting
    """0 is off."""
    min_p: Setting
    repetition_penalty: Setting
    presence_penalty: Setting
    frequency_penalty: Setting

    def settings(self) -> dict[str, Setting]:
        """The fields by name, as JSON can hold them."""
        return {name: getattr(self, name) for name in _NAMES}

    def in_words(self) -> str:
        """All fields by who set them.

        >>> decoding_of(SamplingConfig(imitate="checkpoint", max_tokens=9)).in_words()[:53]
        'checkpoint: temperature unknown, top_p unknown, top_k'
        """
        by: dict[str, list[str]] = {}
        for name, (value, setter) in sorted(self.settings().items(), key=lambda item: item[1].by == "ours"):
            by.setdefault(setter, []).append(f"{name} {'unknown' if value is None else f'{value:g}'}")
        return "; ".join(f"{setter}: {', '.join(settings)}" for setter, settings in by.items())


_NAMES = tuple(field.name for field in fields(Decoding))
# The model's softmax at a temperature, and nothing else.
_PLAIN = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
CHECKPOINT_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What a generation_config.json may set."""


def decoding_of(
    sampling: SamplingConfig, checkpoint: Checkpoint | None = None, extra_body: Mapping[str, Any] | None = None
) -> Decoding:
    """The card that settings make.

    `checkpoint` is read where it is to be imitated; without it, as at an endpoint, its values are not known.
    `extra_body` are the user's own fields of a request. Raises InputError for one that is no number.
    """
    values: dict[str, Any] = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens} | _PLAIN
    card = {name: Setting(value, "ours") for name, value in values.items()}
    if sampling.imitate == "checkpoint":
        file = dict.fromkeys(CHECKPOINT_FIELDS) if checkpoint is None else checkpoint()
        card |= {name: Setting(value, "checkpoint") for name, value in file.items()}
        if sampling.temperature is not None:
            card["temperature"] = Setting(sampling.temperature, "ours")
        elif checkpoint is not None and "temperature" not in file:
            card["temperature"] = Setting(SamplingConfig().temperature, "ours")
    for name, value in (extra_body or {}).items():
        if name not in card:
            continue
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"model.extra_body: {name} is {value!r:.60}, no number; give one, or leave it out.")
        # vLLM takes -1 for off as well.
        card[name] = Setting(0 if name == "top_k" and value == -1 else value, "user")
    return Decoding(**card)


def read_decoding(raw: object) -> Decoding:
    """The card that `to_json` wrote. Raises InputError for anything else."""
    return _read(json.dumps(raw))


@functools.lru_cache(maxsize=64)  # all rows of a file hold the same few
def _read(text: str) -> Decoding:
    card = from_json(json.loads(text), Decoding, "decoding")
    if any(setting == (None, "ours") for setting in card.settings().values()):
        raise InputError("decoding: a value of ours is missing; give it.")
    return card


def distinct_decodings(cards: Iterable[Decoding | None]) -> tuple[Decoding, ...]:
    """The different cards of some plans, in order; empty where any plan has none, since its sampling is not known."""
    distinct = tuple(dict.fromkeys(cards))
    return () if None in distinct else tuple(card for card in distinct if card is not None)


def decoding_note(first: tuple[Decoding, ...], second: tuple[Decoding, ...], names: tuple[str, str]) -> str | None:
    """A sentence where two systems were not sampled alike, or where that is not known; None where they were."""
    if lacking := [name for name, cards in zip(names, (first, second), strict=True) if not cards]:
        return f"How {' and '.join(lacking)} {'was' if len(lacking) == 1 else 'were'} sampled is not known."
    held = [{name: {getattr(card, name).value for card in cards} for name in _NAMES} for cards in (first, second)]
    unknown = [name for name in _NAMES if any(None in side[name] for side in held)]
    differing = [name for name in _NAMES if name not in unknown and held[0][name] != held[1][name]]
    said = [
        f"{name} ({' and '.join('/'.join(f'{value:g}' for value in sorted(side[name])) for side in held)})"
        for name in differing
    ]
    parts = [f"differ in {', '.join(said)}"] if said else []
    parts += [f"may differ in {', '.join(unknown)}, not known of both"] if unknown else []
    return f"{names[0]} and {names[1]} were not sampled alike: they {' and '.join(parts)}." if parts else None
