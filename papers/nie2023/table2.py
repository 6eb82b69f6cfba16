"""Table 2: the hyperparameters of every loss on four backbones."""

import math

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
