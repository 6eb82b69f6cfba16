"""Shows scores as tables: those of one model, or of several with their differences."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isotrope.core.legible import counted, shortened
from isotrope.core.result import Result
from isotrope.core.table import TitledTable, table
from isotrope.data.text.copies import NearCopies
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
    dev = {name: own["dev"] for name, own in tasks.items() if "dev" in own and "spearman" in own}
    sphere = {name: dev["STS-B"][name] for name in ("alignment", "uniformity") if "STS-B" in dev}
    measures = ", ".join(f"{name} {x:.4f}" for name, x in sphere.items() if x is not None)
    mode = f"accuracy in percent ({details.get('mode')} mode)"
    parts = [
        _task_row('Spearman x 100, "all"', tasks, "spearman", details.get("average")),
        _task_row("Spearman x 100, dev split", dev, "spearman", None),
        f"STS-B dev: {measures}" if sphere else "",
        _task_row(mode, tasks, "accuracy", details.get("transfer_average")),
        *(_metrics_of(kind, result) for kind in result.kind.split("+") if kind in details),
        *_of_answers(details),
    ]
    return "\n\n".join(filter(None, parts))


def _task_row(title: str, tasks: Mapping[str, Any], score: str, average: float | None) -> str:
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


def _metrics_of(kind: str, result: Result) -> str:
    """Return the metrics of one kind, one on each line; below them, remarks on the data."""
    values: dict[str, float] = {}
    items: dict[str, np.ndarray] = {}
    for name, value in result.details[kind].items():
        # the details have settings and counts too; a metric may have the kind before its name
        metric = next((own for own in (name, f"{kind}_{name}") if own in result.metrics), None)
        if value is not None and metric is not None:
            values[name] = value
            if metric in result.items:
                items[name] = result.items[metric]
    rows = {name: [name, f"{100 * value:.2f}"] for name, value in values.items()}
    headings, legend = [kind, "x 100"], []
    if items:
        bounds = dict(zip(items, intervals(np.stack(list(items.values()))), strict=True))
        for name, row in rows.items():
            ends = bounds[name].values() if name in bounds else ()
            row += [f"{100 * end:.2f}" for end in ends] or ["-", "-"]
        headings += ["from", "to"]
        legend = [f"from, to: ends of the {LEVEL:.0%} interval, by a bootstrap of scored items"]
    lines = [table(headings, list(rows.values())), *legend, *_remarks(result.details[kind])]
    return "\n".join(lines)


def _remarks(details: Mapping[str, Any]) -> list[str]:
    """Return lines on labelled data that make a score lower or higher than it would be."""
    lines = []
    if unseen := details.get("unseen"):
        lines.append(
            "the training part has no example of the class of "
            f"{unseen:,} of {details['test']:,} test examples, which therefore count as wrong"
        )
    if repeated := details.get("repeated"):
        lines.append(
            f"the training part contains {repeated:,} of {details['test']:,} test examples, so the "
            "scores are higher than on new examples"
        )
    if details.get("k", 0) < details.get("k_asked", 0):
        lines.append(
            f"every training example votes ({details['k']:,}), because there are fewer than "
            f"{details['k_asked']:,}"
        )
    return lines


def _of_answers(details: Mapping[str, Any]) -> list[str]:
    """Return lines on queries with several right answers and on near-copies, if there are any."""
    if not (record := details.get("near_copies")):
        return []
    highest = details.get("at_most") or {}  # an older result has none
    limits = [f"{name} can be at most {100 * v:.2f}" for name, v in highest.items() if v < 1]
    lines = [f"several right answers: {', '.join(limits)}"] if limits else []
    number = NearCopies(**record)
    line = (
        f"right answers with a near-copy, which a query may count as wrong: {number.copies:,} of "
        f"{number.texts:,}, among {number.compared:,} documents{number.limit}. Write one text for "
        "its copies, or list all as right answers; ignore this if the numbers or few words that "
        "differ matter in your data"
    )
    return [*lines, line] if number.copies or number.left_out else lines


def comparison(result: Result, *, brief: bool = False) -> str:
    """Return two tables as text: the models' scores, and the differences from the first model.

    ``brief=True`` leaves out the queries whose answers moved most, and how to compare other models.
    """
    details = result.details
    first, *others = details["models"]
    of_models: dict[str, list[dict[str, Any]]] = {}
    for row in csv_rows(result):
        of_models.setdefault(row["model"], []).append(row)
    lines = [
        _side_by_side(of_models),
        "* the best of a column; scores are out of 100",
        *(
            f"the same weights: {', '.join(details['models'][i] for i in places)}"
            for places in details["same_weights"]
        ),
        "",
        str(_differences(first, [row for name in others for row in of_models[name]])),
        "",
        *(_summed_up(of_models[name], first) for name in others),
    ]
    if len(others) > 1 and not brief:
        lines.append(
            "these are the differences from the first model; for those from another one, name it "
            "first; the stored scores are used again"
        )
    but = f" except {details['metric']}" if details.get("metric") else ""
    lines += [
        f"from, to: {details['level']:.0%} interval of the difference, by a paired bootstrap over "
        f"the scored items ({details['resamples']:,} resamples, seed {details['seed']})",
        f"p: corrected by Holm's method for the {counted(details['comparisons'], 'score')} of a "
        f"model{but}, so other models do not change it; noise: p above "
        f"{1 - details['level']:.2f}; variation between training seeds is not included",
        *(
            f"{row['task']} of {row['model']}: only {row['changed']} items changed, so p is that "
            "of a sign test"
            for row in csv_rows(result)
            if row["verdict"] == "noise" and row["from"] * row["to"] > 0
            if 2.0 ** (1 - row["changed"]) > 1 - details["level"]
        ),
        *_of_answers(details),
    ]
    return "\n".join([*lines, *(() if brief else _won_and_lost(details))])


def _side_by_side(of_models: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return a table with a row for each model and a column for each score."""
    first = next(iter(of_models.values()))
    lines = []
    for name, scores in of_models.items():
        cells = [_number(row, "value", "-") + ("*" if row["best"] else " ") for row in scores]
        lines.append([name, *cells])
    return table(["model", *(_heading(row, "\n") for row in first)], lines)


