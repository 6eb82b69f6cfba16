"""Names of devices, and what a pass through an encoder costs there."""

import pytest
import torch

from isotrope.encoders.device import find_device, pass_overhead
from tests.refused import refused_setting


def test_names_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert find_device("cpu") == find_device("auto") == torch.device("cpu")
    with refused_setting("device", value="toaster"):
        find_device("toaster")
    for name in ("cuda", "cuda:1", "mps"):
        with refused_setting("device", value=name):
            find_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert find_device("auto") == torch.device("cuda")
    with refused_setting("device", value="cuda:1"):
        find_device("cuda:1")


def test_a_pass_costs_more_where_it_has_to_be_launched() -> None:
    assert pass_overhead(torch.device("cpu")) < pass_overhead(torch.device("cuda"))
