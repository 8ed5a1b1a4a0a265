"""The runs of a study as stages: data, corpus, pseudo-labels, training, plans, scores; each done once for all tables.

Paths below the folder of a scale:

    data/                       train.jsonl, test.jsonl, documents.jsonl; annotated.jsonl: all training examples;
                                weak-P.jsonl: those with a pseudo-trace, P% weak; prompts.jsonl: the test examples that
                                every system is tested on, with the history that Phi reads; absent.json and
                                absent-training.json: what is left out; pseudo.jsonl
    corpus/ base/               the verification corpus; a base from nothing
    runs/REGIME-SEED/           sft/ and grpo/: training runs, as `recipe train` makes them
    plans/RUN.jsonl             sampled plans of a run
    scores/RUN.jsonl            the accuracy of each plan
    diversity/RUN.jsonl         the diversity of each prompt's plans
    vpa/RUN.jsonl               the measures of each sample of Visual Planning for Assistance; of VidAssist's
                                rows, too, whose plans, traces and manifests are in plans/
    answers/                    answers of models behind endpoints, and in vidassist/ to all questions of VidAssist
    video/                      the same of the Video configuration
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from recipe.artifacts import file_sha256, fingerprint
from recipe.config import BaseModelConfig, ModelConfig, parse_config
from recipe.config.planning import VidAssistConfig
from recipe.data.benchmarks import BENCHMARKS, PAPERS, find_benchmark, read_benchmarks, require_benchmarks
from recipe.errors import InputError, listed
from recipe.perception.videos import VideoFolder
from recipe.planning.vidassist.trace import manifest_of, trace_of
from recipe.progress import Progress
from recipe.world.examples import TextNoise
from recipe_studies.experiments import video
from recipe_studies.experiments.design import (
    ALIGNED,
    ATTRIBUTES,
    BASE,
    CORPUS,
    DOCUMENTS,
    NARRATIONS,
    TEST,
    TRAIN,
    WORDS,
    WRONG,
)
from recipe_studies.experiments.schedule import Stage, Work
from recipe_studies.experiments.settings import FilesSource, VideoConfig, WorldSource, demo_config
from recipe_studies.experiments.stages import (
    CorpusBuild,
    FilesData,
    Training,
    WorldData,
    build,
    cut_benchmarks,
    draw_world,
    train,
    wrong_domain,
)
from recipe_studies.reproduce import measures
from recipe_studies.reproduce.data import (
    ANNOTATED,
    HISTORIES,
    LEFT_OUT,
    PROMPTS,
    PSEUDO,
    QUALITY,
    TRACES,
    Prompts,
    PseudoLabels,
    Supervision,
    label,
    supervise,
    weak_file,
    write_prompts,
)
from recipe_studies.reproduce.study import (
    CONTROL_REGIMES,
    Regime,
    Scale,
    Study,
    best_of_n_config,
    check_inputs,
    for_videos,
    grpo_config,
    needed_regimes,
    regime,
    sft_config,
    sized,
)
from recipe_studies.reproduce.tables import DIVERSITY_SAMPLES, PERCENTAGES, PaperRow, PaperTable, table, tables, weak

SUPERVISED = (ANNOTATED, *map(weak_file, PERCENTAGES), LEFT_OUT["training"])
SAME_ON_WORLD = {weak("rl", 0): "rl", weak("sft", 0): "sft-annotated"}
"""Regimes whose runs are those of another one on the world: there all examples of a scale have a pseudo-trace."""
VIDEO = "video"
"""Folder of the Video configuration."""
VIDEO_BENCHMARKS = ("crosstask", "niv")
"""Its training and tests (paper, section 4.4)."""
ALL_OF_THEM = 10**9


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

    @property
    def stage(self) -> str:
        """Begins the names of its stages."""
        return "-".join(filter(None, (self.folder, self.name)))

    def file(self, kind: str) -> str:
        """Its file in `plans/`, `scores/`, `diversity/` or `vpa/`, below the run folder."""
        return str(Path(self.folder, kind, f"{self.name}.jsonl"))


@dataclass(frozen=True, slots=True)
class Below:
    """Work that is done in a folder of the run folder."""

    folder: str
    work: Work = field(repr=False)
    """Not in the repr, which is the stage's fingerprint: a function's repr holds its address."""
    settings: Any


def below(run_dir: Path, settings: Below, progress: Progress) -> None:
    """Do the work of a stage in its own folder of the run folder."""
    settings.work(run_dir / settings.folder, settings.settings, progress)


@dataclass(frozen=True, slots=True)
class ScaleRuns:
    """All that a study does at one scale."""

    name: str
    scale: Scale
    tables: tuple[PaperTable, ...]
    """The tables that can be made here."""
    runs: tuple[Run, ...]
    frontier: tuple[Run, ...]
    """Models behind endpoints, each a regime of its own by the model's name."""
    stages: tuple[Stage, ...]
    missing: tuple[str, ...]
    """Tables and datasets that cannot be had, a sentence each: what is missing and where it comes from. Before them,
    what differs from the scale in what the study is given."""
    on_world: bool

    def runs_of(self, name: str) -> list[Run]:
        """The runs of a regime, one for each seed."""
        return [run for run in self.runs if run.regime == name]


