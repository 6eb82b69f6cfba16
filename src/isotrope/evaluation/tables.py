"""Shows scores as tables: those of one model, or of several with their differences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isotrope.core.legible import shortened
from isotrope.core.result import Result
from isotrope.core.table import TitledTable, table
from isotrope.data.text.retrieval_sets import RetrievalSet
from isotrope.measures.bootstrap import LEVEL, intervals, shown_p

AVERAGES = {"average": "spearman", "transfer_average": "accuracy"}
"""The name of each average: a mean over tasks of the score that stands beside the name."""


class Scores(Result):
    """The scores of a model, or a comparison of models. ``print`` shows the tables."""

    def __str__(self) -> str:
        return comparison(self) if self.kind == "comparison" else tables(self)


def in_percent(name: str, result: Result) -> bool:
    """Return True if a metric of a Result is a percentage, False if it is a number from 0 to 1."""
    return name in AVERAGES or name in result.details.get("tasks", {})


def tables(result: Result) -> str:
    """Return the tables of one model's scores."""
    details, tasks = result.details, result.details.get("tasks", {})
    dev = {n: s["dev"] for n, s in tasks.items() if "dev" in s and "spearman" in s}
    sphere = {k: dev["STS-B"][k] for k in ("alignment", "uniformity")} if "STS-B" in dev else {}
    measures = ", ".join(f"{k} {v:.4f}" for k, v in sphere.items() if v is not None)
    parts = [
        _row('Spearman x 100, "all"', tasks, "spearman", details.get("average")),
        _row("Spearman x 100, dev split", dev, "spearman", None),
        f"STS-B dev: {measures}" if sphere else "",
        _row(
            f"accuracy in percent ({details.get('mode')} mode)",
            tasks,
            "accuracy",
            details.get("transfer_average"),
        ),
        *(_listed(kind, result) for kind in result.kind.split("+") if kind in details),
    ]
    return "\n\n".join(filter(None, parts))


def _listed(kind: str, result: Result) -> str:
    """Return the scores of one kind, one on each line; below them, remarks on the data."""
    details, shown, items = result.details[kind], {}, {}
    for name, value in details.items():
        metric = next((m for m in (name, f"{kind}_{name}") if m in result.metrics), None)
        if value is not None and metric is not None:
            shown[name] = [value]
            if metric in result.items:
                items[name] = result.items[metric]
    bounds_of = intervals(np.stack(list(items.values()))) if items else []
    for name, bounds in zip(items, bounds_of, strict=True):
        shown[name] += bounds.values()
    values = [[name, *(f"{100 * number:.2f}" for number in row)] for name, row in shown.items()]
    width = max((len(row) for row in values), default=2)
    filled = [[*row, *["-"] * (width - len(row))] for row in values]
    lines = [table([kind, "x 100", "from", "to"][:width], filled)]
    if width > 2:
        lines.append(f"from, to: ends of the {LEVEL:.0%} interval, by a bootstrap of scored items")
    if unseen := details.get("unseen"):
        lines.append(
            f"{unseen:,} of {details['test']:,} test examples count as wrong, because the training "
            "part has no example of their class"
        )
    if repeated := details.get("repeated"):
        lines.append(
            f"{repeated:,} of {details['test']:,} test examples are also in the training part, so "
            "the scores are higher than on new examples"
        )
    if details.get("k", 0) < details.get("k_asked", 0):
        lines.append(
            f"all {details['k']:,} training examples vote, because there are fewer than "
            f"{details['k_asked']:,}"
        )
    return "\n".join(lines)


def _row(title: str, tasks: Mapping[str, Any], score: str, average: float | None) -> str:
    """Return a table with one row of scores under the names of their tasks; empty without any."""
    values = {
        f"{name} {scores['split']}" if scores.get("dev") else name: scores[score]
        for name, scores in tasks.items()
        if score in scores
    }
    if values and average is not None:
        values["average"] = average
    row = [f"{value:.2f}" for value in values.values()]
    return str(TitledTable(title, "", list(values), [row])) if values else ""


