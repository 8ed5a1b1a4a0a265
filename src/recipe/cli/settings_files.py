"""Which command a settings file is for, where it is given to another one."""

from pathlib import Path

from recipe.config import read_config
from recipe.errors import ConfigError

# The command of each key that only its files have.
_COMMANDS = {
    "stage": "recipe train",
    "source": "recipe run",
    "tracks": "recipe board init",
    "judge": "recipe reproduce --models",
    "frontier": "recipe reproduce --models",
    "cost": "recipe reproduce --scale",
}


def require_file_of(command: str, path: Path) -> None:
    """Raises ConfigError, with the right command, where the settings file at `path` is for another one than `command`.

    Also where it cannot be read.
    """
    settings = read_config(path)
    for key, other in _COMMANDS.items():
        if key in settings and other != command:
            raise ConfigError(f"{path}: a file with the key {key!r} is for {other}.")
