"""The self-trained reward: its numbers, its nets, its pseudo-prompts, its folder, its test and its command."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import built_corpus
from tests.world.lists import step_lists
from typer.testing import CliRunner

from recipe.audit.perturb import AuditPrompt, build_prompts, select
from recipe.cli import app
from recipe.config import GroundedConfig, RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import ConfigError, EncoderMismatch, InputError, RecipeError
from recipe.explain.explain import as_row, explain, in_words
from recipe.explain.page import render_page
from recipe.explain.records import Links
from recipe.mining import self_training
from recipe.mining.pseudo_prompts import PartOfCorpus, edited_plans, other_words, pseudo_procedures
from recipe.mining.self_training import (
    Gate,
    GateRow,
    PseudoSet,
    Trained,
    compute_numbers,
    pseudo_set,
    rewards_of,
    self_train,
)
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.reward import self_trained as module
from recipe.reward.grounded import grounded_terms
from recipe.reward.scorer import PromptGroup
from recipe.reward.self_trained import (
    CARD,
    WEIGHTS,
    Nets,
    PositionModel,
    SelfTrained,
    base_settings,
    card_of,
    train_nets,
)
from recipe.reward.verifier import Verifier
from recipe.stats import Interval
from recipe.types import Narration, Reward, Segment
from recipe.world.load import load_world
from recipe.world.narrator import narrate

GROUNDED = GroundedConfig(pool_size=20, background_size=20, candidates=30)
CONFIG = RewardConfig(verifier="grounded", grounded=GROUNDED)
GOAL, HISTORY = "make tea", ("boil the water", "warm the pot")
TEA = ("put tea leaves in the pot", "pour the water", "wait five minutes")
TYRE = ("remove the bolts", "take off the wheel")


def narration(video_id: str, texts: Sequence[str], title: str | None) -> Narration:
    return Narration(video_id, tuple(map(Segment, texts)), title)


built = partial(built_corpus, encoder="hash:128")


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    world = load_world()
    told = [one for goal in world.goals for one in step_lists(world, goal, 4)]
    return built(tmp_path_factory.mktemp("lists") / "corpus", told)


@pytest.fixture(scope="module")
def found(lists: Corpus) -> PseudoSet:
    return pseudo_set(lists, CONFIG, count=32)


@pytest.fixture(scope="module", autouse=True)
def few_steps() -> Iterator[None]:
    """Nets are trained for a few seconds less."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STEPS", 100)
        yield


@pytest.fixture(scope="module")
def trained(lists: Corpus, found: PseudoSet) -> Trained:
    return self_train(lists, CONFIG, found)


@pytest.fixture
def saved(trained: Trained, tmp_path: Path) -> Path:
    trained.reward.write(tmp_path / "net", trained.card | {"use": True})
    return tmp_path / "net"


def with_net(folder: Path, **more: Any) -> RewardConfig:
    return CONFIG.model_copy(update={"grounded": GROUNDED.model_copy(update={"self_trained": str(folder)} | more)})


# Numbers of a plan.


def test_numbers_say_order_length_and_repeats(talks_folder: Path, tmp_path: Path) -> None:
    """By nets that give every number as it is: f is the sum of all, and what one adds is the number itself."""
    zeros = {"first": (49, 24), "first_bias": (1, 24), "second": (24, 24), "second_bias": (1, 24), "last": (24, 1)}
    plain = {name: np.zeros((3, *shape)) for name, shape in zeros.items()} | {"linear": np.ones((3, 49, 1))}
    nets = Nets(mean=np.zeros(49), deviation=np.ones(49), **plain)
    corpus, small = Corpus.open(talks_folder), GroundedConfig(pool_size=3, background_size=2)
    reward = SelfTrained(nets, PositionModel(np.linspace(-1.0, 1.0, 128)), 1.0, -99.0, 99.0)
    reward.write(tmp_path / "net", {**card_of(corpus), "grounded": base_settings(small), "use": True})
    settings = small.model_copy(update={"self_trained": str(tmp_path / "net")})
    verifier = Verifier(corpus, RewardConfig(verifier="grounded", grounded=settings))
    true, backwards, repeated, other, nothing = (
        verifier.attribution(goal=GOAL, history=HISTORY, continuation=plan)
        for plan in (TEA, TEA[::-1], (*TEA, TEA[0]), TYRE, ())
    )
    assert (len(true), nothing) == (49, {})
    assert true["order"] > backwards["order"]
    assert true["time_back"] < backwards["time_back"]
    assert repeated["repeats_share"] > true["repeats_share"]
    assert repeated["length"] > true["length"]
    assert true["support"] > other["support"]
    assert true["length"] == pytest.approx(np.log(3))


