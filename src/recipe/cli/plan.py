"""`recipe plan`: a goal, and a history in words or as a video, in; the remaining steps out."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from recipe.artifacts import require_writable
from recipe.cli import console
from recipe.cli.console import CommandOutput, shows
from recipe.cli.flags import SettingsTable, with_settings
from recipe.cli.models import ASKED, SEARCH, open_for_command, phi_settings, require_searchable, with_cache
from recipe.cli.reward_options import open_verifier
from recipe.cli.served import Server, planned_there, require_no_other
from recipe.clock import read_clock
from recipe.config import FrameConfig, ModelConfig, PhiConfig, PlanConfig, SamplingConfig, SearchConfig
from recipe.errors import InputError
from recipe.text import distinct_plans
from recipe.types import Example, Malformed, Plan, Segment

if TYPE_CHECKING:
    from recipe.models.protocol import Answer
    from recipe.planning.planner import Planner, Request
    from recipe.planning.predictions import SearchRecord
    from recipe.planning.search import PlanSearch
    from recipe.reward.verifier import Verifier


@with_settings(
    model=SettingsTable(ModelConfig, ("model", "endpoint"), ASKED, defaults={"model": ""}),
    sampling=SettingsTable(SamplingConfig, ("temperature",), ASKED),
    search=SEARCH,
    plan=SettingsTable(PlanConfig, ("verifier",), "How plans are ranked"),
    frames=SettingsTable(FrameConfig),
)
@shows
def plan(
    goal: Annotated[str, typer.Option(help="The goal of the plan.")] = "",
    history: Annotated[list[str] | None, typer.Option(help="A step already done; repeat for each.")] = None,
    video: Annotated[Path | None, typer.Option(help="Video that shows what has been done.")] = None,
    until: Annotated[str, typer.Option(help="Moment of the video to plan from: 00:41, 1:02:03 or seconds.")] = "",
    count: Annotated[int, typer.Option(min=1, help="Plans for each prompt: sampled, or the best of a search.")] = 1,
    corpus: Annotated[Path | None, typer.Option(help="Corpus folder: plans are rewarded and ranked.")] = None,
    examples: Annotated[Path | None, typer.Option(help="Examples or procedures to plan for.")] = None,
    split: Annotated[str, typer.Option(help="Only examples of this split.")] = "",
    videos: Annotated[Path | None, typer.Option(help="With --examples: folder of their videos to plan from.")] = None,
    histories: Annotated[
        Path | None, typer.Option(help="With --examples: histories that `recipe perceive` wrote.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Predictions file to write.")] = None,
    server: Server = "",
    as_json: bool = False,
    *,
    model: ModelConfig,
    sampling: SamplingConfig,
    search: SearchConfig,
    plan: PlanConfig,
    frames: FrameConfig,
) -> CommandOutput:
    """Plan the rest of a procedure, or of every example in a file; a single plan is shown as it is written.

    Example: recipe plan --model runs/demo/grpo/model --goal "make tea" --history "boil the water" --count 8

    Example: recipe plan --server http://127.0.0.1:8001 --goal "make tea" --history "boil the water"

    Example: recipe plan --model Qwen/Qwen2.5-VL-3B-Instruct --video clip.mp4 --until 00:41 --goal "make tea"
    """
    if not model.model:
        if not server:
            raise typer.BadParameter("Missing option --model (or set model.model).", param_hint="--model")
        refused: dict[str, object] = {"--video": video, "--until": until, "--corpus": corpus, "--output": output}
        refused |= {"--examples": examples, "--split": split, "--videos": videos, "--histories": histories}
        # The page uses its own settings: an option that it does not take is refused, not dropped in silence.
        defaults = (
            ModelConfig(model=""),
            SamplingConfig(seed=sampling.seed),
            SearchConfig(),
            PlanConfig(),
            FrameConfig(),
        )
        options = {"endpoint", "temperature", "verifier", *SEARCH.flags}
        tables = {"model": model, "sampling": sampling, "search": search, "plan": plan, "frames": frames}
        for (table, own), default in zip(tables.items(), defaults, strict=True):
            changed = (key for key, value in own if value != getattr(default, key))
            refused |= {f"--{key}" if key in options else f"{table}.{key}": True for key in changed}
        require_no_other(refused)
        return _shown(planned_there(server, goal, history or (), count, sampling.seed))
    if corpus is None and (plan.verifier or plan.config):
        raise InputError("--verifier and plan.config go with --corpus; give the corpus folder.")
    require_searchable(search, corpus)
    method = plan.verifier or ("grounded" if plan.config is None else None)
    describing = phi_settings(model, plan.phi, plan.phi_endpoint)
    from recipe.planning.planner import Planner
    from recipe.prompting import open_prompt

    template = open_prompt(plan.prompt) if plan.prompt else None
    if examples is not None:
        if output is None:
            raise InputError("--examples needs --output, the predictions file to write.")
        if goal or history or video or until or describing:
            given = "--goal, --history, --video, --until and plan.phi"
            raise InputError(f"--examples goes without {given}; see --videos and --histories.")
        chosen, missing = _examples(examples, split, videos, histories, plan.skip_missing)
        require_writable(output)
        verifier = None if corpus is None else open_verifier(corpus, plan.config, method)
        with open_for_command(with_cache(model, output), frames) as writer:
            planner = Planner(writer, sampling, template)
            searching = _search(planner, verifier, search)
            return _planned(planner, chosen, missing, videos, frames, count, verifier, searching, output)
    if output is not None:
        raise InputError("--output goes with --examples; use --json for a single goal.")
    if videos or histories or plan.skip_missing:
        given = "--videos, --histories and plan.skip_missing"
        raise InputError(f"{given} go with --examples; give --video for a single goal.")
    request = _request(goal, tuple(history or ()), video, until, describing, frames)
    verifier = None if corpus is None else open_verifier(corpus, plan.config, method)
    with open_for_command(model, frames) as writer:
        planner = Planner(writer, sampling, template)
        if verifier is None and count == 1 and not as_json:
            _write_as_it_comes(planner, request)
            return CommandOutput(None)
        return _plans(planner, request, count, verifier, _search(planner, verifier, search))


def _shown(run: dict[str, Any]) -> CommandOutput:
    """The plans of a server's run, the best first, each step with the first narration that says so."""
    lines = list[str | Text]()
    if run["coverage"]:
        lines.append(run["coverage"]["sentence"])
    total = sum(plan["samples"] for plan in run["plans"])
    for plan in run["plans"]:
        title = [(f"plan {plan['plan'] + 1}", "bold")] if total > 1 else []
        if plan["samples"] > 1:
            title.append((f"  {plan['samples']} of {total} samples wrote this plan", ""))
        if plan["reward"] is not None:
            title.append((f"  reward {plan['reward']:.3f}" if title else f"reward {plan['reward']:.3f}", ""))
        lines += [Text.assemble(*title)] if title else []
        said = {row["number"]: row for row in plan["evidence"]}
        for number, text in enumerate(plan["steps"], start=1):
            lines.append(f"{number}. {text}")
            if (row := said.get(number)) and row["state"] == "supported":
                ground = row["grounds"][0]
                lines.append(_evidence_line(ground | row, ground["when"]))
        if not plan["steps"]:
            lines.append(Text("no steps", "dim"))
    return CommandOutput(run, lines)


