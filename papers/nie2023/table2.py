"""Table 2: the hyperparameters of every loss on four backbones, and the grids of section A.3."""

import math
from collections.abc import Sequence

from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.verdicts import Ruling
from papers.nie2023.losses import BACKBONES, NAMES, PAPER, trained, tuned
from papers.paper_numbers import printed

RATES = {"learning_rate": "learning rate", "batch_size": "batch size"}


def render(scale: Scale, results: Results) -> Rendered:
    """Return the printed values beside those of our presets."""
    paper = printed(PAPER, "table2")
    rows, wrong = [], []
    for row, values in paper.rows.items():
        objective, _, name = row.partition("/")
        presets = [_preset(objective, name, base) for base in BACKBONES]
        same = all(math.isclose(a, float(b or 0)) for a, b in zip(presets, values, strict=True))
        wrong += [] if same else [row]
        values_of_both = [f"{b:g} / {a:g}" for a, b in zip(presets, values, strict=True)]
        rows.append(
            [
                NAMES[objective],
                RATES.get(name, name),
                *values_of_both,
                "same" if same else "differs",
            ]
        )
    settings = trained(scale, "dcl")[0].settings
    return Rendered(
        tables=[Sheet(["loss", "", *paper.columns, "verdict"], rows, title="paper / ours")],
        verdicts=[
            Ruling(
                "our presets are the values of the table",
                not wrong,
                f"{len(rows)} rows, {len(wrong)} of them different",
            )
        ],
        notes=[
            f"at this scale losses are trained with the column bert-base, batches of "
            f"{settings['batch_size']} and a learning rate of {settings['learning_rate']:g}"
            if scale != "paper"
            else "at this scale every loss is trained with its column",
            *paper.notes,
        ],
    )


def _preset(objective: str, name: str, backbone: str) -> float:
    preset = tuned(objective, backbone)
    if name in RATES:
        return float(getattr(preset, name))
    key, _, unit = name.partition(" over ")
    return float(preset.values[key]) / (math.pi if unit == "pi" else 1)


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


def grids(scale: Scale, results: Results) -> Rendered:
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
