"""``isotrope simulate``: plot how an objective's gradient depends on angles, without data."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from isotrope.cli.command import Command, OfObjective, as_json, plugin
from isotrope.core.progress import bar
from isotrope.core.settings import Used, setting
from isotrope.core.table import table

if TYPE_CHECKING:
    from isotrope.diagnostics import Landscape
    from isotrope.reports.plots import Picture

KINDS = {
    "dissipation": "gradient dissipation GD: factor on the whole gradient of an anchor, from 1 "
    "(full) to 0 (none) (Li et al. 2024, figures 2, 10)",
    "weight": "weight W of the hardest negative / sum of all W (Li et al. 2024, figure 3)",
    "ratio": "ratio R, the pull of the positive divided by the push (Li et al. 2024, figure 4)",
    "norm": "norm of one part of the gradient, see --part (Nie et al. 2023, figures 2, 4)",
}
NOTES = {
    "dissipation": "Mean angle mu_neg to the negatives (rad) above which GD is below 0.5, for a "
    "mean angle mu_pos = pi/6 to the positive; and the largest standard error of a plotted GD:",
    "weight": "The hardest negative's share of the push, by mean angle to the negatives (mu_neg):",
    "ratio": "R at the angles where training takes place (mu_pos <= mu_neg, GD >= 0.01), and the "
    "share of these angles at which R is from 1 to 2:",
    "norm": "Norm of the --part, and the share of angles with less than 1% of the largest norm:",
}
EPILOG = """\
examples:
  isotrope simulate dissipation
  isotrope simulate dissipation --objective mpt --objective.margin 0.3 --output pictures
  isotrope simulate dissipation --objective myloss --plugin my_loss.py
  isotrope simulate weight --gated
  isotrope simulate ratio --objective arccon --objective.margin 0.35
  isotrope simulate norm --part uniformity --negatives 1024

