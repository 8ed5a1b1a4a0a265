"""`recipe reward self-train`: a verifier that learns from the corpus that it reads, and says whether to use it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.artifacts import JsonObject, locked, remove, require_writable
from recipe.cli.console import CommandOutput, progress, shows
from recipe.cli.reward_options import Config, Folder, settings
from recipe.errors import InputError, require_packages
from recipe.progress import LOADING

if TYPE_CHECKING:
    from recipe.mining.self_training import Gate
    from recipe.report.elements import Table


@shows
def self_train(
    folder: Folder,
    output: Annotated[Path, typer.Option(help="Folder for the trained reward; grounded.self_trained names it.")],
    tasks: Annotated[
        list[Path] | None, typer.Option(help="Procedures of your own, to train on as well; repeat for each file.")
    ] = None,
    prompts: Annotated[int, typer.Option(min=24, help="Narrations of the corpus that become prompts, at most.")] = 120,
    kind: Annotated[
        Literal["lists", "speech"] | None,
        typer.Option(help="What narrations are: lists of steps, or speech. Default: found out from the corpus."),
    ] = None,
    samples: Annotated[
        list[Path] | None,
        typer.Option(
            help="Plans of a policy for the prompts, to learn from as well (--prompts-output); repeat for each file."
        ),
    ] = None,
    prompts_output: Annotated[
        Path | None, typer.Option(help="Write the prompts as examples for recipe plan, and end there.")
    ] = None,
    config: Config = None,
    seed: Annotated[int, typer.Option(help="Draws narrations, cuts and corruptions.")] = 0,
) -> CommandOutput:
    """Train a net on the corpus itself, on top of the grounded reward, and test whether to use it.

    Prompts are made of narrations of the corpus and corrupted by rule: no annotation is needed. The same command
    resumes what was stopped.

    Example: recipe reward self-train --corpus corpora/mine --output rewards/mine
    """
    from recipe.audit.samples import prompt_examples
    from recipe.corpus.store import Corpus
    from recipe.data.examples import write_examples
    from recipe.data.procedures import read_procedures
    from recipe.mining.self_training import pseudo_set, self_train
    from recipe.planning.prediction_files import read_predictions
    from recipe.reward.self_trained import CARD

    require_packages({"cpu": "corpus search"})
    if output.is_file() or (output.is_dir() and any(output.iterdir()) and not (output / CARD).is_file()):
        raise InputError.at(output, "this holds something else than a self-trained reward", "choose another folder")
    require_writable(output / CARD if output.is_dir() else output)
    chosen = settings(config, "grounded", None)
    own = [procedure for path in tasks or () for procedure in read_procedures(path).procedures]
    sampled = [prediction for path in samples or () for prediction in read_predictions(path)]
    LOADING.info("loading corpus %s ...", folder)
    corpus = Corpus.open(folder)
    if str(corpus.manifest["encoder"]["name"]).startswith("hash:"):
        problem = "its encoder counts words and knows no meaning, so that nothing can be learned from it"
        raise InputError.at(folder, problem, "build the corpus with --encoder minilm, for example")
    prompt_set = pseudo_set(corpus, chosen, tasks=own, count=prompts, kind=kind, samples=sampled, seed=seed)
    if prompts_output is not None:
        require_writable(prompts_output)
        count = write_examples(prompts_output, prompt_examples([prompt.prompt for prompt in prompt_set.prompts]))
        return CommandOutput(
            {"prompts": count, "output": str(prompts_output)}, [f"{count} prompts in {prompts_output}"]
        )
    work = output.with_name(f".{output.name}.work")
    with locked(work):
        trained = self_train(corpus, chosen, prompt_set, seed=seed, work=work, progress=progress())
        card = trained.reward.write(output, trained.card)
        # Before the lock ends: another run would go on from work that is removed under it.
        remove(work)
    return CommandOutput(card, _lines(card, trained.gate, output))


def _lines(card: "JsonObject", gate: "Gate", output: Path) -> "Iterator[str | Table]":
    """What was trained on, the test as a table, and the verdict."""
    from recipe.mining.self_training import MEASURES
    from recipe.report.elements import Cell, Table, headings, row

    counts = card["counts"]
    own = f", {counts['tasks']} of them of your own procedures" if counts["tasks"] else ""
    yield (
        f"{counts['prompts']} pseudo-prompts of {counts['goals']} goals{own}, from a corpus of {card['kind']}; "
        f"{counts['plans']:,} plans."
    )
    rows = [
        row(
            MEASURES[line.measure],
            Cell(line.grounded, percent=True),
            Cell(line.with_net.mean, percent=True),
            Cell(line.difference, percent=True, signed=True),
            line.difference.observations,
        )
        for line in gate.rows
    ]
    columns = headings("grounded", "with the net", "difference", "prompts")
    yield Table("On goals that the nets were not trained on", "", columns, tuple(rows))
    yield f"Verdict: {'use' if gate.use else 'do not use'}: {gate.reason}."
    used = f'grounded = {{ self_trained = "{output}" }}'
    if gate.use:
        yield f'{output}: written. Use it with verifier = "grounded" and {used}; audit it first on tasks of yours.'
    else:
        yield f"{output}: written with this mark; settings that name it are refused without self_trained_anyway = true."
