"""Time and peak memory of every objective on given embeddings, forward and backward, and peers'.

Each row is a process of its own. Seconds are the median of at least 5 calls (of one, where it
takes more than 20 s; the table says how many): CPU time of the process with one thread, else wall
time. Between the calls stand bursts of float32 products of 1024 x 1024 matrices, whose median rate
is the limit of the same run: machines are shared, and a slow moment then slows both. The share is
flops / rate / seconds, with the flops of `loss_cases.FLOPS`. Peak memory is the largest resident
set less what was resident when inputs, thread pool and one product existed and a call with 256
rows had loaded the code; less the two gradients, which every loss has to return.

    python benchmarks/losses.py [--minutes M] [--only WORD] [--rows N ...] [--again] [--huge]

Rows in the CSV are not measured again while the versions and the kernels are the same: a run that
was stopped goes on. The cheapest come first.
"""

import argparse
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ledger

HERE = Path(__file__).parent
KEY = ("machine", "device", "threads", "by", "name", "asked", "n", "d")
COLUMNS = (
    *KEY,
    "version",
    "torch",
    "backend",
    "seconds",
    "fastest",
    "slowest",
    "repeats",
    "gflops_limit",
    "share",
    "of_flops",
    "peak_mib",
    "gradients_mib",
    "times_plain",
    "value",
    "group",
    "note",
)
SIDE = 1024  # of the products whose rate is the limit
LEAST, MOST, SPENT, LONG = 5, 50, 0.5, 20.0  # repeats, seconds of them, and what is a long one
SMALL = 256  # rows up to which plain torch is timed between the calls: there, overheads count
Row = dict[str, str]


def machine() -> str:
    """Name the processor and count its cores."""
    try:
        match = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    name = match[1].strip() if match else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def resident_mib(peak: bool) -> float:
    """Return the resident set of this process, now or at its largest."""
    status = Path("/proc/self/status")
    if not status.exists():  # no Linux: only the largest is known
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    match = re.search(rf"{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB", status.read_text())
    return int(match[1]) / 1024


class Clock:
    """Seconds of this process, and of the products beside which it is timed."""

    def __init__(self, device: str, threads: int) -> None:
        import torch

        self.now = time.process_time if (device, threads) == ("cpu", 1) else time.perf_counter
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.square = torch.randn(SIDE, SIDE, device=device)
        self.out = self.square @ self.square
        self.rates: list[float] = []

    def time(self, run: Callable[[], object]) -> float:
        """Return the seconds of one call."""
        self.wait()
        start = self.now()
        run()
        self.wait()
        return self.now() - start

    def burst(self, seconds: float = 0.0) -> None:
        """Multiply once, or as often as lasts that long; remember the rates."""
        import torch

        spent = 0.0
        while not spent or spent < seconds:
            taken = self.time(lambda: torch.mm(self.square, self.square, out=self.out))
            self.rates.append(2 * SIDE**3 / taken)
            spent += taken


