"""Captions in place of speech: which segments stay, and what the grounded reward makes of them.

    python benchmarks/captions.py --data DATA --work WORK --choose chosen.jsonl
    recipe corpus caption chosen.jsonl --model smollm2 --output captioned.jsonl
    python benchmarks/captions.py --data DATA --work WORK --captioned captioned.jsonl

DATA holds `youcook2/procedures.jsonl` and the narrations of its videos; WORK keeps a corpus of what is said in the
training videos, which is built once. Four measures, all on training videos:

    labels      segments that people labelled with a key step, found by the support of other narrations, by the rule of
                `recipe data pseudo`, and by chance
    similarity  annotated steps as if they were captions: how many `--min-similarity` keeps beside the speech of their
                own video, and beside the same number of segments of another one
    corpus      the audit of the grounded reward on 80 videos that are left out, against all other narrations as speech,
                and as what `--engine none` leaves of it
    captioned   the same on videos of a few goals, against narrations of these goals alone: as speech, by `--engine
                none`, and in the captions of a model. `--choose` writes the narrations that are to be captioned.

Differences are paired by prompt, and their intervals draw goals.
"""

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import add_json, table, write_result
from coverage_law import SharedIndex
from numpy.typing import NDArray

from recipe.artifacts import read_json, read_jsonl, write_jsonl
from recipe.audit.classes import CORRUPTIONS
from recipe.audit.perturb import AuditPrompt, build_prompts, same_goal, select
from recipe.audit.score import NamedScorer, score_prompts
from recipe.audit.shares import prompt_means, win_table
from recipe.config import CorpusConfig, EncoderConfig, GroundedConfig, MiningConfig, RewardConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.data.narrations import ReadingOptions, read_narrations, to_row
from recipe.data.procedures import read_procedures
from recipe.mining.consensus import consensus
from recipe.mining.segments import StepLikeness
from recipe.progress import LogLines
from recipe.reward.embeddings import StepEmbeddings, Vectors
from recipe.reward.verifier import Verifier
from recipe.stats import mean_interval
from recipe.types import Narration, Procedure

TIMED, UNTIMED = "narrations_timed.jsonl", "youcook2_asr_untimed.jsonl"
PROMPTS, TESTED = 80, 150
"""Videos that are audited: training videos for every choice, validation videos once."""
GOALS, CAPTIONED = 4, 3
"""Goals of the small corpora, and narrations of each that are captioned; the others of these goals are audited."""
WORDS = (150, 600)
"""Of a narration that is captioned: a small model on a processor takes 20 seconds for 200 words."""
SHARES = (0.75, 0.5, 0.25)
LEAST = (0.2, 0.3, 0.4, 0.5, 0.6)
"""Values of --min-similarity."""
SMALL = RewardConfig(verifier="grounded", grounded=GroundedConfig(pool_size=3, background_size=6))
"""Of a corpus of a dozen narrations."""
_ENCODER = EncoderConfig(name="minilm")
Arm = tuple[list[Narration], list[Vectors]]
"""Narrations and the vectors of their segments."""


