"""What forms of an objective and objectives without components say of themselves."""

import torch
from torch import Tensor

from isotrope.core.views import Views
from isotrope.diagnostics.observe import measure
from isotrope.kernels.pairs import Pairs
from isotrope.objectives import DCL, InfoNCE, NTXent
from isotrope.paradigm.forms import OneWay
from isotrope.paradigm.objective import Objective


class Hinge(Objective, register=False):
    """A formula alone."""

    name = "hinge"
    paper = InfoNCE.paper

    def formula(self, pairs: Pairs) -> Tensor:
        return (pairs.hardest() - pairs.positive + 0.5).relu()


def test_who_has_components() -> None:
    assert InfoNCE().has_terms
    assert InfoNCE().symmetric().has_terms
    assert not DCL().parts.repulsion.has_terms
    assert not OneWay(objective=NTXent()).has_terms
    assert not Hinge().has_terms
    assert not Hinge().symmetric().has_terms


def test_one_direction_learns_the_temperature_of_the_objective() -> None:
    """The kernels look for it among the hyperparameters."""
    temperature = torch.tensor(0.1, requires_grad=True)
    form = OneWay(objective=NTXent(temperature=temperature))
    value = form.loss(Views(*torch.randn(2, 300, 4)))
    assert type(value.grad_fn).__name__ == "_ReadyBackward"
    assert torch.autograd.grad(value, temperature)[0] != 0


def test_a_formula_alone_is_measured_without_components() -> None:
    torch.manual_seed(0)
    views = Views(torch.randn(8, 5), torch.randn(8, 5))
    found = measure(Hinge(), views)
    assert found["dissipation"] is None
    assert found["embedding_gradient"] is not None
    assert found["embedding_gradient"] > 0
    assert found["positive_mean"] is not None