def measure(place: int, n: int, d: int, device: str, threads: int, huge: bool) -> dict:
    """Measure one row, in this process."""
    import torch

    import loss_cases

    case = loss_cases.every(huge=huge)[place]
    torch.set_num_threads(threads)
    if device == "cpu" and sys.platform == "linux":
        # what needs more than the machine has fails by itself, instead of by the kernel's choice
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        resource.setrlimit(resource.RLIMIT_AS, (int(0.9 * total), -1))
    loss = loss_cases.loss(case)
    clock = Clock(device, threads)
    random = torch.Generator().manual_seed(0)

    def views(rows: int) -> list[torch.Tensor]:
        made = (torch.randn(rows, d, generator=random) for _ in range(2))
        return [x.to(device).requires_grad_() for x in made]

    def call(function: Callable, inputs: list[torch.Tensor]) -> float:
        value = function(*inputs)
        value.backward()
        for x in inputs:
            x.grad = None
        return value.detach()

    call(loss, views(min(n, 256)))  # as many as bring in what large batches use
    inputs = views(n)
    gradients = 2 * inputs[0].numel() * 4 / 2**20
    before = 0.0
    if device == "cuda":
        before = torch.cuda.memory_allocated() / 2**20
        torch.cuda.reset_peak_memory_stats()
    else:
        clear = Path("/proc/self/clear_refs")
        if clear.exists():
            clear.write_text("5")  # the peak starts here
        before = resident_mib(peak=False)
    values = []
    first = clock.time(lambda: values.append(call(loss, inputs)))
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
    else:
        peak = resident_mib(peak=True)

    # a short first call only warms up; short ones are timed several together
    taken = [first] if first > 1 else []
    together = max(1, int(0.01 / first))
    clock.burst(0.02 * first)
    least = LEAST if first < LONG else 1
    while len(taken) < least or (sum(taken) * together < SPENT and len(taken) < MOST):
        taken.append(clock.time(lambda: [call(loss, inputs) for _ in range(together)]) / together)
        clock.burst(0.02 * taken[-1])
    seconds, rate = statistics.median(taken), statistics.median(clock.rates)
    flops = case.least(n, d)
    row = {
        "seconds": seconds,
        "fastest": min(taken),
        "slowest": max(taken),
        "repeats": len(taken),
        "gflops_limit": rate / 1e9,
        "share": flops / rate / seconds if flops else "",
        "peak_mib": max(0.0, peak - before - gradients),
        "gradients_mib": gradients,
        "value": float(values[0]),
        "times_plain": "",
        "backend": "",
    }
    if case.by == "isotrope":
        from isotrope.core.views import Views
        from isotrope.kernels.choose import choose

        row["backend"] = choose(Views(*inputs), case.backend)[0]
        if case.name == "infonce" and n <= SMALL:
            row["times_plain"] = beside(
                clock, *(lambda f=f: call(f, inputs) for f in (loss, loss_cases.plain_infonce))
            )
    return row


def beside(clock: Clock, ours: Callable[[], object], plain: Callable[[], object]) -> float:
    """Return the median ratio of our time to that of plain torch, timed by turns."""
    times = max(1, int(0.01 / clock.time(plain)))
    ratios = []
    for _ in range(30):
        mine, its = (
            clock.time(lambda run=run: [run() for _ in range(times)]) for run in (ours, plain)
        )
        ratios.append(mine / its)
    return statistics.median(ratios)


class Table:
    """The rows measured so far: those of the file and new ones, each written at once."""

    def __init__(
        self, path: Path, key: tuple[str, ...] = KEY, columns: tuple[str, ...] = COLUMNS
    ) -> None:
        self.path, self.key, self.columns = path, key, columns
        self.rows = {tuple(row[column] for column in key): row for row in ledger.read(path)}

    def add(self, row: Row) -> None:
        """Put a row in the place of the one with its key."""
        self.rows[tuple(row[column] for column in self.key)] = row
        order = sorted(self.rows, key=_natural)
        ledger.write(self.path, self.columns, (self.rows[key] for key in order))


def _natural(key: tuple[str, ...]) -> list[tuple[float, str]]:
    return [(float(part), "") if part.isdigit() else (0.0, part) for part in key]


