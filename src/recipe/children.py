"""Python processes that this one starts: none of them takes modules from the folder that it is started in.

`python -c` and `python -m` look for modules in the current folder first, and multiprocessing starts its processes by
`-c`: a `json.py` beside a file of data would run.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SAFE = "PYTHONSAFEPATH"
_HOME = str(Path(__file__).parents[1])


def isolated(code: str) -> list[str]:
    """The command of a Python process that runs `code` with this process's modules, without those of its folder."""
    here = str(Path.cwd())
    # The folder that holds this package stays, also where it is the current one.
    path = [entry for entry in sys.path if entry == _HOME or entry not in ("", here)]
    if _HOME not in path:
        path.append(_HOME)
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {path!r}; {code}"]


@contextmanager
def safe_path() -> Iterator[None]:
    """Within it, Python processes that are started, those of multiprocessing too, leave the current folder out."""
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE, None)
        else:
            os.environ[_SAFE] = before
