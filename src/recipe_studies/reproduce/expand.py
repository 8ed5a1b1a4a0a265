"""The runs of a study as stages: data, corpus, pseudo-labels, training, plans, scores; each done once for all tables.

Paths below the folder of a scale:

    data/                       train.jsonl, test.jsonl, documents.jsonl; annotated.jsonl: all training examples;
                                weak-P.jsonl: those with a pseudo-trace, P% weak; told.jsonl: the same with Phi's
                                histories as well as the annotated ones; prompts.jsonl: the test examples that
                                every system is tested on, with the history that Phi reads; absent.json and
                                absent-training.json: what is left out; pseudo.jsonl
    corpus/ base/               the verification corpus; a base from nothing
    runs/REGIME-SEED/           sft/ and grpo/: training runs, as `recipe train` makes them
    plans/RUN.jsonl             sampled plans of a run
    scores/RUN.jsonl            the accuracy of each plan
    rows/RUN.jsonl              plans of a run with their prompts and accuracies
    diversity/RUN.jsonl         the diversity of each prompt's plans
    vpa/RUN.jsonl               the measures of each sample of Visual Planning for Assistance (data/vpa.jsonl); of the
                                oracle's rows, of floors (controls.jsonl), and of VidAssist's and its baselines', whose
                                plans, traces and manifests are in plans/
    answers/                    answers of models behind endpoints, and in vidassist/ to all questions of VidAssist
    video/                      the same of the Video configuration
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recipe.artifacts import file_sha256, fingerprint
from recipe.config import BaseModelConfig, ModelConfig, parse_config
from recipe.config.planning import VidAssistConfig
from recipe.data.benchmarks import BENCHMARKS, find_benchmark, read_benchmarks, require_benchmarks
from recipe.data.roles import role_of
from recipe.errors import InputError, listed
from recipe.perception.videos import VideoFolder
from recipe.planning.vidassist.trace import manifest_of, trace_of
from recipe.world.examples import TextNoise
from recipe_studies.experiments import data
from recipe_studies.experiments.expand import INPUT_PATHS, add_training, add_vision_stages, benchmarks_content
from recipe_studies.experiments.models import EndpointModel
from recipe_studies.experiments.schedule import Stage, StageList
from recipe_studies.experiments.settings import FilesSource, VideoConfig, WorldSource, demo_config
from recipe_studies.experiments.stages import Sampling, Training, sample
from recipe_studies.experiments.study import (
    ALIGNED,
    BASE,
    CORPUS,
    DOCUMENTS,
    NARRATIONS,
    TEST,
    TRAIN,
    WRONG,
    PlanSet,
    base_config,
)
from recipe_studies.reproduce import measures
from recipe_studies.reproduce.data import (
    ANNOTATED,
    HISTORIES,
    LEFT_OUT,
    PROMPTS,
    PSEUDO,
    QUALITY,
    SAMPLE_HISTORIES,
    SAMPLES,
    TOLD,
    TRACES,
    HistorySource,
    PseudoLabels,
    SampleSource,
    Supervision,
    mine_pseudo_labels,
    supervise,
    weak_file,
    write_prompts,
    write_samples,
)
from recipe_studies.reproduce.study import (
    CONTROL_REGIMES,
    JudgeModel,
    PaperStudy,
    Scale,
    check_inputs,
    merged_tables,
    needed_regimes,
    regime,
    sized,
    training_config,
)
from recipe_studies.reproduce.tables import DIVERSITY_SAMPLES, PERCENTAGES, TABLES, PaperTable, table, tables, weak

SUPERVISED = (ANNOTATED, TOLD, *map(weak_file, PERCENTAGES), LEFT_OUT["training"])
SAME_ON_WORLD = {weak("rl", 0): "rl", weak("sft", 0): "sft-annotated"}
"""Regimes that on the world are the same runs as another regime: there every example has a pseudo-trace."""
VIDEO = "video"
"""Folder of the Video configuration."""
VIDEO_BENCHMARKS = ("crosstask", "niv")
"""Its training and tests (paper, section 4.4)."""
FLOORS, VPA_SAMPLES = "vpa-floors", "vpa-samples"
DATA_STAGES = ("data", "supervision", "prompts")
"""What decides which examples there are, before anything is trained."""
DOCUMENTS_OF_BASE, QUICK_DOCUMENTS = 16_000, 1_500
"""Examples of benchmarks that a base from nothing is trained on; as many as the tiny scale reads of the world."""
UNLIMITED = 10**9


@dataclass(frozen=True, slots=True)
class Run:
    """A regime with one seed: its folders, and the files of its plans and of what was measured of them."""

    regime: str
    seed: int | None
    """None where nothing is trained."""
    folder: str = ""
    """Folder below the scale's that its paths start from."""
    same_as: str = ""
    """The regime whose run this is, too."""

    @property
    def name(self) -> str:
        """Names its files."""
        regime = self.same_as or self.regime
        return regime if self.seed is None else f"{regime}-{self.seed}"

    def stage(self, kind: str) -> str:
        """Name of its stage of a kind, such as `plans`."""
        return "-".join(filter(None, (self.folder, kind, self.name)))

    def file(self, kind: str) -> str:
        """Its file in `plans/`, `scores/`, `diversity/` or `vpa/`, below the folder of the scale."""
        return str(Path(self.folder, kind, f"{self.name}.jsonl"))