# Nets.


@given(st.integers(0, 2**16))
@settings(max_examples=5, deadline=None)
def test_what_a_number_adds_is_its_distance_times_the_slope(seed: int) -> None:
    random = np.random.default_rng(seed)
    nets = train_nets(*random.normal(size=(2, 20, 49)), [1.0] * 20, [1.0] * 20)
    x, step = nets.mean + nets.deviation * random.uniform(-2, 2, 49), 1e-5
    for index in (0, 7, 48):
        moved = x.copy()
        moved[index] += step * nets.deviation[index]
        slope = (nets.values(moved[None])[0] - nets.values(x[None])[0]) / step
        assert nets.attribution(x)[index] == pytest.approx(nets.standardised(x)[index] * slope, abs=1e-4)


def test_nets_learn_pairs_and_values_do_not_depend_on_other_plans() -> None:
    better, worse = np.random.default_rng(0).normal(size=(2, 200, 49))
    better[:, 3] += 2.0
    nets = train_nets(better, worse, [1.0] * 200, [1.0] * 200)
    value = nets.values(np.concatenate([better, worse]))
    assert (value[:200] > value[200:]).mean() > 0.8
    assert nets.values(better[5:6])[0] == value[5]


def test_a_usual_place_is_lower_for_what_narrations_say_first(corpus: Any) -> None:
    vectors = np.stack([corpus.encoder.encode([text])[0] for text in ("boil the water", "wait five minutes")])
    first, last = PositionModel.of(corpus, np.zeros(128, np.float32))(vectors)
    assert first < last


# Pseudo-prompts.


def test_a_part_of_a_corpus_is_the_corpus_that_never_held_the_rest(corpus: Any) -> None:
    part = PartOfCorpus(corpus, [1, 3])
    names = [part.narration(index).video_id for index in range(len(part))]
    assert names == ["tea", "tyre", "chat"]
    assert part.offsets.tolist() == [0, 5, 10, 11]
    query = corpus.encoder.encode(["melt butter in a pan", "boil the water"])
    [hits] = part.search_batch([query], 2)
    assert names[hits[0].narration] == "tea"
    assert len(hits) == 2
    products, offsets = part.similarities([1, 2], query)
    assert products == pytest.approx(np.concatenate([part.embeddings(1), part.embeddings(2)]) @ query.T, abs=1e-6)
    assert offsets.tolist() == [0, 5, 6]


def test_lists_are_taken_whole_and_speech_by_step_like_segments(lists: Corpus, tmp_path: Path) -> None:
    embed = Verifier(lists).embed
    told = pseudo_procedures(lists, embed, 20)
    assert told.kind == "lists"
    assert len(told.procedures) == 20
    assert len({one.goal for one in told.procedures}) >= 10
    for number, procedure in zip(told.numbers, told.procedures, strict=True):
        narrated = lists.narration(number)
        assert [step.text for step in procedure.steps] == [segment.text for segment in narrated.segments]
        assert procedure.goal == narrated.title
    speech = built(tmp_path / "speech", narrate(load_world(), 120))
    spoken = pseudo_procedures(speech, Verifier(speech).embed, 20)
    assert spoken.kind == "speech"
    assert len(spoken.procedures) >= 10
    for number, procedure in zip(spoken.numbers, spoken.procedures, strict=True):
        texts = [segment.text for segment in speech.narration(number).segments]
        places = [texts.index(step.text) for step in procedure.steps]
        assert places == sorted(places)
        assert 5 <= len(places) <= 10


