"""What the triton backend launches passes Triton's compiler, for GPUs that need not be there.

    python -m pytest kernels-triton/tests/test_triton_compiled.py    # or: make test-triton

Nothing runs, so this says nothing about results (test_triton.py does) nor about speed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("isotrope_triton", reason="isotrope-triton is not installed: make test-triton")
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from isotrope_triton.tiles import INTERPRETED

if INTERPRETED:
    pytest.skip("TRITON_INTERPRET is set: nothing is compiled", allow_module_level=True)

import isotrope_triton
from isotrope.objectives import MPT, InfoNCE, MIOv3, NTXent
from isotrope.paradigm.objective import Objective
from isotrope_triton import passes

# compute capability: bytes of shared memory that a program may have there
ROOM = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10}
CASES = [
    (InfoNCE(), torch.bfloat16, 768, 2),
    (InfoNCE(), torch.float32, 100, 2),
    (NTXent(temperature=0.01), torch.bfloat16, 1024, 4),
    (MIOv3(), torch.bfloat16, 128, 4),
    (MPT(), torch.bfloat16, 768, 1),
]


class Elsewhere:
    """A driver of a GPU that is not there."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # kernels are remembered by device

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture(params=ROOM, ids=lambda x: f"sm_{x}")
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The kernels that would have been launched, and the room that they have."""
    found, room = {}, ROOM[request.param]

    def launch(kernel: Any, grid: Any, cut: passes.Tiling, given: dict[str, Any]) -> None:
        made = kernel.warmup(grid=grid, **given, num_warps=cut.warps, num_stages=cut.stages)
        found[made.hash] = made
        for name in {"of_rows", "row_places"} & set(given):
            given[name].zero_()  # as if something had been found

    monkeypatch.setattr(isotrope_triton, "refusal", lambda _: None)
    monkeypatch.setattr(passes, "_room", lambda _: room)
    monkeypatch.setattr(passes, "_launch", launch)
    monkeypatch.setattr(driver, "_active", Elsewhere(request.param))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield found, room
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("objective", "dtype", "d", "kernels"), CASES, ids=str)
def test_every_launch_compiles_and_fits(
    objective: Objective, dtype: torch.dtype, d: int, kernels: int, compiled: Any
) -> None:
    a, b = (x.to(dtype).requires_grad_() for x in torch.randn(2, 300, d))
    objective(a, b, backend="triton")
    found, room = compiled
    assert len(found) == kernels
    for kernel in found.values():
        assert kernel.asm["cubin"]
        assert kernel.metadata.shared <= room
