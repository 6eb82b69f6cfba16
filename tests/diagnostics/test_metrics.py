"""The table of metrics: one record each, from which logs, pictures and pages are made."""

from dataclasses import replace
from pathlib import Path

import pytest

import isotrope
from isotrope.diagnostics import metrics
from isotrope.diagnostics.metric import EVERY
from isotrope.diagnostics.metrics import METRICS, columns
from isotrope.reports import comparison, quantities

SOURCE = Path(isotrope.__file__).parent
BY_COLUMN = {metric.column: metric for metric in METRICS}


def test_every_column_is_described_once() -> None:
    assert len(BY_COLUMN) == len(METRICS)
    for metric in METRICS:
        assert metric.title[0].isupper() or metric.title.startswith("kNN")
        assert metric.definition, metric.column
        assert metric.beside in ("", *BY_COLUMN)
        assert metric.spread in ("", *BY_COLUMN)
        assert not (metric.beside and metric.panel), "in a picture of its own, or in another's"


def test_logs_have_the_columns_that_are_measured_for_them() -> None:
    assert {*metrics.measured_in("training/held_out_losses.py")} <= {*columns("text")}
    assert {*metrics.TRACKED} <= {*columns("images")}
    for log in EVERY:
        assert {*metrics.MEASURED} <= {*columns(log)}
        assert columns(log)[0] == "step"


def test_the_file_that_measures_a_column_names_it() -> None:
    """The table of CONTRIBUTING.md sends whoever looks for a number to this file."""
    # test_observe.py compares the keys of observe.measure; others are attributes of a training
    set_by_trainings = {"dev", "knn", "samples_per_second", "images_per_second"}
    for metric in METRICS:
        text = (SOURCE / metric.measured_in).read_text(encoding="utf-8")
        if metric.logs and metric.column not in {*metrics.MEASURED, *set_by_trainings}:
            assert f'"{metric.column}"' in text, metric


def test_every_picture_has_a_section() -> None:
    drawn = [metric.panel for metric in METRICS if metric.panel is not None]
    assert len(quantities.QUANTITIES) == len(drawn)
    assert len({quantity.key for quantity in quantities.QUANTITIES}) == len(drawn)


def test_a_record_is_all_that_a_comparison_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(BY_COLUMN["dead"], column="new", heading="New")
    monkeypatch.setitem(comparison._COMPARED, "new", new)
    assert comparison.columns([])[-1] == ("new", "New", BY_COLUMN["dead"].definition)
