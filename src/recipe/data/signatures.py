"""Whose annotations a JSON file holds, told from what is in it, so that a file in the wrong folder is named."""

from collections.abc import Callable


def publisher_of(value: object) -> str | None:
    """The benchmark that publishes JSON of this shape, by its name in `BENCHMARKS`; None where none does.

    One entry is looked at, so a file with a fault further on is still told.

    >>> publisher_of({"repot_0029": {"task": "repotting plant", "task_id": 4, "steps": []}})
    'niv'
    """
    if not isinstance(value, dict):
        return None
    return next((name for name, fits in _SHAPES.items() if fits(value)), None)


def _coin(value: dict[str, object]) -> bool:
    return _has(_entry(value.get("database")), "class", "annotation")


def _captaincook4d(value: dict[str, object]) -> bool:
    return _has(_entry(value), "recording_id", "steps")


def _niv(value: dict[str, object]) -> bool:
    return _has(_entry(value), "task", "steps")


def _egoexo4d(value: dict[str, object]) -> bool:
    return "taxonomy" in value or _has(_entry(value.get("annotations")), "scenario", "segments")


def _egoper(value: dict[str, object]) -> bool:
    return _has(_entry(value), "segments", "action2idx")


_SHAPES: dict[str, Callable[[dict[str, object]], bool]] = {
    "coin": _coin,
    "captaincook4d": _captaincook4d,
    "niv": _niv,
    "egoexo4d": _egoexo4d,
    "egoper": _egoper,
}


def _entry(value: object) -> object:
    return next(iter(value.values()), None) if isinstance(value, dict) else None


def _has(value: object, *fields: str) -> bool:
    return isinstance(value, dict) and all(field in value for field in fields)