def _request(
    goal: str, history: tuple[str, ...], video: Path | None, until: str, phi: ModelConfig | None, frames: FrameConfig
) -> "Request":
    """The request for a single goal; with `phi`, the video in Phi's words. Raises InputError."""
    from recipe.planning.planner import Request

    request = Request(goal, history)  # before minutes are spent on the video
    if video is None:
        if until or phi:
            raise InputError("--until and plan.phi go with --video; give the video that shows what has been done.")
        return request
    if history:
        raise InputError("--history and --video exclude each other; give one of them.")
    from recipe.perception.frames import read_frames
    from recipe.perception.phi import Phi

    moment = read_clock(until) if until else None
    if until and moment is None:
        raise InputError(f"--until {until!r} is no time; give seconds, 00:41 or 1:02:03.")
    if phi is not None:  # smaller frames than a planner's, unless the size is given
        frames = PhiConfig().frames.model_copy(update=frames.model_dump(exclude_unset=True))
    progress = console.progress()
    with progress.task("reading the video"):
        clip = read_frames(video, frames, moment)
    if phi is None:
        return Request(goal, video=clip)
    with open_for_command(phi, frames) as model:
        [described] = Phi(model, PhiConfig(frames=frames)).histories([goal], [clip], progress)
    return Request(goal, described)


