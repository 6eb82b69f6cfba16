"""What the anatomy of a logged step costs, beside the same training's steps without it.

Real runs of ``isotrope train`` and ``isotrope train-images`` that look at every other step, so that
a busy machine disturbs both kinds alike. A step is what passes from the end of one to the end of
the next, everything included: data, update, the look, its row of metrics.csv and TensorBoard.
Seconds are of this process's CPU. The share is what a look every 10 steps, the default, adds to
training: a tenth of (looked - plain) / plain, of the medians.

    OMP_NUM_THREADS=1 python benchmarks/anatomy_cost.py [--steps 20] [--only text] [--csv FILE]

``text`` is InfoNCE on all-MiniLM-L6-v2, 64 texts of 32 tokens; ``text-1024`` the same with 1,024
texts in micro-batches of 64, for a quarter of the steps; ``image`` SimCLR with a ResNet-18 of base
width 16, 128 images of 32 x 32; ``digits`` the same with 64 images of 8 x 8, five times the
steps, the shortest there are. Texts and images are noise: no part's time depends on what they show.
"""

import argparse
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import TrainerCallback

import ledger

CASES = ("text", "text-1024", "image", "digits")
COLUMNS = ("case", "plain_s", "looked_s", "look_ms", "share_at_10", "steps", "threads", "torch")
WORDS = (
    "river stone cloud engine garden mirror ocean paper rocket silver tiger violet winter yellow"
)
INTERVAL = 10  # the default of --log-every


class Stopwatch(TrainerCallback):
    """CPU seconds from the end of each step to the end of the next."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._since: float | None = None

    def on_step_end(self, args, state, control, **_) -> None:
        """Note the step that has just ended."""
        now = time.process_time()
        if self._since is not None:
            self.seconds[state.global_step - 1] = now - self._since
        self._since = now


def text(
    folder: Path, steps: int, watch: Stopwatch, *, batch: int = 64, **settings: object
) -> None:
    """Train on text."""
    from isotrope.training.fit_text import fit

    rng, file = random.Random(0), folder / "noise.txt"
    lines = [" ".join(rng.choices(WORDS.split(), k=40)) for _ in range(batch * min(steps, 8))]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    fit(
        [str(file)],
        output=str(folder / "run"),
        encoder="all-MiniLM-L6-v2",
        recipe="papers",
        batch_size=batch,
        max_length=32,
        max_steps=steps,
        log_every=2,
        progress=False,
        device="cpu",
        callbacks=[watch],
        **settings,
    )


def image(folder: Path, steps: int, watch: Stopwatch, *, side: int = 32, batch: int = 128) -> None:
    """Train on images."""
    from isotrope.training.images.train import fit_images

    file = folder / "noise.npz"
    shape = (4 * batch, side, side, 3)
    np.savez(file, images=np.random.default_rng(0).integers(0, 256, shape, np.uint8))
    fit_images(
        str(file),
        output=str(folder / "run"),
        method="simclr",
        width=16,
        batch_size=batch,
        max_steps=steps,
        log_every=2,
        progress=False,
        device="cpu",
        callbacks=[watch],
    )


def timed(train: Callable[[Path, int, Stopwatch], None], steps: int) -> dict[int, float]:
    """Return the CPU seconds of each step of a run but the first two."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder), steps, watch)
    return {step: seconds for step, seconds in watch.seconds.items() if step > 1}


def row(case: str, steps: int) -> dict[str, object]:
    """Return what one case costs."""
    ways: dict[str, Callable[[Path, int, Stopwatch], None]] = {
        "text": text,
        "text-1024": lambda folder, n, watch: text(folder, n, watch, batch=1024, micro_batch=64),
        "image": image,
        "digits": lambda folder, n, watch: image(folder, n, watch, side=8, batch=64),
    }
    steps = {"text-1024": max(6, steps // 4), "digits": 5 * steps}.get(case, steps)
    seconds = timed(ways[case], steps)
    last = max(seconds)  # looked at whatever its number is
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


def main() -> None:
    """Measure, print, and write a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    rows = []
    for case in options.only or CASES:
        rows.append(row(case, options.steps))
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    if options.csv:
        ledger.write(options.csv, COLUMNS, rows)


if __name__ == "__main__":
    main()