mu_pos is the mean angle to the positive, and mu_neg is the mean angle to the negatives. For ratio
and norm, every angle is exactly mu_pos or mu_neg. For dissipation and weight, angles are drawn from
normal distributions with standard deviations of 0.05 rad (positives) and 0.10 rad (negatives).
"""

_drawn = Used(lambda kind: kind in ("dissipation", "weight"), "needs KIND dissipation or weight")


class SimulateSettings(OfObjective):
    """Settings of ``isotrope simulate``."""

    kind: Literal["dissipation", "weight", "ratio", "norm"] = setting(
        ..., "Quantity to simulate.", "KIND", positional=True
    )
    objective: str | None = setting(
        None,
        "Objective to simulate. Set its settings with --objective.SETTING VALUE.",
        shown="the objectives in the paper's figure of KIND",
    )
    plugin: list[Path] = plugin()
    output: Path = setting(Path("simulation"), "Folder for KIND.png, .svg and .csv.", "DIR")
    negatives: int | None = setting(
        None, "Number of negatives of an anchor.", "K", shown="127; for norm, as in the paper"
    )
    grid: int | None = setting(None, "Number of values on each of the two axes.", shown="100")
    batches: int | None = setting(
        None, "Batches of angles to draw for each (mu_pos, mu_neg).", shown="1000", used=_drawn
    )
    seed: int | None = setting(None, "Seed of the draws.", shown="0", used=_drawn)
    independent: bool = setting(
        False,
        "Draw new angles for each pair (mu_pos, mu_neg), as Li et al. do (slower). By default, "
        "angles are drawn once, and their means are shifted to each pair.",
        used=_drawn,
    )
    gated: bool = setting(
        False,
        "Leave out batches with GD below 0.01, as in figure 3 of Li et al. (KIND weight only).",
        used=Used(lambda kind: kind == "weight", "needs KIND weight"),
    )
    part: Literal["alignment", "uniformity"] | None = setting(
        None,
        "Part of the gradient whose norm is computed (KIND norm only).",
        shown="alignment",
        used=Used(lambda kind: kind == "norm", "needs KIND norm"),
    )
    as_json: bool = as_json()


def simulate(settings: SimulateSettings) -> int:
    """Simulate, write the picture and the numbers, and print a short table."""
    of_objective = settings.objective_settings
    from isotrope.diagnostics.simulation.angle_draws import Draws
    from isotrope.diagnostics.simulation.figures import FIGURES, FigurePanel, figure, numbers
    from isotrope.paradigm import registry

    registry.load_plugins(settings.plugin)
    panels = FIGURES[settings.kind]
    if settings.objective:
        name = registry.find(settings.objective).__name__
        title = ", ".join([name, *(f"{key} {value}" for key, value in of_objective.items())])
        panels = [FigurePanel(title, settings.objective, of_objective)]
    figure_options = {
        flag: value
        for flag in ("grid", "negatives", "batches", "gated", "part")
        if (value := getattr(settings, flag)) is not None
    }
    grid = settings.grid or 100
    total = {"dissipation": grid**2, "weight": grid}.get(settings.kind, 0)
    with bar(total, settings.kind, show=not settings.as_json) as progress:
        draws = Draws(settings.seed or 0, not settings.independent, progress)
        landscapes = figure(settings.kind, panels, draws=draws, **figure_options)
    files = _write(settings, [panel.title for panel in panels], landscapes)
    rows = [numbers(settings.kind, landscape) for landscape in landscapes]
    if settings.as_json:
        objectives = [
            {"title": p.title, "objective": p.name, "settings": {**p.settings}, **row}
            for p, row in zip(panels, rows, strict=True)
        ]
        value = {"kind": settings.kind, "objectives": objectives, "files": [str(f) for f in files]}
        print(json.dumps(value, allow_nan=False))
        return 0
    cells = [
        [panel.title, *("-" if number is None else f"{number:.4g}" for number in row.values())]
        for panel, row in zip(panels, rows, strict=True)
    ]
    print(f"{NOTES[settings.kind]}\n\n{table(['objective', *rows[0]], cells)}\n")
    print(*files, sep="\n")
    return 0


def _write(
    settings: SimulateSettings, titles: Sequence[str], landscapes: "Sequence[Landscape]"
) -> list[Path]:
    """Write the picture and the numbers; return the paths of the files."""
    from isotrope.core.files import write_all
    from isotrope.diagnostics.simulation.averages import as_csv

    titled = list(zip(titles, landscapes, strict=True))
    picture = _picture(settings, titled)
    contents = {"png": picture.png, "svg": picture.svg, "csv": as_csv(titled).encode()}
    return write_all(
        settings.output,
        {f"{settings.kind}.{suffix}": content for suffix, content in contents.items()},
    )


def _picture(settings: SimulateSettings, titled: "Sequence[tuple[str, Landscape]]") -> "Picture":
    from isotrope.reports.surfaces import ANGLES, Surface, curves, heatmaps

    surfaces = [Surface(title, f.negative, f.positive, f.value, f.defined) for title, f in titled]
    if settings.kind == "weight":
        return curves(surfaces, "share of the hardest negative")
    if settings.kind == "norm":
        quantity = f"gradient norm, {settings.part or 'alignment'}"
        return heatmaps(surfaces, quantity, labels=ANGLES)
    if settings.kind == "ratio":
        return heatmaps(surfaces, "ratio", limits=(0, 5), lines=(1.25, 1.5, 2))
    return heatmaps(surfaces, "gradient dissipation", limits=(0, 1), lines=(0.5,))


_KINDS = "\n".join(f"  {kind:<13}{line}" for kind, line in KINDS.items())
run = Command(
    "simulate",
    SimulateSettings,
    simulate,
    "See how an objective's gradient depends on the angles from anchor to positive and negatives,\n"
    f"without data and without training.\n\nkinds:\n{_KINDS}",
    EPILOG,
)