def _write_as_it_comes(planner: "Planner", request: "Request") -> None:
    """Print a single plan while it is written."""
    from recipe.models.protocol import Answer, Refusal, all_answered
    from recipe.planning.planner import PlanDraft, read_plan

    shown, outcomes = 0, list[Answer | Refusal]()
    for _, steps, outcome, before in planner.write([PlanDraft(request)]):
        outcomes += [] if outcome is None else [outcome]
        if before < shown:
            thought = outcome is None or steps
            said = "The steps above are the model's thought. Its plan:" if thought else "The steps above are no plan."
            console.out.print(said, style="dim")
        console.print_lines(*(f"{number}. {step}" for number, step in enumerate(steps, start=before + 1)))
        shown = before + len(steps)
    [answer] = all_answered(outcomes)
    for line in _ending(_ended(answer, read_plan(answer))):
        console.out.print(line, highlight=False, soft_wrap=True)


def _search(planner: "Planner", verifier: "Verifier | None", settings: SearchConfig) -> "PlanSearch | None":
    """The search of the settings, if there is one."""
    if settings.search == "none" or verifier is None:
        return None
    from recipe.planning.search import PlanSearch

    return PlanSearch(planner, verifier, settings)


def _plans(
    planner: "Planner", request: "Request", count: int, verifier: "Verifier | None", search: "PlanSearch | None"
) -> CommandOutput:
    """Plans for one request; with a verifier the best first, each step with the best quote of a narration of the task.

    No quote is shown of a task that the corpus does not know, for it would be of another task, and none that says
    something else.
    """
    from recipe.corpus.store import Corpus
    from recipe.evaluation.retrieval import RetrievalPlanner, is_step_list
    from recipe.explain.explain import CLOSE, explain, when, whole_sentence
    from recipe.explain.records import Links
    from recipe.models.protocol import Refusal, all_answered
    from recipe.planning.planner import PlanDraft, read_plan
    from recipe.planning.rerank import rerank
    from recipe.reward.coverage import sentence_of_plan

    facts, rows, lines = dict[str, Any](), list[dict[str, Any]](), list[str | Text]()
    if search is None:
        answers = all_answered(planner.complete([request], count, console.progress())[0])
    else:
        with console.progress().task("composing plans", total=1) as advance:
            [outcome] = search.compose([PlanDraft(request)], advance=advance)
        if isinstance(outcome, Refusal):
            raise InputError(outcome.reason)
        answers = [plan.answer for plan in outcome.plans[:count]]
        facts["search"], line = _searched([outcome.record])
        lines.append(line)
    plans = list(map(read_plan, answers))
    ranked = None
    if verifier is not None:
        [ranked] = rerank(verifier, [request], [plans], console.progress())
        lines.append(f"reward by {verifier.config.verifier}: {verifier.config.scale}")
    links, known = Links(), True
    order = range(len(plans)) if ranked is None else ranked.order
    for rank, samples in distinct_plans([getattr(plans[sample], "steps", ()) for sample in order]).items():
        sample = order[rank]
        steps = list(getattr(plans[sample], "steps", ()))
        row: dict[str, Any] = {"sample": sample, "samples": samples, "steps": steps}
        title = [(f"plan {sample + 1}", "bold")] if count > 1 else []
        if samples > 1 and search is None:
            title.append((f"  {samples} of {len(plans)} samples wrote this plan", ""))
        if verifier is not None and ranked is not None:
            reward = ranked.rewards[sample]
            explained = explain(verifier, goal=request.goal, history=request.history, continuation=steps)
            narrations = {aligned.index: aligned.narration for aligned in explained.narrations}
            covered = explained.coverage
            if rank == 0 and verifier.config.aligns:
                facts["coverage"] = None if covered is None else covered._asdict()
                known = covered is None or covered.state != "unknown"
                lines.insert(0, sentence_of_plan(covered))
                if known and explained.narrations and not explained.about:
                    lines.insert(1, "No narration is about this task, so none supports a step.")
                lists = sum(is_step_list(narrations[index]) for index in explained.about)
                if known and 2 * lists > len(explained.about) and isinstance(verifier.corpus, Corpus):
                    example = Example("", "", "", request.goal, request.history, (), 0)
                    [copied] = RetrievalPlanner(verifier.corpus).copies([example])
                    facts["copied"] = list(copied.steps)
                    lines.insert(
                        1,
                        f"{lists} of the {len(explained.about)} videos about this are lists of steps: what is left in "
                        f"the nearest may be better than a plan: {'; '.join(copied.steps) or 'nothing'}.",
                    )
            evidence: list[dict[str, Any] | None] = []
            for step in explained.plan_evidence:
                close = [own for own in step.grounds if own.similarity >= CLOSE and not own.opposite]
                if not known or not close:
                    evidence.append(None)
                    continue
                nearest = close[0]
                narration = narrations[nearest.narration]
                segment = whole_sentence(narration.segments, nearest.segment)
                evidence.append(
                    {
                        "text": segment.text,
                        "similarity": nearest.similarity,
                        "video_id": narration.video_id,
                        "start": segment.start,
                        "end": segment.end,
                        "link": links.of(narration, segment),
                        "matched_in": len(close),
                        "about": len(explained.about),
                    }
                )
            row |= {
                "reward": reward.total,
                "aligned_history": reward.aligned_history,
                "aligned_full": reward.aligned_full,
                "rho": reward.rho,
                "gated": reward.gated,
                "narration": explained.best.narration.video_id if explained.best else None,
                "evidence": evidence,
            }
            summary = f"reward {reward.total:.3f}"
            if verifier.config.aligns:
                gate = ", below the gate" if reward.gated else ""
                summary += f" (progress {reward.rho:.2f}{gate}), best narration {row['narration']}"
            title.append((f"  {summary}" if title else summary, ""))
        row |= _ended(answers[sample], plans[sample])
        rows.append(row)
        lines += [Text.assemble(*title)] if title else []
        for number, (text, said) in enumerate(zip(steps, row.get("evidence", [None] * len(steps)), strict=True), 1):
            lines.append(f"{number}. {text}")
            if said is not None:
                moment = when(Segment(said["text"], said["start"], said["end"]))
                lines.append(_evidence_line(said, moment))
        lines += _ending(row)
    return CommandOutput({"goal": request.goal, "history": list(request.history), "plans": rows} | facts, lines)


