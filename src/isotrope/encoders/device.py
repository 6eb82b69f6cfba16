"""Finds a device of torch by its name, and estimates the fixed cost of a pass on the device."""

import torch

from isotrope.core.errors import SettingError

# with two cores, training is about equally fast for all values from 16 to 512; 64 takes a little
# less memory than 128 (docs/LOG.md, "Throughput and memory")
_CPU_OVERHEAD = 64
_ACCELERATOR_OVERHEAD = 4096  # an estimate: launching kernels costs more than on a CPU


def find_device(name: str) -> torch.device:
    """Return the device with this name. Raise an error if this machine has no such device.

    Args:
        name: ``auto`` (a GPU if there is one), ``cpu``, ``cuda``, ``cuda:1``, ... or ``mps``.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingError(
            "is not a device",
            setting="device",
            value=name,
            remedy="use auto, cpu, cuda, cuda:1 or mps",
        ) from error
    available = {
        "cpu": True,
        "cuda": (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available.get(device.type, False):
        raise SettingError(
            "torch finds no such device on this machine",
            setting="device",
            value=name,
            remedy="use `--device auto`",
        )
    return device


def pass_overhead(device: torch.device) -> int:
    """Return the fixed cost of a forward and backward pass, in tokens that take the same time.

    Training cuts a batch into chunks, with a pass for each. A higher cost means fewer chunks.
    """
    return _CPU_OVERHEAD if device.type == "cpu" else _ACCELERATOR_OVERHEAD