def test_a_goal_is_found_in_the_first_segments_where_there_is_no_title(tmp_path: Path) -> None:
    def untitled(one: Narration) -> Narration:
        opening = Segment(f"today i will show you how to {one.title}.")
        return Narration(one.video_id, (opening, *one.segments))

    corpus = built(tmp_path / "c", [untitled(one) for one in narrate(load_world(), 120)])
    found = pseudo_procedures(corpus, Verifier(corpus).embed, 20, "speech")
    assert len({one.goal for one in found.procedures}) >= 10
    assert {one.goal for one in found.procedures} <= set(load_world().goals)
    assert not any("how to" in step.text for one in found.procedures for step in one.steps)


def test_edits_are_ranked_by_f1_in_order_and_are_the_same_again(lists: Corpus, found: PseudoSet) -> None:
    one = found.prompts[0]
    assert one.edits
    assert all(0 <= plan.quality < 1 and plan.steps != one.prompt.true for plan in one.edits)
    again = edited_plans(one.prompt, ("lift the car",), {}, 12)
    assert again == edited_plans(one.prompt, ("lift the car",), {}, 12)
    assert any("lift the car" in plan.steps for plan in again)


def test_other_words_come_from_other_narrations_and_are_near(corpus: Any) -> None:
    embed = Verifier(corpus).embed
    said = other_words(corpus, embed, ["boil the water", "melt the butter in a pan"])
    assert "melt butter in a pan" in said["melt the butter in a pan"]
    assert "boil the water" not in said["boil the water"]


def test_narrations_of_prompts_leave_the_corpus_and_so_do_those_of_procedures_of_the_user(
    lists: Corpus, found: PseudoSet
) -> None:
    own = pseudo_procedures(lists, Verifier(lists).embed, 40, seed=3).procedures[-5:]
    more = pseudo_set(lists, CONFIG, count=32, tasks=[replace(one, source="mine") for one in own])
    assert (found.tasks, more.tasks) == (0, 5)
    left, after = ({one.rest.narration(n).video_id for n in range(len(one.rest))} for one in (found, more))
    assert len(left) == len(lists) - len(found.pseudo.numbers)
    assert left.isdisjoint(one.prompt.video_id for one in found.prompts)
    assert after.isdisjoint(one.video_id for one in own)


# The test, and what is stored.


def test_the_gate_names_what_is_wrong() -> None:
    def row(measure: str, grounded: float, net: float, low: float, high: float, count: int = 40) -> GateRow:
        share = Interval(net, net - 0.02, net + 0.02, count, count)
        return GateRow(measure, grounded, share, Interval(net - grounded, low, high, count, count))

    good = [row("edits", 0.7, 0.75, 0.02, 0.08), row("alternative", 0.55, 0.6, 0.0, 0.1)]
    assert Gate.of(good).use
    for bad, reason in (
        ([row("edits", 0.7, 0.71, -0.02, 0.04)], "rank edited plans"),
        ([good[0], row("alternative", 0.6, 0.72, 0.02, 0.2)], "should tie"),
        ([good[0], row("best_of", 0.5, 0.3, -0.3, -0.1)], "best of 64"),
        ([good[0], row("repeats", 0.9, 0.8, -0.2, -0.01)], "in other words"),
        ([good[0], row("samples", 0.7, 0.6, -0.2, -0.01)], "policy's plans"),
    ):
        gate = Gate.of(bad)
        assert not gate.use
        assert reason in gate.reason
    assert Gate.of([good[0], row("alternative", 0.6, 0.72, 0.02, 0.2, count=9)]).use  # too few decide nothing
    assert not Gate.of([]).use