def _evidence_line(said: Mapping[str, Any], moment: str) -> Text:
    """The narration that says a step, with how many narrations say it and how many its opposite."""
    place = ", ".join(part for part in (said["link"] or said["video_id"], moment) if part)
    counts = f"{said['matched_in']} of the {said['about']} videos about this"
    counts = "the only video about this" if said["about"] == 1 else counts
    counts += f", the opposite in {said['opposed_in']}" if said.get("opposed_in") else ""
    return Text(f"   ← {said['text']} (similarity {said['similarity']:.2f}; {place}; {counts})", "dim")


def _searched(records: "Sequence[SearchRecord]") -> tuple[dict[str, int | None], str]:
    """What the searches for some prompts cost together, and of how many the budget was spent; the same in words.

    Tokens are None where an endpoint did not count them.
    """
    names = ("tokens_in", "tokens_out", "encodings", "rewards", "spent")
    cost: dict[str, int | None] = {name: sum(int(getattr(record, name)) for record in records) for name in names}
    tokens = f"{cost['tokens_out']:,} tokens written, " if all(record.tokens_out for record in records) else ""
    line = f"composed step by step: {tokens}{cost['encodings']:,} steps encoded, {cost['rewards']:,} rewards"
    if cost["spent"]:
        line += f"; the budget was spent for {cost['spent']} of {len(records)} prompts: the best plan so far is taken"
    return cost | ({} if tokens else {"tokens_in": None, "tokens_out": None}), line


