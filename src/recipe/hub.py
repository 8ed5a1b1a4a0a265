"""The hub: which files of a model or a report are published there, their card, and one commit of all of them.

Corpora have checksums of their own, and go to other places too: recipe.corpus.release.
"""

import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, DatasetCardData, HfApi, ModelCard

from recipe.artifacts import CARD, JsonObject, file_sha256, read_json
from recipe.errors import InputError, RecipeError, first_line

README = "README.md"
# Files of a complete checkpoint, and of adapters, which need a base model.
_COMPLETE, _ADAPTER = "complete.json", "adapter_config.json"
# Names of files that a model is loaded from; the state of an optimiser, logs and completions are none of them.
_MODEL = re.compile(
    r"README\.md|card\.json|.*\.safetensors(\.index\.json)?|(adapter|generation|tokenizer|(video_)?(pre)?processor)?_?"
    r"config\.json|(tokenizer|vocab|added_tokens|special_tokens_map)\.json|merges\.txt|chat_template\.jinja|.*\.model"
)
_TARGET = re.compile(r"hf://(datasets/)?([\w.-]+/[\w.-]+)(?:@(\S+))?/?")
_SECRET = re.compile(rb"\b(?:hf_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{32,}|gh[pousr]_[A-Za-z0-9]{36,}|AKIA[0-9A-Z]{16})\b")
_SECRET_NAME = re.compile("KEY|TOKEN|SECRET|PASSWORD")
# Characters of a variable's value that is looked for; shorter ones are words.
_SHORTEST_SECRET = 16