def wanted(options: argparse.Namespace, table: Table) -> list[tuple[float, int, Row]]:
    """Return what has to be measured, cheapest first: work, place of the case, row without numbers.

    Peers that are not installed are named and left out.
    """
    import torch

    import loss_cases

    jobs = []
    for place, case in enumerate(loss_cases.every(huge=options.huge)):
        if options.only not in f"{case.by} {case.name}, {case.backend}":
            continue
        if not case.version:
            print(f"{case.by} {case.name}: not installed, left out")
            continue
        widths = loss_cases.WIDTHS
        places = [(n, d) for n in case.sizes if n in (options.rows or [n]) for d in widths]
        if options.smoke:
            smoke = case.by in ("isotrope", "torch") and case.name in loss_cases.SMOKE
            places = [(32, 16)] if smoke and case.backend == "auto" else []
        for n, d in places:
            row = dict.fromkeys(COLUMNS, "")
            row |= {"machine": machine(), "device": options.device, "threads": str(options.threads)}
            row |= {"by": case.by, "name": case.name, "asked": case.backend}
            row |= {"n": str(n), "d": str(d), "version": case.version, "torch": torch.__version__}
            row |= {"of_flops": case.flops, "group": case.group or ""}
            there = table.rows.get(tuple(row[column] for column in KEY))
            same = there and all(there[c] == row[c] for c in ("version", "torch", "of_flops"))
            if not same or options.again:
                jobs.append((case.work(n, d), place, row))
    return sorted(jobs, key=lambda item: item[0])


def seconds_of(work: float, options: argparse.Namespace) -> float:
    """Guess what a row costs: the start of a process and the repeats, at 100 GFLOP/s a thread."""
    one = work / 1e11 / (options.threads if options.device == "cpu" else 100)
    return 3.5 + (max(SPENT, (LEAST + 1) * one) if one < LONG else one)


def run(place: int, row: Row, options: argparse.Namespace, limit: float) -> Row:
    """Measure one row in a fresh process; what fails leaves a note in its row."""
    command = [sys.executable, __file__, "--one", str(place), row["n"], row["d"]]
    command += ["--device", options.device, "--threads", str(options.threads)]
    command += ["--huge"] if options.huge else []
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return row | {"note": f"stopped after {limit:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return row | {"note": lines[-1][:200]}
    numbers = json.loads(done.stdout.rpartition("RESULT ")[2])
    return row | {
        key: f"{number:.6g}" if isinstance(number, float) else str(number)
        for key, number in numbers.items()
    }


def main() -> None:
    """Measure what is missing, then write the picture and print which targets are met."""
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--minutes", type=float, help="start no row that would end later")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with WORD in their name")
    parser.add_argument("--rows", type=int, nargs="+", metavar="N", help="only batches of N rows")
    parser.add_argument("--again", action="store_true", help="measure what was measured already")
    parser.add_argument("--huge", action="store_true", help="InfoNCE with 262144 rows too")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default=device)
    parser.add_argument("--csv", type=Path, default=HERE / "losses.csv")
    parser.add_argument("--smoke", action="store_true", help="a few tiny rows, to see that it runs")
    parser.add_argument("--only-report", action="store_true", help="measure nothing")
    parser.add_argument("--one", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        numbers = measure(*options.one, options.device, options.threads, options.huge)
        print("RESULT " + json.dumps(numbers))
        return
    import loss_report

    table = Table(options.csv)
    rows = [] if options.only_report else wanted(options, table)
    total = sum(seconds_of(work, options) for work, _, _ in rows)
    print(f"{len(rows)} rows to measure, about {total / 60:.0f} minutes", flush=True)
    start, left = time.monotonic(), 0
    for work, place, row in rows:
        expected = seconds_of(work, options)
        if options.minutes and time.monotonic() - start + expected > 60 * options.minutes:
            left += 1
            continue
        measured = run(place, row, options, limit=max(300, 10 * expected))
        table.add(measured)
        print(loss_report.line(measured), flush=True)
    if left:
        print(f"{left} rows left for another run: the time was up")
    mine = [
        row
        for row in table.rows.values()
        if (row["machine"], row["device"]) == (machine(), options.device)
        and row["threads"] == str(options.threads)
    ]
    print()
    print(loss_report.verdicts(mine))
    picture = options.csv.with_suffix(".svg")
    loss_report.draw(mine, picture)
    print(f"\n{options.csv} and {picture}")


if __name__ == "__main__":
    main()
