"""The error of the bfloat16 backend against float64, beside that of float32.

Embeddings of 768 numbers around a common direction, as encoders give them: their mean cosine is
what is varied, positives are noisy copies. Errors are norms of differences over norms, of the value
and of the worse gradient of the two views.

    python benchmarks/bfloat16.py [--rows N] [--seeds S] [--csv FILE]
"""

import argparse
import csv
from pathlib import Path

import torch
from torch import Tensor

from isotrope.paradigm import registry

NAMES = ("infonce", "infonce symmetric", "ntxent", "dcl", "alignuniform", "mhe", "miov3")
LOW = ("infonce 0.02", "infonce 0.01", "dcl 0.02", "dcl 0.01")  # other temperatures
COSINES = (0.0, 0.5, 0.9)  # between different texts: a good encoder, raw BERT, nearly collapsed
CSV = Path(__file__).parents[1] / "docs" / "results" / "bfloat16.csv"


def views(rows: int, cosine: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return two float32 views whose different rows have this cosine on average."""
    random = torch.Generator().manual_seed(seed)
    noise, again = torch.randn(2, rows, 768, generator=random)
    common = torch.randn(768, generator=random)
    anchors = (1 - cosine) ** 0.5 * noise + cosine**0.5 * common
    return anchors, anchors + 0.5 * (1 - cosine) ** 0.5 * again


def derivatives(objective, a: Tensor, b: Tensor, backend: str) -> list[Tensor]:
    """Return the value and both gradients, in float64."""
    x, y = (v.clone().requires_grad_() for v in (a, b))
    value = objective(x, y, backend=backend)
    value.backward()
    return [value.detach().double(), x.grad.double(), y.grad.double()]


def errors(objective, rows: int, cosine: float, seed: int, backend: str) -> list[float]:
    """Return the relative errors of the value and of the worse gradient."""
    a, b = views(rows, cosine, seed)
    truth = derivatives(objective, a.double(), b.double(), "eager")
    computed = derivatives(objective, a, b, backend)
    value, *gradients = (
        float((f - t).norm() / t.norm()) for f, t in zip(computed, truth, strict=True)
    )
    return [value, max(gradients)]


def main() -> None:
    """Print and write the largest errors over the seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--csv", type=Path, default=CSV)
    options = parser.parse_args()
    header = ("objective", "mean cosine", "backend", "value", "gradient")
    rows = []
    for name in NAMES + LOW:
        first, *form = name.split()
        settings = {"temperature": form[0]} if name in LOW else {"symmetric": bool(form)}
        objective = registry.build(first, settings)
        for cosine in COSINES:
            for backend in ("rowblock", "bfloat16"):
                seen = [
                    errors(objective, options.rows, cosine, s, backend)
                    for s in range(options.seeds)
                ]
                worst = (max(column) for column in zip(*seen, strict=True))
                rows.append((name, cosine, backend, *(f"{x:.1e}" for x in worst)))
                print(*(f"{cell!s:18}" for cell in rows[-1]), flush=True)
    with options.csv.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    main()