def test_the_gate_measures_all_and_prompts_give_what_the_reward_gives(
    lists: Corpus, found: PseudoSet, trained: Trained, saved: Path
) -> None:
    assert {row.measure for row in trained.gate.rows} == set(self_training.MEASURES) - {"samples"}
    assert trained.card["counts"]["prompts"] == len(found.prompts)
    assert trained.card["kind"] == "lists"
    # On the corpus without the narrations of the prompts, as in training.
    part: Any = _Delegating(found.rest, lists.manifest)
    verifier = Verifier(part, with_net(saved), embeddings=found.embeddings)
    one = found.prompts[3]
    group = PromptGroup(one.prompt.goal, one.prompt.history, list(one.places))
    [rewards] = verifier.score_groups([group])
    assert [reward.total for reward in rewards] == pytest.approx(rewards_of(one, trained.reward), abs=1e-6)


class _Delegating:
    """A part of a corpus, with the manifest of the whole."""

    def __init__(self, part: PartOfCorpus, manifest: Any = None) -> None:
        self.inner, self.manifest = part, manifest

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_the_net_is_added_as_a_part_and_a_plan_without_steps_earns_nothing(lists: Corpus, saved: Path) -> None:
    example = pseudo_procedures(lists, Verifier(lists).embed, 20).procedures[0]
    steps = [step.text for step in example.steps]
    plans = [steps[2:], steps[:1:-1], []]
    asked = {"goal": example.goal, "history": steps[:2], "continuations": plans}
    before, verifier = Verifier(lists, CONFIG).score(**asked), Verifier(lists, with_net(saved))
    after = verifier.score(**asked)
    for goal, history in product((example.goal, ""), (steps[:2], [])):  # whatever the other plans are
        groups = [PromptGroup.of(goal, history, own) for own in (plans, plans[1:2])]
        [[_, second, _], [alone]] = verifier.score_groups(groups)
        assert isinstance(second, Reward)
        assert isinstance(alone, Reward)
        assert second.parts == pytest.approx(alone.parts, abs=1e-6)
    for old, new in zip(before, after, strict=True):
        assert new.total == pytest.approx(old.total + new.parts["net"], abs=1e-12)
        assert new.parts["net"] >= 0.0
        assert new.coverage == old.coverage
        terms = grounded_terms(new.parts, new.steps, GROUNDED)
        assert sum(terms.values()) + new.parts["net"] == pytest.approx(new.total)
    assert after[2].total == 0.0 == after[2].parts["net"]


def test_an_explanation_says_in_words_what_moved_the_net(lists: Corpus, saved: Path) -> None:
    example = pseudo_procedures(lists, Verifier(lists).embed, 20).procedures[0]
    steps = [step.text for step in example.steps]
    verifier = Verifier(lists, with_net(saved))
    explanation = explain(verifier, goal=example.goal, history=steps[:2], continuation=steps[2:])
    words, added = explanation.attribution[0]
    assert abs(added) == max(abs(value) for _, value in explanation.attribution)
    assert any(
        sentence.startswith("Compared with an average plan") and words in sentence for sentence in in_words(explanation)
    )
    row = as_row(explanation, Links())
    assert len(row["attribution"]) == 49
    assert "net" in row["terms"]
    assert "What moved the net" in render_page(explanation, Links(), 1)


def test_a_folder_gives_the_same_reward_again(trained: Trained, lists: Corpus, saved: Path) -> None:
    opened = SelfTrained.open(saved, lists, GROUNDED)
    numbers = np.random.default_rng(0).normal(size=(4, 49))
    assert np.array_equal(opened.shares(numbers), trained.reward.shares(numbers))
    assert sorted(path.name for path in saved.iterdir()) == [CARD, WEIGHTS]
    card = json.loads((saved / CARD).read_text())
    assert card["corpus"] == lists.manifest["id"]
    assert len(card["means"]) == 49


def changed(folder: Path, **values: Any) -> None:
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(card | values))