def main() -> None:
    """Choose, or measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of youcook2/ and narrations/")
    parser.add_argument("--work", type=Path, required=True, help="folder for the corpus of speech")
    parser.add_argument("--choose", type=Path, help="write the narrations to be captioned, and end")
    parser.add_argument("--captioned", type=Path, help="what `recipe corpus caption` wrote for them, beside its report")
    parser.add_argument("--test", action="store_true", help="look at the validation videos, too; only at the very end")
    add_json(parser, "data-captions")
    arguments = parser.parse_args()

    procedures = read_procedures(arguments.data / "youcook2" / "procedures.jsonl", on_bad="skip").procedures
    videos, held_out = ([one for one in procedures if one.split == split] for split in ("train", "val"))
    corpus = _speech(arguments.data, arguments.work, {one.video_id for one in videos})
    spoken = {video_id: number for number, video_id in enumerate(corpus.video_ids)}
    videos = [one for one in videos if one.video_id in spoken]
    chosen, audited = _small(videos, corpus, spoken)
    if arguments.choose is not None:
        narrations = [corpus.narration(spoken[one.video_id]) for one in chosen]
        write_jsonl(arguments.choose, map(to_row, narrations))
        print(f"{len(narrations)} narrations of {sum(map(_words, narrations)):,} words in {arguments.choose}")
        return

    support = list(consensus(corpus, progress=LogLines(sys.stderr, 30)))
    likeness = StepLikeness(StepEmbeddings(corpus.encoder).stacked)
    values: dict[str, Any] = {"narrations": len(corpus), "segments": int(corpus.offsets[-1])}
    values["labels"] = labelled(arguments.data, corpus, spoken, support, likeness)
    embeddings = StepEmbeddings(corpus.encoder, 1 << 18)
    values["similarity"] = similarity(corpus, videos, spoken, embeddings)
    values["corpus"] = whole(corpus, videos, PROMPTS, support, likeness, embeddings)
    if arguments.test:
        values["test"] = whole(corpus, held_out, TESTED, support, likeness, embeddings)
    if arguments.captioned is not None:
        values["captioned"] = few(arguments.captioned, corpus, spoken, videos, chosen, audited, support, embeddings)
    write_result(
        arguments.json,
        values,
        title="Captions in place of speech",
        guide="data.md",
        body=_body(values),
        partial=arguments.captioned is None,
    )


def _speech(data: Path, work: Path, training: set[str]) -> Corpus:
    """The corpus of what is said in the training videos."""
    files = [data / "narrations" / TIMED, data / "narrations" / UNTIMED]
    options = ReadingOptions(marks="keep", bad="skip")
    # No title: of some narrations it is the goal of the annotation.
    narrations = (
        Narration(own.video_id, own.segments, None, own.source)
        for own in read_narrations(files, "keep-first", options)
        if own.video_id in training
    )
    folder = build_corpus(narrations, work / "speech", CorpusConfig(encoder=_ENCODER), LogLines(sys.stderr, 30))
    return Corpus.open(folder)


def _small(
    videos: Sequence[Procedure], corpus: Corpus, spoken: dict[str, int]
) -> tuple[list[Procedure], list[Procedure]]:
    """The videos of the small corpora and those that are audited against them, of the goals with most videos."""
    goals: dict[str, list[Procedure]] = {}
    for one in sorted(videos, key=lambda one: hashlib.sha256(one.video_id.encode()).hexdigest()):
        goals.setdefault(same_goal(one.goal), []).append(one)
    most = sorted(goals.values(), key=lambda own: (-len(own), own[0].goal))[:GOALS]
    chosen, audited = [], []
    for own in most:
        short = [one for one in own if WORDS[0] <= _words(corpus.narration(spoken[one.video_id])) <= WORDS[1]]
        chosen += short[:CAPTIONED]
        audited += [one for one in own if one not in short[:CAPTIONED]]
    return chosen, audited


def _words(narration: Narration) -> int:
    return sum(len(segment.text.split()) for segment in narration.segments)


def labelled(
    data: Path,
    corpus: Corpus,
    spoken: dict[str, int],
    support: Sequence[NDArray[np.float32]],
    likeness: StepLikeness,
) -> dict[str, Any]:
    """How far the segments that stay are those that people labelled with a key step."""
    truth, scores, alike, named = [], [], [], []
    for _, row in read_jsonl(data / "narrations" / TIMED):
        number = spoken.get(row["video_id"])
        if number is None or not any(segment.get("key_steps") for segment in row["segments"]):
            continue
        steps = {segment["start"]: bool(segment.get("key_steps")) for segment in row["segments"]}
        segments = corpus.narration(number).segments
        truth += [steps[segment.start] for segment in segments]
        scores.append(support[number])
        alike.append(likeness.scores(corpus.embeddings(number)))
        named += [likeness.names_action(segment.text) for segment in segments]
    is_step, by_support, by_rule = np.array(truth), np.concatenate(scores), np.concatenate(alike)
    rows: dict[str, Any] = {"all segments": _found(np.ones(len(is_step), bool), is_step)}
    for share in SHARES:
        rows[f"support, share {share}"] = _found(np.concatenate([_best(own, share) for own in scores]), is_step)
    rule = np.array(named) & (by_rule >= MiningConfig().threshold)
    rows["step-like (recipe data pseudo)"] = _found(rule, is_step)
    areas = {"support": _area(by_support, is_step), "likeness to steps": _area(by_rule, is_step)}
    return {"segments": len(is_step), "rows": rows, "area": areas}


def _best(support: NDArray[np.float32], share: float) -> NDArray[np.bool_]:
    """The share of a narration's segments that `--engine none` keeps."""
    return np.asarray(support >= np.quantile(support, 1 - share))


def _found(kept: NDArray[np.bool_], is_step: NDArray[np.bool_]) -> dict[str, float]:
    precision, recall = float(is_step[kept].mean()), float(kept[is_step].mean())
    return {
        "share": float(kept.mean()),
        "precision": precision,
        "recall": recall,
        "F1": 2 * precision * recall / (precision + recall),
    }


