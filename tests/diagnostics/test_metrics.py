"""The table of metrics: one record each, from which logs, pictures and pages are made."""

from dataclasses import replace

import pytest

from isotrope.diagnostics import metrics
from isotrope.diagnostics.metric import EVERY
from isotrope.diagnostics.metrics import METRICS, columns
from isotrope.reports import comparison, quantities
from isotrope.training.images.method import TRACKED
from isotrope.training.text_data import HELD_OUT_COLUMNS

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
    assert {*HELD_OUT_COLUMNS} <= {*columns("text")}
    assert {*TRACKED} <= {*columns("images")}
    for log in EVERY:
        assert {*metrics.MEASURED} <= {*columns(log)}
        assert columns(log)[0] == "step"


def test_every_picture_has_a_section() -> None:
    drawn = [metric.panel for metric in METRICS if metric.panel is not None]
    assert len(quantities.QUANTITIES) == len(drawn)
    assert len({quantity.key for quantity in quantities.QUANTITIES}) == len(drawn)


def test_a_record_is_all_that_a_comparison_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(BY_COLUMN["dead"], column="new", heading="New")
    monkeypatch.setitem(comparison._COMPARED, "new", new)
    assert comparison.columns([])[-1] == ("new", "New", BY_COLUMN["dead"].definition)
