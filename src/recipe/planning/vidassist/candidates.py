"""From proposals in free words to candidates: admissible actions, each once."""

from collections.abc import Callable, Sequence

from recipe.planning.admissible import AdmissibleActions, Mapped
from recipe.planning.vidassist.state import Candidate, Proposal, State

ActionsOf = Callable[[str], AdmissibleActions]
"""The admissible actions of a goal; the same for all goals unless the setting limits them to the goal's card."""


def candidates_of(
    states: Sequence[State], proposals: Sequence[Sequence[Proposal]], actions: ActionsOf
) -> list[list[Candidate]]:
    """The candidates of each state, in the order in which they were first proposed; proposals of one action are merged.

    Proposals without an action make no candidate.
    """
    asked: dict[int, tuple[AdmissibleActions, list[str]]] = {}
    for state, group in zip(states, proposals, strict=True):
        known = actions(state.goal)
        asked.setdefault(id(known), (known, []))[1].extend(one.text for one in group if one.text)
    for known, texts in asked.values():  # all at once: each is kept, and read from there below
        known.map(texts)
    return [_merged(group, actions(state.goal)) for state, group in zip(states, proposals, strict=True)]


def _merged(proposals: Sequence[Proposal], actions: AdmissibleActions) -> list[Candidate]:
    told = [one for one in proposals if one.text]
    groups: dict[str, list[tuple[Proposal, Mapped]]] = {}
    for proposal, mapped in zip(told, actions.map([one.text for one in told]), strict=True):
        groups.setdefault(mapped.action, []).append((proposal, mapped))
    return [
        Candidate(action, tuple(one for one, _ in group), tuple(mapped for _, mapped in group))
        for action, group in groups.items()
    ]
