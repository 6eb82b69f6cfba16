"""Peak memory of a loss in a process of its own: what the kernel promises at sizes that matter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import re, sys, torch
from pathlib import Path
from isotrope.objectives import InfoNCE, NTXent

def resident(what):
    return int(re.search(what + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

name, n, d = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
objective = {"infonce": InfoNCE(), "clip": InfoNCE().symmetric(), "ntxent": NTXent()}[name]
torch.set_num_threads(1)

def step(rows):
    a, b = (torch.randn(rows, d).requires_grad_() for _ in range(2))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    before = resident("VmRSS")
    objective(a, b, backend="rowblock").backward()
    return resident("VmHWM") - before - 2 * rows * d * 4 / 2**20

step(256)
print(step(n))
"""
SLOW = pytest.mark.slow  # seconds to a minute of products


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="no peak memory in /proc here"
)
@pytest.mark.parametrize(
    ("name", "n", "d"),
    [
        ("clip", 8192, 128),
        pytest.param("infonce", 16384, 128, marks=SLOW),
        pytest.param("ntxent", 8192, 64, marks=SLOW),
        pytest.param("infonce", 4200, 2048, marks=SLOW),  # too long to be copied
        pytest.param("infonce", 65536, 128, marks=pytest.mark.nightly),
    ],
)
def test_at_most_64_mib_beyond_inputs_and_gradients(
    name: str, n: int, d: int, tmp_path: Path
) -> None:
    """All similarities would be 0.25 to 16 GiB."""
    program = tmp_path / "peak.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), name, str(n), str(d)],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    assert float(done.stdout) <= 64
