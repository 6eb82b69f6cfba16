"""``isotrope demo-images``: two methods with and without cut-initialization, on digits."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser
from isotrope.cli.table import table

EPILOG = """\
examples:
  isotrope demo-images
  isotrope demo-images --output elsewhere --seed 1

Trains SimCLR and SimSiam on the handwritten digits of scikit-learn, each as it is and with
cut-initialization. No network is needed.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, run, print the table and the paths."""
    parser = Parser(
        prog="isotrope demo-images",
        description="Train image encoders without labels on pictures that are already here.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo-images"), metavar="DIR", help="[demo-images]"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all runs [0]")
    given = parser.parse_args(list(arguments))
    from isotrope.experiments.demo_images import demo_images

    outcome = demo_images(given.output, seed=given.seed, tell=lambda line: print(line, flush=True))
    epochs = [*outcome.rows[0].knn]
    print("\nkNN accuracy, %, by epoch")
    rows = [[row.name, *(f"{row.knn[e]:.1f}" for e in epochs)] for row in outcome.rows]
    print(table(["run", *map(str, epochs)], rows))
    print("\nmean norm of the embeddings that the objective sees, by epoch")
    rows = [[row.name, *(f"{v:.3g}" for v in row.norm.values())] for row in outcome.rows]
    print(table(["run", *map(str, outcome.rows[0].norm)], rows))
    print(f"\npicture: {outcome.picture}\nreport:  {outcome.report}")
    return 0
