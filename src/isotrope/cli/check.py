"""``isotrope check``: whether a loss is the same by every way of training with it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isotrope.cli.arguments import Parser
from isotrope.core.table import table

if TYPE_CHECKING:
    from isotrope.paradigm.objective_check import Check

EPILOG = """\
examples:
  isotrope check my_loss.py               is your loss the same in chunks, gradient-cached, on two
                                          processes, permuted, in bfloat16, and finite at the edge?
  isotrope check my_loss.py:second_loss   the same for one of several losses
  isotrope check my_loss.py --dimensions 768
                                          a loss whose layers take embeddings of that width
  isotrope check infonce                  is its gradient what its components say?

The file defines objectives, functions of (anchors, positives) that return a scalar, or modules with
such a forward. Those whose name contains "loss" are checked, or the one that FILE:NAME names. A
third parameter without a default receives negatives; chunk_size, mini_batch_size or margin, as a
parameter or an attribute, is tried with several values. On two processes, each calls the loss with
its own rows. The exit code is 1 if something is wrong.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, and print the checks of an objective, or of the losses of a file."""
    parser = Parser(
        prog="isotrope check",
        description="Check that a loss, yours or anybody's, is the same in every way of training.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("loss", metavar="FILE|NAME", help="file with losses, or an objective")
    parser.add_argument(
        "--dimensions",
        type=int,
        metavar="N",
        help="of the embeddings that the losses of a file are called on [16]",
    )
    options = parser.parse_args(list(arguments))
    named: str = options.loss
    if options.dimensions is not None and options.dimensions < 2:
        parser.error(f"--dimensions must be 2 or more; found {options.dimensions}")
    file, _, name = named.partition(":")
    if not file.endswith(".py"):
        if options.dimensions is not None:
            parser.error(
                f"--dimensions is for the losses of a FILE.py, and {named} names an objective, "
                "which is tried at several widths: leave it out"
            )
        from isotrope.paradigm import registry
        from isotrope.paradigm.objective_check import prove

        objective = registry.find(named)
        checked = {objective.name: prove(objective)}
    else:
        from isotrope.training.loss_check import DIMENSIONS, check_file

        checked = check_file(Path(file), name, dimensions=options.dimensions or DIMENSIONS)
    for place, (key, checks) in enumerate(checked.items()):
        print("\n" * (place > 0) + f"{key}\n")
        _print(checks)
        _explain(key, checks)
    return 1 if any(c.passed is False for checks in checked.values() for c in checks) else 0


def _print(checks: "Sequence[Check]") -> None:
    marks = {True: "ok", False: "WRONG", None: "-"}
    rows = [[c.name, str(c.tried), c.worst, marks[c.passed]] for c in checks]
    print(table(["compared", "tried", "largest difference", ""], rows))
    for check in checks:
        if check.means:
            print(f"{check.name}: {check.means}")


def _explain(name: str, checks: "Sequence[Check]") -> None:
    """Say by what factor an objective's components are off, if they are."""
    from isotrope.paradigm.mistakes import mistakes
    from isotrope.paradigm.objective import Objective

    cls = Objective.registered.get(name.lower())
    if cls is not None and checks[0].passed is False and checks[0].tried:
        print("\nformula and components on a random batch of 4 anchors, in 16 dimensions:")
        print("\n".join(mistakes(cls())))