def plan_runs(study: Study, name: str) -> ScaleRuns:
    """The stages of a study at a scale, below the scale's folder.

    Raises ConfigError for a regime or scale that is not there, InputError where the data of all tables are missing.
    """
    scale = sized(name, quick=study.quick, changes=study.changes)
    if study.engine == "vllm":
        scale = scale.model_copy(update={"grpo": {**scale.grpo, "rollouts": "vllm"}})
    wanted = tables(study.tables)
    missing = [*check_inputs(study, scale), *_missing_datasets(study)]
    possible: list[PaperTable] = []
    for one in wanted:
        if reason := _reason_against(one, study, scale, name):
            missing.append(f"Table {one.name!r} is left out: {reason}")
        else:
            possible.append(one)
    if not possible:
        raise InputError(" ".join(missing) or "no table is left to make.")
    if study.controls and not study.on_world:
        missing.append("Control 'control-wrong' is left out: narrations of another domain are known on the world only.")
    maker = _Maker(study, name, scale, tuple(possible))
    stages = maker.stages()
    return ScaleRuns(
        name,
        scale,
        tuple(possible),
        tuple(maker.runs),
        tuple(maker.frontier),
        tuple(stages),
        tuple(missing),
        study.on_world,
    )


def table_stages(made: ScaleRuns, one: PaperTable) -> set[str]:
    """Names of the stages that measure the plans of a table's runs."""
    kinds = ("scores", *({one.name} & {"diversity", "vpa"}))
    runs = [run for name in one.regimes for run in made.runs_of(name)]
    runs += made.frontier if one.name == "frontier" else ()
    searched = [(row, run) for row in one.rows if row.proposers is not None for run in made.runs_of(row.regime)]
    return {
        *(f"{kind}-{run.stage}" for kind in kinds for run in runs),
        *(f"vidassist-{row.proposers}-{run.stage}" for row, run in searched),
    }


def _reason_against(one: PaperTable, study: Study, scale: Scale, name: str) -> str:
    """Why a table cannot be made; empty where it can."""
    if one.name == "frontier" and not study.endpoints.frontier:
        return "it asks models behind endpoints; name them as [frontier.NAME] in the file of --models."
    if one.name == "video":
        if study.data is None and name != "tiny":
            return "the embedded world draws clips for the tiny scale only; give --data with a folder videos/."
        if study.data is not None and not scale.video_model:
            return f"scale {name!r} names no video model; take --scale 3b."
        if study.data is not None and not (study.data / "videos").is_dir():
            return f"{study.data / 'videos'} is not there; it holds the videos of CrossTask and NIV as VIDEO_ID.mp4."
    if one.name in ("vpa", "video") and study.data is not None and find_benchmark(study.data, "crosstask") is None:
        return f"it needs CrossTask: {_origin('crosstask')}"
    return ""