def _examples(
    file: Path, split: str, videos: Path | None, histories: Path | None, skip_missing: bool
) -> "tuple[list[Example], tuple[str, ...]]":
    """Examples to plan for, with Phi's histories in place of the annotated ones where given, and what was left out.

    Left out are videos that are absent, or ids of examples without a history. Raises InputError.
    """
    from recipe.data.examples import read_examples
    from recipe.data.histories import read_histories, with_histories
    from recipe.perception.videos import VideoFolder, locate

    examples = read_examples(file, split, questions=True)
    if videos is not None and histories is not None:
        raise InputError("--videos and --histories exclude each other; a planner sees frames or reads words.")
    if skip_missing and videos is None and histories is None:
        raise InputError("plan.skip_missing goes with --videos or --histories; give what some examples lack.")
    if histories is not None:
        known = read_histories(histories)
        described = [example for example in examples if example.example_id in known]
        if not skip_missing or not described:
            return with_histories(examples, known), ()
        missing = tuple(example.example_id for example in examples if example.example_id not in known)
        return with_histories(described, known), missing
    if videos is None:
        return examples, ()
    folder = VideoFolder(videos)
    located = locate(folder, examples)
    if not skip_missing or not located.paths:
        located.require_all(folder)
    return [example for example in examples if example.example_id in located.paths], located.missing


def _planned(
    planner: "Planner",
    examples: "list[Example]",
    missing: tuple[str, ...],
    videos: Path | None,
    frames: FrameConfig,
    count: int,
    verifier: "Verifier | None",
    search: "PlanSearch | None",
    output: Path,
) -> CommandOutput:
    """Plan for the examples, from words or from videos, and write the predictions."""
    from recipe.planning.planner import Request
    from recipe.planning.prediction_files import write_predictions
    from recipe.planning.rerank import reward_predictions

    unanswered: dict[str, str] = {}
    see: Callable[[Example], Request] = Request.of
    if videos is not None:
        from recipe.perception.frames import VideoClips

        clips = VideoClips(videos, frames, keep=1)

        def see(example: "Example") -> Request:
            return Request(example.goal, video=clips(example))

    writer = planner if search is None else search
    predictions = writer.predict(examples, count, console.progress(), see, unanswered=unanswered)
    if verifier is not None and search is None:
        predictions = reward_predictions(verifier, examples, predictions, console.progress())
    written = write_predictions(output, predictions)
    empty, cut = sum(not plan.steps for plan in predictions), sum(bool(plan.cut) for plan in predictions)
    malformed = dict(Counter(plan.malformed for plan in predictions if plan.malformed).most_common())
    result = {"output": str(output), "predictions": written, "without_steps": empty, "cut": cut}
    result |= {"malformed": malformed, "missing": list(missing), "unanswered": unanswered}
    lines = [f"{written} plans for {len(examples) - len(unanswered)} examples in {output}; {empty} without steps."]
    lines += [f"{number} of {written}: {reason}" for reason, number in malformed.items()]
    lines += (
        [f"{cut} of {written} ended at the limit of tokens; allow more with --set sampling.max_tokens=NUMBER"]
        if cut
        else []
    )
    if records := list(
        {
            prediction.example_id: prediction.search for prediction in predictions if prediction.search is not None
        }.values()
    ):
        result["search"], line = _searched(records)
        lines.append(line)
    reasons = [f"absent: {name}" for name in missing]
    for reason in (*reasons, *(f"no answer: {name}: {reason}" for name, reason in unanswered.items())):
        console.err.print(f"left out, {reason}", highlight=False, soft_wrap=True)
    return CommandOutput(result, lines)


def _ended(answer: "Answer", plan: "Plan | Malformed") -> dict[str, Any]:
    """The text of an answer, how it ended (why its plan is none, whether it was cut), and how it was sampled."""
    why = {} if hasattr(plan, "steps") else {"malformed": plan.reason}
    sampled = {} if answer.decoding is None else {"decoding": answer.decoding.settings()}
    return {"text": answer.text or answer.refusal} | why | ({"cut": True} if answer.cut else {}) | sampled


def _ending(row: dict[str, Any]) -> Iterator[Text]:
    """Why a plan has no steps, and that it was cut."""
    if reason := row.get("malformed"):
        yield Text(f"no steps: {reason}", "dim")
    if row.get("cut"):
        yield Text("The answer ended at the limit of tokens; allow more with --set sampling.max_tokens=NUMBER.", "dim")
