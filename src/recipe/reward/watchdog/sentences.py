"""Findings in words: what is so, how much, since when, what it may mean, and what to do."""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Shown(NamedTuple):
    """The figures of a finding."""

    before: float
    """Over the first steps; the same as `now` where only the level counts."""
    now: float
    """Over the latest steps."""
    slope: float = 0.0
    """Change a step, lately."""
    beside: Mapping[str, "Shown"] = {}
    """What goes on at the same time."""


def _length(since: int, shown: Shown) -> str:
    pace = f", lately by {shown.slope:+.2f} a step" if shown.slope > 0 else ""
    return (
        f"Plans grew from {shown.before:.1f} to {shown.now:.1f} steps ({_relative(shown)}{pace}) since step {since}: "
        "the reward may pay for length rather than for what is said; read the newest completions, and stop earlier, "
        "raise beta, or take a verifier that charges for length."
    )


def _shrunk(since: int, shown: Shown) -> str:
    return (
        f"Plans shrank from {shown.before:.1f} to {shown.now:.1f} steps ({_relative(shown)}) since step {since}: "
        "saying little may be safer than being right; read the newest completions, and see what the first "
        "half of a plan and an empty one are paid."
    )


def _copied(since: int, shown: Shown) -> str:
    return (
        f"{_percent(shown.now)} of all steps planned are copied from the history, {_percent(shown.before)} at first, "
        f"since step {since}: the reward may pay for what is done already; see what the history is paid as a plan."
    )


def _repeated(since: int, shown: Shown) -> str:
    return (
        f"{_percent(shown.now)} of all steps planned repeat an earlier step of their plan, {_percent(shown.before)} at "
        f"first, since step {since}: the reward may pay for saying a step twice; see what a plan with every step "
        "doubled is paid."
    )


def _bought(since: int, shown: Shown) -> str:
    return (
        f"The reward rose from {shown.before:.3f} to {shown.now:.3f} since step {since} while "
        f"{' and '.join(_BESIDE[name](one) for name, one in shown.beside.items())}: it may be the verifier that is "
        "learnt and not planning; measure plans by something else before you go on, or stop at an earlier checkpoint."
    )


def _length_pay(since: int, shown: Shown) -> str:
    return (
        f"Among completions of one prompt, reward and length go together (correlation {shown.now:+.2f}) since step "
        f"{since}: more steps earn more, whatever they say, unless plans are far too short; expect plans to grow, and "
        "watch whether they outgrow the true continuations."
    )


def _clipped(since: int, shown: Shown) -> str:
    return (
        f"{_percent(shown.now)} of completions end at the token limit since step {since}: their last step is cut, and "
        "it is the limit that keeps them short; raise max_completion_tokens, or find out why they grow."
    )


def _gated(since: int, shown: Shown) -> str:
    return (
        f"{_percent(shown.now)} of completions fall below the gate since step {since}: nearly all that is learnt from "
        "are penalties; check that the corpus covers these goals, or lower tau."
    )


def _still(since: int, shown: Shown) -> str:
    return (
        f"In {_percent(shown.now)} of the groups all completions earn the same since step {since}: such groups teach "
        "nothing; sample at a higher temperature, take larger groups, or leave out prompts that are decided."
    )


SENTENCES: Mapping[str, Callable[[int, Shown], str]] = {
    "bought": _bought,
    "length": _length,
    "shrunk": _shrunk,
    "copied": _copied,
    "repeated": _repeated,
    "length_pay": _length_pay,
    "clipped": _clipped,
    "gated": _gated,
    "still": _still,
}
"""Signals, the most important first, with their sentences."""

_BESIDE: Mapping[str, Callable[[Shown], str]] = {
    "length": lambda shown: f"plans grew by {_relative(shown).lstrip('+')}",
    "copied": lambda shown: f"copies of the history rose to {_percent(shown.now)}",
    "repeated": lambda shown: f"repeats rose to {_percent(shown.now)}",
}


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _relative(shown: Shown) -> str:
    return f"{100 * (shown.now / shown.before - 1):+.0f}%"