class Publication(NamedTuple):
    """What is published of a folder."""

    kind: str
    """`model`, `checkpoint` or `report`."""
    files: Mapping[str, Path | bytes]
    """By their names in the repository: files, or the bytes of a file that is rewritten, such as a card."""
    places: tuple[str, ...]
    """Files that name a folder of this machine."""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file."""
        return {
            name: len(file) if isinstance(file, bytes) else file.stat().st_size for name, file in self.files.items()
        }


def publication(folder: Path, name: str = "", licence: str = "") -> Publication:
    """What is published of a model, a checkpoint, a finished training run (its model) or the folder of a report.

    `name` is the title of a report's card, `licence` goes into the card: an id of the hub, or a text. Raises InputError
    for a folder that is none of these or not complete, and for a file that holds a key.
    """
    if (folder / "run.json").is_file():
        if not read_json(folder / "run.json").get("finished") or not (folder / "model").is_dir():
            remedy = "finish the run, or publish one of its checkpoints"
            raise InputError.at(folder, "the training run is not finished", remedy)
        folder /= "model"
    pages = [entry.name for entry in entry_points(group="recipe.reports")]
    if (folder / CARD).is_file():
        if name:
            raise InputError.at(folder, "the card of a model has its title from the training", "leave --name out")
        kind, files = _model(folder, licence)
    elif data := next((page for page in pages if (folder / page).is_file()), None):
        kind, files = "report", _report(folder, data, name, licence)
    else:
        problem = f"this is no corpus, no model ({CARD} is missing) and no report ({', '.join(sorted(pages))})"
        raise InputError.at(folder, problem, "give the folder of one")
    keys = [
        value.encode()
        for variable, value in os.environ.items()
        if _SECRET_NAME.search(variable) and len(value) >= _SHORTEST_SECRET
    ]
    # Not the root, which may be the home in a container: every address would name it.
    own = [f"{place}/".encode() for place in (Path.home(), folder.resolve().parent) if place != place.parent]
    places = []
    for file, content in files.items():
        if file.endswith(".safetensors"):  # large, and no text
            continue
        text = content if isinstance(content, bytes) else content.read_bytes()
        if _SECRET.search(text) or any(key in text for key in keys):
            raise InputError.at(folder / file, "it holds a key or a token", "remove it from the file")
        if any(place in text for place in own):
            places.append(file)
    return Publication(kind, files, tuple(places))


def publish(made: Publication, target: str, *, public: bool = False) -> str:
    """Send a publication to the hub in one commit, and return the commit's address.

    `target` is `hf://OWNER/NAME[@BRANCH]` for a model, `hf://datasets/OWNER/NAME[@BRANCH]` for a report. A repository
    that is missing is made, private unless `public`; one that exists stays as it is. Raises InputError.
    """
    match, dataset = _TARGET.fullmatch(target), made.kind == "report"
    if match is None or bool(match[1]) != dataset:
        form = f"hf://{'datasets/' if dataset else ''}OWNER/NAME"
        raise InputError.at(target, f"this is no repository of the hub for a {made.kind}", f"write {form}")
    api, repo_type = HfApi(), "dataset" if dataset else "model"
    where: dict[str, Any] = {"repo_id": match[2], "repo_type": repo_type, "revision": match[3]}
    with reached(target):
        # A repository that exists keeps its visibility: `exist_ok` changes nothing of it.
        api.create_repo(match[2], repo_type=repo_type, private=not public, exist_ok=True)
        if match[3]:
            api.create_branch(match[2], repo_type=repo_type, branch=match[3], exist_ok=True)
        # Shards of weights that the model does not have would be loaded, or paid for.
        stale = [
            name for name in api.list_repo_files(**where) if name.endswith(".safetensors") and name not in made.files
        ]
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            *(
                CommitOperationAdd(name, io.BytesIO(file) if isinstance(file, bytes) else str(file))
                for name, file in made.files.items()
            ),
            *(CommitOperationDelete(name) for name in stale),
        ]
        commit = api.create_commit(operations=operations, commit_message=f"Publish a {made.kind}", **where)
    return str(commit.commit_url)


def _model(folder: Path, licence: str) -> tuple[str, dict[str, Path | bytes]]:
    """The files of a model or of a checkpoint of adapters. Raises InputError where one is missing or damaged."""
    adapter = (folder / _ADAPTER).is_file()
    files: dict[str, Path | bytes] = {
        path.name: path for path in sorted(folder.iterdir()) if path.is_file() and _MODEL.fullmatch(path.name)
    }
    needed = {README, _ADAPTER if adapter else "config.json"}
    for index in folder.glob("*.safetensors.index.json"):
        needed |= set(read_json(index)["weight_map"].values())
    if not any(name.endswith(".safetensors") for name in files):
        needed.add("model.safetensors")
    remedy = "train again, or publish another folder"
    if lacking := sorted(needed - files.keys()):
        raise InputError.at(folder, f"the model is not complete: {', '.join(lacking)} is missing", remedy)
    for name in files:
        if name.endswith(".safetensors") and not _whole(folder / name):
            raise InputError.at(folder / name, "the file of weights is cut or damaged", remedy)
    if adapter:
        if not (folder / _COMPLETE).is_file():
            raise InputError.at(folder, f"the checkpoint is not complete ({_COMPLETE} is missing)", remedy)
        sums = read_json(folder / _COMPLETE)["files"]
        if damaged := [name for name in files if file_sha256(folder / name) != sums.get(name)]:
            raise InputError.at(folder / damaged[0], "the file differs from its checksum", remedy)
        files[_ADAPTER] = _adapter_config(folder)
    if licence:
        card = ModelCard((folder / README).read_text(encoding="utf-8"))
        for field, value in licence_fields(licence).items():
            setattr(card.data, field, value)
        files[README] = str(card).encode()
    return "checkpoint" if adapter else "model", files


def _adapter_config(folder: Path) -> bytes:
    """PEFT's settings with the base model's name on the hub, if it has one, in place of its path."""
    settings, base = read_json(folder / _ADAPTER), read_json(folder / CARD).get("base_model")
    # A model may be trained on one that was itself trained here; the hub knows the first of them.
    while isinstance(base, dict) and base.get("base_model"):
        base = base["base_model"]
    known = base.get("name") if isinstance(base, dict) else None
    path = settings["base_model_name_or_path"]
    settings = without_paths(settings)
    if settings["base_model_name_or_path"] != path and known:
        settings["base_model_name_or_path"] = known
    return (json.dumps(settings, indent=2, sort_keys=True) + "\n").encode()


def _whole(path: Path) -> bool:
    """Whether a file of safetensors is as long as its header says."""
    with path.open("rb") as stream:
        # The length of the header in 8 bytes, the header as JSON, and then the tensors.
        size = int.from_bytes(stream.read(8), "little")
        try:
            header = json.loads(stream.read(size) if size < path.stat().st_size else b"")
            end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
            return path.stat().st_size == 8 + size + int(end)
        # Of a damaged file the header may be JSON of another shape.
        except (ValueError, LookupError, TypeError, AttributeError):
            return False


def _report(folder: Path, data: str, name: str, licence: str) -> dict[str, Path | bytes]:
    """A report's values, pages and card. Raises InputError where the page is missing."""
    pages = sorted(path for path in folder.iterdir() if path.suffix in (".html", ".md") and path.name != README)
    if not any(path.suffix == ".html" for path in pages):
        raise InputError.at(folder, "the report has no page", f"run recipe report {folder}")
    files: dict[str, Path | bytes] = {data: folder / data}
    files |= {path.name: path for path in pages}
    values = without_paths(read_json(folder / data)) if data.endswith(".json") else {}
    markdown = next((path.read_text(encoding="utf-8") for path in pages if path.suffix == ".md"), "")
    files[README] = _report_card(
        values, name or values.get("title") or folder.resolve().name, list(files), markdown, licence
    ).encode()
    return files


