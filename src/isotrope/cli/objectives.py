"""``isotrope objectives``: what can be trained with."""

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path

from isotrope.cli.arguments import Parser
from isotrope.cli.table import table

EPILOG = """\
examples:
  isotrope objectives
  isotrope objectives infonce
  isotrope objectives --plugin my_loss.py
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, print the list or one card."""
    parser = Parser(
        prog="isotrope objectives",
        description="List the objectives with their hyperparameters, or show one.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this one's card")
    parser.add_argument("--plugin", metavar="FILE", action="append", default=[], type=Path)
    given = parser.parse_args(list(arguments))
    from isotrope.core.hyper import hypers
    from isotrope.paradigm import registry
    from isotrope.paradigm.objective import Objective

    for plugin in given.plugin:
        registry.load_plugin(plugin)
    if given.name:
        cls = registry.find(given.name)
        print(f"{cls.name} ({cls.__name__})\n\n{inspect.getdoc(cls)}\n")
        print(f"{cls.paper.title}\n{cls.paper.reference}; {cls.paper.equation}\n")
        rows = [
            [f"--objective.{name}", hyper.symbol, f"{getattr(cls, name)}", hyper.bounds, hyper.help]
            for name, hyper in hypers(cls).items()
        ]
        print(table(["flag", "symbol", "default", "range", "meaning"], rows))
        return 0
    rows = []
    for name in registry.names():
        cls = Objective.registered[name]
        values = ", ".join(f"{field}={getattr(cls, field)}" for field in hypers(cls))
        rows.append([name, values or "three parts", cls.paper.equation])
    print(table(["objective", "hyperparameters", "source"], rows))
    print("\nparts, to exchange a component of any objective or compose one (paradigm):\n")
    print(table(["flag", "means"], _parts()))
    return 0


def _parts() -> list[list[str]]:
    """The named dissipations, weights and ratios with their defaults."""
    from isotrope.core.hyper import hypers
    from isotrope.paradigm.dissipation import Dissipation
    from isotrope.paradigm.ratio import Ratio
    from isotrope.paradigm.weight import Weight

    rows = []
    for kind in (Dissipation, Weight, Ratio):
        for name, cls in sorted(kind.known.items()):
            value = "".join(f":{getattr(cls, field)}" for field in hypers(cls))
            meaning = (inspect.getdoc(cls) or "").splitlines()[0]
            rows.append([f"--objective.{kind.__name__.lower()} {name}{value}", meaning])
    return rows
