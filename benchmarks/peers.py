"""Time and memory of every loss that has a peer, beside its fastest peer, in one process.

A row is one loss at one size: forward and backward on given embeddings of both views, one thread,
float32. Ours and every peer are called in turn, and each round gives the ratio of our CPU time to
each peer's; the row has the median of the ratio to the fastest one, and its quartiles. From 512
rows on the largest resident set above what was resident before a call (the median of three calls,
but for calls of seconds) is compared with that of the peer that needs least. The target is 1.02
times the time and no more memory (a MiB is lost in pages); rows that miss it are printed at the
end.

Peers are what one writes in plain torch, and the losses of sentence-transformers and
pytorch-metric-learning, where they are installed; one that takes four times the fastest peer's time
is not timed further. Our time with all similarities held by autograd
(``backend="eager"``) and in blocks (``"rowblock"``) stands beside: `kernels.choose` and
`kernels.small_batch` hold the sizes up to which ``auto`` takes each.

    python benchmarks/peers.py [--only WORD] [--rows N ...] [--dimensions D ...] [--minutes M]
                               [--csv FILE]

Written: FILE, by default benchmarks/peers.csv. Rows that are there with the same versions and
kernels are not measured again; the cheapest come first.
"""

import argparse
import ctypes
import gc
import re
import statistics
import time
from pathlib import Path

import torch

import ledger
import loss_cases
from loss_cases import Loss

KEY = ("name", "n", "d")
COLUMNS = (
    *KEY,
    *("ours_ms", "time_ratio", "time_low", "time_high", "fastest"),
    *("ours_mib", "memory_ratio", "smallest"),
    *("eager_over_auto", "rowblock_over_auto"),
    *("version", "torch", "threads"),
)
ROWS = (16, 32, 64, 128, 256, 512, 1024, 4096, 16384)
DIMENSIONS = (128, 384, 768, 1024)
TIME, PAGES = 1.02, 1.0  # times the fastest peer's time; MiB that pages may differ by
MEMORY_FROM = 512  # rows
HELD = 4096  # rows up to which our other backends are timed, too
LEAST, ROUNDS, LONG = 0.01, 11, 3  # seconds of a round, rounds, and rounds of what takes seconds
OURS = ("auto", "eager", "rowblock")
SLOW = 4  # times the fastest peer, in the first two calls: called no more
Row = dict[str, str]


