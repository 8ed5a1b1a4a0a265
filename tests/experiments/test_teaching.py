"""Teaching: what the base knows and what is taught share nothing, every arm differs by its reward or its corpus."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numba")
pytest.importorskip("matplotlib")

from recipe.artifacts import write_json, write_jsonl
from recipe.config import BestOfNConfig, parse_config
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.errors import ConfigError, InputError
from recipe.planning.predictions import Prediction, write_predictions
from recipe.progress import SILENT
from recipe.types import Example
from recipe.world.load import load_world
from recipe.world.validity import score_plan
from recipe_studies.experiments.design import BASE, DOCUMENTS, HELD_OUT, TEST, TRAIN, VALIDATION, design_of
from recipe_studies.experiments.report import ReportSettings, write_report
from recipe_studies.experiments.results import load_results
from recipe_studies.experiments.schedule import _fingerprints
from recipe_studies.experiments.settings import TeachingConfig, TeachingWorld, load_experiment
from recipe_studies.experiments.stages import _placed, plan_stages, rank, run_experiment
from recipe_studies.experiments.teaching import (
    TaughtWorld,
    build_told,
    choose_prompts,
    draw_taught_world,
    known_and_taught,
    split_procedures,
    taught_corpus,
)

CONFIGS = Path(__file__).parents[2] / "configs"
WORLD = load_world()
SOURCE = {"type": "world", "narrations": 2, "background": 1, "lists": 1, "documents": 40, "train": 12, "validation": 8}


def teaching(**values: Any) -> TeachingConfig:
    given = {"kind": "teaching", "title": "t", "source": SOURCE | {"test": 8}, "samples": 3, "best_of": 2, "shown": 1}
    encoder = {"corpus": {"encoder": {"name": "hash:32"}}, "rankers": ["relevance"], "seeds": [0, 1]}
    return parse_config(given | encoder | values, TeachingConfig, "test")


CONFIG = teaching(arms=["narrations", "validity", "wrong", "r0"], levels=[0, 1, 2])


def test_the_base_knows_whole_domains_and_nothing_of_the_others() -> None:
    known, taught = known_and_taught(WORLD, 0)
    domains = [{WORLD.graph(goal).domain for goal in goals} for goals in (known, taught)]
    assert not domains[0] & domains[1]
    assert sorted(known + taught) == sorted(WORLD.goals)
    assert [len(own) for own in domains] == [3, 3]
    assert known_and_taught(WORLD, 1) != (known, taught)


def test_training_validation_and_test_share_no_prompt(tmp_path: Path) -> None:
    source = TeachingWorld.model_validate(SOURCE | {"train": 120, "validation": 60, "test": 60})
    draw_taught_world(tmp_path, TaughtWorld(source, 0), SILENT)
    known, taught = known_and_taught(WORLD, 0)
    parts = [read_examples(tmp_path / file) for file in (TRAIN, VALIDATION, HELD_OUT)]
    assert [len(part) for part in parts] == [120, 60, 60]
    steps = WORLD.recogniser.step
    train, validation, test = (
        {(one.goal, tuple(steps(step, ()) for step in one.history)) for one in part} for part in parts
    )
    assert train.isdisjoint(validation | test)
    assert validation.isdisjoint(test)
    assert {one.goal for part in parts for one in part} <= set(taught)
    text = read_examples(tmp_path / DOCUMENTS)
    clean = [one for one in text if one.goal in known]
    assert len(text) == 40
    assert len(clean) == 20
    assert all(score_plan(WORLD, one.goal, one.history, one.continuation).perfect for one in clean)
    for name, part in (("validation", parts[1]), ("test", parts[2])):
        choose_prompts(tmp_path, name, SILENT)  # type: ignore[arg-type]
        assert read_examples(tmp_path / TEST) == part


def test_corpora_differ_in_the_taught_goals_alone(tmp_path: Path) -> None:
    known, taught = known_and_taught(WORLD, 0)
    told = {}
    for covering in (0, 1, 2, "lists"):
        settings = taught_corpus(CONFIG.source, CONFIG.corpus, 0, f"corpora/{covering}", covering)  # type: ignore[arg-type]
        build_told(tmp_path, settings, SILENT)
        corpus = Corpus.open(tmp_path / "corpora" / str(covering))
        told[covering] = [corpus.narration(index) for index in range(len(corpus))]
    counts = {name: [one.title in taught for one in own] for name, own in told.items()}
    assert {name: sum(own) for name, own in counts.items()} == {
        0: 0,
        1: len(taught),
        2: 2 * len(taught),
        "lists": len(taught),
    }
    assert all(len(own) - sum(own) == len(known) for own in counts.values())
    ids = {name: {one.video_id for one in own} for name, own in told.items()}
    assert ids[0] < ids[1] < ids[2]


def test_every_arm_differs_by_its_reward_or_its_corpus() -> None:
    config = load_experiment(CONFIGS / "teaching.toml")
    assert isinstance(config, TeachingConfig)
    both = {"optimisers": ("grpo", "best-of-n"), "levels": (0, 1, 2, 4, 8, 16, 32)}
    config = config.model_copy(update=both)
    stages = {stage.name: stage for stage in plan_stages(config)}
    runs = {name: stage.settings for name, stage in stages.items() if name.startswith("teach-")}
    assert len(runs) == (2 * len(config.arms) - 2 + 5) * len(config.seeds)
    used = {
        name.removeprefix("teach-").removesuffix("-2"): (run.config.reward.verifier, str(run.config.corpus), run.exact)
        for name, run in runs.items()
        if name.endswith("-2") and "gold" not in name
    }
    rounds = {name.removesuffix("-rounds"): used.pop(name) for name in [*used] if name.endswith("-rounds")}
    random = runs["teach-random-2"].config
    assert isinstance(random, BestOfNConfig)
    assert random.choose == "random"
    first = Path("teach/narrations-rounds-2")
    assert runs["teach-narrations-rounds-2"].config == random.model_copy(
        update={"choose": "best", "output": first, "plans": None}
    )
    # All choose among the same plans, those of the first arm that is trained so.
    rest = [name for name, run in runs.items() if name != "teach-narrations-rounds-2" and name.endswith("-2")]
    for name in rest:
        if isinstance(chosen := runs[name].config, BestOfNConfig):
            assert chosen.plans == first
            assert "teach-narrations-rounds-2" in stages[name].needs
    assert used.pop("random") == rounds["narrations"]
    assert rounds == {name: one for name, one in used.items() if not name.startswith("level-")}
    assert used == {
        "narrations": ("grounded-2", "corpus", False),
        "lists": ("grounded-2", "corpora/lists", False),
        "paper": ("paper", "corpus", False),
        "validity": ("paper", "corpus", True),
        "wrong": ("grounded-2", "corpora/0", False),
        "r0": ("r0", "corpus", False),
        "length": ("length", "corpus", False),
        **{f"level-{n}": ("grounded-2", f"corpora/{n}", False) for n in (1, 2, 4, 8, 16)},
    }
    for name, stage in stages.items():
        if name.startswith("teach-") and "gold" not in name:
            folder = str(stage.settings.config.corpus)
            assert stage.needs[:2] == (BASE, folder.replace("corpora/", "corpus-"))
            assert stages[stage.needs[1]].outputs == (folder,)
    assert [level.narrations for level in sorted(design_of(config).law, key=lambda one: one.narrations)] == [
        *config.levels
    ]


def test_looking_at_the_test_trains_nothing_again() -> None:
    marks = {
        prompts: _fingerprints(plan_stages(teaching(prompts=prompts, arms=["narrations", "r0", "gold"], levels=[])))
        for prompts in ("validation", "test")
    }
    same = {name for name in marks["test"] if marks["test"][name] == marks["validation"][name]}
    assert {name for name in marks["test"] if name.startswith(("teach", "corpus", "data", "base"))} <= same
    assert not any(name.startswith(("plans", "rewards", "report")) for name in same)


def test_a_given_model_takes_the_place_of_the_base() -> None:
    stages = {stage.name: stage for stage in plan_stages(teaching(model="/models/m", arms=["r0"], levels=[]))}
    assert BASE not in stages
    assert stages["teach-r0-0"].settings.config.model == "/models/m"
    assert stages["teach-r0-0"].settings.elsewhere
    assert stages["plans-base"].settings.model == stages["plans-r0-0"].settings.reference == "/models/m"
    assert "data" in stages["teach-r0-0"].needs


def test_the_best_step_is_chosen_on_prompts_of_validation(tmp_path: Path) -> None:
    plain, made = (
        {stage.name: stage.settings for stage in plan_stages(teaching(arms=["r0", "gold"], levels=[], **more))}
        for more in ({}, {"validation": {"measure": "validity", "every": 5}})
    )
    assert plain["teach-r0-0"].config.validation is None
    chosen = made["teach-r0-0"].config
    assert (str(chosen.validation.examples), chosen.validation.measure) == (VALIDATION, "validity")
    assert chosen.model_copy(update={"validation": None}) == plain["teach-r0-0"].config
    assert made["teach-gold-0"] == plain["teach-gold-0"]
    placed = _placed(chosen, tmp_path)
    assert placed.validation is not None
    assert placed.validation.examples == tmp_path / VALIDATION


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"validation": {"every": 0}}, "every"),
        ({"validation": {"examples": "e.jsonl"}}, r"\[validation\]: an experiment sets 'examples' itself"),
        ({"grpo": {"reward": {}}}, "sets reward and seed by arms and seeds"),
        ({"arms": ["r0", "r0"]}, "something stands twice in arms"),
        ({"arms": ["nothing"]}, "arms"),
        ({"source": SOURCE | {"exposure": 2.0}}, "exposure"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_stages(teaching(**values))


PROCEDURES = {
    "type": "procedures",
    "procedures": ["p.jsonl"],
    "narrations": ["n.jsonl"],
    "wrong_narrations": ["w.jsonl"],
}
DISHES = ("tea", "soup", "toast", "cake")


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """40 training and 8 validation videos of four dishes, what is said in them, and narrations of another domain."""
    root = tmp_path / "files"

    def steps(dish: str, number: int) -> list[str]:
        return [f"take what {dish} needs", f"work on the {dish} for {number} minutes", f"serve the {dish}"]

    rows = [
        {"source": "kitchen", "video_id": f"{split}-{number}", "goal": dish, "split": split}
        | {"steps": [{"text": text} for text in steps(dish, number)]}
        for split, count in (("train", 40), ("val", 8))
        for number in range(count)
        for dish in [DISHES[number % 4]]
    ]
    write_jsonl(root / "p.jsonl", [*rows, {**rows[0], "video_id": "nameless", "goal": ""}])
    said = [
        {"video_id": one["video_id"], "source": "speech", "sentences": [f"so we {s['text']}" for s in one["steps"]]}
        for one in rows
    ]
    write_jsonl(root / "n.jsonl", said)
    other = [{"video_id": f"bike-{n}", "source": "rides", "sentences": ["oil the chain", "ride on"]} for n in range(5)]
    unknown = {"video_id": "unknown", "source": "speech", "sentences": ["serve the soup"]}
    write_jsonl(root / "w.jsonl", [*other, unknown, said[3] | {"source": "rides"}])
    return root


def split(root: Path, folder: Path, **source: Any) -> dict[str, Any]:
    config = teaching(
        source=PROCEDURES | {"test_split": "val", "train": 30, "validation": 5, "covering": 2} | source,
        arms=["lists", "wrong", "r0"],
        levels=[1],
        model="m",
    )
    stages = {stage.name: stage for stage in plan_stages(config, root)}
    split_procedures(folder, stages["data"].settings, SILENT)
    return {stage.name: stage for stage in stages.values() if stage.name.startswith("corpus")}


def test_no_prompt_has_its_own_video_in_a_corpus(recipes: Path, tmp_path: Path) -> None:
    corpora = split(recipes, tmp_path)
    videos = {name: {one.video_id for one in read_examples(tmp_path / name)} for name in (TRAIN, VALIDATION, HELD_OUT)}
    assert {name: len(own) for name, own in videos.items()} == {TRAIN: 15, VALIDATION: 5, HELD_OUT: 8}
    for name, stage in corpora.items():
        stage.work(tmp_path, stage.settings, SILENT)
        corpus = Corpus.open(tmp_path / stage.settings.folder)
        told = {corpus.narration(index) for index in range(len(corpus))}
        assert {"corpus": 8, "corpus-1": 4, "corpus-lists": 20, "corpus-0": 5}[name] == len(told)
        assert not {one.video_id for one in told} & set().union(*videos.values())
        assert all(one.video_id.startswith("bike") for one in told) == (name == "corpus-0")
    assert all(one.split == "test" for one in read_examples(tmp_path / HELD_OUT))
    assert not (tmp_path / DOCUMENTS).exists()


def test_known_goals_join_the_base_and_are_not_taught(recipes: Path, tmp_path: Path) -> None:
    corpora = split(recipes, tmp_path, known_share=0.5, narrations=[], wrong_narrations=[])
    taught = {one.goal for name in (TRAIN, VALIDATION, HELD_OUT) for one in read_examples(tmp_path / name)}
    known = {one.goal for one in read_examples(tmp_path / DOCUMENTS)}
    assert len(known) == 2
    assert taught == set(DISHES) - known
    for name, goals in (("corpus", taught), ("corpus-0", known)):
        corpora[name].work(tmp_path, corpora[name].settings, SILENT)
        corpus = Corpus.open(tmp_path / name.replace("corpus-", "corpora/"))
        assert {corpus.narration(index).title for index in range(len(corpus))} == goals


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"test_split": "test"}, "no examples for held-out"),
        ({"prompt_share": 0.0}, "no examples for train"),
        ({"procedures": ["absent.jsonl"]}, "absent.jsonl"),
    ],
)
def test_procedures_that_give_no_part_are_refused(
    recipes: Path, tmp_path: Path, source: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        split(recipes, tmp_path, **source)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"arms": ["validity"], "model": "m"}, "known on a world only"),
        ({"source": {**PROCEDURES, "narrations": []}, "arms": ["paper"], "model": "m"}, "need source.narrations"),
        ({"arms": ["r0"]}, "the base has nothing to learn from"),
        ({"source": {"type": "procedures"}, "arms": ["r0"], "model": "m"}, "give procedures, files, or benchmarks"),
    ],
)
def test_sources_of_procedures_that_cannot_be_used_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        teaching(**{"source": PROCEDURES, **values})


@pytest.mark.parametrize("name", ["teaching-youcook2", "teaching-tasks", "teaching-smollm2"])
def test_the_packaged_files_can_be_read(name: str) -> None:
    config = load_experiment(CONFIGS / f"{name}.toml")
    assert isinstance(config, TeachingConfig)
    assert design_of(config).judged
    assert design_of(config.quick()).seeds == (0,)


def test_a_model_that_is_not_there_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    config = teaching(model=str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="does not exist"):
        run_experiment(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def completion(example: Example, regime: str) -> str:
    """The more a corpus covers, the less is missing; R0 and the wrong corpus teach nothing."""
    kept = {"covering narrations": 0, "exact validity": 0, "1 covering narrations": 1}.get(regime, 2)
    steps = example.continuation[: max(1, len(example.continuation) - kept)]
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after all its stages but the report, whose models are made up."""
    folder = tmp_path_factory.mktemp("run")
    draw_taught_world(folder, TaughtWorld(CONFIG.source, 0), SILENT)
    choose_prompts(folder, "test", SILENT)
    design = design_of(CONFIG)
    build_told(folder, taught_corpus(CONFIG.source, CONFIG.corpus, 0, "corpus", 2), SILENT)
    for name, covering in design.corpora.items():
        build_told(folder, taught_corpus(CONFIG.source, CONFIG.corpus, 0, name, covering), SILENT)
    examples = read_examples(folder / TEST)
    for plans in design.plan_sets:
        predictions = [
            Prediction.of(example.example_id, sample, completion(example, plans.regime))
            for example in examples
            for sample in range(CONFIG.samples)
        ]
        write_predictions(folder / plans.file, predictions)
    for run in design.reward_runs:
        row = {"step": 1, "reward": 0.1, "steps": 4.0, "reward_seconds": 1.0, "step_seconds": 4.0}
        write_jsonl(folder / run.folder / "metrics.jsonl", [row])
        rows = [
            {"example_id": e.example_id, "goal": e.goal, "history": e.history, "completion": "1. wait", "reward": 0.1}
            for e in read_examples(folder / TRAIN)
        ]
        write_jsonl(folder / run.folder / "completions" / "step-00001.jsonl", rows)
        write_json(folder / "stages" / f"{run.stage}.json", {"done": True, "seconds": 12.5, "cpu_seconds": 10.0})
    for stage in plan_stages(CONFIG):
        if stage.name.startswith("rewards-"):
            rank(folder, stage.settings, SILENT)
    write_report(folder, ReportSettings(CONFIG), SILENT)
    return folder


def test_the_report_holds_the_learning_law_and_what_beats_the_controls(run_dir: Path) -> None:
    found = load_results(run_dir / "report.json")
    assert found.splits() == ("test",)
    law = {one.narrations: one for one in found.law}
    assert [*law] == [0, 1, 2]
    assert law[0].trained.mean == 0.0 < law[1].trained.mean < law[2].trained.mean
    gain = {(one.regime, one.baseline): one.value for one in found.control_differences}
    assert gain["covering narrations", "control: wrong corpus"].mean == pytest.approx(law[2].trained.mean)
    assert gain["covering narrations", "control: R0, no corpus"].low > 0
    assert not any(regime.startswith(("control", "best of")) for regime, _ in gain)
    assert any("covering narrations" in one and "every control is beaten" in one for one in found.summary)
    assert any("number of narrations that cover a goal" in one for one in found.summary)
    base = next(row for row in found.scores if row.regime == BASE)
    assert "relevance" in base.metrics
    assert not any(name.startswith("narrations-") for name in base.metrics)
    length = {row.regime: row.metrics["length_error"].mean for row in found.scores}
    assert length["covering narrations"] == 0.0 > length[BASE]
    assert "The learning law" in (run_dir / "report.html").read_text()