def _missing_datasets(study: Study) -> Iterator[str]:
    if study.data is None:
        return
    absent = [name for name in PAPERS if find_benchmark(study.data, name) is None]
    for name in absent:
        yield f"Dataset {name} is not in {study.data}: {_origin(name)}"


def _origin(name: str) -> str:
    one = BENCHMARKS[name]
    return f"{one.download}; home page {one.home}."


class _Maker:
    """Puts the stages of one scale together."""

    def __init__(self, study: Study, name: str, scale: Scale, made: tuple[PaperTable, ...]) -> None:
        self._study, self._name, self._scale, self._made = study, name, scale, made
        self.runs: list[Run] = []
        self.frontier: list[Run] = []

    def stages(self) -> list[Stage]:
        """All stages, run by run: a run is measured before the next one, so that tables fill up one by one."""
        names = needed_regimes([row for one in self._made for row in one.regimes], self._study.regimes)
        text = [one for one in names if regime(one).input == "text"]
        if text and self._study.controls:
            text += [one for one in CONTROL_REGIMES if self._study.on_world or regime(one).corpus == "own"]
        drawn = [one for one in names if regime(one).input == "video"]
        result: list[Stage] = []
        same = {one: SAME_ON_WORLD[one] for one in text if self._study.on_world and one in SAME_ON_WORLD}
        if text:
            result += self._text(list(dict.fromkeys(same.get(one, one) for one in text)))
            self.runs += [
                replace(run, regime=one, same_as=run.regime) for one in same for run in self.runs_of(same[one])
            ]
        if drawn:
            result += self._drawn_video(drawn) if self._study.on_world else self._real_video(drawn)
        if any(one.name == "frontier" for one in self._made):
            result += self._asked()
        return result

    def runs_of(self, name: str) -> list[Run]:
        """The runs of a regime so far."""
        return [run for run in self.runs if run.regime == name]

    def _asked(self) -> Iterator[Stage]:
        """Plans of the models behind endpoints, and their scores."""
        for name, config in self._study.endpoints.frontier.items():
            run = Run(name, None)
            self.frontier.append(run)
            plans, scores = run.file("plans"), run.file("scores")
            asked = measures.FrontierPlans(config, plans, config.sampling or self._scale.sampling)
            yield _stage(run, "plans", measures.ask_frontier, asked, (plans,), ("prompts",), gpu=False)
            judged = measures.Scoring(plans, scores, 1, self._study.on_world, self._study.endpoints.judge)
            local = not self._study.on_world and judged.judge is None
            yield _stage(run, "scores", measures.score, judged, (scores,), (f"plans-{run.stage}",), gpu=local)

    def _text(self, names: Sequence[str]) -> list[Stage]:
        stages = self._sources(labels=any(regime(one).labels == "corpus" for one in names))
        if not self._scale.model:
            given = {"seed": 0, **self._scale.base, "examples": DOCUMENTS, "output": BASE}
            base = parse_config(given, BaseModelConfig, f"scale {self._name}, [base]")
            stages.append(Stage("base", train, Training(base), (BASE,), needs=("data",)))
        if not self._study.on_world:
            controls = measures.ControlScoring(self._study.endpoints.judge)
            needs, local = ("data", "prompts"), controls.judge is None
            stages.append(Stage("controls", measures.score_controls, controls, (measures.CONTROLS,), needs, local))
        if any(regime(one).corpus == "wrong" for one in names):
            stages.append(wrong_domain(WorldSource(**self._scale.world), self._scale.corpus, 0))
        start = _Start(
            self._scale.model or f"{BASE}/model", bool(self._scale.model), () if self._scale.model else ("base",)
        )
        return stages + self._regimes(names, start, self._scale, corpus=self._corpus())

    def _corpus(self) -> str:
        return CORPUS if self._study.corpus is None else str(self._study.corpus.resolve())

    def _sources(self, *, labels: bool) -> list[Stage]:
        """Data, corpus, supervision, prompts and pseudo-labels."""
        study, scale = self._study, self._scale
        if study.data is None:
            drawn = WorldData(WorldSource(**scale.world), 0)
            data = Stage("data", draw_world, drawn, (TRAIN, TEST, DOCUMENTS, NARRATIONS), gpu=False)
            corpus, perceived, prompts = CorpusBuild(scale.corpus), Supervision(study.phi), Prompts(study.phi)
        else:
            found = tuple(name for name in PAPERS if find_benchmark(study.data, name) is not None)
            if not any(BENCHMARKS[name].role == "in-domain" for name in found):
                named = listed([name for name, one in BENCHMARKS.items() if one.role == "in-domain"])
                remedy = f"add one of {named}; see `recipe data list`"
                raise InputError.at(study.data, "it holds no benchmark to train on", remedy)
            data, corpus = self._cut_data(study.data.resolve(), found)
            perceived, prompts = self._perceived(study.data.resolve())
        stages = [data, *_supervision(perceived, prompts)]
        if study.corpus is None:
            stages.append(Stage("corpus", build, corpus, (CORPUS,), needs=("data",)))
        if labels:
            mined = PseudoLabels(self._corpus(), scale.pseudo)
            needed = ("supervision", *(() if study.corpus else ("corpus",)))
            stages.append(Stage("pseudo", label, mined, (PSEUDO, QUALITY), needed))
        return stages

    def _cut_data(self, root: Path, benchmarks: tuple[str, ...]) -> tuple[Stage, CorpusBuild]:
        """The stage that cuts benchmarks, and the corpus of the narrations beside them. Raises InputError."""
        narrations = tuple(sorted((root / "narrations").glob("*.jsonl")))
        if not narrations and self._study.corpus is None:
            remedy = "put narrations there as .jsonl (docs/narrations.md), or give a corpus with --corpus"
            raise InputError.at(root / "narrations", "no narrations for the corpus are there", remedy)
        if self._study.corpus is None and (empty := [file for file in narrations if not file.stat().st_size]):
            raise InputError.at(empty[0], "the file is empty", "write its narrations again, or take it away")
        source = FilesSource(
            type="files",
            narrations=narrations or (Path("none"),),
            benchmarks=benchmarks,
            documents=self._scale.documents,
            train=self._scale.train or ALL_OF_THEM,
            test=self._scale.test or ALL_OF_THEM,
        )
        content = fingerprint([(name, _sizes(root, name)) for name in benchmarks])
        drawn = FilesData(source, 0, content, root)
        data = Stage("data", cut_benchmarks, drawn, (TRAIN, TEST, DOCUMENTS), gpu=False)
        held = fingerprint([file_sha256(file) for file in narrations])
        return data, CorpusBuild(self._scale.corpus, held, narrations, without_tests=True)

    def _perceived(self, root: Path) -> tuple[Supervision, Prompts]:
        """What Phi read of the benchmarks' videos, from files where they are given.

        Test examples of the Video configuration's datasets need a video for every table, so that all tables are of the
        same examples; but not those of a dataset of which no video is there.
        """
        traces, histories = (file if file.is_file() else None for file in (root / TRACES, root / HISTORIES))
        tested = {name: sizes for name in VIDEO_BENCHMARKS if (sizes := _video_sizes(root, name, "test"))}
        present = fingerprint({name: sorted(sizes) for name, sizes in tested.items()}) if tested else ""
        prompts = Prompts(self._study.phi, histories, False, root / "videos" if tested else None, (*tested,), present)
        return Supervision(self._study.phi, traces), prompts

    def _regimes(
        self,
        names: Sequence[str],
        start: "_Start",
        scale: Scale,
        corpus: str,
        folder: str = "",
        shared: Mapping[str, Any] = {},
    ) -> list[Stage]:
        """Training, plans and measures of regimes that start from one model."""
        result: list[Stage] = []
        built = () if self._study.corpus is not None else (_joined(folder, "corpus"),)
        for name in names:
            chosen = regime(name)
            for seed in self._study.seeds if chosen.trained else (None,):
                run = Run(name, seed, folder)
                self.runs.append(run)
                model, elsewhere, needs = start.model, start.elsewhere, start.needs
                if seed is not None:
                    stages = list(_training(run, chosen, seed, start, scale, corpus, built, shared or {}))
                    result += stages
                    last = stages[-1]
                    model, elsewhere, needs = f"{_output(last)}/model", False, (last.name,)
                result += self._measured(run, chosen, start, model, elsewhere, needs, scale)
        return result

    def _measured(
        self,
        run: Run,
        chosen: Regime,
        start: "_Start",
        model: str,
        elsewhere: bool,
        needs: tuple[str, ...],
        scale: Scale,
    ) -> Iterator[Stage]:
        wanted = {one.name for one in self._made if run.regime in one.regimes}
        # Whether or not this call asks for that table: its plans are those of the others.
        diverse = run.regime in table("diversity").regimes
        samples = max(scale.samples, DIVERSITY_SAMPLES) if diverse else scale.samples
        if self._study.quick:
            samples = scale.samples
        prompted = (_joined(run.folder, "prompts"),)
        plans = replace(run, folder="").file("plans")
        root = None if self._study.data is None else self._study.data.resolve()
        sampled = measures.Sampling(
            model=model,
            elsewhere=elsewhere,
            output=plans,
            sampling=scale.sampling,
            samples=samples,
            engine=self._study.engine,
            input=chosen.input,
            videos=None if root is None else root / "videos",
            frames=scale.frames,
        )
        yield _stage(run, "plans", measures.sample, sampled, (plans,), (*needs, *prompted))
        scores = replace(run, folder="").file("scores")
        judge = self._study.endpoints.judge
        if judge is not None and chosen.input == "video":  # Phi read nothing for a planner that sees the video
            judge = judge.model_copy(update={"settings": judge.settings.model_copy(update={"history": "annotated"})})
        judged = measures.Scoring(plans, scores, scale.samples, self._study.on_world, judge)
        on_gpu = judged.judge is None and not self._study.on_world
        yield _stage(run, "scores", measures.score, judged, (scores,), (f"plans-{run.stage}",), gpu=on_gpu)
        if "diversity" in wanted:
            target = replace(run, folder="").file("diversity")
            judge = self._study.endpoints.diversity_judge or self._study.endpoints.judge
            compared = measures.Diversity(plans, target, samples, self._study.on_world, judge)
            needed = (f"plans-{run.stage}",)
            yield _stage(run, "diversity", measures.compare, compared, (target,), needed, gpu=judge is None)
        if "vpa" in wanted:
            target = replace(run, folder="").file("vpa")
            mapped = measures.NextActions(
                model, elsewhere, target, scale.sampling, root, self._study.engine, scale.test
            )
            yield _stage(run, "vpa", measures.next_actions, mapped, (target,), (*needs, *prompted))
            for row in table("vpa").rows:
                if row.regime == run.regime and row.proposers is not None:
                    yield self._searched(row, run, start, mapped, (*needs, *start.needs, *prompted))

    def _searched(
        self, row: PaperRow, run: Run, start: "_Start", direct: measures.NextActions, needs: tuple[str, ...]
    ) -> Stage:
        """VidAssist on the samples of the direct plans, with as many proposals whether one or two propose."""
        assessor = self._study.endpoints.assessor
        shown = replace(run, regime=row.name, folder="")
        target, plans = shown.file("vpa"), shown.file("plans")
        config = VidAssistConfig(
            proposers=row.proposers,
            candidates=2 if row.proposers == "both" else 4,
            batch_size=direct.sampling.batch_size,
        )
        settings = replace(
            direct,
            output=target,
            vidassist=config,
            original=assessor or ModelConfig(model=start.model, engine=direct.engine),
            original_elsewhere=assessor is not None or start.elsewhere,
            plans=plans,
        )
        outputs = (target, plans, *(str(of(Path(plans))) for of in (trace_of, manifest_of)))
        on_gpu = assessor is None or row.proposers != "original"
        return _stage(run, f"vidassist-{row.proposers}", measures.next_actions, settings, outputs, needs, gpu=on_gpu)

    def _drawn_video(self, names: Sequence[str]) -> list[Stage]:
        """The Video configuration on drawn clips: the tower and its pre-training are those of the video demo."""
        config = demo_config("video", quick=self._study.quick)
        assert isinstance(config, VideoConfig)
        noise = TextNoise(**config.noise)
        given = {"seed": 0, **config.base, "examples": DOCUMENTS, "output": BASE}
        base = parse_config(given, BaseModelConfig, "[base]")
        pretraining = video.VisionPretraining(config.vision, base.hidden_size, 0)
        perceived = Supervision(self._study.phi, cuts="annotated")
        drawn = WorldData(config.source, 0, noise)
        stages = [
            Stage("data", draw_world, drawn, (TRAIN, TEST, DOCUMENTS, NARRATIONS), gpu=False),
            *_supervision(perceived, Prompts(self._study.phi, clean=True)),
            Stage("base", train, Training(base), (BASE,), needs=("data",)),
            Stage("attributes", video.learn_symbols, pretraining, (ATTRIBUTES,)),
            Stage("words", video.learn_word_embeddings, pretraining, (WORDS,), needs=("base", "attributes")),
            Stage("align", video.align, pretraining, (ALIGNED,), needs=("words", "data")),
            Stage("corpus", build, CorpusBuild(config.corpus), (CORPUS,), needs=("data",)),
        ]
        # The settings are the demo's; the reward is the paper's, as in its table.
        grpo = {key: value for key, value in config.grpo.items() if key != "reward"}
        sizes = {"sft": config.sft, "grpo": grpo, "sampling": config.sampling, "samples": config.samples}
        scale = self._scale.model_copy(update=sizes)
        start = _Start(f"{ALIGNED}/model", False, (_joined(VIDEO, "align"),))
        trained = self._regimes(names, start, scale, CORPUS, VIDEO, shared={"input": "video"})
        return [_moved(stage, VIDEO) for stage in stages] + trained

    def _real_video(self, names: Sequence[str]) -> list[Stage]:
        """The Video configuration on the videos of `data`: trained on CrossTask alone (paper, section 4.4)."""
        assert self._study.data is not None
        root = self._study.data.resolve()
        found = tuple(name for name in VIDEO_BENCHMARKS if find_benchmark(root, name) is not None)
        data, corpus = self._cut_data(root, found)
        perceived, prompts = self._perceived(root)
        trained, tested = (
            {name: sizes for name in found if (sizes := _video_sizes(root, name, split))} for split in ("train", "test")
        )
        perceived = replace(
            perceived,
            # A simulated trace has no times: it is cut where the annotation is, so that the frames before fit both.
            cuts="annotated" if perceived.traces is None else "timed",
            videos=root / "videos",
            present=fingerprint(trained),
        )
        prompts = replace(prompts, clean=True, videos=root / "videos", shown=found, present=fingerprint(tested))
        stages = [data, *_supervision(perceived, prompts)]
        if self._study.corpus is None:
            stages.append(Stage("corpus", build, corpus, (CORPUS,), needs=("data",)))
        start = _Start(self._scale.video_model, True, ())
        shared = {"input": "video", "videos": str(root / "videos"), "skip_missing_videos": True}
        runs = self._regimes(names, start, for_videos(self._scale), self._corpus(), VIDEO, shared)
        return [_moved(stage, VIDEO) for stage in stages] + runs


