"""Run folders written by hand, as the contract of ``isotrope train`` has them."""

import json
import math
from pathlib import Path
from typing import Any

OLD = (
    "step,epoch,loss,learning_rate,gradient_norm,dissipation,dead,hardest_share,ratio,"
    "alignment,uniformity,norm,dev,samples_per_second"
)
"""The columns that runs had before the angles and the parts of the gradient were measured."""
COLUMNS = (
    "step,epoch,loss,learning_rate,gradient_norm,dissipation,dead,hardest_share,ratio,"
    "alignment,uniformity,norm,above_bound,gradient_alignment,gradient_uniformity,"
    "embedding_gradient,positive_mean,positive_std,negative_mean,negative_std,distance_gap,"
    "opposite_halves,far_opposite,std,effective_rank,false_negatives,dev,samples_per_second"
)
OLD_PLOTTED = (
    "dev", "loss", "dissipation", "hardest_share", "ratio", "norm", "gradient_norm", "trajectory",
)  # fmt: skip
PLOTTED = (
    "dev", "loss", "dissipation", "hardest_share", "ratio", "above_bound", "parts",
    "false_negatives", "norm", "embedding_gradient", "gradient_norm", "angles", "distance_gap",
    "opposite_halves", "trajectory", "effective_rank", "std",
)  # fmt: skip
"""The pictures of a run on text, in the order of the page."""


def row(step: int, *, dev: float | None, ratio: float | None = 1.0, columns: str = COLUMNS) -> str:
    """Return one line of metrics.csv; step 0 has a dev score and nothing else."""
    decay = math.exp(-step / 20)
    measured = {
        "epoch": step / 40, "loss": 0.1 + decay, "learning_rate": 3e-5, "gradient_norm": 1 + decay,
        "dissipation": 0.2 + 0.3 * decay, "dead": 0.01, "hardest_share": 0.5 - 0.1 * decay,
        "ratio": ratio, "alignment": 0.2 - 0.1 * decay, "uniformity": -3 + decay,
        "norm": 6 - decay, "above_bound": 0.9 - 0.4 * decay, "gradient_alignment": 0.3 * decay,
        "gradient_uniformity": 0.2 * decay, "embedding_gradient": 0.01 + 0.1 * decay,
        "positive_mean": 0.4 + decay, "positive_std": 0.2, "negative_mean": 1.5,
        "negative_std": 0.1, "distance_gap": 0.5 - 0.5 * decay, "opposite_halves": 0.1 * decay,
        "far_opposite": 0.0, "std": 0.04, "effective_rank": 50 - decay, "false_negatives": 0.0,
    }  # fmt: skip
    told = (measured if step else {}) | {
        "step": step, "dev": dev, "samples_per_second": 400 if step else None,
    }  # fmt: skip
    cells = [told.get(name) for name in columns.split(",")]
    return ",".join("" if cell is None else f"{cell:.6g}" for cell in cells)


def judged(outcome: str | None) -> dict[str, Any] | None:
    """A judgement as result.json has it."""
    sentence = f"{outcome}: as it was judged"
    return outcome and {"outcome": outcome, "sentence": sentence, "numbers": {}}


def write_run(
    folder: Path,
    *,
    objective: str = "infonce",
    parameters: dict[str, Any] | None = None,
    dev: tuple[float, ...] = (86.61, 87.13, 86.9),
    ratio: float | None = 1.0,
    finished: bool = True,
    dev_name: str = "dev STS Spearman (dev.tsv)",
    dev_data: str | None = "dev.tsv's",
    verdict: str | None = None,
    judgement: str | None = None,
    weights: str | None = None,
    settings: str = "",
    columns: str = COLUMNS,
) -> Path:
    """Write a run of 40 steps, logged every 2, with ``dev`` spread over its length."""
    folder.mkdir(parents=True)
    parameters = {"temperature": 0.05} if parameters is None else parameters
    at = {round(40 * i / max(len(dev) - 1, 1)): score for i, score in enumerate(dev)}
    rows = [row(step, dev=at.get(step), ratio=ratio, columns=columns) for step in range(0, 41, 2)]
    (folder / "metrics.csv").write_text("\n".join([columns, *rows]) + "\n", encoding="utf-8")
    dotted = "".join(f"objective.{name}: {value}\n" for name, value in parameters.items())
    (folder / "config.yaml").write_text(
        f"files: [notes.txt]\nobjective: {objective}\n{dotted}{settings}# made here: x\n",
        encoding="utf-8",
    )
    if finished:
        best = max(at, key=lambda step: at[step]) if at else None
        result = {
            "kind": "train",
            "name": folder.name,
            "metrics": {
                "dev_start": at.get(0), "dev_best": None if best is None else at[best],
                "dev_best_step": best, "dev_final": at.get(40), "steps": 40, "seconds": 12.34,
                "samples_per_second": 412.3, "loss": 0.2, "dissipation": 0.25, "dead": 0.01,
                "hardest_share": 0.4, "ratio": ratio, "alignment": 0.15, "uniformity": -2.9,
                "norm": 5.5,
            },
            "details": {
                "objective": {"name": objective, "parameters": parameters},
                "dev": {"name": dev_name, "kind": "dev.tsv", "data": dev_data} if dev else None,
                "data": {"records": 200, "files": ["notes.txt"]},
                "verdict": verdict,
                "judgement": judged(judgement),
                "model": {"fingerprint": weights},
            },
            "provenance": {
                "versions": {"isotrope": "0.1.0", "torch": "2.0"}, "python": "3.11",
                "platform": "Linux", "cores": 2, "seed": 42, "data": "abc123",
                "command": ["isotrope", "train", "my notes.txt"],
                "git": {"commit": "0123456789abcdef", "modified": True},
                "time": "2025-01-01T00:00:00Z",
            },
        }  # fmt: skip
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return folder


