"""What a running planner page (`recipe serve`) answers in place of a command: its model and encoder are loaded already.

A search and an explanation are those of the command itself: the page is asked about the same corpus, by its id, or
refuses. Plans are those of the page, by its model, its settings and its corpus.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recipe.errors import ComputeError, InputError, require_packages

if TYPE_CHECKING:
    from recipe.explain.records import Explanation
    from recipe.http import HttpClient
    from recipe.reward.scorer import PromptGroup

Server = Annotated[
    str,
    typer.Option(
        "--server",
        envvar="RECIPE_SERVER",
        help="Address of a running `recipe serve`, which answers at once; or set RECIPE_SERVER.",
    ),
]
# Seconds until a server is given up that does not answer at all, and of one answer.
_PATIENCE, _TIMEOUT = 5.0, 300.0
# Seconds between two looks at a run.
_PAUSE = 0.1


@contextmanager
def _asked(server: str) -> "Iterator[HttpClient]":
    require_packages({"client": "asking a server"})
    from recipe.cli.reward_options import service_token
    from recipe.http import HttpClient, server_address

    class PageClient(HttpClient):
        server = "planner page"
        retried = frozenset({502, 504})

    token = service_token(None)
    secret = None if token is None else token.get_secret_value()
    address = server_address(server, "http://localhost:8001")
    with PageClient(address, secret, timeout=_TIMEOUT, patience=_PATIENCE) as client:
        yield client


def _corpus_id(folder: Path) -> str:
    from recipe.corpus.layout import open_manifest

    identity: str = open_manifest(folder)["id"]
    return identity


def searched_there(server: str, folder: Path, steps: Sequence[str], k: int) -> dict[str, Any]:
    """What the search for these steps finds, by the server: `rows`, `total` and `certificate`.

    Raises InputError where it serves another corpus than the folder's, ComputeError where it does not answer.
    """
    with _asked(server) as client:
        return client.send("POST", "/api/search", json={"corpus": _corpus_id(folder), "steps": list(steps), "k": k})


def explained_there(
    server: str, folder: Path, method: str | None, pool: str | None, prompt: "PromptGroup"
) -> "Explanation":
    """The explanation of one plan's reward, by the server. Raises as `searched_there`."""
    from recipe.explain.records import Explanation
    from recipe.rows import from_json

    asked = {"verifier": method, "pool": pool}
    body = {"corpus": _corpus_id(folder), "goal": prompt.goal, "history": list(prompt.history)}
    body |= {"plan": list(prompt.plans[0])} | {name: value for name, value in asked.items() if value is not None}
    with _asked(server) as client:
        answer = client.send("POST", "/api/explain", json=body)
        return from_json(answer.get("explanation"), Explanation, client.url)


def planned_there(server: str, goal: str, history: Sequence[str], count: int, seed: int) -> dict[str, Any]:
    """A run of the server's planner, as `GET /api/runs/ID` shows it once it is over.

    Raises InputError where the server refuses it, ComputeError where it fails or does not answer.
    """
    with _asked(server) as client:
        body = {"goal": goal, "history": list(history), "plans": count, "seed": seed}
        identity = client.send("POST", "/api/runs", json=body)["id"]
        try:
            while (run := client.send("GET", f"/api/runs/{identity}"))["state"] in ("queued", "running"):
                time.sleep(_PAUSE)
        except (KeyboardInterrupt, SystemExit):
            # Else the server would write to its end what nobody waits for.
            client.send("DELETE", f"/api/runs/{identity}")
            raise
    if run["state"] != "done":
        raise ComputeError(f"{client.url}: the run has {run['state']}: {run['message']}")
    return run


def require_no_other(given: dict[str, object]) -> None:
    """Raise InputError where an option is given, by its name, that a server does not take."""
    if named := [name for name, value in given.items() if value]:
        raise InputError(f"--server, or RECIPE_SERVER, goes without {' and '.join(named)}; leave one or the other out.")
