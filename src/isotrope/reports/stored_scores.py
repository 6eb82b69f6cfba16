"""Finds the scores that ``isotrope evaluate`` stored for the saved models of some runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.core.table import TitledTable
from isotrope.evaluation.compare import compare_results
from isotrope.evaluation.store import DAMAGED, load_stored, store_folder, stored_file
from isotrope.evaluation.tables import in_percent
from isotrope.measures.bootstrap import LEVEL, intervals
from isotrope.reports.runs import Run

TITLE = "Scores by isotrope evaluate"
"""Title of the table of these scores."""
NOISE = " `isotrope evaluate --compare` tests whether runs differ by more than noise."
"""Sentence after the best of several scores."""


_WORDS = {"higher": "better", "lower": "worse", "noise": "within noise"}


class StoredScores(NamedTuple):
    """The scores of the saved model of a run on one task.

    Attributes:
        test: Text that is equal for two results on the same data, scored in the same way.
        file: Path of the stored file, relative to the run folder.
        task: Name of the task, for retrieval with its numbers of queries and documents.
        result: Result with the scores.
        original: Result of the original model on the same data; None if none is stored.
    """

    test: str
    file: str
    task: str
    result: Result
    original: Result | None

    def differences(self) -> Mapping[str, Any]:
        """Return the differences from the original model by metric, as ``compare`` has them."""
        if self.original is None:
            return {}
        try:
            columns = compare_results([self.original, self.result]).details["columns"]
        except (KeyError, *DAMAGED):  # edited, or not scored on the same examples
            return {}
        return {name: column["differences"][0] for name, column in columns.items()}

    def pair(self, name: str) -> tuple[str | None, str | None]:
        """Return a score of the original and of the saved model, out of 100."""
        before = None if self.original is None else self.original.metrics.get(name)
        values = (before, self.result.metrics.get(name))
        out_of = _out_of_100(name, self.result)
        first, second = (
            f"{out_of * v:.2f}" if isinstance(v, (int, float)) else None for v in values
        )
        return first, second


def on_tests(run: Run) -> str:
    """Return a sentence on the gain of a run on each test of both models, by the first score."""
    by_verdict: dict[str, list[str]] = {word: [] for word in _WORDS}
    for scores in stored_scores(run):
        pairs = {name: scores.pair(name) for name in scores.differences()}
        for name, (before, after) in islice(pairs.items(), 1):
            gain = scores.differences()[name]
            spread = _spread(gain, name, scores.result)
            text = f"{scores.task} ({name} {before} to {after}; {spread})"
            by_verdict[gain["verdict"]].append(text)
    found = [f"{_WORDS[word]} on {', '.join(texts)}" for word, texts in by_verdict.items() if texts]
    lead = "On test data, compared with the original model, the saved model is "
    return f"{lead}{'; '.join(found)}." if found else ""


def _spread(found: Mapping[str, Any], name: str, result: Result) -> str:
    """Return a difference and its interval, in points out of 100."""
    value, low, high = (_out_of_100(name, result) * found[k] for k in ("value", "low", "high"))
    return f"{value:+.2f}, {LEVEL:.0%} interval {low:+.2f} to {high:+.2f}"


def best_on_tests(runs: Sequence[Run]) -> str:
    """Return a sentence on which of several runs is best on all shared tests.

    The first score counts that all runs have on a test. The sentence is "" if no test is shared.
    With one run, it compares the run with the original model.
    """
    if len({run.folder for run in runs}) < 2:
        return on_tests(runs[0])
    of_runs = [{scores.test: scores for scores in stored_scores(run)} for run in runs]
    compared: dict[str, tuple[str, list[float]]] = {}
    for test, first in of_runs[0].items():
        results = [scores[test].result for scores in of_runs if test in scores]
        for name in first.result.metrics if len(results) == len(runs) else ():
            values = [result.metrics.get(name) for result in results]
            numbers = [value for value in values if isinstance(value, (int, float))]
            if len(numbers) == len(runs):
                compared[test] = name, numbers
                break
    if not compared:
        return ""
    best = set(range(len(runs)))
    for _, numbers in compared.values():
        best &= {i for i, number in enumerate(numbers) if number == max(numbers)}
    if not best:
        return f"No run is best on all test data: see the table “{TITLE}”."
    test, (name, numbers) = next(iter(compared.items()))
    one = of_runs[min(best)][test]
    out_of = _out_of_100(name, one.result)
    names = " and ".join(runs[i].whole or runs[i].name for i in sorted(best))
    has = "has" if len(best) == 1 else "have"
    start, _ = one.pair(name)
    before = f"; the original model has {start}" if start else ""
    return (
        f"{names} {has} the highest {name} on the test data of all runs ({one.task}): "
        f"{out_of * max(numbers):.2f}{before}.{NOISE}"
    )


def stored_tables(runs: Sequence[Run]) -> list[TitledTable]:
    """Return a table of the scores that ``isotrope evaluate`` stored for the saved models.

    If the scores of the original model on the same data are stored, they are in the table too.
    """
    rows: list[tuple[str, str, str, str | None, str | None, str, str]] = []
    for run in runs:
        for scores in stored_scores(run):
            result, differences = scores.result, scores.differences()
            means = {name: 100 * x for name, x in result.items.items() if name in result.metrics}
            bounds = intervals(np.stack([*means.values()])) if means else []
            ends = dict(zip(means, bounds, strict=True))
            for name in result.metrics:
                before, after = scores.pair(name)
                if after and name in ends:
                    after += " ({low:.2f} to {high:.2f})".format(**ends[name])
                found = differences.get(name)
                gain = f"{_spread(found, name, result)}: {found['verdict']}" if found else ""
                row = (run.name, scores.task, name, before, after, gain, scores.file)
                rows += [row] if after else []
    note = (
        f"The scores of the models, out of 100. In brackets: {LEVEL:.0%} interval of a mean. A "
        "difference is higher, lower or noise (p above 0.05, corrected for the scores of a task)."
    )
    columns = ("run", "task", "metric", "original model", "saved model", "difference", "file")
    return [TitledTable(TITLE, note, columns, rows)] if rows else []


def _out_of_100(name: str, result: Result) -> int:
    """Return the factor that makes a score one out of 100."""
    return 1 if in_percent(name, result) else 100


def stored_scores(run: Run) -> Iterator[StoredScores]:
    """Yield the stored scores of the saved model of a run, one for each task."""
    model = run.result.details.get("model") if run.result else None
    start = model.get("start") if isinstance(model, Mapping) else None
    for file in sorted(RunFolder(run.folder).evaluations.glob("*.json")):
        try:
            result = load_stored(file)
            key, searched = result.provenance["key"], result.details.get("retrieval_set")
            task = str(key["task"])
            if searched:
                task += f": {searched['queries']:,} queries, {searched['corpus']:,} documents"
            current = run.weights is not None and key["model"] == run.weights
            encoder = run.settings.get("encoder")
            original = _stored({**key, "model": start}, encoder, None) if current else None
        except (KeyError, *DAMAGED):  # `evaluate` scores it again
            continue
        if current:
            test = str({**key, "model": None})  # the data and how they were scored
            path = f"{file.parent.name}/{file.name}"
            yield StoredScores(test, path, task, result, original)


def _stored(key: Mapping[str, Any], *models: object) -> Result | None:
    """Return the result of a task from the first folder of these models that has it, or None."""
    for model in models:
        with suppress(RuntimeError, *DAMAGED):  # RuntimeError: there is no home folder
            return load_stored(stored_file(store_folder(model), key))
    return None
