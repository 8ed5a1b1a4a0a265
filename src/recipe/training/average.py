"""The mean of the weights of several trained models, a model of its own (docs/training.md).

Each run learns other errors of its reward, and the same task: the mean keeps the task (Wortsman et al., Model soups,
2022; Ramé et al., WARM, 2024).
"""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from huggingface_hub import ModelCardData
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from recipe.artifacts import CARD, JsonObject, atomic_path, file_sha256, read_json, write_json
from recipe.errors import ComputeError, InputError, first_line
from recipe.hub import README
from recipe.progress import SILENT, Progress
from recipe.training.policy import write_errors

STAGE = "average"
_OWN = (README, CARD)
"""Files of a model's folder that are about its own training."""


def average_models(folders: Sequence[Path], output: Path, progress: Progress = SILENT) -> JsonObject:
    """Write the model whose weights are the means of those of several models of one shape; returns its card.

    A folder is that of a model or of a finished run. Sums are in float32, one file at a time. Raises InputError for
    fewer than two models, for one that is missing or damaged, and for models of other shapes or with another tokenizer;
    ComputeError for weights that are no numbers.
    """
    models = [folder / "model" if (folder / "model").is_dir() else folder for folder in folders]
    if len({model.resolve() for model in models}) < 2:
        raise InputError("A mean needs two models or more; name two different folders.")
    weights = [sorted(model.glob("*.safetensors")) for model in models]
    for model, files in zip(models, weights, strict=True):
        if not files or not (model / "config.json").is_file():
            raise InputError.at(model, "there is no trained model here", "name a run's folder or its model/")
        for name in ("tokenizer.json", "chat_template.jinja"):
            files_of = (held / name for held in (model, models[0]))
            here, first = (file.read_bytes() if file.is_file() else b"" for file in files_of)
            if here != first:
                raise InputError.at(model / name, f"it differs from that of {models[0]}", "average models of one base")
    earlier = read_json(output / CARD) if (output / CARD).is_file() else {}
    if output.resolve() in {model.resolve() for model in models}:
        raise InputError.at(output, "this is one of the models", "choose another folder")
    if output.exists() and earlier.get("stage") != STAGE:
        raise InputError.at(output, "this holds something else than a mean of models", "choose another folder")
    card: JsonObject = {"format": 1, "stage": STAGE, "models": []}
    for model, files in zip(models, weights, strict=True):
        earlier = read_json(model / CARD) if (model / CARD).is_file() else {}
        kept = {name: earlier.get(name) for name in ("stage", "seed", "step", "reward", "base_model", "inputs")}
        card["models"].append({"weights": " ".join(map(file_sha256, files)), **kept})
    with ExitStack() as stack, atomic_path(output) as partial, write_errors(output):
        handles, places = [], []
        for model, files in zip(models, weights, strict=True):
            try:
                opened = [stack.enter_context(safe_open(file, "pt")) for file in files]
            except (OSError, SafetensorError) as error:
                raise InputError.at(model, f"its weights are damaged ({first_line(error)})", "train it anew") from None
            handles.append(opened)
            places.append({name: held for held in opened for name in held.keys()})  # noqa: SIM118 - no mapping
        shapes = [{name: held.get_slice(name).get_shape() for name, held in own.items()} for own in places]
        for model, own in zip(models, shapes, strict=True):
            if own != shapes[0]:
                raise InputError.at(
                    model, f"its weights have other shapes than {models[0]}", "average models of one base"
                )
        shutil.copytree(models[0], partial, ignore=shutil.ignore_patterns("*.safetensors", *_OWN))
        with progress.task("averaging weights", len(places[0])) as advance:
            for file, held in zip(weights[0], handles[0], strict=True):
                means = {}
                for name in held.keys():  # noqa: SIM118 - no mapping
                    tensors = [own[name].get_tensor(name) for own in places]
                    mean = torch.stack([tensor.float() for tensor in tensors]).mean(dim=0)
                    if not torch.isfinite(mean).all():
                        raise ComputeError(f"The mean of {name} is not finite; check the models.")
                    means[name] = mean.to(tensors[0].dtype)
                    advance(1)
                save_file(means, partial / file.name, metadata={"format": "pt"})
        write_json(partial / CARD, card)
        (partial / README).write_text(_readme(card), "utf-8")
    return card


def _readme(card: JsonObject) -> str:
    """The model card, with the fields that the hub reads at its head."""
    front = ModelCardData(
        library_name="transformers", pipeline_tag="text-generation", tags=["procedural-planning", "recipe", STAGE]
    ).to_yaml()
    rows = [
        f"| {model['stage'] or 'unknown'} | {model['seed']} | {model['reward'] or '-'} | `{model['weights']}` |"
        for model in card["models"]
    ]
    parts = [
        f"---\n{front.strip()}\n---",
        "# A planner of procedures, the mean of several",
        "Given a goal and the steps that are done, the model writes the steps that follow. Each weight is the mean of "
        f"those of {len(rows)} models.",
        "```\nrecipe plan --model FOLDER --examples examples.jsonl --output plans.jsonl\n```",
        "\n".join(["| trained by | seed | reward | SHA-256 of the weights |", "| --- | --- | --- | --- |", *rows]),
        f"`{CARD}` holds the same for programs.",
    ]
    return "\n\n".join(parts) + "\n"
