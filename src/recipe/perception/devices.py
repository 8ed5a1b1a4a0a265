"""Phi on several devices of this machine: a process for each, which takes one group of clips after another."""

from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection

from recipe.children import assigned, shared_out
from recipe.config.models import ModelConfig, PhiConfig
from recipe.errors import InputError, RecipeError
from recipe.models.model import Model, open_model
from recipe.perception.phi import Group, Kind, Outcomes, PhiRun
from recipe.progress import Advance


class PhiOnDevices(PhiRun):
    """As `PhiRun`, with a process and a model for each device; all keep their answers in the cache of the settings."""

    def __init__(
        self,
        model: Model,
        settings: ModelConfig,
        devices: Sequence[str],
        config: PhiConfig,
        kind: Kind,
        *,
        together: int = 1,
        skip_unreadable: bool = False,
    ) -> None:
        """`model` replays the cache of the settings, so that no weights are loaded here; raises as `PhiRun`."""
        super().__init__(model, config, kind, together=together, workers=len(devices), skip_unreadable=skip_unreadable)
        self._settings, self._devices = settings, devices

    def each(self, groups: Iterable[Group], advance: Advance) -> Iterator[Outcomes]:
        """As `PhiRun` has it; raises what a process raises first, and ComputeError where one dies."""
        work = list(groups)
        options = (self._config, self._kind, self._together, self._skip)
        used = self._devices[: len(work)]
        workers = [(name, (self._settings.model_copy(update={"device": name}), *options)) for name in used]
        for described in shared_out(work, _describe, workers):
            advance(len(described))
            yield described


def devices_named(text: str, flag: str = "--devices") -> list[str]:
    """The devices of a list such as `cuda:0,cuda:1`, or the first ones of the machine where it is a number.

    Raises InputError, which names the flag, for one that this machine does not have.
    """
    import torch  # noqa: PLC0415 - takes seconds

    accelerator = torch.accelerator.current_accelerator()
    gpus = [f"{accelerator.type}:{at}" for at in range(torch.accelerator.device_count())] if accelerator else []
    there = f"this machine has {', '.join(gpus)} and cpu" if gpus else "this machine has cpu alone"
    if text.strip().isdecimal() and flag == "--devices":
        if not 1 <= int(text) <= len(gpus):
            raise InputError(f"--devices asks for {int(text)} GPUs, and {there}; name devices that are there.")
        return gpus[: int(text)]
    names = [name for name in map(str.strip, text.split(",")) if name]
    for name in names:
        try:
            device = torch.device(name)
        except RuntimeError:
            raise InputError(f"{flag} names {name!r}, which is no device; give one such as cuda:0.") from None
        if device.type != "cpu" and f"{device.type}:{device.index or 0}" not in gpus:
            raise InputError(f"{flag} names {name!r}, and {there}; name a device that is there.")
    if not names:
        raise InputError(f"{flag} names no device; give one such as cuda:0.")
    return names


def _describe(
    connection: Connection, settings: ModelConfig, config: PhiConfig, kind: Kind, together: int, skip: bool
) -> None:
    """Describe groups in a process of its own until none is left."""
    try:
        with open_model(settings, frames=config.frames) as model:
            run = PhiRun(model, config, kind, together=together, skip_unreadable=skip)
            for outcomes in run.each(assigned(connection), lambda _: None):
                connection.send(outcomes)
    except (RecipeError, OSError) as error:
        connection.send(error)
