"""The picture of the measured rows, and the table that says which targets are met here."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import loss_cases

Row = dict[str, str]
Rows = list[Row]
Sizes = Sequence[tuple[int, int]]

ST, CACHED = "sentence-transformers", "CachedMultipleNegativesRanking, 1024 rows"
# what a target is compared with: the best of these at the same n and d
PEERS = {
    "InfoNCE": [("torch", "InfoNCE"), (ST, "MultipleNegativesRanking"), (ST, CACHED)],
    "CLIP": [("torch", "CLIP symmetric")],
    "2N": [("torch", "NT-Xent, 2N x 2N"), *(("lightly", x) for x in ("NTXent", "DCL", "DCLW"))],
    "Barlow Twins": [("lightly", "BarlowTwins")],
    "VICReg": [("lightly", "VICReg"), ("pytorch-metric-learning", "VICReg")],
}
# times of InfoNCE's time at the same n and d
WITHIN = {"one-sided": 1.25, "symmetric": 1.5, "2N": 3.2}
MOST_MIB = 64


@dataclass(frozen=True)
class LossVerdict:
    """One line of the table: what is to be reached, by whom, and whether it was."""

    target: str
    bound: str
    peer: str
    ours: str
    met: bool | None
    why_open: str = "not measured"

    @property
    def cells(self) -> tuple[str, ...]:
        """The line, cell by cell."""
        word = self.why_open if self.met is None else "met" if self.met else "NOT MET"
        return self.target, self.bound, self.peer or "-", self.ours or "-", word


def line(row: Row) -> str:
    """Say what one row found."""
    where = f"{row['by']} {row['name']}"
    if row["asked"] != "auto":
        where += f", {row['asked']}"
    where += f", N={row['n']} D={row['d']}: "
    if row["note"]:
        return where + row["note"]
    share = f", {float(row['share']):.2f} of the limit" if row["share"] else ""
    return (
        f"{where}{float(row['seconds']) * 1e3:.4g} ms (median of {row['repeats']}){share}, "
        f"{float(row['peak_mib']):.0f} MiB"
    )


class Measurements:
    """The rows that have numbers, by what they are about."""

    def __init__(self, rows: Rows) -> None:
        self.rows = [row for row in rows if row["seconds"]]

    def one(self, by: str, name: str, n: int, d: int, backend: str = "auto") -> Row | None:
        """Return the row of a case."""
        wanted = {"by": by, "name": name, "n": str(n), "d": str(d), "asked": backend}
        return next((row for row in self.rows if wanted.items() <= row.items()), None)

    def numbers(self, by: str, name: str, sizes: Sizes, column: str) -> list[float]:
        """Return a column of a case at several sizes, where measured."""
        there = (self.one(by, name, n, d) for n, d in sizes)
        return [float(row[column]) for row in there if row and row[column]]


def _shares(
    measurements: Measurements,
    target: str,
    names: list[str],
    sizes: Sizes,
    bound: float,
    peers: str,
) -> LossVerdict:
    """A share of the limit that all of ours have to reach."""
    ours = [x for name in names for x in measurements.numbers("isotrope", name, sizes, "share")]
    theirs = [
        [x for by, name in PEERS[peers] for x in measurements.numbers(by, name, [size], "share")]
        for size in sizes
    ]
    return LossVerdict(
        target,
        f">= {bound}",
        ", ".join(f"{max(some):.2f}" for some in theirs if some),
        ", ".join(f"{x:.2f}" for x in ours),
        min(ours) >= bound if len(ours) == len(names) * len(sizes) else None,
    )


def _relative(measurements: Measurements, group: str) -> LossVerdict:
    """The slowest of a group of objectives, in InfoNCE's times."""
    times: dict[str, float] = {}
    for row in measurements.rows:
        if (row["by"], row["group"], row["n"]) != ("isotrope", group, str(max(loss_cases.SIZES))):
            continue
        base = measurements.one("isotrope", "infonce", int(row["n"]), int(row["d"]))
        if base:
            # in units of the limit of either run: the machine may have slowed down in between
            each = [float(r["seconds"]) * float(r["gflops_limit"]) for r in (row, base)]
            times[row["name"]] = max(times.get(row["name"], 0.0), each[0] / each[1])
    bound = WITHIN[group]
    over = sorted((t, name) for name, t in times.items() if t > bound)
    inside = [t for t in times.values() if t <= bound]
    evidence = f"{len(inside)} of {len(times)} within"
    if inside:
        evidence += f" (slowest {max(inside):.2f})"
    if over:
        evidence += "; over: " + ", ".join(f"{name} {t:.2f}" for t, name in over)
    return LossVerdict(
        f"{group} objectives, N={max(loss_cases.SIZES)}, in InfoNCE's times",
        f"<= {bound}",
        "",
        evidence if times else "",
        not over if times else None,
    )