def _area(scores: NDArray[Any], is_step: NDArray[np.bool_]) -> float:
    """The chance that a labelled segment scores higher than another one."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    steps = int(is_step.sum())
    return float((ranks[is_step].sum() - steps * (steps + 1) / 2) / (steps * (len(scores) - steps)))


def similarity(
    corpus: Corpus, videos: Sequence[Procedure], spoken: dict[str, int], embeddings: StepEmbeddings
) -> dict[str, Any]:
    """The shares of annotated steps that are like a segment said at their time, and like one of another video."""
    own, foreign = [], []
    timed = [one for one in videos if corpus.narration(spoken[one.video_id]).segments[0].start is not None]
    for one, other in zip(timed, [*timed[1:], timed[0]], strict=True):
        number, further = spoken[one.video_id], corpus.embeddings(spoken[other.video_id])
        segments, vectors = corpus.narration(number).segments, corpus.embeddings(number)
        for step in one.steps:
            if step.start is None or step.end is None:
                continue
            there = [
                at
                for at, segment in enumerate(segments)
                if (segment.start or 0) < step.end and (segment.end or 0) > step.start
            ]
            if there:
                [vector] = embeddings.stacked([step.text])
                own.append(float((vectors[there] @ vector).max()))
                # As many segments, because the best of many is more alike.
                foreign.append(float((further[: len(there)] @ vector).max()))
    said, unsaid = np.array(own), np.array(foreign)
    rows = {
        f"{least}": {"said": float((said >= least).mean()), "of another video": float((unsaid >= least).mean())}
        for least in LEAST
    }
    return {"steps": len(own), "rows": rows}


def whole(
    corpus: Corpus,
    videos: Sequence[Procedure],
    count: int,
    support: Sequence[NDArray[np.float32]],
    likeness: StepLikeness,
    embeddings: StepEmbeddings,
) -> dict[str, Any]:
    """The audit on `count` videos, against all others as speech and as what is kept of it."""
    prompts = build_prompts(select(list(videos), 0, count), embeddings.stacked, 0)
    left_out = {prompt.video_id for prompt in prompts}
    numbers = [number for number, name in enumerate(corpus.video_ids) if name not in left_out]
    rules = {
        number: likeness.select(corpus.narration(number).segments, corpus.embeddings(number), MiningConfig().threshold)
        for number in numbers
    }
    arms = {"speech": _kept(corpus, numbers, [np.ones(len(support[number]), bool) for number in numbers])}
    for share in SHARES:
        arms[f"--engine none, share {share}"] = _kept(corpus, numbers, [_best(support[n], share) for n in numbers])
    draw = np.random.default_rng(0)
    arms["a random half"] = _kept(corpus, numbers, [draw.random(len(support[number])) < 0.5 for number in numbers])
    arms["step-like (recipe data pseudo)"] = _kept(corpus, numbers, [rules[number] for number in numbers])
    return _audit(prompts, arms, embeddings, RewardConfig(verifier="grounded"))


def few(
    captioned: Path,
    corpus: Corpus,
    spoken: dict[str, int],
    videos: Sequence[Procedure],
    chosen: Sequence[Procedure],
    audited: Sequence[Procedure],
    support: Sequence[NDArray[np.float32]],
    embeddings: StepEmbeddings,
) -> dict[str, Any]:
    """The audit against narrations of a few goals: as speech, by `--engine none`, and in the captions of a model."""
    report = read_json(captioned.with_name(f"{captioned.stem}.report.json"))
    numbers = [spoken[one.video_id] for one in chosen]
    captions = list(read_narrations(captioned))
    vectors = [embeddings.stacked([segment.text for segment in own.segments]) for own in captions]
    arms = {
        "speech": _kept(corpus, numbers, [np.ones(len(support[number]), bool) for number in numbers]),
        f"--engine none, share {SHARES[1]}": _kept(corpus, numbers, [_best(support[n], SHARES[1]) for n in numbers]),
        f"captions of {report['model']['name']}": (captions, vectors),
    }
    own = {one.video_id for one in audited}
    usable = select(videos)
    part = usable._replace(audited=[one for one in usable.audited if one.video_id in own])
    prompts = build_prompts(part, embeddings.stacked, 0)
    names = ("windows", "share_without_caption", "windows_failed", "failed_because", "captions", "words_of_a_caption")
    about = {name: report[name] for name in (*names, "share_copied", "left_out", "speech_words", "windows_cut")}
    about["model"] = report["model"]["name"]
    return _audit(prompts, arms, embeddings, SMALL) | {"about": about, "narrations": len(captions)}


def _kept(corpus: Corpus, numbers: Sequence[int], kept: Sequence[NDArray[np.bool_]]) -> Arm:
    """What is kept of narrations; those of which nothing is are left out."""
    narrations, vectors = [], []
    for number, chosen in zip(numbers, kept, strict=True):
        own = corpus.narration(number)
        if chosen.any():
            segments = tuple(segment for segment, here in zip(own.segments, chosen, strict=True) if here)
            narrations.append(Narration(own.video_id, segments))
            vectors.append(corpus.embeddings(number)[chosen])
    return narrations, vectors


def _audit(
    prompts: Sequence[AuditPrompt], arms: dict[str, Arm], embeddings: StepEmbeddings, config: RewardConfig
) -> dict[str, Any]:
    """MEAN and WORST of each arm, and its difference from the first one, paired by prompt."""
    goals = [same_goal(prompt.goal) for prompt in prompts]
    rows: dict[str, Any] = {}
    first: NDArray[np.float64] | None = None
    for name, (narrations, vectors) in arms.items():
        verifier = Verifier(SharedIndex(_Encoder(embeddings), narrations, vectors), config, embeddings=embeddings)
        scored = score_prompts(NamedScorer(name, verifier), prompts, LogLines(sys.stderr, 60))
        if scored.unscored:
            raise SystemExit(scored.unscored[0])
        wins = win_table(scored.prompts)
        classes = {
            label: float(column)
            for label, column in zip(CORRUPTIONS, np.nanmean(wins, axis=0), strict=True)
            if np.isfinite(column)
        }
        means = prompt_means(wins)
        first = means if first is None else first
        worst = min(classes, key=lambda label: classes[label])
        row: dict[str, Any] = {
            "narrations": len(narrations),
            "segments": sum(map(len, vectors)),
            "MEAN": 100 * float(np.mean(list(classes.values()))),
            "WORST": 100 * classes[worst],
            "worst class": worst,
        }
        if first is not means:
            interval = mean_interval(100 * (means - first), goals)
            row["difference"] = {"mean": interval.mean, "low": interval.low, "high": interval.high}
        rows[name] = row
        print(name, row, flush=True)
    return {"prompts": len(prompts), "goals": len(set(goals)), "rows": rows}


class _Encoder:
    """What a verifier asks of a corpus, from vectors that are kept."""

    def __init__(self, embeddings: StepEmbeddings) -> None:
        self.encode = embeddings.stacked


def _body(values: dict[str, Any]) -> list[str | dict[str, Any]]:
    labels, similar, corpus = values["labels"], values["similarity"], values["corpus"]
    rows = {
        name: {column: f"{100 * value:.1f} %" for column, value in row.items()} for name, row in labels["rows"].items()
    }
    body: list[str | dict[str, Any]] = [
        f"Segments of {labels['segments']:,} in labelled training videos of YouCook2 that tell a key step. A labelled "
        f"segment has more support than another one in {100 * labels['area']['support']:.1f} % of pairs, and is more "
        f"like the world's steps in {100 * labels['area']['likeness to steps']:.1f} %.",
        table(rows, "segments"),
        f"{similar['steps']:,} annotated steps that are like a segment said at their time, by the least cosine, and "
        "like as many segments of another video.",
        table(
            {
                name: {key: f"{100 * value:.1f} %" for key, value in row.items()}
                for name, row in similar["rows"].items()
            },
            "--min-similarity",
        ),
        f"Audit of the grounded reward on {corpus['prompts']} training videos that are left out; differences in "
        "points, paired by prompt, intervals by goal.",
        table(corpus["rows"], "corpus"),
    ]
    if (test := values.get("test")) is not None:
        body += [
            f"The same on {test['prompts']} validation videos, which were looked at once, when all was chosen.",
            table(test["rows"], "corpus"),
        ]
    if (captioned := values.get("captioned")) is not None:
        about = captioned["about"]
        failed = Counter(about["failed_because"]).most_common()
        body += [
            f"The same against {GOALS * CAPTIONED} narrations of {captioned['goals']} goals, {captioned['prompts']} "
            f"prompts. {about['model']}: {about['windows']} windows, "
            f"{100 * about['share_without_caption']:.0f} % without a caption"
            + "".join(f", {count} {reason}" for reason, count in failed)
            + f"; {about['captions']} captions of {about['words_of_a_caption']:.1f} words, "
            f"{100 * about['share_copied']:.0f} % copies of the speech; captions left out: "
            + ", ".join(f"{count} {reason}" for reason, count in about["left_out"].items())
            + ".",
            table(captioned["rows"], "corpus"),
        ]
    return body


if __name__ == "__main__":
    main()
