"""Formats scores as tables, for the terminal and as CSV."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrope.core.files import atomic_replace
from isotrope.core.legible import csv_text
from isotrope.core.result import Result
from isotrope.core.table import table


def tables(result: Result) -> str:
    """Return the tables of one model's scores."""
    tasks = result.details.get("tasks", {})
    sts = {name: scores for name, scores in tasks.items() if "spearman" in scores}
    transfer = {name: scores for name, scores in tasks.items() if "accuracy" in scores}
    parts = []
    if sts:
        parts.append(_row(sts, "spearman", result.details.get("average"), 'Spearman x 100, "all"'))
    dev = {name: scores["dev"] for name, scores in sts.items() if "dev" in scores}
    if dev:
        parts.append(_row(dev, "spearman", None, "the same on the dev split"))
    if "STS-B" in dev:
        sphere = {k: dev["STS-B"][k] for k in ("alignment", "uniformity")}
        measures = ", ".join(f"{k} {v:.4f}" for k, v in sphere.items() if v is not None)
        parts.append(f"STS-B dev: {measures}")
    if transfer:
        average = result.details.get("transfer_average")
        title = f"accuracy in percent ({result.details['mode']} mode)"
        parts.append(_row(transfer, "accuracy", average, title))
    parts += [_listed(kind, result) for kind in result.kind.split("+") if kind in result.details]
    return "\n\n".join(parts)


def _listed(kind: str, result: Result) -> str:
    """Return the measured values of a kind, one a line; its settings are in the JSON."""
    share, details = kind != "corpus", result.details[kind]
    values = [
        [name, f"{100 * value:.2f}" if share else f"{value:.4f}"]
        for name, value in details.items()
        if value is not None and {name, f"{kind}_{name}"} & result.metrics.keys()
    ]
    lines = [table([kind, "x 100" if share else "value"], values)]
    if unseen := details.get("unseen"):
        lines.append(
            f"{unseen:,} of {details['test']:,} test examples are of classes that the training "
            "part lacks, and count as wrong"
        )
    if repeated := details.get("repeated"):
        lines.append(
            f"{repeated:,} of {details['test']:,} test examples are also in the training part, "
            "where a classifier can look them up: the scores are higher than on new ones"
        )
    if details.get("k", 0) < details.get("k_asked", 0):
        lines.append(
            f"all {details['k']:,} training examples vote, where {details['k_asked']:,} nearest "
            "ones were asked for"
        )
    return "\n".join(lines)


def _row(tasks: Mapping[str, Any], score: str, average: float | None, title: str) -> str:
    """Return one row of scores under the names of their tasks."""
    values = {
        f"{name} {scores['split']}" if scores.get("dev") else name: scores[score]
        for name, scores in tasks.items()
    }
    if average is not None:
        values["average"] = average
    return f"{title}\n{table(list(values), [[f'{value:.2f}' for value in values.values()]])}"


def comparison(result: Result) -> str:
    """Return the models side by side, then every difference to the first with its verdict."""
    details = result.details
    columns = details["columns"]
    measured = {
        name: "" if name == column["metric"] else column["metric"]
        for name, column in columns.items()
    }
    side_by_side = [
        [
            name,
            *(
                _number(column["models"][i]["value"], column)
                + ("*" if column["models"][i]["best"] else " ")
                for column in columns.values()
            ),
        ]
        for i, name in enumerate(details["models"])
    ]
    differences = [
        [
            name,
            f"{task} {measured[task]}".strip(),
            *(_number(cell[key], column, "+") for key in ("value", "low", "high")),
            f"{cell['p']:.4f}",
            cell["verdict"],
        ]
        for i, name in enumerate(details["models"][1:])
        for task, column in columns.items()
        for cell in [column["differences"][i]]
    ]
    noise = 1 - details["level"]
    heads = [f"{name}\n{metric}".strip() for name, metric in measured.items()]
    same = "".join(
        f"the same weights: {', '.join(details['models'][i] for i in places)}\n"
        for places in details["same_weights"]
    )
    return (
        f"{table(['model', *heads], side_by_side)}\n* the best of a column; scores are out of 100\n"
        f"{same}\n"
        f"differences from {details['models'][0]}\n"
        f"{table(['model', 'task', 'difference', 'from', 'to', 'p', 'verdict'], differences)}\n\n"
        f"from, to: {details['level']:.0%} intervals of a paired bootstrap over the scored items "
        f"({details['resamples']:,} resamples, seed {details['seed']})\n"
        f"p: corrected by Holm's method for {details['comparisons']} comparisons; "
        f"noise: p above {noise:.2f}; variation between training seeds is not included"
    )


def _number(value: float, column: Mapping[str, Any], sign: str = "-") -> str:
    """Return a score out of 100 with two decimals, how embeddings lie with four."""
    scaled = 100 * value if column["share"] else value
    return f"{scaled:{sign}.{2 if column['percent'] or column['share'] else 4}f}"


def rows(result: Result) -> list[dict[str, Any]]:
    """Return a row for every number: of one model, or of a comparison."""
    if result.kind != "comparison":
        return [
            {"model": result.name, "task": name, "value": value}
            for name, value in result.metrics.items()
        ]
    table_rows: list[dict[str, Any]] = []
    for task, column in result.details["columns"].items():
        for i, name in enumerate(result.details["models"]):
            row = {"model": name, "task": task, "metric": column["metric"], **column["models"][i]}
            other = column["differences"][i - 1] if i else dict.fromkeys(column["differences"][0])
            renamed = {"value": "difference", "low": "from", "high": "to"}
            table_rows.append(row | {renamed.get(key, key): value for key, value in other.items()})
    return table_rows


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of the same keys, whole or not at all."""
    with atomic_replace(path) as temporary:
        temporary.write_text(csv_text([*rows[0]], (row.values() for row in rows)), "utf-8")