def _memory(measurements: Measurements) -> LossVerdict:
    """Peak memory of InfoNCE at every size up to 65536."""
    sizes = [(n, d) for n in (4096, 16384, 65536) for d in loss_cases.WIDTHS]
    ours = measurements.numbers("isotrope", "infonce", sizes, "peak_mib")
    theirs = [
        x
        for by, name in PEERS["InfoNCE"]
        for x in measurements.numbers(by, name, sizes, "peak_mib")
    ]
    others = {
        row["name"]: float(row["peak_mib"])
        for row in measurements.rows
        if row["by"] == "isotrope" and row["asked"] == "auto" and int(row["n"]) <= 65536
    }
    over = sorted(((m, name) for name, m in others.items() if m > MOST_MIB), reverse=True)
    evidence = ", ".join(f"{x:.0f}" for x in ours)
    if over:
        evidence += "; of the others, over: " + ", ".join(f"{name} {m:.0f}" for m, name in over)
    return LossVerdict(
        "InfoNCE, peak MiB beyond inputs and the two gradients, N <= 65536",
        f"<= {MOST_MIB}",
        f"up to {max(theirs):.0f}" if theirs else "",
        evidence,
        max(ours) <= MOST_MIB if len(ours) == len(sizes) else None,
    )


def _largest(measurements: Measurements) -> LossVerdict:
    """InfoNCE at 262144 rows: it ran, and memory is no more than at 4096."""
    n, d = loss_cases.HUGE, min(loss_cases.WIDTHS)
    huge = measurements.one("isotrope", "infonce", n, d)
    ours = ""
    if huge:
        ours = f"{float(huge['seconds']) / 60:.0f} min, {float(huge['peak_mib']):.0f} MiB"
    reached = max((int(r["n"]) for r in measurements.rows if r["by"] == "torch"), default=0)
    return LossVerdict(
        f"largest N, InfoNCE, D={d}: {n} once, memory linear",
        "runs",
        f"plain torch ran {reached}" if reached >= max(loss_cases.SIZES) else "",
        ours,
        float(huge["peak_mib"]) <= 4 * MOST_MIB if huge else None,
        "not run: --huge",
    )


def _small(measurements: Measurements) -> LossVerdict:
    """Small batches against plain torch, timed by turns in one process."""
    sizes = [(64, 768), (256, 768)]
    ours = measurements.numbers("isotrope", "infonce", sizes, "times_plain")
    return LossVerdict(
        "small batches, InfoNCE, N=64 and 256, D=768, in plain torch's times",
        "<= 1.15",
        "1",
        ", ".join(f"{x:.2f}" for x in ours),
        max(ours) <= 1.15 if len(ours) == len(sizes) else None,
    )


def _bfloat16(measurements: Measurements) -> LossVerdict:
    """The share of a backend that computes in bfloat16, if there is one."""
    from isotrope.kernels.choose import BACKENDS

    backend = next((name for name in BACKENDS if "bf16" in name or "bfloat16" in name), None)
    row = measurements.one("isotrope", "infonce", 4096, 768, backend) if backend else None
    share = float(row["share"]) if row else None
    return LossVerdict(
        "InfoNCE in bfloat16 on request, N=4096, D=768, share of the float32 limit",
        ">= 1.8",
        "",
        f"{share:.2f}" if share is not None else "",
        share >= 1.8 if share is not None else None,
        "not measured" if backend else "not built",
    )