def test_another_corpus_encoder_or_setting_and_an_unusable_one_are_refused_in_a_sentence(
    lists: Corpus, saved: Path, tmp_path: Path
) -> None:
    def refusal(kind: type[RecipeError], corpus: Corpus = lists, **more: Any) -> str:
        with pytest.raises(kind) as caught:
            Verifier(corpus, with_net(saved, **more))
        sentence = str(caught.value)
        assert sentence.endswith(".")
        assert "\n" not in sentence
        return sentence

    told = narrate(load_world(), 60)
    assert "another corpus" in refusal(ConfigError, built(tmp_path / "other", told))
    assert "another encoder" in refusal(EncoderMismatch, built(tmp_path / "encoder", told, encoder="hash:64"))
    assert "grounded.price" in refusal(ConfigError, price=0.5)
    changed(saved, use=False, reason="it fails")
    assert "it fails" in refusal(ConfigError)
    Verifier(lists, with_net(saved, self_trained_anyway=True))
    changed(saved, use=True, format=9)
    assert "card" in refusal(InputError)
    changed(saved, format=1)
    (saved / WEIGHTS).write_bytes(b"no weights")
    assert "damaged" in refusal(InputError)
    (saved / CARD).unlink()
    assert "does not exist" in refusal(InputError)
    saved.rename(tmp_path / "away")
    assert "no such folder" in refusal(InputError)


class Scanned(_Delegating):
    """A part of a corpus that counts the plans that it is searched for."""

    count = 0

    def search_batch(self, queries: Sequence[Any], k: int) -> Any:
        self.count += len(queries)
        return self.inner.search_batch(queries, k)


class Stops:
    """Progress that is interrupted at the third report."""

    def __init__(self) -> None:
        self.reports = 0

    @contextmanager
    def task(self, *_: object) -> Iterator[Any]:
        yield self.advance

    def advance(self, _: int) -> None:
        self.reports += 1
        if self.reports == 3:
            raise KeyboardInterrupt


def test_work_that_was_stopped_is_not_done_again(lists: Corpus, found: PseudoSet, tmp_path: Path) -> None:
    def scanned(work: Path | None, progress: Progress = SILENT) -> int:
        part: Any = Scanned(found.rest)
        with suppress(KeyboardInterrupt):
            compute_numbers(replace(found, rest=part), lists, CONFIG, work, progress)
        return int(part.count)

    whole, numbers = scanned(None), [one.numbers for one in found.prompts]
    assert 0 < scanned(tmp_path / "work", Stops()) < whole
    assert 0 < scanned(tmp_path / "work") < whole
    assert scanned(tmp_path / "work") == 0
    for one, own in zip(found.prompts, numbers, strict=True):
        assert one.numbers == pytest.approx(own, abs=1e-4)


def test_work_on_another_rest_of_the_corpus_is_done(lists: Corpus, found: PseudoSet, tmp_path: Path) -> None:
    """Procedures of the user leave other narrations out, and may be as many."""
    others = sorted({*range(len(lists))} - {*found.pseudo.numbers})[:2]
    for other in others:
        part: Any = Scanned(PartOfCorpus(lists, [*found.pseudo.numbers, other]))
        own = replace(found, rest=part, prompts=[replace(one) for one in found.prompts[:8]])
        compute_numbers(own, lists, CONFIG, tmp_path / "work")
        assert part.count


def test_samples_of_a_policy_are_ranked_by_likeness_and_others_are_refused(lists: Corpus, found: PseudoSet) -> None:
    prompt = found.prompts[0].prompt
    written = [prompt.true, prompt.true[::-1], ("lift the car",)]
    samples = [Prediction(sample_id(prompt), steps, number) for number, steps in enumerate(written)]
    own = pseudo_set(lists, CONFIG, count=32, samples=samples).prompts[0]
    best, _, worst = (plan.quality for plan in own.samples)
    assert best == pytest.approx(1.0)
    assert worst < best
    with pytest.raises(InputError, match="--prompts-output"):
        pseudo_set(lists, CONFIG, count=32, samples=[Prediction("other", ("pour",))])


def sample_id(prompt: AuditPrompt) -> str:
    """The id of a prompt in the file of prompts."""
    return f"audit/{prompt.source}/{prompt.video_id}/{len(prompt.history)}"


def tea(count: int, titles: Sequence[str | None]) -> list[Narration]:
    return [narration(f"v{n}", [*HISTORY, *TEA, f"serve it {n}"], titles[n % len(titles)]) for n in range(count)]