def comparison(result: Result, *, queries: bool = True) -> str:
    """Return two tables as text: the models' scores, and the differences from the first model.

    For retrieval, ``queries=True`` adds the queries whose answers moved most in the ranking.
    """
    details, every = result.details, rows(result)
    columns, models, interval = details["columns"], details["models"], ["difference", "from", "to"]
    titles = {n: (n, "" if n == c["metric"] else c["metric"]) for n, c in columns.items()}
    of_models = [every[i :: len(models)] for i in range(len(models))]  # ordered by task
    side_by_side = [
        [own[0]["model"], *(_number(r, "value", columns, "-") + " *"[r["best"]] for r in own)]
        for own in of_models
    ]
    differences = [
        [
            row["model"],
            " ".join(titles[row["task"]]).strip(),
            *(_number(row, key, columns, "+") for key in interval),
            shown_p(row["p"]),
            row["verdict"],
        ]
        for own in of_models[1:]
        for row in own
    ]
    named = ["model", "task", *interval, "p", "verdict"]
    changed = TitledTable(f"differences from {models[0]}", "", named, differences)
    heads = ["\n".join(title).strip() for title in titles.values()]
    further = (
        "these are the differences from the first model; for those from another one, name it "
        "first; the stored scores are used again\n"
        if len(models) > 2 and queries
        else ""
    )
    same = "".join(
        f"the same weights: {', '.join(models[i] for i in places)}\n"
        for places in details["same_weights"]
    )
    return (
        f"{table(['model', *heads], side_by_side)}\n* the best of a column; scores are out of 100\n"
        f"{same}\n"
        f"{changed}\n\n{''.join(_summed_up(own, models[0]) for own in of_models[1:])}{further}"
        f"from, to: {details['level']:.0%} interval of the difference, by a paired bootstrap over "
        f"the scored items ({details['resamples']:,} resamples, seed {details['seed']})\n"
        f"p: corrected by Holm's method for {details['comparisons']} comparisons; noise: p above "
        f"{1 - details['level']:.2f}; variation between training seeds is not included"
        f"{_won_and_lost(details) if queries else ''}"
    )


def _summed_up(rows: Sequence[Mapping[str, Any]], first: str) -> str:
    """Return a line on how many scores of a model are higher or lower than those of the first."""
    found = [row["verdict"] for row in rows]
    higher, lower, noise = (found.count(verdict) for verdict in ("higher", "lower", "noise"))
    return (
        f"of the {len(found)} scores of {rows[0]['model']}, {higher} are higher than those of "
        f"{first}, {lower} are lower, and {noise} are within noise\n"
    )


def _won_and_lost(details: Mapping[str, Any]) -> str:
    """Return lines on the queries that each model ranks better or worse than the first."""
    first, *others = details["models"]
    lines = []
    for name, of in zip(others, details.get("queries", ()), strict=False):
        lines.append(
            f"\n\n{name} ranks the answers of {of['better']:,} queries higher than {first}, and of "
            f"{of['worse']:,} lower; ranks of the answer, by the change of 1/rank:"
        )
        for each in of["most"]:
            old, new = (f"{rank}" if rank else "above 100" for rank in each["rank"])
            lines.append(f"\n  {old} to {new}: {shortened(each['query'])}")
            if each["rank"][1] != 1:
                lines.append(f"\n      now first: {shortened(each['first'])}")
                lines.append(f"\n      answer:    {shortened(each['answer'])}")
    return "".join(lines)


def _number(row: Mapping[str, Any], key: str, columns: Mapping[str, Any], sign: str) -> str:
    """Format a number out of 100, with two decimals."""
    value = row[key] if columns[row["task"]]["percent"] else 100 * row[key]
    return f"{value:{sign}.2f}"


def rows(result: Result) -> list[dict[str, Any]]:
    """Return the rows of the CSV file: a dict from column to value for each score of a model."""
    if result.kind != "comparison":
        return [
            {
                "model": result.name,
                "task": name,
                "value": value,
                "out_of": 100 if in_percent(name, result) else 1,
            }
            for name, value in result.metrics.items()
        ]
    table_rows: list[dict[str, Any]] = []
    for task, column in result.details["columns"].items():
        for i, name in enumerate(result.details["models"]):
            row = {"model": name, "task": task, "metric": column["metric"], **column["models"][i]}
            other = column["differences"][i - 1] if i else dict.fromkeys(column["differences"][0])
            renamed = {"value": "difference", "low": "from", "high": "to"}
            row |= {renamed.get(key, key): value for key, value in other.items()}
            table_rows.append(row | {"out_of": 100 if column["percent"] else 1})
    return table_rows


def by_query(results: Sequence[Result], data: RetrievalSet) -> list[dict[str, Any]]:
    """Return a list of dicts, one for each query: the rows of a table that compares models.

    A rank is the rank of the first relevant document, and empty if this rank is above 100. If the
    data have ids, columns have the ids of queries, of answers and of the texts at rank 1.
    """
    table: list[dict[str, Any]] = []
    query_ids, ids = data.ids
    for i, query in enumerate(data.queries):
        row: dict[str, Any] = {"query_id": query_ids[i]} if ids else {}
        row |= {"query": query}
        row |= {"answer_ids": " | ".join(ids[place] for place in data.relevant[i])} if ids else {}
        row |= {"answers": " | ".join(data.corpus[place] for place in data.relevant[i])}
        for result in results:
            rank, first = int(result.items["rank"][i]), int(result.items["first"][i])
            row[f"rank: {result.name}"] = rank or ""
            row |= {f"first_id: {result.name}": ids[first]} if ids else {}
            row[f"first: {result.name}"] = data.corpus[first]
        table.append(row)
    return table
