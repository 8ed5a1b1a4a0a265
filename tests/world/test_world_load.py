"""What the packaged world promises, and what the loader refuses."""

import shutil
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from recipe.errors import InputError
from recipe.world.graph import World
from recipe.world.load import load_world

DOMAINS = {"cooking", "repair", "crafts", "gardening", "first_aid", "household"}

GOOD = """
[steps]
boil-water = "boil the water | heat the water | get the water hot"
add-leaves = "add the leaves | put the leaves in | spoon in the leaves"
pour-water = "pour the water | fill the pot | wet the leaves"
steep-tea = "steep the tea | let it draw | wait for the tea"
add-honey = "add honey | sweeten it | stir honey in"

[goals."make tea"]
steps = \"\"\"
boil-water
add-leaves
pour-water after boil-water, add-leaves
steep-tea after pour-water
add-honey? after steep-tea
\"\"\"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a small, correct world."""
    packaged = resources.files("recipe.world") / "goals" / "talk.toml"
    (tmp_path / "talk.toml").write_text(packaged.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "tea.toml").write_text(GOOD, encoding="utf-8")
    return tmp_path


def test_the_packaged_world_spans_six_domains(world: World) -> None:
    assert len(world.goals) >= 42
    per_domain = Counter(graph.domain for graph in world.goals.values())
    assert set(per_domain) == DOMAINS
    assert min(per_domain.values()) >= 7
    held_out = Counter(graph.domain for graph in world.goals.values() if graph.held_out)
    assert set(held_out) == DOMAINS
    assert 0.15 <= held_out.total() / len(world.goals) <= 0.25


def test_half_of_the_goals_have_optional_steps(world: World) -> None:
    assert sum(bool(graph.optional) for graph in world.goals.values()) > len(world.goals) / 2


def test_every_step_is_used_and_many_are_shared(world: World) -> None:
    uses = Counter(step for graph in world.goals.values() for step in graph.after)
    assert set(uses) == set(world.wordings)
    assert sum(count > 1 for count in uses.values()) >= 50


def test_an_optional_step_does_not_presuppose_another(world: World) -> None:
    """`tie the plant to the stake` would be nonsense where driving the stake was left out."""
    for graph in world.goals.values():
        for step in graph.optional:
            alone = graph.required | {step}
            assert graph.before(step, alone) <= graph.required


def test_a_folder_of_ones_own_can_be_loaded(folder: Path) -> None:
    own = load_world(folder)
    assert list(own.goals) == ["make tea"]
    graph = own.graph("make tea")
    assert graph.domain == "tea"
    assert graph.after["pour-water"] == ("boil-water", "add-leaves")
    assert graph.optional == {"add-honey"}


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("boil-water\nadd", "boil-water after steep-tea\nadd", "wait for each other"),
        ("steep-tea after pour-water", "steep-tea after pour-milk", "which the goal does not list"),
        ("steep-tea after pour-water", "steep-tee after pour-water", "no wordings"),
        ("steep-tea after pour-water", "steep-tea because pour-water", "cannot read the line"),
        ("steep-tea after pour-water", "add-leaves", "listed twice"),
        ("add-honey? after steep-tea\n", "", "has 4 steps"),
        ("steep-tea after", "steep-tea? after", "only 3 steps are required"),
        ("| get the water hot", "", "only 2 wordings"),
        ("get the water hot", "Get the water hot", "not in the agreed form"),
        ("get the water hot", "get the water hot.", "not in the agreed form"),
        ("get the water hot", "", "not in the agreed form"),
        ("get the water hot", "heat the water", "already belongs to 'boil-water'"),
        ("get the water hot", "wet the leaves", "already belongs to 'boil-water'"),
        ("boil-water =", "boil =", "is no step id"),
        ("boil-water =", "boil-water 1", "not valid TOML"),
        ('"boil the water | heat the water | get the water hot"', "3", "no text"),
        ("steps = ", "held = 1\nsteps = ", "unknown field 'held'"),
        ("steps = ", 'held_out = "no"\nsteps = ', "held_out is 'no'"),
        ("[steps]", "[wordings]\n[steps]", "unknown table 'wordings'"),
        ("steps = ", "held_out = true #", "the goal has no steps"),
    ],
)
def test_a_mistake_is_named_with_its_file(folder: Path, old: str, new: str, complaint: str) -> None:
    assert GOOD.count(old) >= 1
    text = GOOD.replace(old, new, 1)
    if complaint == "the goal has no steps":
        text = text.split("[goals.")[0] + '[goals."make tea"]\nheld_out = true\n'
    (folder / "tea.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=complaint) as caught:
        load_world(folder)
    assert str(caught.value).startswith("tea.toml")


def test_a_step_or_goal_may_not_exist_in_two_files(folder: Path) -> None:
    shutil.copy(folder / "tea.toml", folder / "again.toml")
    with pytest.raises(InputError, match="defined twice"):
        load_world(folder)
    (folder / "again.toml").write_text("[goals" + GOOD.split("[goals")[1], encoding="utf-8")
    with pytest.raises(InputError, match="exists already"):
        load_world(folder)


def test_talk_is_required_and_its_slots_are_checked(folder: Path) -> None:
    talk = folder / "talk.toml"
    good = talk.read_text(encoding="utf-8")
    talk.write_text(good.replace("so again, {step}", "so again"), encoding="utf-8")
    with pytest.raises(InputError, match="so again"):
        load_world(folder)
    talk.write_text(good.replace("joins =", "links ="), encoding="utf-8")
    with pytest.raises(InputError, match="'joins'"):
        load_world(folder)
    talk.unlink()
    with pytest.raises(InputError, match=r"talk\.toml: the file does not exist"):
        load_world(folder)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        load_world(tmp_path / "nowhere")


def test_an_unknown_goal_is_answered_with_near_ones(world: World) -> None:
    with pytest.raises(InputError, match="cook potato soup"):
        world.graph("cook a potato soup")