@dataclass(frozen=True, slots=True)
class ScaleRuns:
    """All that a study does at one scale."""

    name: str
    scale: Scale
    tables: tuple[PaperTable, ...]
    """The tables that can be made here."""
    runs: tuple[Run, ...]
    frontier: tuple[Run, ...]
    """Models behind endpoints; each is a regime, named as the model."""
    stages: tuple[Stage, ...]
    missing: tuple[str, ...]
    """Tables and datasets that cannot be had, a sentence each: what is missing and where it comes from. Before them,
    what differs from the scale in what the study is given."""
    on_world: bool

    @property
    def placed(self) -> list[Stage]:
        """Its stages for the whole study: their names and paths begin with the folder of the scale."""
        return [
            replace(
                stage,
                name=f"{self.name}/{stage.name}",
                needs=tuple(f"{self.name}/{need}" for need in stage.needs),
                outputs=tuple(f"{self.name}/{output}" for output in stage.outputs),
                folder=str(Path(self.name, stage.folder)),
            )
            for stage in self.stages
        ]

    def runs_of(self, name: str) -> list[Run]:
        """The runs of a regime, one for each seed."""
        return [run for run in self.runs if run.regime == name]

    def table_stages(self, paper: PaperTable) -> set[str]:
        """Names of the stages that measure the plans of a table's runs."""
        kinds = ("scores", *({paper.name} & {"diversity"}))
        runs = [run for name in paper.regimes for run in self.runs_of(name)]
        runs += self.frontier if paper.name == "frontier" else ()
        measured = {run.stage(kind) for kind in kinds for run in runs}
        if paper.name == "vpa":
            measured |= {FLOORS, *(run.stage(row.kind) for row in paper.rows for run in self.runs_of(row.regime))}
        return measured

    def with_needs(self, names: Iterable[str]) -> set[str]:
        """Stages with all that they need, by name."""
        needed = set(names)
        for stage in reversed(self.stages):  # a stage comes after all that it needs
            if stage.name in needed:
                needed.update(stage.needs)
        return needed


def restrict(study: PaperStudy, whole: ScaleRuns) -> ScaleRuns:
    """The part of a scale that a call asks for: some of its tables, and of their regimes those that the call names."""
    wanted = tuple(paper for paper in tables(study.tables) if paper in whole.tables)
    names = needed_regimes([row for paper in wanted for row in paper.regimes], study.regimes)
    text = [name for name in names if regime(name).input == "text"]
    kept = {*names, *(CONTROL_REGIMES if text else ())}
    part = replace(
        whole,
        tables=wanted,
        runs=tuple(run for run in whole.runs if run.regime in kept),
        frontier=whole.frontier if any(paper.name == "frontier" for paper in wanted) else (),
    )
    measured = {stage for paper in wanted for stage in part.table_stages(paper)}
    measured |= {run.stage("scores") for run in part.runs if run.regime in CONTROL_REGIMES}
    folders = {run.folder for run in (*part.runs, *part.frontier)}
    # The counts of examples, and the controls, are of a whole configuration and belong to no run.
    ends = {stage.name for stage in whole.stages if stage.folder in folders}
    measured |= ends & {*DATA_STAGES, *(f"{VIDEO}-{name}" for name in DATA_STAGES), "controls"}
    needed = whole.with_needs(measured)
    return replace(part, stages=tuple(stage for stage in whole.stages if stage.name in needed))


