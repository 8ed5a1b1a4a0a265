"""An explanation as JSON that holds all of it: what is written can be read back into the same explanation."""

from typing import Any

from recipe.artifacts import JsonObject
from recipe.config import RewardConfig
from recipe.reward.explanation.links import Links
from recipe.reward.explanation.records import (
    AlignedNarration,
    Explanation,
    Ground,
    GroundedStep,
    Match,
    StepEvidence,
)
from recipe.reward.explanation.words import in_words
from recipe.reward.fields import reward_fields
from recipe.types import Hit, Narration, Reward, Segment


def as_row(explanation: Explanation, links: Links) -> JsonObject:
    """Everything in an explanation, with links, as plain values for JSON."""
    best, reward = explanation.best, explanation.reward
    videos = {aligned.index: aligned for aligned in explanation.narrations}
    return {
        "goal": explanation.goal,
        "history": list(explanation.history),
        "continuation": list(explanation.continuation),
        "settings": explanation.config.model_dump(mode="json"),
        "summary": in_words(explanation),
        "reward": reward_fields(reward) | {"best_video_id": best.narration.video_id if best else None},
        "steps": [_step_row(step, videos, links) for step in explanation.evidence],
        "narrations": [_narration_row(explanation, aligned, links) for aligned in explanation.narrations],
    }


def from_row(row: JsonObject) -> Explanation:
    """The explanation that `as_row` wrote; its summary, texts and links follow from the rest and are not read."""
    return Explanation(
        goal=row["goal"],
        history=tuple(row["history"]),
        continuation=tuple(row["continuation"]),
        config=RewardConfig.model_validate(row["settings"]),
        reward=_reward(row["reward"]),
        evidence=tuple(_evidence(step) for step in row["steps"]),
        narrations=tuple(_narration(one) for one in row["narrations"]),
    )


def _step_row(step: StepEvidence, videos: dict[int, AlignedNarration], links: Links) -> JsonObject:
    return {
        "step": step.text,
        "in_history": step.in_history,
        "without": step.without,
        "gated_without": step.gated_without,
        "contribution": step.contribution,
        "matched_in": step.matched_in,
        "mean_similarity": step.mean_similarity,
        "grounds": [_ground_row(ground, videos[ground.narration].narration, links) for ground in step.grounds],
    }


def _ground_row(ground: Ground, narration: Narration, links: Links) -> JsonObject:
    segment = narration.segments[ground.segment]
    place = {"narration": ground.narration, "video_id": narration.video_id, "segment": ground.segment}
    return place | {"similarity": ground.similarity} | _segment_row(narration, segment, links)


def _narration_row(explanation: Explanation, aligned: AlignedNarration, links: Links) -> JsonObject:
    narration = aligned.narration
    return {
        "narration": aligned.index,
        "video_id": narration.video_id,
        "title": narration.title,
        "source": narration.source,
        "link": links.of(narration),
        "retrieved": aligned.retrieved,
        "score": aligned.score,
        "history_end": aligned.history_end(len(explanation.history)),
        "steps": [_grounded_row(step) for step in explanation.grounded(aligned)],
        "matches": [match._asdict() for match in aligned.matches],
        "unmatched_steps": list(aligned.unmatched_steps),
        "unmatched_segments": list(aligned.unmatched_segments),
        "segments": [_segment_row(narration, segment, links) for segment in narration.segments],
        "similarities": [list(row) for row in aligned.similarities],
    }


def _grounded_row(step: GroundedStep) -> JsonObject:
    segment = step.segment
    return {
        "step": step.text,
        "in_history": step.in_history,
        "segment": step.index,
        "similarity": step.similarity,
        "text": segment.text if segment else None,
        "start": segment.start if segment else None,
        "end": segment.end if segment else None,
    }


def _segment_row(narration: Narration, segment: Segment, links: Links) -> JsonObject:
    times = {"start": segment.start, "end": segment.end}
    return {"text": segment.text} | times | {"link": links.of(narration, segment)}


def _reward(row: dict[str, Any]) -> Reward:
    values = {name: value for name, value in row.items() if name != "best_video_id"}
    return Reward(**values | {"pool": tuple(Hit(hit["narration"], hit["score"]) for hit in row["pool"])})


def _evidence(row: dict[str, Any]) -> StepEvidence:
    return StepEvidence(
        text=row["step"],
        in_history=row["in_history"],
        without=row["without"],
        gated_without=row["gated_without"],
        contribution=row["contribution"],
        matched_in=row["matched_in"],
        mean_similarity=row["mean_similarity"],
        grounds=tuple(Ground(one["narration"], one["segment"], one["similarity"]) for one in row["grounds"]),
    )


def _narration(row: dict[str, Any]) -> AlignedNarration:
    segments = tuple(Segment(one["text"], one["start"], one["end"]) for one in row["segments"])
    return AlignedNarration(
        index=row["narration"],
        narration=Narration(row["video_id"], segments, row["title"], row["source"]),
        retrieved=row["retrieved"],
        score=row["score"],
        matches=tuple(Match(**match) for match in row["matches"]),
        similarities=tuple(tuple(values) for values in row["similarities"]),
    )
