"""The package from Python: public names, whole commands in a call, errors in words, and what notebooks show."""

import contextlib
import copy
import io
import pydoc
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import recipe
from recipe.artifacts import write_jsonl
from recipe.audit.measure import Extent
from recipe.config import EncoderConfig, GroundedConfig
from recipe.data.procedures import write_procedures
from recipe.errors import ConfigError, InputError
from recipe.explain.explain import explain
from recipe.models.protocol import ReplayEngine
from recipe.prompting import PLAIN
from recipe.types import Narration, Procedure, Segment, Step
from recipe.world.load import load_world
from recipe.world.narrator import narrate

pytest.importorskip("numba", reason="corpus search needs numba")

TALKS = {
    "tea": ["boil the water", "[Music]", "warm the pot", "add the <b>tea</b> leaves", "pour the water", "serve"],
    "tyre": ["lift the car", "take the wheel off", "patch the tube", "pump it up", "put the wheel on"],
    "eggs": ["crack two eggs", "whisk the eggs", "melt butter", "pour the eggs", "fold the omelette"],
    "shelf": ["measure the wall", "drill two holes", "fix the brackets", "lay the board", "check the level"],
}
HISTORY, GOAL = ["boil the water", "warm the pot"], "make tea"
TEA, TYRE = ["add the tea leaves", "pour the water"], ["patch the tube", "pump it up"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> recipe.Corpus:
    folder = tmp_path_factory.mktemp("python")
    for name, said in TALKS.items():
        cues = (f"{n}\n00:00:{n:02d},000 --> 00:00:{n + 1:02d},000\n{text}\n" for n, text in enumerate(said, start=1))
        (folder / f"{name}.srt").write_text("\n".join(cues))
    (folder / "titles.tsv").write_text("tea\tMake <i>tea</i>\n")
    files = [folder / f"{name}.srt" for name in TALKS]
    return recipe.build_corpus(files, str(folder / "corpus"), encoder="hash:64", titles=folder / "titles.tsv")


def test_help_and_completion_show_the_public_names_only() -> None:
    assert set(dir(recipe)) <= set(recipe.__all__)
    assert all(getattr(recipe, name) is not None for name in dir(recipe))
    text = pydoc.plain(pydoc.render_doc(recipe))
    shown = text.partition("CLASSES")[2]
    for name in ("Corpus", "Verifier", "build_corpus", "plan", "audit_rewards"):
        assert name in shown
    for name in ("TYPE_CHECKING", "import_module", "_HOMES", "__getattr__"):
        assert not re.search(rf"^    {name}\b", text, re.MULTILINE)


def test_a_corpus_is_built_opened_and_searched(corpus: recipe.Corpus) -> None:
    assert len(corpus) == len(TALKS)
    assert corpus.manifest["read"]["only_marks"] == 1
    home = corpus.folder.parent
    files = [home / f"{name}.srt" for name in TALKS]
    encoder = EncoderConfig(name="hash:64")
    again = recipe.build_corpus(files, corpus.folder, encoder=encoder, titles=home / "titles.tsv")
    assert again.manifest["id"] == corpus.manifest["id"]
    hits = corpus.search(["patch the tube", "pump it up"], k=2)
    assert corpus.narration(hits[0].narration).video_id == "tyre"


def test_narrations_as_values_are_told_where_they_belong(tmp_path: Path) -> None:
    said = [Narration("v", (Segment("stir"),))]
    with pytest.raises(InputError, match=r"recipe\.corpus\.build\.build_corpus"):
        recipe.build_corpus(said, tmp_path / "corpus")  # type: ignore[arg-type]
    assert not (tmp_path / "corpus").exists()


def test_narrations_are_looked_up_by_video_id(corpus: recipe.Corpus) -> None:
    for index, name in enumerate(TALKS):
        assert corpus.find(name) == index
        assert corpus.narration(name) == corpus.narration(index)
    with pytest.raises(InputError, match=r"'tyres'.*'tyre'"):
        corpus.narration("tyres")
    with pytest.raises(IndexError):
        corpus.narration(len(TALKS))


@pytest.mark.parametrize(
    "steps", ["boil the water", b"boil", ["a", ["b"]], [["a"], ["b"]], None, 3, [1], ["a", " "], []]
)
def test_a_search_takes_a_list_of_texts(corpus: recipe.Corpus, steps: Any) -> None:
    with pytest.raises(InputError, match=r"(?i)step"):
        corpus.search(steps)


@pytest.mark.parametrize(
    "wrong",
    [
        {"history": "boil the water"},
        {"history": [["boil the water"]]},
        {"continuations": TEA},
        {"continuations": "pour"},
        {"continuations": [[TEA]]},
        {"continuations": recipe.Plan(tuple(TEA))},
        {"goal": ["make tea"]},
    ],
)
def test_texts_steps_and_plans_are_told_apart(corpus: recipe.Corpus, wrong: dict[str, Any]) -> None:
    given = {"goal": GOAL, "history": HISTORY, "continuations": [TEA]} | wrong
    with pytest.raises(InputError, match=r"list of|one text"):
        recipe.Verifier(corpus).score(**given)


def test_plans_are_scored_as_their_steps(corpus: recipe.Corpus) -> None:
    verifier = recipe.Verifier(corpus)
    as_plans = [recipe.Plan(tuple(TEA)), recipe.Plan(tuple(TYRE))]
    found = verifier.score(goal=GOAL, history=HISTORY, continuations=as_plans)
    assert found == verifier.score(goal=GOAL, history=HISTORY, continuations=[TEA, TYRE])
    explained = explain(verifier, goal=GOAL, history=HISTORY, continuation=as_plans[0])
    assert explained.continuation == tuple(TEA)


def test_the_order_of_prompt_and_plans_cannot_be_mixed_up(corpus: recipe.Corpus) -> None:
    score: Any = recipe.Verifier(corpus).score
    with pytest.raises(TypeError, match="positional"):
        score(GOAL, HISTORY, [TEA])


def test_a_path_is_no_corpus(corpus: recipe.Corpus) -> None:
    wrong: Any
    for wrong in (str(corpus.folder), corpus.folder):
        with pytest.raises(InputError, match=r"Corpus\.open"):
            recipe.Verifier(wrong)
        with pytest.raises(InputError, match=r"Corpus\.open"):
            recipe.audit_rewards(wrong, [])
    name: Any = "grounded"
    with pytest.raises(InputError, match="RewardConfig"):
        recipe.Verifier(corpus, name)


def test_reprs_are_one_line_and_html_is_escaped(corpus: recipe.Corpus) -> None:
    verifier = recipe.Verifier(corpus, recipe.RewardConfig(verifier="grounded"))
    [reward] = verifier.score(goal=GOAL, history=HISTORY, continuations=[TEA])
    explanation = explain(verifier, goal="<script>", history=HISTORY, continuation=["<em>pour</em>", *TEA])
    hits = corpus.search(HISTORY)
    for shown, fact in (
        (corpus, "4 narrations"),
        (hits, "tea"),
        (reward, f"total {reward.total:.3f}"),
        (explanation, "reward "),
    ):
        assert fact in repr(shown)
        assert "\n" not in repr(shown)
        assert len(repr(shown)) < 300
        html = shown._repr_html_()  # type: ignore[attr-defined]
        assert html.startswith("<table>")
        assert not any(tag in html for tag in ("<script>", "<em>", "<i>", "<b>"))
    assert "Make &lt;i&gt;tea" in hits._repr_html_()
    assert f"{reward.parts['gain']:.3f}" in reward._repr_html_()
    assert "corpus has 4" in corpus._repr_html_()
    assert repr(corpus.search(HISTORY, k=1)).startswith("<1 hit:")
    assert hits == list(hits)
    assert copy.copy(hits) == hits


def told(goal: str, *histories: Sequence[str]) -> ReplayEngine:
    """A model that plans another goal, writes no plan, and plans tea, over and over."""
    texts = ["1. patch the tube\n2. pump it up", " ", "1. add the tea leaves\n2. pour the water"] * 3
    return ReplayEngine.record([PLAIN.chat(goal, history) for history in histories], [texts] * len(histories))


def test_plans_come_as_sampled_or_the_best_first(corpus: recipe.Corpus) -> None:
    engine = told(GOAL, HISTORY)
    tyre, tea = recipe.plan(engine, goal=GOAL, history=HISTORY, count=3)
    assert (tyre.steps, tea.steps) == (tuple(TYRE), tuple(TEA))
    small = GroundedConfig(pool_size=1, background_size=3)
    verifier = recipe.Verifier(corpus, recipe.RewardConfig(verifier="grounded", grounded=small))
    assert recipe.plan(engine, goal=GOAL, history=HISTORY, count=3, scorer=verifier) == [tea, tyre]
    with pytest.raises(InputError, match="list of texts"):
        recipe.plan(engine, goal=GOAL, history="boil the water")


def test_a_model_is_opened_by_its_folder(tiny_model: Path) -> None:
    plans = recipe.plan(tiny_model, goal="make tea", count=2)
    assert all(isinstance(one, recipe.Plan) and one.steps for one in plans)
    assert recipe.plan(str(tiny_model), goal="make tea", count=2) == plans
    with pytest.raises(InputError, match="no-such-model"):
        recipe.plan(tiny_model / "no-such-model", goal="make tea")


def test_an_audit_takes_names_settings_and_procedures(corpus: recipe.Corpus, tmp_path: Path) -> None:
    procedures = [
        Procedure("own", f"{name} done", f"the {name}", tuple(Step(text) for text in said if text[0] != "["), "test")
        for name, said in TALKS.items()
    ]
    procedures += [replace(procedure, video_id=f"{procedure.video_id} again") for procedure in procedures[:5]]
    write_procedures(tmp_path / "tasks.jsonl", procedures)
    verifiers = ["paper", recipe.RewardConfig(verifier="grounded")]
    found = [
        recipe.audit_rewards(corpus, given, verifiers=verifiers, extent=Extent(attacked=0))
        for given in (procedures, tmp_path / "tasks.jsonl", str(tmp_path / "tasks.jsonl"))
    ]
    assert {one.name for one in found[0].rewards} == {"paper", "grounded", "length", "relevance"}
    assert found[0].findings[0].startswith("grounded: ")
    assert "corpus has 4" in found[0].findings[0]
    assert [one.rewards[0].mean for one in found] == [found[0].rewards[0].mean] * 3
    with pytest.raises(ConfigError, match="verifier"):
        recipe.audit_rewards(corpus, procedures, verifiers=["groundd"])


def test_the_page_shows_what_its_code_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = load_world()
    write_jsonl(tmp_path / "narrations.jsonl", map(asdict, narrate(world, 300)))
    tasks = [
        Procedure("world", goal, goal, tuple(Step(world.wordings[step][0]) for step in graph.steps))
        for goal, graph in list(world.goals.items())[:5]
    ]
    write_procedures(tmp_path / "tasks.jsonl", tasks)
    goal, history = "brew a pot of tea", ["boil the water", "warm the teapot"]
    model = told(goal, *(history[:done] for done in range(3)))
    for module in ("recipe.api", "recipe.models.model"):
        monkeypatch.setattr(f"{module}.open_model", lambda config: model)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    pairs = re.findall(r"^```python\n(.*?)^```$(?:\n\n^```\n(.*?)^```$)?", page, re.MULTILINE | re.DOTALL)
    printed = [run(code, names) for names in [dict[str, Any]()] for code, _ in pairs]
    assert [text for text, (_, shown) in zip(printed, pairs, strict=True) if shown] == [
        shown for _, shown in pairs if shown
    ]
    assert len(pairs) == 6
    assert "('add the tea leaves', 'pour the water')" in printed[2]
    assert "grounded" in printed[4]


def run(code: str, names: dict[str, Any]) -> str:
    """What the code prints; its names stay in `names`."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    return printed.getvalue()
