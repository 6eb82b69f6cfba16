"""What is computed from formulas: which claims hold, and that the checks could fail."""

import pytest
import torch

from papers.machinery.artifact import Results
from papers.manna2023 import check_gradient_hessian, figure1, supplement_table2
from papers.manna2023.closed_form import VERSIONS, Problem, gradient, loss
from tests.papers.manna2023.synthetic import verdict

SLIPS = (
    "which are of cosines",
    "B where l differs from k",
    "begin B with h_m h_m^T",
    "first step of eq. 10",
    "last term of eq. 10",
    "meets MIOv2 at the present point",
    "net repulsion of positives",
    "(eq. 21, 24)",
    "as eq. 25 has it",
    "stays finite as T grows",
)


@pytest.mark.parametrize("scale", ["smoke", "cpu"])
def test_exactly_the_known_slips_fail(scale) -> None:
    shown = check_gradient_hessian.render(scale, Results())
    for words in SLIPS:
        assert verdict(shown, words).holds is False, words
    assert sum(not v.holds for v in shown.verdicts) == len(SLIPS)
    assert len(shown.verdicts) == 20


@pytest.mark.parametrize("version", VERSIONS)
def test_gradients_by_differences(version) -> None:
    """Neither autograd nor the closed form: a second opinion on one entry."""
    problem, step = Problem.drawn(3), 1e-6
    for projected, way in ((False, "product"), (True, "cosine")):
        found = gradient(problem, version, projected=projected)
        change = torch.zeros_like(problem.psi)
        change[1, 2] = step
        up, down = (loss(problem, problem.psi + s * change, version, way) for s in (1, -1))
        assert float(found[1, 2]) == pytest.approx(float(up - down) / (2 * step), rel=1e-6)


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
    assert shown.notes[0].startswith("illustration")
