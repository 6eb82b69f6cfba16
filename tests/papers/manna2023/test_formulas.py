"""What is computed from formulas: which claims hold, and that the checks could fail."""

import pytest

from papers.machinery.artifact import Results
from papers.manna2023 import figure1, supplement_table2
from tests.papers.manna2023.synthetic import verdict


def test_supplement_table2_two_slips() -> None:
    shown = supplement_table2.render("cpu", Results())
    wrong = {v.claim for v in shown.verdicts if not v.holds}
    assert wrong == {
        "the repulsing term of SimCLR, MoCo v2 is as printed",
        "the repulsing term of MIOv3 is as printed",
    }
    assert len(shown.verdicts) == 7
    assert "it is e^(C/tau)" in verdict(shown, "term of MIOv3").evidence


def test_figure1_information() -> None:
    shown = figure1.render("cpu", Results())
    (positive, negative) = shown.tables[0].rows
    assert float(positive[2]) == pytest.approx(float(positive[3]), abs=0.05)
    assert float(negative[3]) == 0
    assert shown.verdicts[0].holds