def expand(study: PaperStudy, name: str) -> ScaleRuns:
    """All stages of a study at a scale, of every table that can be made there, whichever the call asks for.

    The same study and files give the same stages. A run is measured before the next one, so that tables fill up one by
    one. Raises ConfigError for a regime, table or scale that is not there, InputError where the data of all tables that
    are asked for are missing.
    """
    scale = sized(name, quick=study.quick, changes=study.changes)
    if study.engine == "vllm":
        scale = scale.model_copy(update={"grpo": {**scale.grpo, "rollouts": "vllm"}})
    wanted = tables(study.tables)
    needed_regimes((), study.regimes)
    missing = list(check_inputs(study, scale))
    if study.data is not None:
        absent = [benchmark for benchmark in BENCHMARKS if find_benchmark(study.data, benchmark) is None]
        missing += [f"Dataset {benchmark} is not in {study.data}: {_origin(benchmark)}" for benchmark in absent]
    possible: list[PaperTable] = []
    for paper in TABLES:
        reason = _reason_against(paper, study, scale, name)
        possible += [] if reason else [paper]
        if reason and paper in wanted:
            missing.append(f"Table {paper.name!r} is left out: {reason}")
        elif paper.name == "vpa" and paper in wanted and study.data and not (study.data / SAMPLE_HISTORIES).is_file():
            missing.append(
                f"Table 'vpa' has no histories of Phi for all its samples: make them by `recipe vpa examples` and "
                f"`recipe perceive --examples ... --output {study.data / SAMPLE_HISTORIES}`."
            )
    if not any(paper in possible for paper in wanted):
        raise InputError(" ".join(missing) or "no table is left to make.")
    if study.controls and study.data is not None:
        missing.append("Control 'control-wrong' is left out: narrations of another domain are known on the world only.")
    names = needed_regimes([row for paper in possible for row in paper.regimes], ())
    text = [name for name in names if regime(name).input == "text"]
    if study.controls:
        text += [name for name in CONTROL_REGIMES if study.on_world or regime(name).corpus == "own"]
    same = {name: SAME_ON_WORLD[name] for name in text if study.on_world and name in SAME_ON_WORLD}
    stages, runs = StageList(), list[Run]()
    videos = {} if study.data is None else _video_sizes(study.data.resolve())
    _add_text(stages, runs, study, name, scale, [name for name in text if name not in same], videos)
    for alias, own in same.items():
        runs += [replace(run, regime=alias, same_as=own) for run in runs if run.regime == own]
    drawn = [name for name in names if regime(name).input == "video"]
    if drawn and study.on_world:
        _add_drawn_video(stages, runs, study, scale, drawn)
    elif drawn:
        _add_real_video(stages, runs, study, scale, drawn, videos)
    frontier = [Run(model, None) for model in study.endpoints.frontier]
    for run, model in zip(frontier, study.endpoints.frontier.values(), strict=True):
        plans = PlanSet(run.regime, run.file("plans"), view="perceived")
        asked = Sampling(model, True, (plans,), model.sampling or scale.sampling, 1, PROMPTS)
        _add_scored_plans(stages, study, run, asked, 1, study.endpoints.judge)
    return ScaleRuns(
        name, scale, tuple(possible), tuple(runs), tuple(frontier), tuple(stages), tuple(missing), study.on_world
    )


def _reason_against(paper: PaperTable, study: PaperStudy, scale: Scale, name: str) -> str:
    """Why a table cannot be made; empty where it can."""
    if paper.name == "frontier" and not study.endpoints.frontier:
        return "it asks models behind endpoints; name them as [frontier.NAME] in the file of --models."
    if paper.name == "video":
        if study.data is None and name != "tiny":
            return "the embedded world draws clips for the tiny scale only; give --data with a folder videos/."
        if study.data is not None and not scale.video_model:
            return f"scale {name!r} names no video model; take --scale 3b."
        if study.data is not None and not (study.data / "videos").is_dir():
            return f"{study.data / 'videos'} is not there; it holds the videos of CrossTask and NIV as VIDEO_ID.mp4."
    if paper.name in ("vpa", "video") and study.data is not None and find_benchmark(study.data, "crosstask") is None:
        return f"it needs CrossTask: {_origin('crosstask')}"
    return ""


def _origin(name: str) -> str:
    benchmark = BENCHMARKS[name]
    return f"{benchmark.download}; home page {benchmark.home}."


