"""DINO: the student predicts the teacher's distribution over prototypes."""

from typing import Annotated

from torch import Tensor

from isotrope.core.hyper import Hyper, Paper
from isotrope.kernels.pairs import Pairs
from isotrope.paradigm.objective import Objective


class DINO(
    Objective,
    paper=Paper(
        "Emerging Properties in Self-Supervised Vision Transformers",
        "Caron et al., 2021",
        "Caron et al., 2021, eq. 1, 2; Draganov et al., 2024, table 4",
    ),
):
    r"""Cross-entropy of the student's softmax with the teacher's softmax; the teacher is constant.

    The training method (``isotrope train-images --method dino``) keeps a running mean of the
    teacher's logits (the centre), and subtracts the centre from the logits that the objective gets.

    Loss: L_i = -sum_k softmax(z'_i / tau_t)_k log softmax(z_i / tau)_k, where z_i are the student's
    logits and z'_i the teacher's. k runs over the d prototypes.

    Gradient: (softmax(z_i / tau) - softmax(z'_i / tau_t)) / tau, with respect to the student's
    logits z_i. Gradient dissipation, weight and ratio are not defined: logits are not unit vectors.

    Shapes: anchors n x d (the student's logits), positives n x d (the teacher's logits minus the
    centre) -> scalar (mean over anchors).

    Reference: Caron et al., 2021, eq. 1 and 2; the temperatures are from section 3.2. The training
    method can raise tau_t in the first epochs, as in the paper (from 0.04 to 0.07).

    Example:
        >>> import torch
        >>> round(float(DINO()(torch.zeros(2, 2), torch.eye(2))), 6)
        0.693147
    """

    temperature: Annotated[float, Hyper("tau", "divisor of student logits", at_least=1e-4)] = 0.1
    teacher_temperature: Annotated[
        float, Hyper("tau_t", "temperature of the teacher's softmax", at_least=1e-4, constant=True)
    ] = 0.04

    space = "logits"
    coupling = "none"
    pairwise = False
    takes_negatives = False
    least_rows = 1
    invariances = frozenset({"permutation"})

    def formula(self, pairs: Pairs) -> Tensor:
        student = (pairs.views.anchors / self.temperature).log_softmax(dim=1)
        teacher = (pairs.views.own / self.teacher_temperature).softmax(dim=1).detach()
        return -(teacher * student).sum(dim=1)
