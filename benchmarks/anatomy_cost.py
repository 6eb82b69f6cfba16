"""What the anatomy of a logged step costs, beside the same training's steps without it.

Real runs of ``isotrope train`` and ``isotrope train-images``; benchmarks/looks.py says how. A step
has everything: data, update, the look, its row of metrics.csv and TensorBoard.

    OMP_NUM_THREADS=1 python benchmarks/anatomy_cost.py [--steps 20] [--only text] [--csv FILE]

``text`` is InfoNCE on all-MiniLM-L6-v2, 64 texts of 32 tokens; ``text-1024`` the same with 1,024
texts in micro-batches of 64, for a quarter of the steps; ``image`` SimCLR with a ResNet-18 of base
width 16, 128 images of 32 x 32; ``digits`` the same with 64 images of 8 x 8, five times the
steps, the shortest there are. Texts and images are noise: no part's time depends on what they show.
"""

import random
import tempfile
from pathlib import Path

import numpy as np

import looks

CASES = ("text", "text-1024", "image", "digits")


def text(
    folder: Path, steps: int, watch: looks.Stopwatch, *, batch: int = 64, **settings: object
) -> None:
    """Train on text."""
    from isotrope.training.fit_text import fit

    rng, file = random.Random(0), folder / "noise.txt"
    lines = looks.texts(batch * min(steps, 8), rng)
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


def image(
    folder: Path, steps: int, watch: looks.Stopwatch, *, side: int = 32, batch: int = 128
) -> None:
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


def timed(case: str, steps: int) -> tuple[looks.Stopwatch, int]:
    """Train, and return the times of the steps, and how many the case has."""
    steps = {"text-1024": max(6, steps // 4), "digits": 5 * steps}.get(case, steps)
    watch = looks.Stopwatch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        match case:
            case "text":
                text(folder, steps, watch)
            case "text-1024":
                text(folder, steps, watch, batch=1024, micro_batch=64)
            case "image":
                image(folder, steps, watch)
            case "digits":
                image(folder, steps, watch, side=8, batch=64)
    return watch, steps


if __name__ == "__main__":
    looks.main(__doc__, CASES, timed)
