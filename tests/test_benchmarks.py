"""`benchmarks/losses.py` runs, goes on where it stopped, and judges every target."""

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

NUMBERS = ("seconds", "fastest", "slowest", "repeats", "gflops_limit", "share", "peak_mib", "value")
TARGETS = (
    "InfoNCE, D=768, N=4096",
    "InfoNCE, D=768, N=16384",
    "InfoNCE, D=128, N=4096 and 16384",
    "symmetric InfoNCE",
    "NTXent, DCL, DCLW over 2N views",
    "BarlowTwins",
    "VICReg",
    "InfoNCE in bfloat16",
    "InfoNCE, peak MiB",
    "largest N",
    "small batches",
    "one-sided objectives",
    "symmetric objectives",
    "2N objectives",
)


def losses(*arguments: str) -> str:
    """What the command prints."""
    command = [sys.executable, str(BENCHMARKS / "losses.py"), "--device", "cpu", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
def test_tiny_sizes(tmp_path: Path) -> None:
    """A few rows of 32 x 16: numbers in every column, a picture, a line for every target."""
    table = tmp_path / "losses.csv"
    said = losses("--smoke", "--csv", str(table))
    with table.open(newline="", encoding="utf-8") as handle:
        rows = {(row["by"], row["name"]): row for row in csv.DictReader(handle)}
    assert set(rows) == {("isotrope", "infonce"), ("torch", "InfoNCE")}
    for row in rows.values():
        assert not row["note"]
        assert all(float(row[column]) >= 0 for column in NUMBERS)
        assert (row["n"], row["d"], row["threads"], row["device"]) == ("32", "16", "1", "cpu")
        assert int(row["repeats"]) >= 5
    # both compute the same loss of the same embeddings
    values = [float(rows[key]["value"]) for key in (("isotrope", "infonce"), ("torch", "InfoNCE"))]
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert float(rows["isotrope", "infonce"]["times_plain"]) > 0
    for target in TARGETS:
        assert any(line.startswith(target) for line in said.splitlines()), target
    picture = table.with_suffix(".svg").read_bytes()
    assert picture.startswith(b"<?xml")

    again = losses("--smoke", "--csv", str(table))
    assert "0 rows to measure" in again
    assert table.with_suffix(".svg").read_bytes() == picture


def test_pages_have_the_memory_that_was_measured() -> None:
    """The table is the source; a page that repeats its numbers is corrected by hand."""
    with (BENCHMARKS / "losses.csv").open(newline="", encoding="utf-8") as handle:
        rows = [row for row in csv.DictReader(handle) if (row["n"], row["d"]) == ("16384", "768")]
    memory = {(row["by"], row["name"]): f"{float(row['peak_mib']):,.0f} MiB" for row in rows}
    for page in ("README.md", "docs/benchmarks.md", "docs/guide/large-batches.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for loss in (("isotrope", "infonce"), ("torch", "InfoNCE")):
            assert memory[loss] in text, (page, loss)


def test_plain_peers_compute_what_ours_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import loss_cases

    a, b = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    same = (
        (loss_cases.plain_infonce, InfoNCE()),
        (loss_cases.plain_clip, InfoNCE().symmetric()),
        (loss_cases.plain_ntxent, NTXent()),
    )
    for plain, ours in same:
        torch.testing.assert_close(plain(a, b), ours(a, b), rtol=1e-12, atol=0)


@pytest.mark.slow
def test_their_cached_loss_gives_the_gradients_of_the_plain_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.syspath_prepend(BENCHMARKS)
    import loss_cases

    case = next(case for case in loss_cases.peers() if case.step == 32)
    found = []
    for loss in (loss_cases.loss(case), loss_cases.plain_infonce):
        a, b = torch.randn(2, 40, 6, generator=torch.Generator().manual_seed(1)).unbind()
        inputs = (a.requires_grad_(), b.requires_grad_())
        found.append(torch.autograd.grad(3 * loss(*inputs), inputs))
    for theirs, plain in zip(*found, strict=True):
        torch.testing.assert_close(theirs, plain)


def test_targets_are_judged_by_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Met, not met, and who is over."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import loss_report

    blank = dict.fromkeys(("by", "name", "asked", "n", "d", "group", "note", "times_plain"), "")
    row = blank | {"by": "isotrope", "asked": "auto", "n": "4096", "d": "768", "repeats": "5"}
    row |= {"gflops_limit": "100", "peak_mib": "50", "seconds": "1", "share": "0.9"}
    rows = [
        row | {"name": "infonce"},
        row | {"name": "arccon", "group": "one-sided", "seconds": "1.2"},
        row | {"name": "mat", "group": "one-sided", "seconds": "1", "gflops_limit": "130"},
        row | {"name": "infonce symmetric", "group": "symmetric", "share": "0.6"},
    ]
    said = {verdict.target: verdict for verdict in loss_report.judge(rows)}
    assert said["InfoNCE, D=768, N=4096"].met
    assert said["InfoNCE, D=768, N=16384"].met is None
    assert not said["symmetric InfoNCE (CLIP), D=768, N=4096"].met
    one_sided = said["one-sided objectives, N=4096, in InfoNCE's times"]
    assert not one_sided.met
    assert one_sided.ours == "1 of 2 within (slowest 1.20); over: mat 1.30"
    assert said["symmetric objectives, N=4096, in InfoNCE's times"].met
