"""What `recipe vpa plan` writes: predictions, the trace, and a manifest that tells how they were made."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recipe.cli.vpa.models import Asked
from recipe.cli.vpa.samples import Samples, Source

if TYPE_CHECKING:
    from recipe.planning.vidassist.search import PartialPlan
    from recipe.planning.vidassist.settings import VidAssistConfig


class Files(NamedTuple):
    """Where it goes."""

    output: Path
    trace: Path


def write_plans(
    plans: "Sequence[PartialPlan]",
    samples: Samples,
    config: "VidAssistConfig",
    source: Source,
    asked: Asked,
    files: Files,
) -> dict[str, Any]:
    """Write the files, each all or nothing; returns the manifest with what was asked now."""
    from recipe.artifacts import fingerprint, write_json
    from recipe.planning.predictions import write_predictions
    from recipe.planning.vidassist.predicted import predicted
    from recipe.planning.vidassist.prompts import prompts_sha256
    from recipe.planning.vidassist.summary import summarize
    from recipe.planning.vidassist.trace import write_trace

    pairs = [(example.example_id, plan) for example, plan in zip(samples.examples, plans, strict=True)]
    manifest: dict[str, Any] = {
        "output": files.output.name,
        "trace": files.trace.name,
        "settings": config.model_dump(mode="json"),
        "values": list(config.active) if config.method == "vidassist" else [],
        "model": asked.model.told(),
        "recipe_model": None if asked.recipe is None else asked.recipe.told(),
        "encoder": source.encoder,
        "history": "oracle" if source.histories is None else source.histories.name,
        "actions": "goal card" if source.card else "all",
        "prompts": prompts_sha256(),
        "few_shot": fingerprint(samples.shown) if samples.shown else None,
        "samples": len(pairs),
        "counts": asdict(summarize(plans, config.horizon, assessed=config.method != "llm")),
    }
    write_trace(files.trace, pairs)
    write_predictions(files.output, (predicted(example_id, plan) for example_id, plan in pairs))
    write_json(files.output.with_name(f"{files.output.name}.manifest.json"), manifest)
    now = {"output": str(files.output), "trace": str(files.trace), "asked": asked.budget.to_json()}
    return manifest | now