@dataclass(frozen=True, slots=True)
class _Start:
    """The model that regimes start from."""

    model: str
    elsewhere: bool
    needs: tuple[str, ...]


def _training(
    run: Run,
    chosen: Regime,
    seed: int,
    start: _Start,
    scale: Scale,
    corpus: str,
    built: tuple[str, ...],
    shared: Mapping[str, Any],
) -> Iterator[Stage]:
    model, elsewhere, needs = start.model, start.elsewhere, (*start.needs, _joined(run.folder, "supervision"))
    examples = ANNOTATED if chosen.weak is None else weak_file(round(100 * chosen.weak))
    shown = TRAIN if chosen.input == "video" and "videos" not in shared else ""
    if chosen.sft is not None:
        mined = chosen.labels == "corpus"
        output = f"runs/{run.name}/sft"
        paths = {"model": model, "examples": PSEUDO if mined else examples, "split": "", "output": output, **shared}
        settings = Training(sft_config(scale, chosen, paths, seed), elsewhere=elsewhere, shown=shown)
        yield _stage(run, "sft", train, settings, (output,), (*needs, *(("pseudo",) if mined else ())))
        model, elsewhere, needs = f"{output}/model", False, (f"sft-{run.stage}", *needs)
    if chosen.rewarded:
        kind = "grpo" if chosen.grpo is not None else "best-of-n"
        output = f"runs/{run.name}/{kind}"
        if chosen.corpus == "wrong":
            corpus, built = WRONG, (WRONG,)
        paths = {"model": model, "examples": examples, "split": "", "output": output, "corpus": corpus, **shared}
        configured = grpo_config if chosen.grpo is not None else best_of_n_config
        settings = Training(configured(scale, chosen, paths, seed), elsewhere=elsewhere, shown=shown)
        yield _stage(run, kind, train, settings, (output,), (*needs, *built))