@pytest.mark.parametrize(
    ("narrations", "sentence"),
    [
        (tea(60, [None]), "has a title"),
        (tea(60, ["make tea"]), "several goals"),
        (tea(40, ["make tea", "brew tea", "steep tea"]), "can be one"),
        (tea(120, [f"make tea {n}" for n in range(60)]), "too small to train on"),
    ],
    ids=["no titles", "one goal", "few narrations", "small"],
)
def test_a_corpus_that_cannot_be_trained_on_is_refused_in_a_sentence(
    tmp_path: Path, narrations: list[Narration], sentence: str
) -> None:
    corpus = built(tmp_path / "c", narrations)
    config = CONFIG if sentence != "too small to train on" else RewardConfig(verifier="grounded")
    with pytest.raises(InputError) as caught:
        pseudo_set(corpus, config, kind="lists")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_refuses_an_encoder_that_counts_words_and_a_folder_of_something_else(
    lists: Corpus, tmp_path: Path
) -> None:
    refused = CliRunner().invoke(
        app, ["reward", "self-train", "--corpus", str(lists.folder), "--output", str(tmp_path / "net")]
    )
    assert isinstance(refused.exception, InputError)
    assert "knows no meaning" in str(refused.exception)
    assert not (tmp_path / "net").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    refused = CliRunner().invoke(
        app, ["reward", "self-train", "--corpus", str(lists.folder), "--output", str(tmp_path / "full")]
    )
    assert isinstance(refused.exception, InputError)
    assert "something else" in str(refused.exception)


@pytest.mark.thorough
def test_the_command_trains_and_the_reward_is_used_by_score_and_audit(lists: Corpus, tmp_path: Path) -> None:
    world = load_world()
    told = [one for goal in [*world.goals][:30] for one in step_lists(world, goal, 6)]
    corpus = built(tmp_path / "corpus", told, encoder="minilm")
    settings_file = tmp_path / "reward.toml"
    settings_file.write_text("grounded = { pool_size = 20, background_size = 20, candidates = 30 }\n")
    net, flags = tmp_path / "net", ["--corpus", str(corpus.folder)]
    made = CliRunner().invoke(
        app, ["reward", "self-train", *flags, "--output", str(net), "--config", str(settings_file), "--prompts", "40"]
    )
    assert made.exit_code == 0, made.output
    assert "Verdict" in made.output
    assert (net / CARD).is_file()
    assert not (tmp_path / ".net.work").exists()
    settings_file.write_text(
        f"grounded = {{ pool_size = 20, background_size = 20, candidates = 30, self_trained = '{net}', "
        "self_trained_anyway = true }\n"
    )
    asked = ["--goal", told[0].title or "", "--history", told[0].segments[0].text, "--continuation", "wash the cups"]
    scored = CliRunner().invoke(
        app, ["reward", "score", *flags, *asked, "--verifier", "grounded", "--config", str(settings_file), "--json"]
    )
    assert "net" in json.loads(scored.stdout)[0]["rewards"][0]["parts"]
    prompts = tmp_path / "prompts.jsonl"
    flags += ["--config", str(settings_file), "--prompts-output", str(prompts)]
    CliRunner().invoke(app, ["reward", "self-train", *flags, "--output", str(net)])
    selection = select(pseudo_procedures(corpus, Verifier(corpus).embed, 120).procedures)
    written = [json.loads(line) for line in prompts.read_text().splitlines()]
    rebuilt = build_prompts(selection, Verifier(corpus).embed)
    assert [row["example_id"] for row in written] == [sample_id(prompt) for prompt in rebuilt]
    samples = [tmp_path / "base.jsonl", tmp_path / "trained.jsonl"]
    for file in samples:
        file.write_text(
            "".join(json.dumps({"example_id": row["example_id"], "steps": ["pour"]}) + "\n" for row in written)
        )
    flags = [*flags[:4], *(word for file in samples for word in ("--samples", str(file)))]
    again = CliRunner().invoke(app, ["reward", "self-train", *flags, "--output", str(tmp_path / "again"), "--json"])
    assert json.loads(again.stdout)["counts"]["samples"] == 2 * len(written)