def _differences(first: str, rows: Sequence[Mapping[str, Any]]) -> TitledTable:
    """Return the table of the differences from the model ``first``, a row for each score."""
    interval = ("difference", "from", "to")
    cells = [
        [
            row["model"],
            _heading(row, " "),
            *(_number(row, key, "+") for key in interval),
            shown_p(row["p"]),
            row["verdict"],
        ]
        for row in rows
    ]
    headings = ["model", "task", *interval, "p", "verdict"]
    return TitledTable(f"differences from {first}", "", headings, cells)


def _heading(row: Mapping[str, Any], between: str) -> str:
    """Return the task and the metric of a score; the task alone if it has the metric's name."""
    task, metric = row["task"], row["metric"]
    return str(task) if task == metric else f"{task}{between}{metric}"


def _number(row: Mapping[str, Any], key: str, sign: str) -> str:
    """Format a number out of 100, with two decimals."""
    value = row[key] if row["out_of"] == 100 else 100 * row[key]
    return f"{value:{sign}.2f}"


def _summed_up(rows: Sequence[Mapping[str, Any]], first: str) -> str:
    """Return a line on how many scores of a model are higher or lower than those of the first."""
    verdicts = [row["verdict"] for row in rows]
    higher, lower, noise = (verdicts.count(verdict) for verdict in ("higher", "lower", "noise"))
    compared = f"scores of {rows[0]['model']}, compared with {first}"
    return f"{compared}: {higher} higher, {lower} lower, and {noise} within noise"


def _won_and_lost(details: Mapping[str, Any]) -> list[str]:
    """Return lines on the queries that each model ranks better or worse than the first."""
    first, *others = details["models"]
    lines = []
    for name, changes in zip(others, details.get("queries", ()), strict=False):  # only in retrieval
        lines += [
            "",
            f"{name} ranks the best-ranked right answer of {counted(changes['better'], 'query')} "
            f"higher than {first}, and of {changes['worse']:,} lower (a rank above 100, empty in "
            "--queries, is lower than all others); the ranks, by the change of 1/rank:",
        ]
        for query in changes["most"]:
            old, new = (str(rank or "above 100") for rank in query["rank"])
            lines.append(f"  {old} to {new}: {shortened(query['query'])}")
            if new != "1":
                lines.append(f"      now first: {shortened(query['first'])}")
                lines.append(f"      answer:    {shortened(query['answer'])}")
    return lines


def csv_rows(result: Result) -> list[dict[str, Any]]:
    """Return the rows of the CSV file: a dict from column to value for each score of a model.

    In a comparison, the rows of one task follow each other, in the order of the models. The first
    model has no difference, interval, p-value and verdict: they are None.
    """
    rows: list[dict[str, Any]] = []
    if result.kind != "comparison":
        for name, value in result.metrics.items():
            out_of = 100 if in_percent(name, result) else 1
            rows.append({"model": result.name, "task": name, "value": value, "out_of": out_of})
        return rows
    renamed = {"value": "difference", "low": "from", "high": "to"}
    for task, column in result.details["columns"].items():
        nothing = dict.fromkeys(column["differences"][0])
        differences = [nothing, *column["differences"]]
        models = zip(result.details["models"], column["models"], differences, strict=True)
        for name, own, difference in models:
            row = {"model": name, "task": task, "metric": column["metric"], **own}
            row |= {renamed.get(key, key): value for key, value in difference.items()}
            rows.append(row | {"out_of": 100 if column["percent"] else 1})
    return rows


def query_rows(results: Sequence[Result], data: RetrievalSet) -> list[dict[str, Any]]:
    """Return the rows of the CSV file of queries: a dict from column to value for each query.

    A rank is the rank of the first relevant document, and empty if this rank is above 100. Answers
    are JSON lists. If the data have ids, columns have those of queries, answers and first texts. If
    they have labels, columns have those of queries and first texts, in place of the answers.
    """
    rows: list[dict[str, Any]] = []
    query_ids, ids = data.ids
    query_labels, labels = data.labels
    for i, query in enumerate(data.queries):
        row: dict[str, Any] = {"query_id": query_ids[i]} if ids else {}
        row["query"] = query
        if ids:
            row["answer_ids"] = json.dumps([ids[k] for k in data.relevant[i]], ensure_ascii=False)
        if labels:  # the texts of a label may be many
            row["label"] = query_labels[i]
        else:
            answers = [data.corpus[k] for k in data.relevant[i]]
            row["answers"] = json.dumps(answers, ensure_ascii=False)
        for result in results:
            rank, first = int(result.items["rank"][i]), int(result.items["first"][i])
            row[f"rank: {result.name}"] = rank or ""
            if ids:
                row[f"first_id: {result.name}"] = ids[first]
            row[f"first: {result.name}"] = data.corpus[first]
            if labels:
                row[f"first_label: {result.name}"] = labels[first]
        rows.append(row)
    return rows
