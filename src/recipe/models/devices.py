"""Devices: which one computes, and whether it does so in bfloat16. Loads torch, and not transformers."""

import functools
import logging

import torch

from recipe.errors import InputError

_LOG = logging.getLogger(__name__)

# Names of a processor's bfloat16 instructions: Intel, Intel and AMD, ARM.
_BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")


def open_device(name: str | None) -> torch.device:
    """The named device, by default the first GPU, else the processor. Raises InputError for one that is not there."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):  # no name of a device, or none of this machine
        accelerator = torch.accelerator.current_accelerator()
        count = torch.accelerator.device_count() if accelerator else 0
        devices = [*(f"{accelerator.type}:{index}" for index in range(count) if accelerator), "cpu"]
        raise InputError(f"device {name!r} is not on this machine; give one of {', '.join(devices)}.") from None
    return device


def computes_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16: where it is emulated it is slower than float32, not faster.

    A PyTorch that is held to older instructions (ATEN_CPU_CAPABILITY) lacks them: some of its kernels for bfloat16
    look at the processor alone, and then fail.
    """
    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    instructions, used = torch.cpu.get_capabilities(), torch.backends.cpu.get_cpu_capability()
    held = bool(instructions.get("avx512_f")) and not used.startswith("AVX512")
    return device.type == "cpu" and not held and any(instructions.get(name) for name in _BFLOAT16)


def use_bf16(asked: bool | None) -> bool:
    """Whether training computes in bfloat16: as asked, and on CUDA only where nothing is.

    A processor without instructions for it computes in float32, and a warning says so once.
    """
    if torch.cuda.is_available():
        return asked is not False
    if not asked or computes_bfloat16(torch.device("cpu")):
        return bool(asked)
    _warn_of_float32()
    return False


@functools.cache  # one warning a process
def _warn_of_float32() -> None:
    _LOG.warning(
        "bf16: this processor has no instructions for bfloat16 and would take several times as long; "
        "training computes in float32."
    )
