"""What tells a model on this machine from others, for answers that are kept."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recipe.engines.cache import AnswerCache


def model_identity(name: str, revision: str | None, digests: "AnswerCache") -> dict[str, str | None]:
    """A model of the hub by id and revision; a folder by what is in it, since other weights may take its place."""
    from recipe.artifacts import fingerprint

    folder = Path(name)
    if not folder.is_dir():
        return {"model": name, "revision": revision}
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return {"sha256": fingerprint({path.name: digests.sha256(path) for path in files})}
