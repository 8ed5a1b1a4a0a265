"""The classes of corrupted continuations by group; among them what policies were seen to write."""

from typing import Literal, get_args

Group = Literal["order", "content", "length", "repetition", "gaming"]
GROUPS: tuple[Group, ...] = get_args(Group)

_BY_GROUP: dict[Group, dict[str, str]] = {
    "order": {
        "shuffled": "the true steps in random order",
        "reversed": "the true steps backwards",
        "swap_adjacent": "two neighbouring true steps swapped",
    },
    "content": {
        "offgoal": "steps of another goal",
        "related": "steps of one of the three nearest goals",
        "near_ordered": "one of the three nearest goals from its beginning",
        "vague": "the true steps with vague words for their objects",
    },
    "length": {
        "empty": "no steps at all",
        "half": "the first half of the true steps",
        "missing_middle": "the true steps without the middle one",
        "merged": "true steps joined by “and”, all or in threes",
        "split": "one true step told in three lines",
        "true_plus_filler": "the true steps, then generic ones",
        "too_long": "the true steps, then as many of another goal",
    },
    "repetition": {
        "repeat_history": "the steps that are done, again",
        "copied_history": "all steps that are done, copied whole",
        "paraphrased_history": "the steps that are done, in other words",
        "repeat_last": "the last step that is done, over and over",
        "repeat_next": "the first true step, over and over",
        "doubled": "each true step said twice",
        "restarted": "a true beginning, then all true steps from the first",
    },
    "gaming": {
        "goal": "the goal as the only step",
        "goal_reworded": "the goal over and over in other words",
        "goal_generic": "the goal, then two generic endings",
        "goal_half": "the goal, then the first half of the true steps",
        "filler": "generic steps",
        "safe_steps": "steps that are right for any task",
    },
}
CORRUPTIONS = {name: meaning for members in _BY_GROUP.values() for name, meaning in members.items()}
"""All classes, in the order of every table, with what they put in place of the true steps."""
GROUP_OF = {name: group for group, members in _BY_GROUP.items() for name in members}
"""The group of each class."""
