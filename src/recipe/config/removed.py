"""Names that were removed from the program: what happened to each, and what to use instead.

The only trace of them in the code. Whoever gives such a name gets its sentence in place of "unknown".
"""

from collections.abc import Mapping, Sequence

_ONE_PROTOCOL = "no published row needs another one than VLaMP's, which is always used; leave it out"
_WEB_PROCEDURES = "it is not in the paper; give its rows as your own procedures: a goal and its steps a line"
_PROXY = "a proxy limits connections and closes slow clients (docs/production.md); leave it out"
_ALWAYS = "it always has the value that was its default; leave it out"
_LIMIT = "the limit is fixed now; leave it out"
_PAGE = """max_plans plans max_steps max_characters max_body max_clip max_clip_seconds clips decoders probe_seconds
decode_seconds queue readers readers_per_run keep_seconds absent_seconds drain_seconds"""
_VPA = ("recipe evaluate vpa", "recipe vpa examples", "recipe vpa plan")

REMOVED: Mapping[str, str] = {
    # Commands and options.
    "recipe corpus adapt": "rewards gained nothing from an adapted encoder; build the corpus with --encoder minilm",
    "recipe corpus caption": "captions in place of speech gained nothing; build the corpus from the speech itself",
    "recipe reward audit --protocol": "leaving one source out is a script now; run benchmarks/lodo.py of the project",
    "recipe reward explain --videos": "it belonged to frames as evidence, from which the reward gained nothing",
    "recipe evaluate judge --rubric critical-failures": "it is not in the paper; use --rubric six-criteria or a rubric "
    "file of your own",
    "recipe evaluate judge --prompt": "it belonged to critical failures; put your own prompt into the file of --rubric",
    "recipe evaluate ratings": "no page used it; compare people with a judge by `recipe evaluate agreement --ratings`",
    "recipe evaluate inspect": "no page used it; plans are run and shown in Inspect AI by `inspect eval recipe/plans`",
    "recipe evaluate agreement --template": "no page used it; write a table with example_id and the criteria",
    "recipe evaluate agreement --limit": "it belonged to --template, which was removed too",
    "recipe plan --search beam": "at equal tokens it was worse than recombine; use --search recombine",
    "recipe plan --branch": "it belonged to the search by beam; --samples sets how many plans recombine samples",
    "recipe serve --search beam": "at equal tokens it was worse than recombine; use --search recombine",
    "recipe serve --branch": "it belonged to the search by beam; --samples sets how many plans recombine samples",
    **{f"{command} {option}": _ONE_PROTOCOL for command in _VPA for option in ("--rule", "--protocol", "--order")},
    "recipe evaluate vpa --taxonomy": "actions are always the 105 different texts; leave it out",
    "recipe train average": "means of weights gained nothing on four of five corpora; let validation choose a run",
    "recipe reward serve --per-address": _PROXY,
    "recipe board serve --per-address": _PROXY,
    "recipe reproduce credit": "credit for steps gained nothing",
    "recipe data prepare --benchmark how2bench": _WEB_PROCEDURES,
    "recipe corpus build --format how2mine": _WEB_PROCEDURES,
    **{f"recipe reward serve --max-{key}": _LIMIT for key in ("characters", "lines", "body")},
    **{f"recipe reward serve --{key}": _LIMIT for key in ("queue", "batch")},
    **{f"recipe data pseudo --{key}": _ALWAYS for key in ("pool-size", "min-similarity", "cuts")},
    # Settings.
    "BestOfNConfig.margin": "no page shows that it gains; leave it out, and choose prompts by min_coverage",
    "ModelConfig.jpeg_quality": "frames are sent at 85; leave it out, and bound their size by max_pixels",
    "ModelConfig.token_limit": "the name that a host takes is found out; leave it out, or give it in extra_body",
    "ModelConfig.send_seed": "a host that refuses seeds is sent none; leave it out, or set seed to null in extra_body",
    "VidAssistConfig.weights": "value functions count alike; leave it out, and name those that count by values",
    "GroundedConfig.repeats": "a repeated step loses a tenth; leave it out, and use trust where repeats are true steps",
    "GroundedConfig.language_model": "the order of steps by a language model gained nothing on average; leave it out",
    "GroundedConfig.model_order": "it was the weight of `language_model`, which was removed too; leave it out",
    "GroundedConfig.permutations": "it belonged to `language_model`, which was removed too; leave it out",
    "GroundedConfig.abstain_below": "abstaining lost quality; leave it out, and choose prompts by min_coverage",
    "ValidationSettings.temperature": "validation samples at the temperature of the roll-outs; set temperature instead",
    "GRPOConfig.kl_budget": "its gain was within the noise; validate with patience, which keeps the best step",
    "GRPOConfig.credit": "credit for steps gained nothing over credit for whole plans; leave it out",
    "BestOfNConfig.choose=composed": "composed plans taught no more than the best ones; leave it out",
    "BestOfNConfig.credit": "credit for steps gained nothing over credit for whole plans; leave it out",
    "ProceduresSource.wrong_narrations": "the wrong corpus is speech of the goals that the base knows; leave it out, "
    "and give known_share",
    "ProceduresSource.prompt_share": "half of the training videos are prompts, always; leave it out",
    "Experiment.shown": "the report shows three prompts of each split; leave it out: rows/ holds all plans",
    "Experiment.workers": "it is an option of the command; leave it out, and give --workers",
    "SelfTrainingSettings.prompts": "a self-trained reward always learns from 120 pseudo-prompts at most; leave it out",
    "SeededExperiment.controls": "views are the controls on video, and arms names those of teaching; leave it out",
    "VideoConfig.vision": "the visual tower is always built alike; leave it out, or give vision_steps",
    "StudySettings.documents": "a scale always reads 16,000 examples, an experiment source.documents; leave it out",
    "TeachingConfig.levels": "the learning law is a finished experiment; leave it out",
    **{
        f"TeachingConfig.arms={arm}-steps": "credit for steps gained nothing; name the arm without -steps"
        for arm in ("narrations", "lists", "validity")
    },
    "ExperimentConfig.kind=comparison": "compare rewards by kind = 'teaching', or by benchmarks/comparison.py",
    "RewardConfig.frames": "frames as evidence gained nothing in the reward; leave the table out",
    "ModelConfig.continues": "it belonged to the search by beam; leave it out",
    "SearchConfig.search=beam": "at equal tokens it was worse than recombine; use recombine",
    **{f"PageSettings.{key}": _LIMIT for key in _PAGE.split()},
    "SearchConfig.branch": "it belonged to the search by beam; samples sets how many plans recombine samples",
}
"""Keyed by what a user wrote: a command; a command with an option, or with an option and its value; a class of settings
with a key, or with a key and its value (`SearchConfig.search=beam`)."""


def removed_setting(kind: type, key: str, value: object = None) -> str | None:
    """What happened to a key of a class of settings or of its bases, or to this value of it; None where nothing did."""
    fixed: Mapping[str, object] = getattr(kind, "fixed", {})
    names = [f"{table.__name__}.{key}" for table in kind.__mro__]
    rows = (REMOVED.get(row) for name in names for row in (name, f"{name}={value}"))
    always = f"it is always {fixed[key]!r}; leave it out" if key in fixed and value is None else None
    return next((row for row in rows if row is not None), always)


def removed_option(command: str, words: Sequence[str]) -> str | None:
    """The sentence for the first removed command, option or value of an option among the words after `command`."""
    line = [word for given in words for word in (given.split("=", 1) if given.startswith("--") else [given])]
    for start in range(len(line)):
        for length in (1, 2):
            row = " ".join([command, *line[start : start + length]])
            if row in REMOVED:
                return f"`{row}` was removed: {REMOVED[row]}."
    return None
