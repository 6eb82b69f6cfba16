"""Which targets the rows of `gpu.py` meet."""

from collections.abc import Iterator
from typing import NamedTuple

Row = dict[str, str]
Times = dict[tuple[str, str, str, int, int], float]

SHARE, AT = 0.55, ("65536", "768")  # of the measured matmul rate, over 6 N^2 D
FROM = 4096  # rows from which no peer is to be quicker
PEERS = (("inf-cl", "plain"), ("torch", "chunked"))
# times of InfoNCE's time at the same n and d, as on a CPU (loss_report.WITHIN)
WITHIN = {"mpt": 1.25, "infonce symmetric": 1.5, "ntxent": 3.2, "miov3": 3.2}


class GpuVerdict(NamedTuple):
    """A target, what was found, and whether it was reached; None where nothing was measured."""

    target: str
    measured: str
    met: bool | None

    def __str__(self) -> str:
        word = {None: "not measured", True: "met", False: "NOT MET"}[self.met]
        return f"{self.target}: {self.measured}{word}"


def verdicts(rows: list[Row]) -> list[GpuVerdict]:
    """Judge the rows of one machine in bfloat16."""
    rows = [row for row in rows if row["dtype"] == "bfloat16" and row["seconds"]]
    times = {
        (row["by"], row["how"], row["loss"], int(row["n"]), int(row["d"])): float(row["seconds"])
        for row in rows
    }
    return [_share(rows), *(_quicker(times, *peer) for peer in PEERS), *_within(times)]


def _share(rows: list[Row]) -> GpuVerdict:
    target = f"InfoNCE, N={AT[0]} D={AT[1]}: at least {SHARE} of the matmul rate"
    for row in rows:
        if (row["loss"], row["how"], row["n"], row["d"]) == ("infonce", "rowblock", *AT):
            return GpuVerdict(target, f"{float(row['share']):.2f}, ", float(row["share"]) >= SHARE)
    return GpuVerdict(target, "", None)


def _quicker(times: Times, by: str, how: str) -> GpuVerdict:
    """The worst ratio of a peer's time to ours, wherever both were measured."""
    target = f"quicker than {by} ({how}) from N={FROM} on"
    ratios = {
        f"{loss} N={n} D={d}": seconds / times["isotrope", "rowblock", loss, n, d]
        for (b, h, loss, n, d), seconds in times.items()
        if (b, h) == (by, how) and n >= FROM and ("isotrope", "rowblock", loss, n, d) in times
    }
    if not ratios:
        return GpuVerdict(target, "", None)
    where = min(ratios, key=ratios.__getitem__)
    return GpuVerdict(target, f"{ratios[where]:.2f} times at {where}, ", ratios[where] > 1)


def _within(times: Times) -> Iterator[GpuVerdict]:
    """Our own losses in times of InfoNCE's, the worst of all sizes."""
    for name, bound in WITHIN.items():
        ratios = [
            seconds / times["isotrope", "rowblock", "infonce", n, d]
            for (by, how, loss, n, d), seconds in times.items()
            if (by, how, loss) == ("isotrope", "rowblock", name)
            and n >= FROM
            and ("isotrope", "rowblock", "infonce", n, d) in times
        ]
        target = f"{name} within {bound} of InfoNCE's time"
        worst = max(ratios, default=0.0)
        yield GpuVerdict(
            target, f"{worst:.2f}, " if ratios else "", worst <= bound if ratios else None
        )