class Memory:
    """The largest resident set of one call."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)

    def of(self, loss: Loss, inputs: list[torch.Tensor]) -> float:
        """Return MiB that are resident during a call beyond those before it."""
        gc.collect()
        self.library.malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the largest so far is forgotten
        before = self._mib("VmRSS")
        call(loss, inputs)
        return self._mib("VmHWM") - before

    def _mib(self, name: str) -> float:
        match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert match is not None
        return int(match[1]) / 1024


def call(loss: Loss, inputs: list[torch.Tensor]) -> None:
    """Run a loss forward and backward."""
    loss(*inputs).backward()
    for x in inputs:
        x.grad = None


def seconds(loss: Loss, inputs: list[torch.Tensor], calls: int) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    for _ in range(calls):
        call(loss, inputs)
    return (time.process_time() - start) / calls


def measure(name: str, n: int, d: int) -> Row:
    """Return the row of one loss at one size."""
    inputs = [torch.randn(n, d, requires_grad=True) for _ in range(2)]
    objective, peers = loss_cases.BESIDE[name]()
    ways: dict[str, Loss] = {"auto": objective, **loss_cases.installed(peers, n)}
    if n <= HELD:
        for backend in ("eager", "rowblock"):
            ways[backend] = lambda a, p, backend=backend: objective(a, p, backend=backend)
    first = {way: seconds(loss, inputs, 1) for way, loss in ways.items()}
    for way, took in first.items():
        if took < 1:  # a first call is slower, by less than a second
            first[way] = min(took, seconds(ways[way], inputs, 1))
    peers_first = [first[way] for way in ways if way not in OURS]
    everyone = ways
    ways = {k: x for k, x in ways.items() if k in OURS or first[k] < SLOW * min(peers_first)}
    calls = max(1, int(LEAST / first["auto"]))
    if calls > 1:  # the first calls of what is small are slower than all others
        warm = min(seconds(objective, inputs, calls) for _ in range(2))
        calls = max(calls, int(LEAST / warm))
    rounds = [
        {way: seconds(loss, inputs, calls) for way, loss in ways.items()}
        for _ in range(LONG if first["auto"] > 1 else ROUNDS)
    ]

    def ratio(one: str, other: str) -> float:
        return statistics.median(r[one] / r[other] for r in rounds) if one in ways else 0.0

    others = {way: ratio("auto", way) for way in ways if way not in OURS}
    fastest = max(others, key=lambda way: others[way])
    low, _, high = statistics.quantiles((r["auto"] / r[fastest] for r in rounds), n=4)
    row = {
        "ours_ms": f"{1000 * statistics.median(r['auto'] for r in rounds):.4g}",
        "time_ratio": f"{others[fastest]:.2f}",
        "time_low": f"{low:.2f}",
        "time_high": f"{high:.2f}",
        "fastest": fastest,
        "eager_over_auto": f"{ratio('eager', 'auto'):.2f}" if n <= HELD else "",
        "rowblock_over_auto": f"{ratio('rowblock', 'auto'):.2f}" if n <= HELD else "",
        **_memory(everyone, inputs, first),
        "version": loss_cases.ours_version(),
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
    }
    return {**dict(zip(KEY, (name, str(n), str(d)), strict=True)), **row}


def _memory(ways: dict[str, Loss], inputs: list[torch.Tensor], first: dict[str, float]) -> Row:
    if len(inputs[0]) < MEMORY_FROM or not Path("/proc/self/clear_refs").exists():
        return {}
    memory = Memory()
    others = [way for way in ways if way not in OURS]
    # what the allocator keeps from one call to the next differs, by a quarter at some sizes
    used = {
        way: statistics.median(
            memory.of(ways[way], inputs) for _ in range(LONG if first[way] < LONG else 1)
        )
        for way in ("auto", *others)
    }
    smallest = min(others, key=lambda way: used[way])
    return {
        "ours_mib": f"{used['auto']:.1f}",
        "memory_ratio": f"{used['auto'] / max(used[smallest], 1e-3):.2f}",
        "smallest": smallest,
    }


def missed(row: Row) -> list[str]:
    """Say what a row does not reach."""
    where = f"{row['name']}, {row['n']} x {row['d']}: "
    said = []
    if float(row["time_ratio"]) > TIME:
        spread = f"{row['time_low']} to {row['time_high']} in half of the rounds"
        said.append(f"{where}{row['time_ratio']} times the time of {row['fastest']} ({spread})")
    if row.get("memory_ratio") and float(row["memory_ratio"]) > 1:
        least = float(row["ours_mib"]) / float(row["memory_ratio"])
        if float(row["ours_mib"]) > least + PAGES:
            said.append(f"{where}{row['memory_ratio']} times the memory of {row['smallest']}")
    return said


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="losses whose name has this word")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no row after these")
    parser.add_argument("--csv", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: dict[tuple[str, ...], Row] = {
        tuple(row[k] for k in KEY): {**row} for row in ledger.read(arguments.csv)
    }
    wanted = [
        (name, n, d)
        for name in loss_cases.BESIDE
        if arguments.only in name
        for n in arguments.rows
        for d in arguments.dimensions
    ]
    start = time.monotonic()
    for name, n, d in sorted(wanted, key=lambda size: size[1] ** 2 * size[2]):
        key = (name, str(n), str(d))
        now = (loss_cases.ours_version(), torch.__version__)
        if key in rows and (rows[key]["version"], rows[key]["torch"]) == now:
            continue
        if time.monotonic() - start > 60 * arguments.minutes:
            print(f"{name}, {n} x {d}: not measured, the time is over", flush=True)
            continue
        rows[key] = row = measure(name, n, d)
        print(f"{name}, {n} x {d}: {row['time_ratio']} times {row['fastest']}", flush=True)
        order = sorted(rows, key=lambda k: (k[0], int(k[2]), int(k[1])))
        ledger.write(arguments.csv, COLUMNS, (rows[key] for key in order))
    here = [
        rows[str(name), str(n), str(d)] for name, n, d in wanted if (name, str(n), str(d)) in rows
    ]
    said = [line for row in here for line in missed(row)]
    print(f"\n{len(here)} rows, {len(said)} misses", *said, sep="\n")


if __name__ == "__main__":
    main()
