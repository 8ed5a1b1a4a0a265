"""Forks of a process that are killed just before one of their calls to the file system."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")


def killed_before(moment: int, function: Callable[[], None], folder: Path) -> bool:
    """Call `function` in a fork that is killed before its call number `moment` below `folder`.

    False where it ended before that.
    """
    child = os.fork()
    if child == 0:
        calls = 0

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal calls
            if event in EVENTS and (str(folder) in str(arguments[0]) or isinstance(arguments[0], int)):
                calls += 1
                if calls == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        function()
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0
