"""What next actions are planned for: samples of the protocol, the closed set of actions, and what may be shown."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recipe.errors import InputError, listed

if TYPE_CHECKING:
    from recipe.data.crosstask import StepOrder
    from recipe.data.vpa import Protocol, Release, Rule
    from recipe.planning.vidassist.candidates import ActionsOf
    from recipe.planning.vidassist.prompts import Demonstrations
    from recipe.planning.vidassist.settings import VidAssistConfig
    from recipe.types import Example


class Source(NamedTuple):
    """Where samples and actions come from."""

    root: Path | None
    examples: Path | None
    actions: Path | None
    histories: Path | None
    limit: int | None
    card: bool
    """Only the actions of the goal's card are admissible: another, easier setting."""
    encoder: str
    protocol: "Protocol" = "shared"
    rule: "Rule" = "vlamp"
    order: "StepOrder" = "file"


class Samples(NamedTuple):
    """What is planned for."""

    examples: "list[Example]"
    actions: "ActionsOf"
    shown: "Demonstrations"


def read_samples(source: Source, config: "VidAssistConfig") -> Samples:
    """Read what the options name. Raises InputError for options that do not go together."""
    from recipe.data.vpa import read_release
    from recipe.planning.vidassist.task_graph import demonstrations

    if source.root is None and (source.examples is None or source.actions is None):
        raise InputError("give --root, CrossTask as published; or --examples with --actions, a file of actions.")
    if source.root is None and (source.card or config.few_shot):
        raise InputError("--card and --few-shot need --root, whose cards and training videos they take.")
    release = None if source.root is None else read_release(source.root, source.order)
    examples = _spread(_examples(source, release, config.horizon), source.limit)
    shown: Demonstrations = {}
    if release is not None and config.few_shot:
        goals = [example.goal for example in examples]
        shown = demonstrations(release.split("train", "val"), goals, config.few_shot, config.seed)
    return Samples(examples, _actions(source, release, examples), shown)


def _examples(source: Source, release: "Release | None", horizon: int) -> "list[Example]":
    from recipe.data.examples import read_examples
    from recipe.data.histories import read_histories, with_histories
    from recipe.data.vpa import HORIZONS, cut_samples

    if source.examples is not None:
        examples = read_examples(source.examples)
    else:
        assert release is not None
        horizons = sorted({*HORIZONS, horizon})
        samples = cut_samples(release.split("test"), release.cards, source.protocol, source.rule, horizons)
        examples = [sample.example() for sample in samples]
    return examples if source.histories is None else with_histories(examples, read_histories(source.histories))


def _spread(examples: "list[Example]", limit: int | None) -> "list[Example]":
    """So many examples, evenly taken from all."""
    if limit is None or limit >= len(examples):
        return examples
    return [examples[place * len(examples) // limit] for place in range(limit)]


def _actions(source: Source, release: "Release | None", examples: "list[Example]") -> "ActionsOf":
    from recipe.config import EncoderConfig
    from recipe.corpus.encoders import open_encoder
    from recipe.planning.admissible import AdmissibleActions

    embed = open_encoder(EncoderConfig(name=source.encoder)).encode
    if not source.card:
        every = AdmissibleActions(embed, _listed(source, release))
        return lambda goal: every
    assert release is not None
    taxonomy = release.taxonomy()
    goals = dict.fromkeys(example.goal for example in examples)
    if unknown := [goal for goal in goals if goal not in taxonomy.cards]:
        raise InputError(f"no card of CrossTask is for {listed(unknown)}; leave out --card.")
    by_goal = {goal: AdmissibleActions(embed, taxonomy.card(goal)) for goal in goals}
    return by_goal.__getitem__


def _listed(source: Source, release: "Release | None") -> tuple[str, ...]:
    if source.actions is None:
        assert release is not None
        return release.taxonomy().actions
    try:
        lines = source.actions.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError.at(source.actions, "the text is not UTF-8", "convert the file to UTF-8") from None
    actions = tuple(line.strip() for line in lines if line.strip())
    if not actions:
        raise InputError.at(source.actions, "it holds no action", "give one action a line")
    return actions
