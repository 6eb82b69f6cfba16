"""Time and memory of the losses on an NVIDIA GPU, forward and backward, beside the peers.

    make bench-gpu
    python benchmarks/gpu.py [--only WORD] [--rows N ...] [--again] [--csv FILE]

Seconds are the median of at least 5 calls after one that compiles (of one, where it takes more than
20 s). Between the calls stand products of bfloat16 matrices of 8192 x 8192, whose median rate is
the limit of the same run; the share is flops / rate / seconds, with the flops of
`gpu_cases.COUNTED`: the least there can be for one direction, and what is paid without symmetry for
2N views. Peak memory is what the call allocates beyond the embeddings, without the two gradients.
Up to 4,096 rows the gradients are compared with those of the same formula in float64 (`error`: norm
of the difference over the norm, the worse of the two views).

The rows are measured in a process of their own. A row that runs out of memory gets a note. So does
one that breaks the process, and a new process goes on behind it. Rows in the CSV are not measured
again while the versions are the same. Peers are Inf-CL (pip install --no-deps inf-cl==1.2.1) and
sentence-transformers, if they are there. Without a GPU nothing is measured, and the exit code is 2;
`--smoke` runs a few tiny rows on the CPU.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

import gpu_cases
import gpu_report
import loss_cases
import losses

HERE = Path(__file__).parent
KEY = ("machine", "by", "loss", "how", "dtype", "n", "d")
COLUMNS = (
    *KEY,
    "version",
    "torch",
    "cuda",
    "seconds",
    "fastest",
    "slowest",
    "repeats",
    "matmul_tflops",
    "share",
    "of_flops",
    "peak_mib",
    "gradients_mib",
    "value",
    "error",
    "note",
)
SIDE = 8192  # of the products whose rate is the limit
LEAST, MOST, SPENT, LONG = 5, 50, 0.3, 20.0  # repeats, seconds of them, and what is a long one
CHECKED = 4096  # rows up to which gradients are compared with float64's
PATIENCE = 120  # seconds for one row
TINY = (48, 16)
SMOKE = [("infonce", how, "bfloat16") for how in ("rowblock", "plain", "chunked")]
SMOKE += [("step", "rowblock", "bfloat16")]
Row = dict[str, str]


def machine() -> str:
    """Name the GPU, or what stands in for it."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return losses.machine()


class Clock:
    """Seconds of calls, and of the products beside which they are timed."""

    def __init__(self, device: str) -> None:
        self.device = device
        side = SIDE if device == "cuda" else 128
        self.square = torch.randn(side, side, device=device, dtype=torch.bfloat16)
        self.rates: list[float] = []
        self.burst()  # the first one starts the library
        self.rates.clear()

    def time(self, run: Callable[[], object]) -> float:
        """Return the seconds of one call."""
        wait = torch.cuda.synchronize if self.device == "cuda" else lambda: None
        wait()
        start = time.perf_counter()
        run()
        wait()
        return time.perf_counter() - start

    def burst(self) -> None:
        """Multiply, and remember the rate."""
        taken = self.time(lambda: self.square @ self.square)
        self.rates.append(2 * len(self.square) ** 3 / taken)


def views(n: int, d: int, dtype: str, device: str) -> list[Tensor]:
    """Return anchors and positives that are noisy copies of them."""
    random = torch.Generator(device=device).manual_seed(0)
    a, noise = (torch.randn(n, d, generator=random, device=device) for _ in range(2))
    return [x.to(getattr(torch, dtype)).requires_grad_() for x in (a, a + noise)]