@dataclass(frozen=True, slots=True)
class _Configuration:
    """The text or the Video configuration: what its regimes start from and share."""

    scale: Scale
    model: str
    """A hub id or folder, or the model of a training run below the configuration's folder."""
    is_external_model: bool
    corpus: str
    folder: str = ""
    """Below the scale's."""
    shared: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all training runs."""


def _add_text(
    stages: StageList,
    runs: list[Run],
    study: PaperStudy,
    name: str,
    scale: Scale,
    names: Sequence[str],
    videos: "VideoSizes",
) -> None:
    """The text configuration: data, corpus, supervision, prompts, pseudo-labels, a base from nothing, regimes."""
    if study.data is None:
        drawn = data.DataSettings(WorldSource(**scale.world), 0)
        stages.add("data", data.draw_world, drawn, (TRAIN, TEST, DOCUMENTS, NARRATIONS), gpu=False)
        _add_supervision(stages, Supervision(study.phi), HistorySource(study.phi))
        corpus = data.FilesCorpus(scale.corpus, CORPUS, (Path(NARRATIONS),))
        if study.corpus is None:
            stages.add("corpus", data.build_files_corpus, corpus, (CORPUS,), (NARRATIONS,))
    else:
        root = study.data.resolve()
        benchmarks = tuple(name for name in BENCHMARKS if find_benchmark(root, name) is not None)
        if not any(role_of(name) == "in-domain" for name in benchmarks):
            named = listed([name for name in BENCHMARKS if role_of(name) == "in-domain"])
            remedy = f"add one of {named}; see `recipe data list`"
            raise InputError.at(study.data, "it holds no benchmark to train on", remedy)
        _add_cut_data(stages, study, scale, root, benchmarks, *_perceived(study, root, videos))
    corpus_path = CORPUS if study.corpus is None else str(study.corpus.resolve())
    own_corpus = [CORPUS] if study.corpus is None else []
    if any(regime(name).labels == "corpus" for name in names):
        mined = PseudoLabels(corpus_path, scale.pseudo)
        stages.add("pseudo", mine_pseudo_labels, mined, (PSEUDO, QUALITY), (ANNOTATED, TEST, *own_corpus))
    if not scale.model:
        given = {"seed": 0, **scale.base, "examples": DOCUMENTS, "output": BASE}
        add_training(stages, "base", Training(parse_config(given, BaseModelConfig, f"scale {name}, [base]")))
    if not study.on_world:
        judge, output = study.endpoints.judge, (measures.CONTROLS,)
        stages.add("controls", measures.score_controls, judge, output, (PROMPTS, TRAIN), gpu=judge is None)
    if any(regime(name).corpus == "wrong" for name in names):
        wrong = data.wrong_domain(WorldSource(**scale.world), scale.corpus, WRONG, 0)
        stages.add(WRONG, data.build_world_corpus, wrong, (WRONG,))
    vpa = table("vpa")
    if {*names} & {*vpa.regimes} and not _reason_against(vpa, study, scale, name):
        _add_samples(stages, study, scale)
    start = _Configuration(scale, scale.model or f"{BASE}/model", bool(scale.model), corpus_path)
    for name in names:
        _add_regime(stages, runs, study, start, name)


def _add_cut_data(
    stages: StageList,
    study: PaperStudy,
    scale: Scale,
    root: Path,
    benchmarks: tuple[str, ...],
    supervision: Supervision,
    prompts: HistorySource,
    folder: str = "",
) -> None:
    """Add the stages that cut examples from the benchmarks and index the narrations next to them. Raises InputError."""
    narrations = tuple(sorted((root / "narrations").glob("*.jsonl")))
    if not narrations and study.corpus is None:
        remedy = "put narrations there as .jsonl (docs/studies.md), or give a corpus with --corpus"
        raise InputError.at(root / "narrations", "no narrations for the corpus are there", remedy)
    if study.corpus is None and (empty := [file for file in narrations if not file.stat().st_size]):
        raise InputError.at(empty[0], "the file is empty", "write its narrations again, or take it away")
    source = FilesSource(
        type="files",
        narrations=narrations or (Path("none"),),
        benchmarks=benchmarks,
        documents=QUICK_DOCUMENTS if study.quick else DOCUMENTS_OF_BASE,
        train=scale.train or UNLIMITED,
        test=scale.test or UNLIMITED,
    )
    cut = data.DataSettings(source, 0, content=benchmarks_content(root, benchmarks), root=root)
    outputs = (TRAIN, TEST, DOCUMENTS)
    stages.add("data", data.cut_benchmarks, cut, outputs, ignored=INPUT_PATHS, gpu=False, folder=folder)
    _add_supervision(stages, supervision, prompts, folder)
    if study.corpus is None:
        held = fingerprint([file_sha256(file) for file in narrations])
        corpus = data.FilesCorpus(scale.corpus, CORPUS, narrations, held, without_tests=True)
        stages.add("corpus", data.build_files_corpus, corpus, (CORPUS,), (TEST,), ignored=INPUT_PATHS, folder=folder)


def _add_samples(stages: StageList, study: PaperStudy, scale: Scale) -> None:
    """The samples of Visual Planning for Assistance, and what chance and floors give on them."""
    root = None if study.data is None else study.data.resolve()
    files = tuple(file for file in (root / HISTORIES, root / SAMPLE_HISTORIES) if file.is_file()) if root else ()
    content = fingerprint([file_sha256(file) for file in files]) if files else ""
    source = SampleSource(study.phi, root, files, scale.test, content)
    outputs, read = (SAMPLES, LEFT_OUT["VPA"]), (TRAIN, PROMPTS)
    stages.add(VPA_SAMPLES, write_samples, source, outputs, read, ignored=("histories",), gpu=False)
    stages.add(FLOORS, measures.measure_floors, root, (measures.FLOOR_ROWS,), (SAMPLES, TRAIN), gpu=False)


def _add_supervision(stages: StageList, supervision: Supervision, prompts: HistorySource, folder: str = "") -> None:
    """What is trained on, and apart from it what is tested: files that the test lacks must not change the training."""
    places, written = ("traces", "histories", "videos"), (PROMPTS, LEFT_OUT["test"])
    stages.add("supervision", supervise, supervision, SUPERVISED, (TRAIN,), ignored=places, gpu=False, folder=folder)
    stages.add("prompts", write_prompts, prompts, written, (TRAIN, TEST), ignored=places, gpu=False, folder=folder)


def _perceived(study: PaperStudy, root: Path, videos: "VideoSizes") -> tuple[Supervision, HistorySource]:
    """What Phi read of the benchmarks' videos, from files where they are given.

    Test examples of the Video configuration's datasets need a video for every table, so that all tables are of the
    same examples; but not those of a dataset of which no video is there.
    """
    traces, histories = (file if file.is_file() else None for file in (root / TRACES, root / HISTORIES))
    contents = ["" if file is None else file_sha256(file) for file in (traces, histories)]
    tested = {name: sorted(sizes) for name, own in videos.items() if (sizes := own.get("test"))}
    prompts = HistorySource(
        study.phi,
        histories,
        videos=root / "videos" if tested else None,
        shown=tuple(tested),
        present=fingerprint(tested) if tested else "",
        content=contents[1],
    )
    return Supervision(study.phi, traces, content=contents[0]), prompts


def _add_drawn_video(stages: StageList, runs: list[Run], study: PaperStudy, scale: Scale, names: Sequence[str]) -> None:
    """The Video configuration on drawn clips: the tower and its pre-training are those of the video demo."""
    config = demo_config("video", quick=study.quick)
    assert isinstance(config, VideoConfig)
    drawn = data.DataSettings(config.source, 0, TextNoise(**config.noise))
    outputs = (TRAIN, TEST, DOCUMENTS, NARRATIONS)
    stages.add("data", data.draw_world, drawn, outputs, gpu=False, folder=VIDEO)
    perceived = Supervision(study.phi, cuts="annotated")
    _add_supervision(stages, perceived, HistorySource(study.phi, clean=True), VIDEO)
    base = base_config(config)
    assert base is not None
    add_training(stages, "base", Training(base), VIDEO)
    add_vision_stages(stages, config.vision_steps, base.hidden_size, 0, VIDEO)
    corpus = data.FilesCorpus(config.corpus, CORPUS, (Path(NARRATIONS),))
    stages.add("corpus", data.build_files_corpus, corpus, (CORPUS,), (NARRATIONS,), folder=VIDEO)
    # The settings are the demo's; the reward is the paper's, as in its table.
    grpo = {key: value for key, value in config.grpo.items() if key != "reward"}
    sizes = {"sft": config.sft, "grpo": grpo, "sampling": config.sampling, "samples": config.samples}
    own = scale.model_copy(update=sizes)
    start = _Configuration(own, f"{ALIGNED}/model", False, CORPUS, VIDEO, {"input": "video"})
    for name in names:
        _add_regime(stages, runs, study, start, name)


def _add_real_video(
    stages: StageList, runs: list[Run], study: PaperStudy, scale: Scale, names: Sequence[str], videos: "VideoSizes"
) -> None:
    """The Video configuration on the videos of `data`: trained on CrossTask alone (paper, section 4.4)."""
    assert study.data is not None
    root = study.data.resolve()
    benchmarks = tuple(name for name in VIDEO_BENCHMARKS if find_benchmark(root, name) is not None)
    supervision, prompts = _perceived(study, root, videos)
    trained, tested = (
        {name: sizes for name in benchmarks if (sizes := videos.get(name, {}).get(split))}
        for split in ("train", "test")
    )
    supervision = replace(
        supervision,
        # A simulated trace has no times: it is cut where the annotation is, so that the frames before fit both.
        cuts="annotated" if supervision.traces is None else "timed",
        videos=root / "videos",
        present=fingerprint(trained),
    )
    prompts = replace(prompts, clean=True, videos=root / "videos", shown=benchmarks, present=fingerprint(tested))
    _add_cut_data(stages, study, scale, root, benchmarks, supervision, prompts, VIDEO)
    shared = {"input": "video", "videos": str(root / "videos"), "skip_missing_videos": True}
    corpus = CORPUS if study.corpus is None else str(study.corpus.resolve())
    frames = {"frames": scale.frames.model_dump()}
    sft = merged_tables(scale.sft, scale.video_sft, frames)
    grpo = merged_tables(scale.grpo, scale.video_grpo, frames)
    on_video = scale.model_copy(update={"sft": sft, "grpo": grpo})
    start = _Configuration(on_video, scale.video_model, True, corpus, VIDEO, shared)
    for name in names:
        _add_regime(stages, runs, study, start, name)


def _add_regime(stages: StageList, runs: list[Run], study: PaperStudy, start: _Configuration, name: str) -> None:
    """A regime with every seed: its training, its plans, and what is measured of them."""
    chosen, scale, folder = regime(name), start.scale, start.folder
    weak_share = chosen.weak
    examples = ANNOTATED if weak_share is None else weak_file(round(100 * weak_share))
    examples = TOLD if chosen.prompts == "perceived" else examples
    shown = TRAIN if chosen.input == "video" and "videos" not in start.shared else ""
    corpus = WRONG if chosen.corpus == "wrong" else start.corpus
    # Without training there is nothing that a seed could change.
    for seed in study.seeds if chosen.sft is not None or chosen.rewarded else (None,):
        run = Run(name, seed, folder)
        runs.append(run)
        model, is_external = start.model, start.is_external_model
        for kind in ("sft", "grpo", "best_of_n"):
            if seed is None or getattr(chosen, kind) is None:
                continue
            output = f"runs/{run.name}/{kind.replace('_', '-')}"
            read = PSEUDO if kind == "sft" and chosen.labels == "corpus" else examples
            paths = {"model": model, "examples": read, "split": "", "output": output, **start.shared}
            paths |= {} if kind == "sft" else {"corpus": corpus}
            config = training_config(scale, chosen, kind, paths, seed)
            training = Training(config, is_external_model=is_external, shown=shown)
            add_training(stages, f"{kind.replace('_', '-')}-{run.name}", training, folder)
            model, is_external = f"{output}/model", False
        _add_measures(stages, study, start, run, model, is_external)


def _add_scored_plans(
    stages: StageList, study: PaperStudy, run: Run, sampled: Sampling, scored: int, judge: JudgeModel | None
) -> None:
    """The plans of a run, and the accuracies of the first `scored` of each prompt."""
    [plans], folder = sampled.plans, run.folder
    reads = [PROMPTS, *([] if sampled.is_external_model else [sampled.model.model])]
    is_local = not isinstance(sampled.model, EndpointModel)
    stages.add(f"plans-{run.name}", sample, sampled, (plans.file,), reads, gpu=is_local, folder=folder)
    judged = measures.Scoring(plans.file, f"scores/{run.name}.jsonl", scored, study.on_world, judge)
    uses_encoder, reads = judge is None and not study.on_world, [plans.file, PROMPTS]
    stages.add(f"scores-{run.name}", measures.score, judged, (judged.output,), reads, gpu=uses_encoder, folder=folder)


def _add_measures(
    stages: StageList, study: PaperStudy, start: _Configuration, run: Run, model: str, is_external: bool
) -> None:
    """The plans of a run's model, their scores, and what single tables measure of them."""
    chosen, scale, on_world = regime(run.regime), start.scale, study.on_world
    root = None if study.data is None else study.data.resolve()
    plans, diversity, vpa = (f"{kind}/{run.name}.jsonl" for kind in ("plans", "diversity", "vpa"))
    diverse = run.regime in table("diversity").regimes
    # Whether or not this call asks for that table: other tables use the same plans.
    samples = max(scale.samples, DIVERSITY_SAMPLES) if diverse and not study.quick else scale.samples
    sampled = Sampling(
        model=ModelConfig(model=model, engine=study.engine),
        is_external_model=is_external,
        plans=(PlanSet(run.regime, plans, run.seed, "video" if chosen.input == "video" else "perceived"),),
        sampling=scale.sampling,
        samples=samples,
        prompts=PROMPTS,
        videos=None if root is None else root / "videos",
        frames=scale.frames,
    )
    judge = study.endpoints.judge
    if judge is not None and chosen.input == "video":  # Phi read nothing for a planner that sees the video
        judge = judge.model_copy(update={"settings": judge.settings.model_copy(update={"history": "annotated"})})
    _add_scored_plans(stages, study, run, sampled, scale.samples, judge)
    if diverse:
        judge = study.endpoints.diversity_judge or study.endpoints.judge
        compared = measures.Scoring(plans, diversity, samples, on_world, judge)
        name, work, judged_files = f"diversity-{run.name}", measures.measure_diversity, (plans, PROMPTS)
        stages.add(name, work, compared, (diversity,), judged_files, gpu=judge is None, folder=run.folder)
    own_rows = [row for row in table("vpa").rows if row.regime == run.regime]
    if not own_rows or (root is not None and find_benchmark(root, "crosstask") is None):
        return
    planner = ModelConfig(model=model, engine=study.engine)
    direct = measures.NextActions(planner, is_external, vpa, scale.sampling, root, scale.test)
    needed = [SAMPLES, *([] if is_external else [model])]
    assessor = study.endpoints.assessor
    for row in own_rows:
        shown = replace(run, regime=row.name, folder="")
        settings = replace(direct, output=shown.file("vpa"), history=row.history)
        outputs, read_models, on_gpu = [settings.output], list[str](), True
        if row.method is not None:
            # VidAssist on the samples of the direct plans, with as many proposals whether one or two propose.
            searched_plans, both = shown.file("plans"), row.proposers == "both"
            settings = replace(
                settings,
                vidassist=VidAssistConfig(
                    method=row.method,
                    proposers=row.proposers,
                    candidates=2 if both else 4,
                    batch_size=scale.sampling.batch_size,
                ),
                original=assessor or ModelConfig(model=start.model, engine=study.engine),
                is_external_original=assessor is not None or start.is_external_model,
                plans=searched_plans,
            )
            outputs += (searched_plans, *(str(of(Path(searched_plans))) for of in (trace_of, manifest_of)))
            read_models = [] if start.is_external_model else [start.model]
            on_gpu = assessor is None or row.proposers != "original"
        reads = (*needed, *read_models)
        stages.add(f"{row.kind}-{run.name}", measures.next_actions, settings, outputs, reads, gpu=on_gpu)


VideoSizes = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Of each benchmark of the Video configuration, by split, the ids of the videos that are there and the sizes of their
files."""


def _video_sizes(root: Path) -> VideoSizes:
    """The videos of the Video configuration in `videos/`. Raises InputError."""
    if not (root / "videos").is_dir():
        return {}
    folder = VideoFolder(root / "videos")
    sizes: dict[str, dict[str, dict[str, int]]] = {}
    for name in VIDEO_BENCHMARKS:
        if find_benchmark(root, name) is None:
            continue
        by_split = sizes.setdefault(name, {})
        procedures = read_benchmarks(require_benchmarks(root, (name,)))
        for split, video_id in sorted({(row.split, row.video_id) for row in procedures}):
            if (file := folder.find(name, video_id)) is not None:
                by_split.setdefault(split, {})[video_id] = file.stat().st_size
    return sizes
