"""Runs isotrope's evaluation protocols as an evaluator of the sentence-transformers trainer."""

import csv
import inspect
import re
from itertools import count
from pathlib import Path
from typing import Any, cast

from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.model import BaseModel

from isotrope.core.errors import InputError
from isotrope.core.files import open_own, os_errors_as_input_errors
from isotrope.evaluation.dispatch import evaluate
from isotrope.evaluation.embed import Encoder


class ProtocolEvaluator(BaseEvaluator):
    """Evaluates with isotrope's protocols: STS, transfer, retrieval, kNN and linear probe.

    Args:
        primary: Name of the metric by which the trainer chooses the best step; by default the first
            metric that is returned.
        greater_is_better: Whether the best ``primary`` is the largest.
        name: Prefix of every metric.
        write_csv: Whether to append the scores to ``protocols[_NAME]_results.csv`` in the trainer's
            output folder. If this file has other columns, ``protocols[_NAME]_results-2.csv`` is
            used instead.
        protocols: Arguments of ``isotrope.evaluate``, such as ``sts`` and ``retrieval``. Transfer
            tasks have ``mode="prototyping"`` by default.

    Raises:
        TypeError: ``isotrope.evaluate`` has no such argument.
    """

    def __init__(
        self,
        *,
        primary: str | None = None,
        greater_is_better: bool = True,
        name: str = "",
        write_csv: bool = True,
        **protocols: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        mode = {} if protocols.get("transfer") is None else {"mode": "prototyping"}
        self._options: dict[str, Any] = {**mode, "results": None, "progress": False, **protocols}
        inspect.signature(evaluate).bind("model", **self._options)
        self._primary = primary
        self.greater_is_better = greater_is_better
        self.name = name
        self.write_csv = write_csv

    def __call__(
        self, model: BaseModel, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Score a model.

        Returns:
            The metrics of ``isotrope.evaluate``, by name.

        Raises:
            InputError: No data are given, data cannot be read, or ``primary`` is not a metric.
        """
        numbers = evaluate(cast("Encoder", model), **self._options).metrics
        metrics = {key: float(value) for key, value in numbers.items() if value is not None}
        if self._primary is not None and self._primary not in metrics:
            raise InputError(f"set primary to one of {', '.join(metrics)}; found {self._primary!r}")
        prefix = f"{self.name}_" if self.name else ""
        self.primary_metric = prefix + (self._primary or next(iter(metrics)))
        if output_path is not None and self.write_csv:
            self._write(Path(output_path), {"epoch": epoch, "steps": steps, **numbers})
        prefixed = {prefix + key: value for key, value in metrics.items()}
        self.store_metrics_in_model_card_data(model, prefixed, epoch, steps)
        return prefixed

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {key: value for key, value in self._options.items() if value is not None}

    def _write(self, folder: Path, row: dict[str, float | int | str | None]) -> None:
        name = re.sub(r"[^\w.-]", "-", self.name)  # which may have a slash
        stem = f"protocols{f'_{name}' if name else ''}_results"
        with os_errors_as_input_errors(folder / f"{stem}.csv"):
            folder.mkdir(parents=True, exist_ok=True)
            files = (folder / f"{stem}{'' if n == 1 else f'-{n}'}.csv" for n in count(1))
            file = next(file for file in files if _header(file) in (None, list(row)))
            new = _header(file) is None
            with open_own(file, "a", newline="", encoding="utf-8") as handle:
                writer = csv.DictWriter(handle, list(row))
                if new:
                    writer.writeheader()
                writer.writerow(row)


def _header(file: Path) -> list[str] | None:
    """Return the column names in the first line of a CSV file; None without a file or a line."""
    if not file.exists():
        return None
    with file.open(newline="", encoding="utf-8") as handle:
        return next(csv.reader(handle), None)