def judge(rows: Rows) -> list[LossVerdict]:
    """Hold what was measured against every target."""
    measurements = Measurements(rows)
    both = ["ntxent", *(f"{name} both symmetric" for name in loss_cases.PAPERS_FORM)]
    n, large, clip = 4096, 16384, ["infonce symmetric"]
    at = f"D=768, N={n}"
    return [
        _shares(measurements, f"InfoNCE, {at}", ["infonce"], [(n, 768)], 0.87, "InfoNCE"),
        _shares(
            measurements, "InfoNCE, D=768, N=16384", ["infonce"], [(large, 768)], 0.85, "InfoNCE"
        ),
        _shares(
            measurements,
            "InfoNCE, D=128, N=4096 and 16384",
            ["infonce"],
            [(n, 128), (large, 128)],
            0.77,
            "InfoNCE",
        ),
        _shares(measurements, f"symmetric InfoNCE (CLIP), {at}", clip, [(n, 768)], 0.62, "CLIP"),
        _shares(
            measurements, f"NTXent, DCL, DCLW over 2N views, {at}", both, [(n, 768)], 1.15, "2N"
        ),
        _shares(
            measurements, f"BarlowTwins, {at}", ["barlowtwins"], [(n, 768)], 0.8, "Barlow Twins"
        ),
        _shares(measurements, f"VICReg, {at}", ["vicreg"], [(n, 768)], 0.7, "VICReg"),
        _bfloat16(measurements),
        _memory(measurements),
        _largest(measurements),
        _small(measurements),
        *(_relative(measurements, group) for group in WITHIN),
    ]


def verdicts(rows: Rows) -> str:
    """Return the table of targets, each met or not on this machine."""
    head = ("to reach (share of the float32 limit unless said)", "", "best peer", "ours", "")
    cells = [head, *(verdict.cells for verdict in judge(rows))]
    widths = [max(len(line[i]) for line in cells) for i in range(3)]
    lines = []
    for target, bound, peer, ours, word in cells:
        fixed = [cell.ljust(w) for cell, w in zip((target, bound, peer), widths, strict=True)]
        lines.append("  ".join([*fixed, word.ljust(len("not run: --huge")), ours]).rstrip())
    return "\n".join(lines)


# by, name, asked: label, and the colour and dashes of its line
LINES = (
    ("isotrope", "infonce", "rowblock", "isotrope, row blocks", "#0072b2", ()),
    ("isotrope", "infonce", "eager", "isotrope, eager", "#3a8fc4", (5.0, 2.0)),
    ("torch", "InfoNCE", "auto", "plain torch", "#d55e00", ()),
    (ST, CACHED, "auto", "sentence-transformers, cached", "#b07d00", ()),
)
PANELS = (
    ("seconds", "seconds, forward and backward"),
    ("peak_mib", "MiB beyond the inputs"),
)


def draw(rows: Rows, path: Path, d: int = 768) -> None:
    """Write the cost of InfoNCE against N, log-log: time and memory, ours and peers'.

    The same rows give the same bytes.
    """
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture: matplotlib is not installed")
        return
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from isotrope.reports.plots import INK

    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "isotrope losses",
        "font.family": "sans-serif",
        "font.size": 11,
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
        **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), INK),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(10, 3.8))
        for axes, (column, label) in zip(figure.subplots(1, 2), PANELS, strict=True):
            for *case, who, colour, dashes in LINES:
                points = _points(rows, case, d, column)
                if points:
                    x, y = zip(*points, strict=True)
                    (drawn,) = axes.plot(x, y, "o-", ms=4, lw=1.8, color=colour, label=who)
                    drawn.set_dashes(dashes or (None, None))
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            ticks = sorted({int(r["n"]) for r in rows if r["d"] == str(d) and r["seconds"]})
            axes.set_xticks(ticks, [f"{n:,}" for n in ticks], rotation=30)
            axes.set_xlabel(f"rows of the batch, D = {d}")
            axes.set_title(label, loc="left", fontsize=11, color=INK)
            axes.grid(lw=0.6, alpha=0.28)
            axes.tick_params(length=0)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="upper center", ncols=len(LINES), frameon=False, fontsize=10
        )
        figure.subplots_adjust(left=0.07, right=0.98, top=0.8, bottom=0.2, wspace=0.18)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(path, format="svg", transparent=True, metadata=nothing)


def _points(rows: Rows, case: list[str], d: int, column: str) -> list[tuple[int, float]]:
    """Return N and a column of a case; of ours, by the backend that computed it."""
    by, name, backend = case
    peaks = {}
    for row in rows:
        same = (row["by"], row["name"], row["d"]) == (by, name, str(d))
        if same and row["seconds"] and backend in (row["asked"], row["backend"]):
            peaks[int(row["n"])] = max(float(row[column]), 1e-3)
    return sorted(peaks.items())