def _report_card(values: JsonObject, title: str, files: list[str], markdown: str, licence: str) -> str:
    """The card of a report: its sentences, or its page as Markdown, and from what it was made."""
    front = DatasetCardData(
        pretty_name=title, tags=["procedural-planning", "recipe", "report"], **licence_fields(licence)
    ).to_yaml()
    made = values.get("provenance", values)
    rows = {key: made.get(key) for key in ("created", "device")}
    rows["recipe"] = made.get("versions", {}).get("recipe-planner")
    for table in ("settings", "data"):
        rows |= made.get(table) or {}
    sentences = [
        *values.get("summary", ()),
        *([values["answer"]] if "answer" in values else []),
        *values.get("findings", ()),
    ]
    table = "\n".join(
        ["| | |", "| --- | --- |", *(f"| {_cell(key)} | {_cell(value)} |" for key, value in rows.items() if value)]
    )
    parts = [
        f"---\n{front.strip()}\n---",
        f"# {_cell(title)}",
        *(["\n".join(f"- {_cell(sentence)}" for sentence in sentences)] if sentences else []),
        f"## From what it was made\n\n{table}",
        *([markdown.partition("\n")[2].strip()] if markdown else []),
        f"Files: {', '.join(f'`{name}`' for name in files)}. Pages need nothing but themselves.",
    ]
    return "\n\n".join(parts) + "\n"


def _cell(value: object) -> str:
    """A value on one line, in which nothing is taken for HTML or for the end of a cell."""
    return " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def licence_fields(licence: str) -> dict[str, Any]:
    """The fields of a card for a licence, an id of the hub or a text.

    >>> licence_fields("cc-by-4.0"), licence_fields("Ask us."), licence_fields("")
    ({'license': 'cc-by-4.0'}, {'license': 'other', 'license_name': 'Ask us.'}, {})
    """
    if not licence:
        return {}
    known = re.fullmatch("[a-z0-9][a-z0-9.-]*", licence)
    return {"license": licence} if known else {"license": "other", "license_name": licence}


def without_paths(value: Any) -> Any:
    """A JSON value with the last names of absolute paths in their stead.

    >>> without_paths({"model": "/home/me/models/mine", "seeds": [0]})
    {'model': 'mine', 'seeds': [0]}
    """
    if isinstance(value, str) and (PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()):
        return PureWindowsPath(value).name  # both kinds of slashes
    if isinstance(value, dict):  # examples of near-copies are captions
        return {key: inner if key == "examples" else without_paths(inner) for key, inner in value.items()}
    return [without_paths(item) for item in value] if isinstance(value, list) else value


@contextmanager
def reached(address: str) -> Iterator[None]:
    """Turn errors of a store into one sentence; an error of the local disk passes as it is."""
    try:
        yield
    except RecipeError:
        raise
    except Exception as error:  # the libraries of stores have errors of their own
        if "://" not in address and isinstance(error, OSError):
            raise
        remedy = "check the address, the network and your rights there"
        raise InputError.at(address, first_line(error), remedy) from error