def _supervision(perceived: Supervision, prompts: Prompts) -> list[Stage]:
    """What is trained on, and apart from it what is tested: files that the test lacks must not change the training."""
    return [
        Stage("supervision", supervise, perceived, SUPERVISED, needs=("data",), gpu=False),
        Stage("prompts", write_prompts, prompts, (PROMPTS, LEFT_OUT["test"]), needs=("data",), gpu=False),
    ]


def _stage(
    run: Run,
    kind: str,
    work: Work,
    settings: Any,
    outputs: tuple[str, ...],
    needs: tuple[str, ...],
    *,
    gpu: bool = True,
) -> Stage:
    """A stage of a run; its outputs are given below the run's folder."""
    name = f"{kind}-{run.stage}"
    if not run.folder:
        return Stage(name, work, settings, outputs, needs, gpu)
    placed = tuple(str(Path(run.folder, output)) for output in outputs)
    return Stage(name, below, Below(run.folder, work, settings), placed, needs, gpu)


def _moved(stage: Stage, folder: str) -> Stage:
    """The stage in a folder of its own below the run folder."""
    return Stage(
        _joined(folder, stage.name),
        below,
        Below(folder, stage.work, stage.settings),
        tuple(str(Path(folder, output)) for output in stage.outputs),
        tuple(_joined(folder, need) for need in stage.needs),
        stage.gpu,
    )


