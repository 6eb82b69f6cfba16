"""``benchmarks/gpu.py`` runs, says plainly where it cannot, and judges its targets."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from isotrope.objectives import InfoNCE, NTXent

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
NUMBERS = ("seconds", "fastest", "slowest", "repeats", "matmul_tflops", "value")


def gpu(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment |= {"CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def test_without_a_gpu_it_measures_nothing(tmp_path: Path) -> None:
    done = gpu("--csv", str(tmp_path / "gpu.csv"))
    assert done.returncode == 2
    assert done.stderr.strip() == "no NVIDIA GPU that torch can use: nothing was measured"
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_tiny_sizes(tmp_path: Path) -> None:
    """Rows of 48 x 16: numbers in every column, and no second time."""
    table = tmp_path / "gpu.csv"
    done = gpu("--smoke", "--csv", str(table))
    assert done.returncode == 0, done.stderr
    with table.open(newline="", encoding="utf-8") as handle:
        rows = {(row["loss"], row["how"]): row for row in csv.DictReader(handle)}
    assert set(rows) == {("infonce", x) for x in ("rowblock", "plain", "chunked")} | {
        ("step", "rowblock")
    }
    for row in rows.values():
        assert not row["note"]
        assert all(float(row[column]) > 0 for column in NUMBERS)
    ours, plain, chunked = (rows["infonce", how] for how in ("rowblock", "plain", "chunked"))
    assert float(ours["value"]) == pytest.approx(float(plain["value"]), rel=0.02)
    assert float(chunked["value"]) == pytest.approx(float(plain["value"]), rel=1e-5)
    assert float(ours["error"]) < float(plain["error"]) < 0.05
    assert "65536 D=768: at least 0.55 of the matmul rate: not measured" in done.stdout
    again = gpu("--smoke", "--csv", str(table))
    assert "0 rows to measure" in again.stdout


@pytest.mark.usefixtures("modules")
def test_peers_compute_what_ours_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, since they take similarities as float32: value and gradients."""
    import gpu_cases

    monkeypatch.setattr(gpu_cases, "CHUNK", 4)
    ours = {"infonce": InfoNCE(), "infonce symmetric": InfoNCE().symmetric(), "ntxent": NTXent()}
    a, b = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(1))
    for name, objective in ours.items():
        found = []
        for loss in (objective, gpu_cases.PLAIN[name], gpu_cases.CHUNKED[name]):
            inputs = [x.clone().requires_grad_() for x in (a, b)]
            value = loss(*inputs)
            found.append([value, *torch.autograd.grad(value, inputs)])
        for one in found[1:]:
            torch.testing.assert_close(one, found[0])


@pytest.mark.usefixtures("modules")
def test_every_case_can_be_built() -> None:
    import gpu_cases

    cases = gpu_cases.every()
    assert len({(x.loss, x.by, x.how, x.dtype) for x in cases}) == len(cases)
    a, b = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(1))
    for case in cases:
        if case.how in ("eager", "rowblock") and case.loss != "step":
            assert torch.isfinite(gpu_cases.loss(case)(a, b))
    shown = {(x.by, x.how) for x in cases if x.loss == "infonce"}
    assert {("inf-cl", "plain"), ("torch", "compiled"), ("torch", "chunked")} < shown


@pytest.mark.usefixtures("modules")
def test_targets_are_judged_by_the_numbers() -> None:
    import gpu_report

    def row(by: str, loss: str, how: str, seconds: float, n: int = 65536) -> dict[str, str]:
        return {
            "by": by,
            "loss": loss,
            "how": how,
            "dtype": "bfloat16",
            "n": str(n),
            "d": "768",
            "seconds": str(seconds),
            "share": "0.6",
        }

    ours = row("isotrope", "infonce", "rowblock", 1.0)
    said = [str(x) for x in gpu_report.verdicts([ours])]
    assert said[0].endswith("matmul rate: 0.60, met")
    assert all(x.endswith("not measured") for x in said[1:])
    rows = [
        *(ours, row("inf-cl", "infonce", "plain", 3.0), row("torch", "infonce", "chunked", 0.9)),
        row("isotrope", "mpt", "rowblock", 1.2),
        row("isotrope", "ntxent", "rowblock", 3.5),
        row("torch", "infonce", "chunked", 0.1, n=1024),  # too small to count
    ]
    said = [str(x) for x in gpu_report.verdicts(rows)]
    assert (
        "quicker than inf-cl (plain) from N=4096 on: 3.00 times at infonce N=65536 D=768, met"
        in said
    )
    assert any("torch (chunked)" in x and "0.90 times" in x and "NOT MET" in x for x in said)
    assert "mpt within 1.25 of InfoNCE's time: 1.20, met" in said
    assert "ntxent within 3.2 of InfoNCE's time: 3.50, NOT MET" in said
    assert str(gpu_report.verdicts([ours | {"share": "0.5"}])[0]).endswith("0.50, NOT MET")
