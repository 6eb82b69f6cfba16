"""Tells the steps of a training that are looked at from those that are not, and their costs.

Every other step is looked at, so that a busy machine disturbs both kinds alike. A step is what
passes from the end of one to the end of the next, everything included. Seconds are of this
process's CPU. The share is what a look every 10 steps, the default, adds to training: a tenth of
(looked - plain) / plain, of the medians.
"""

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import TrainerCallback

import ledger

COLUMNS = ("case", "plain_s", "looked_s", "look_ms", "share_at_10", "steps", "threads", "torch")
WORDS = (
    "river stone cloud engine garden mirror ocean paper rocket silver tiger violet winter yellow"
)
INTERVAL = 10  # the default of --log-every and of Doctor(every=)


class Stopwatch(TrainerCallback):
    """CPU seconds from the end of each step to the end of the next, without the first two."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._since = 0.0

    def on_step_end(self, args, state, control, **_) -> None:
        """Note the step that has just ended."""
        now = time.process_time()
        if state.global_step > 2:
            self.seconds[state.global_step - 1] = now - self._since
        self._since = now


def texts(count: int, rng: random.Random) -> list[str]:
    """Return texts of 40 random words."""
    return [" ".join(rng.choices(WORDS.split(), k=40)) for _ in range(count)]


def row(case: str, seconds: dict[int, float], steps: int) -> dict[str, object]:
    """Return what one case costs; a last step that is not looked at by its number is left out."""
    last = max(seconds)  # it may be looked at whatever its number is
    looked = statistics.median(s for step, s in seconds.items() if step % 2 == 0)
    plain = statistics.median(s for step, s in seconds.items() if step % 2 and step != last)
    return {
        "case": case,
        "plain_s": f"{plain:.4f}",
        "looked_s": f"{looked:.4f}",
        "look_ms": f"{1000 * (looked - plain):.1f}",
        "share_at_10": f"{(looked - plain) / plain / INTERVAL:.5f}",
        "steps": steps,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def main(
    about: str, cases: Sequence[str], timed: Callable[[str, int], tuple[Stopwatch, int]]
) -> None:
    """Time the cases, print, and write them to a table beside the rows of other cases."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=cases, action="append")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    rows: dict[str, dict[str, object]] = {}
    if options.csv:
        rows = {one["case"]: {**one} for one in ledger.read(options.csv)}
    for case in options.only or cases:
        watch, steps = timed(case, options.steps)
        rows[case] = row(case, watch.seconds, steps)
        print("  ".join(f"{name} {value}" for name, value in rows[case].items()), flush=True)
    if options.csv:
        ledger.write(options.csv, COLUMNS, (rows[case] for case in cases if case in rows))