def _output(stage: Stage) -> str:
    """Folder of a training stage, below the folder that the stage works in."""
    [output] = stage.outputs
    return str(Path(output).relative_to(stage.settings.folder)) if isinstance(stage.settings, Below) else output


def _joined(folder: str, name: str) -> str:
    return f"{folder}-{name}" if folder else name


def _video_sizes(root: Path, name: str, split: str) -> dict[str, int]:
    """Video id to the size of its file, of a benchmark's videos of a split that are in `videos/`. Raises InputError."""
    if not (root / "videos").is_dir() or find_benchmark(root, name) is None:
        return {}
    folder = VideoFolder(root / "videos")
    ids = _video_ids(root, name, split, fingerprint(_sizes(root, name)))
    return {one: file.stat().st_size for one in ids if (file := folder.find(name, one)) is not None}


@cache
def _video_ids(root: Path, name: str, split: str, _content: str) -> list[str]:
    """The videos of a benchmark's split; a plan is made several times a call, and reading takes a second."""
    return sorted(one.video_id for one in read_benchmarks(require_benchmarks(root, (name,))) if one.split == split)


def _sizes(root: Path, name: str) -> list[tuple[str, int]]:
    """Files of a benchmark and their sizes: to hash hundreds of thousands of them would take minutes."""
    folder = find_benchmark(root, name)
    assert folder is not None
    return [
        (str(file.relative_to(folder)), file.stat().st_size) for file in sorted(folder.rglob("*")) if file.is_file()
    ]