def gradients(run: Callable[[Tensor, Tensor], Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Return the value and both gradients."""
    value = run(*inputs)
    return [value.detach(), *torch.autograd.grad(value, inputs)]


def wrong(case: gpu_cases.Case, inputs: list[Tensor], computed: list[Tensor]) -> float:
    """Return the relative error of the worse gradient against float64."""
    exact = [x.detach().double().requires_grad_() for x in inputs]
    objective = loss_cases.objective(case.loss)
    truth = gradients(lambda a, b: objective(a, b, backend="eager"), exact)
    pairs = zip(computed[1:], truth[1:], strict=True)
    return max(float((x.double() - t).norm() / t.norm()) for x, t in pairs)


def measure(case: gpu_cases.Case, n: int, d: int, device: str) -> dict[str, object]:
    """Measure one row."""
    clock, cuda = Clock(device), device == "cuda"
    if case.loss == "step":
        call, inputs = gpu_cases.step(case, n, device, tiny=not cuda), []
    else:
        inputs = views(n, d, case.dtype, device)
        loss = gpu_cases.loss(case)
        call = lambda: gradients(loss, inputs)[0]  # noqa: E731
    first = clock.time(call)
    if cuda:
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    values, taken = [], []
    taken.append(clock.time(lambda: values.append(call())))
    peak = torch.cuda.max_memory_allocated() - before if cuda else 0
    clock.burst()
    least = LEAST if taken[0] < LONG else 1
    while len(taken) < least or (sum(taken) < SPENT and len(taken) < MOST):
        taken.append(clock.time(call))
        clock.burst()
    seconds, rate = statistics.median(taken), statistics.median(clock.rates)
    flops = loss_cases.FLOPS[case.counted](n, d) if case.counted else None
    returned = sum(x.numel() * x.element_size() for x in inputs)
    row: dict[str, object] = {
        "seconds": seconds,
        "fastest": min(taken),
        "slowest": max(taken),
        "repeats": len(taken),
        "matmul_tflops": rate / 1e12,
        "share": flops / rate / seconds if flops else "",
        "peak_mib": max(0.0, (peak - returned) / 2**20) if cuda else "",
        "gradients_mib": returned / 2**20,
        "value": float(values[0]),
        "note": f"first call {first:.1f} s" if first > LONG else "",
    }
    if inputs and n <= CHECKED:
        row["error"] = wrong(case, inputs, gradients(loss, inputs))
    return row


def several(rows: list[tuple[int, int, int]], device: str) -> None:
    """Measure rows, each the place of a case, n and d; print a line for each."""
    torch.set_float32_matmul_precision("high")  # TensorFloat-32, as Inf-CL has it
    for place, n, d in rows:
        try:
            row = measure(gpu_cases.every()[place], n, d, device)
        except torch.OutOfMemoryError:
            row = {"note": "out of memory"}
        gc.collect()
        torch.cuda.empty_cache()
        torch._dynamo.reset()
        print("RESULT " + json.dumps(row), flush=True)


def run(todo: list[tuple[int, Row]], device: str) -> Iterator[Row]:
    """Measure rows in one process, and in a further one behind a row that broke it."""
    while todo:
        left = json.dumps([(place, int(row["n"]), int(row["d"])) for place, row in todo])
        command = [sys.executable, __file__, "--one", left, "--device", device]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            ) as process,
        ):
            patience = threading.Timer(PATIENCE, process.kill)
            patience.start()
            for said in process.stdout or ():
                if said.startswith("RESULT "):
                    patience.cancel()
                    yield todo.pop(0)[1] | _written(json.loads(said[7:]))
                    patience = threading.Timer(PATIENCE, process.kill)
                    patience.start()
            patience.cancel()
            code = process.wait()
            errors.seek(0)
            lines = errors.read().strip().splitlines()
        if todo:
            late = f"stopped after {PATIENCE} s"
            note = late if code == -9 else lines[-1][:200] if lines else f"ended with {code}"
            yield todo.pop(0)[1] | {"note": note}


def _written(numbers: dict[str, object]) -> Row:
    return {key: f"{x:.6g}" if isinstance(x, float) else str(x) for key, x in numbers.items()}


def wanted(options: argparse.Namespace, table: losses.Table) -> list[tuple[int, Row]]:
    """Return what has to be measured: the place of a case, and its row."""
    todo = []
    for place, case in enumerate(gpu_cases.every()):
        if options.only not in f"{case.by} {case.loss}, {case.how}, {case.dtype}":
            continue
        if not case.version:
            print(f"{case.by} {case.loss}: not installed, left out")
            continue
        if options.smoke and (case.loss, case.how, case.dtype) not in SMOKE:
            continue
        d = TINY[1] if options.smoke else case.width
        sizes = TINY[:1] if options.smoke else case.sizes
        rows = [blank(case, n, d) for n in sizes if n in (options.rows or [n])]
        todo += [(place, row) for row in rows if options.again or not known(row, table)]
    return todo


def blank(case: gpu_cases.Case, n: int, d: int) -> Row:
    """A row without numbers."""
    row = dict.fromkeys(COLUMNS, "")
    row |= {"machine": machine(), "by": case.by, "loss": case.loss, "how": case.how}
    row |= {"dtype": case.dtype, "n": str(n), "d": str(d), "version": case.version}
    row |= {"torch": torch.__version__, "cuda": torch.version.cuda or ""}
    return row | {"of_flops": case.counted}


def known(row: Row, table: losses.Table) -> bool:
    """Whether it was measured with the same versions."""
    there = table.rows.get(tuple(row[column] for column in KEY))
    return there is not None and all(
        there[column] == row[column] for column in ("version", "torch", "cuda")
    )


def line(row: Row) -> str:
    """Say what one row found."""
    where = f"{row['by']} {row['loss']}, {row['how']}, {row['dtype']}, N={row['n']} D={row['d']}: "
    if not row["seconds"]:
        return where + row["note"]
    share = f", {float(row['share']):.2f} of the limit" if row["share"] else ""
    memory = f", {float(row['peak_mib']):.0f} MiB" if row["peak_mib"] else ""
    return f"{where}{float(row['seconds']) * 1e3:.4g} ms{share}{memory}"


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="WORD", help="cases with WORD in their name")
    parser.add_argument("--rows", type=int, nargs="+", metavar="N", help="only batches of N rows")
    parser.add_argument("--again", action="store_true", help="measure what was measured already")
    parser.add_argument("--csv", type=Path, default=HERE / "gpu.csv")
    parser.add_argument("--smoke", action="store_true", help="a few tiny rows on the CPU")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        several(json.loads(options.one), options.device)
        return
    if not options.smoke and not torch.cuda.is_available():
        print("no NVIDIA GPU that torch can use: nothing was measured", file=sys.stderr)
        sys.exit(2)
    table = losses.Table(options.csv, KEY, COLUMNS)
    todo = wanted(options, table)
    print(f"{len(todo)} rows to measure", flush=True)
    for row in run(todo, "cpu" if options.smoke else "cuda"):
        table.add(row)
        print(line(row), flush=True)
    print()
    for verdict in gpu_report.verdicts(
        [r for r in table.rows.values() if r["machine"] == machine()]
    ):
        print(verdict)


if __name__ == "__main__":
    main()