IMAGE_COLUMNS = (
    "step,epoch,loss,learning_rate,gradient_norm,dissipation,dead,hardest_share,ratio,"
    "alignment,uniformity,norm,norm_backbone,opposite_halves,far_opposite,std,effective_rank,"
    "knn,images_per_second"
)


def write_image_run(
    folder: Path,
    *,
    method: str = "simclr",
    cut: float = 1.0,
    knn: tuple[float, ...] = (24.9, 36.2, 35.8),
    finished: bool = True,
    data: str = "def456",
    verdict: str | None = None,
    judgement: str | None = None,
) -> Path:
    """Write a run on images of 40 steps, logged every 2, with ``knn`` spread over its length."""
    folder.mkdir(parents=True)
    at = {round(40 * i / max(len(knn) - 1, 1)): score for i, score in enumerate(knn)}
    rows = []
    for step in range(0, 41, 2):
        decay = math.exp(-step / 20)
        measured = [
            step / 40, 3 + decay, 0.06, 1 + decay, 0.5, 0.0, 0.2, 1.0, 0.4 + decay, -2.5 - decay,
            4 + decay, 9 - decay, 0.2 * decay, 0.01 * decay, 0.08, 50 - decay,
        ]  # fmt: skip
        cells = [step, *(measured if step else [None] * 16), at.get(step), 900 if step else None]
        rows.append(",".join("" if cell is None else f"{cell:.6g}" for cell in cells))
    (folder / "metrics.csv").write_text("\n".join([IMAGE_COLUMNS, *rows]) + "\n")
    settings = f"data: pictures\nmethod: {method}\ncut: {cut}\n# made here: x\n"
    (folder / "config.yaml").write_text(settings)
    if finished:
        best = max(at, key=lambda step: at[step]) if at else None
        result = {
            "kind": "train-images",
            "name": folder.name,
            "metrics": {
                "knn_start": at.get(0), "knn_best": None if best is None else at[best],
                "knn_best_step": best, "knn_final": at.get(40), "linear": 41.25, "steps": 40,
                "seconds": 5.5, "images_per_second": 931.0, "loss": 3.1, "norm": 4.1,
                "opposite_halves": 0.03, "alignment": 0.4, "uniformity": -2.5,
            },
            "details": {
                "method": {"name": method, "options": {}},
                "objective": {"name": "ntxent", "parameters": {"temperature": 0.1}},
                "cut": {"c": cut, "what": "weights"},
                "data": {"path": "pictures", "images": 200},
                "verdict": verdict,
                "judgement": judged(judgement),
            },
            "provenance": {"seed": 1, "data": data},
        }  # fmt: skip
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return folder


FAULTY = {
    "verdict": ["collapsed", "losing-pull"],
    "findings": [
        {
            "verdict": "collapsed",
            "evidence": [
                {"name": "final_std", "number": 0.0012, "threshold": 0.01, "side": "below"},
                {"name": "rank", "number": 1.5, "threshold": None, "unit": "directions"},
            ],
            "source": "Li et al. 2024, figure 9",
            "change": "--objective ntxent",
            "detail": "All embeddings are one point.",
        },
        {
            "verdict": "losing-pull",
            "evidence": [{"name": "above", "number": None, "threshold": 1500, "side": "above"}],
            "source": "Li et al. 2024, lemma 1",
            "change": "--objective.ratio 1.5",
            "detail": "The pull is weak.",
        },
    ],
}  # fmt: skip


def write_diagnosis(run: Path, record: Any = None) -> Path:
    """Write what ``isotrope diagnose`` writes: healthy, without a record."""
    record = {"verdict": ["healthy"], "findings": []} if record is None else record
    (run / "diagnosis.json").write_text(json.dumps(record), encoding="utf-8")
    return run
