"""Table 2 beside the grids of section A.3 that its values were searched in."""

import math
from collections.abc import Sequence

from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling
from papers.nie2023.losses import BACKBONES, NAMES, PAPER
from papers.paper_numbers import printed

RATES = ("learning_rate", "batch_size")


def grid(objective: str) -> dict[str, list[float]]:
    """Return the values that section A.3 tries of each hyperparameter of a loss."""
    values_by_name = {}
    for row, values in printed(PAPER, "grid").rows.items():
        if row.startswith(f"{objective}/"):
            values_by_name[row.partition("/")[2]] = [float(v) for v in values if v is not None]
    for row, (low, high, step) in printed(PAPER, "grid-ranges").rows.items():
        if row.startswith(f"{objective}/"):
            start, width = float(low or 0), float(step or 1)
            count = round((float(high or 0) - start) / width) + 1
            values_by_name[row.partition("/")[2]] = [
                round(start + i * width, 4) for i in range(count)
            ]
    return values_by_name


def rates() -> dict[str, list[float]]:
    """Return the learning rates and batch sizes, which are those of every loss."""
    rows = printed(PAPER, "grid").rows
    return {name: [float(v) for v in rows[name] if v is not None] for name in RATES}


def render(scale: Scale, results: Results) -> Rendered:
    """Return the grids, and which optima lie in them."""
    rows, outside = [], []
    for objective, name in NAMES.items():
        for key, tried in {**rates(), **grid(objective)}.items():
            best = _optima(objective, key)
            off = {v for v in best if not any(math.isclose(v, t) for t in tried)}
            outside += [f"{name} {key} {value:g}" for value in sorted(off)]
            optima = ", ".join(f"{value:g}" for value in best)
            rows.append([name, key, _short(tried), optima, "no" if off else "yes"])
    header = ["loss", "hyperparameter", "grid of A.3", "table 2", "all in the grid"]
    return Rendered(
        tables=[Sheet(header, rows, title=f"optima of {', '.join(BACKBONES)}")],
        verdicts=[
            Ruling(
                "the optima of table 2 lie in the grids of section A.3",
                not outside,
                f"outside: {', '.join(outside)}" if outside else "",
            )
        ],
        notes=list(printed(PAPER, "grid-ranges").notes),
    )


def _optima(objective: str, key: str) -> list[float]:
    """The values of table 2, one for each backbone."""
    return [float(value or 0) for value in printed(PAPER, "table2").rows[f"{objective}/{key}"]]


def _short(values: Sequence[float]) -> str:
    if len(values) < 6:
        return ", ".join(f"{value:g}" for value in values)
    return f"{values[0]:g} to {values[-1]:g} by {values[1] - values[0]:g}"
