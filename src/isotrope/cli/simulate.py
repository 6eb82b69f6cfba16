"""``isotrope simulate``: plot an objective's gradient on an anchor at all angles, without data."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isotrope.cli.arguments import Parser, dotted
from isotrope.core.errors import MissingExtra
from isotrope.core.progress import bar
from isotrope.core.table import table

if TYPE_CHECKING:
    from isotrope.diagnostics import Landscape
    from isotrope.reports.surfaces import Picture

KINDS = {
    "dissipation": "how much of the gradient is left, GD (Li et al. 2024, figures 2 and 10)",
    "weight": "the hardest negative's share of the weight W (Li et al. 2024, figure 3)",
    "ratio": "pull of the positive per push of the negatives, R (Li et al. 2024, figure 4)",
    "norm": "length of a part of the gradient (Nie et al. 2023, figures 2 and 4)",
}
NOTES = {
    "dissipation": "The mu_neg (rad) at which GD falls below 0.5 for mu_pos = pi/6, and the "
    "largest standard error of any mean:",
    "weight": "The hardest negative's share of the weight at mu_neg:",
    "ratio": "R where training goes (mu_pos <= mu_neg, GD >= 0.01), and how much is from 1 to 2:",
    "norm": "The norm, and how much of the plane has less than a hundredth of the largest:",
}
DRAWN = ("dissipation", "weight")
# flags that would make no difference to the other kinds
ONLY = {
    **dict.fromkeys(("batches", "seed", "independent"), DRAWN),
    "gated": ("weight",),
    "part": ("norm",),
}

EPILOG = """\
examples:
  isotrope simulate dissipation
  isotrope simulate dissipation --objective mpt --objective.margin 0.3 --output pictures
  isotrope simulate dissipation --objective myloss --plugin my_loss.py
  isotrope simulate weight --gated
  isotrope simulate ratio --objective arccon --objective.margin 0.35
  isotrope simulate norm --part uniformity --negatives 1024

Without --objective: the objectives of the paper's figure. The angle between an anchor and its
positive is drawn around mu_pos (normally, standard deviation 0.05 rad), the angles to its
negatives around mu_neg (0.10 rad). Ratio and norm are formulas, for which nothing is drawn. Every
kind writes KIND.png, KIND.svg and KIND.csv.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, simulate, write picture and numbers, print a short table."""
    flags, others = dotted(arguments, "objective")
    settings = {flag.removeprefix("objective."): value for flag, value in flags.items()}
    options = _parsed(others, settings)
    from isotrope.diagnostics.simulation.figures import FIGURES, FigurePanel, figure, numbers
    from isotrope.paradigm import registry

    for plugin in options.plugin:
        registry.load_plugin(plugin)
    panels = FIGURES[options.kind]
    if options.objective:
        name = registry.find(options.objective).__name__
        title = ", ".join([name, *(f"{key} {value}" for key, value in settings.items())])
        panels = [FigurePanel(title, options.objective, settings)]
    figure_options = {
        flag: value
        for flag in ("grid", "negatives", "batches", "seed", "gated", "part")
        if (value := getattr(options, flag)) is not None
    }
    grid = options.grid or 100
    total = {"dissipation": grid**2, "weight": grid}.get(options.kind, 0)
    with bar(total, options.kind, show=not options.json) as progress:
        landscapes = figure(
            options.kind,
            panels,
            common=not options.independent,
            progress=progress,
            **figure_options,
        )
    files = _write(options, [panel.title for panel in panels], landscapes)
    rows = [numbers(options.kind, landscape) for landscape in landscapes]
    if options.json:
        objectives = [
            {"title": p.title, "objective": p.name, "settings": {**p.settings}, **row}
            for p, row in zip(panels, rows, strict=True)
        ]
        value = {"kind": options.kind, "objectives": objectives, "files": [str(f) for f in files]}
        print(json.dumps(value, ensure_ascii=False, allow_nan=False))
        return 0
    cells = [
        [panel.title, *("-" if number is None else f"{number:.4g}" for number in row.values())]
        for panel, row in zip(panels, rows, strict=True)
    ]
    print(f"{NOTES[options.kind]}\n\n{table(['objective', *rows[0]], cells)}\n")
    print(*files, sep="\n")
    return 0


def _parsed(arguments: Sequence[str], settings: dict[str, str]) -> argparse.Namespace:
    kinds = "\n".join(f"  {kind:<13}{line}" for kind, line in KINDS.items())
    parser = Parser(
        prog="isotrope simulate",
        description="See what objectives do to an anchor at all angles to its positive and its "
        f"negatives,\nwithout data and without training.\n\nkinds:\n{kinds}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("kind", metavar="KIND", choices=KINDS, help="what to simulate")
    add("--objective", metavar="NAME", help="only this; settings as --objective.SETTING VALUE")
    add("--plugin", metavar="FILE", action="append", default=[], type=Path, help="with objectives")
    add("--output", metavar="DIR", type=Path, default=Path("simulation"), help="[simulation]")
    add("--negatives", metavar="K", type=int, help="of an anchor [127; norm: the figure's]")
    add("--grid", metavar="N", type=int, help="values of mu_pos and of mu_neg [100]")
    add("--batches", metavar="N", type=int, help="drawn for every pair of means [1000]")
    add("--seed", metavar="N", type=int, help="of the draws [0]")
    add(
        "--independent",
        action="store_true",
        default=None,
        help="draw again for every pair of means, as the paper does: slower, and not smooth",
    )
    add(
        "--gated",
        action="store_true",
        default=None,
        help="weight: leave out batches with GD under 0.01, as the printed figure does",
    )
    add("--part", choices=("alignment", "uniformity"), help="of the norm [alignment]")
    add("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args(list(arguments))
    if settings and not options.objective:
        parser.error(f"--objective.{next(iter(settings))} needs --objective NAME")
    for flag, kinds_of_flag in ONLY.items():
        if getattr(options, flag) is not None and options.kind not in kinds_of_flag:
            for_these = " and ".join(kinds_of_flag)
            parser.error(f"--{flag} makes no difference to {options.kind}; it is for {for_these}")
    return options


def _write(
    options: argparse.Namespace, titles: Sequence[str], landscapes: "Sequence[Landscape]"
) -> list[Path]:
    """Write picture and numbers; return their paths."""
    from isotrope.core.files import write_all
    from isotrope.diagnostics.simulation.landscape import as_csv

    titled = list(zip(titles, landscapes, strict=True))
    picture = _picture(options, titled)
    contents = {"png": picture.png, "svg": picture.svg, "csv": as_csv(titled).encode()}
    return write_all(
        options.output,
        {f"{options.kind}.{suffix}": content for suffix, content in contents.items()},
    )


def _picture(options: argparse.Namespace, titled: "Sequence[tuple[str, Landscape]]") -> "Picture":
    try:
        from isotrope.reports.surfaces import ANGLES, Surface, curves, heatmaps
    except ImportError as error:
        raise MissingExtra("matplotlib", extra="report") from error
    surfaces = [Surface(title, f.negative, f.positive, f.value, f.defined) for title, f in titled]
    if options.kind == "weight":
        return curves(surfaces, "share of the hardest negative")
    if options.kind == "norm":
        quantity = f"gradient norm, {options.part or 'alignment'}"
        return heatmaps(surfaces, quantity, labels=ANGLES)
    if options.kind == "ratio":
        return heatmaps(surfaces, "ratio", limits=(0, 5), lines=(1.25, 1.5, 2))
    return heatmaps(surfaces, "gradient dissipation", limits=(0, 1), lines=(0.5,))
