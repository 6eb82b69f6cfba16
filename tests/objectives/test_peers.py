"""Values and gradients against other libraries' implementations of the same loss."""

import pytest
import torch

from isotrope.objectives import InfoNCE, NTXent, VICReg
from tests.paradigm.batches import BATCHES, batch


def same(ours, theirs, *inputs) -> None:
    """Value and gradient on every input agree to float64."""
    found, expected = [], []
    for loss, into in ((ours, found), (theirs, expected)):
        leaves = [x.clone().requires_grad_() for x in inputs]
        value = loss(*leaves)
        into += [value, *torch.autograd.grad(value, leaves)]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def ranking(temperature: float, **settings):
    """sentence-transformers' loss on embeddings; the model is not asked."""
    peer = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    loss = peer.MultipleNegativesRankingLoss(torch.nn.Identity(), scale=1 / temperature, **settings)
    return lambda *embeddings: loss.compute_loss_from_embeddings(list(embeddings), None)


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("temperature", [0.02, 0.05, 1.0])
def test_infonce_is_multiple_negatives_ranking(kind: str, temperature: float) -> None:
    a, b = batch(kind, 16, 8)
    same(InfoNCE(temperature=temperature), ranking(temperature), a, b)


@pytest.mark.parametrize("hard", [1, 3])
def test_with_hard_negatives_too(hard: int) -> None:
    """Its negatives are a column for each anchor; all anchors share them, as ours do."""
    a, b = batch("clustered", 12, 8)
    columns = [batch("clustered", 12, 8, seed=s)[1] for s in range(1, 1 + hard)]
    same(
        lambda x, y, *more: InfoNCE()(x, y, torch.cat(more)),
        ranking(0.05),
        a,
        b,
        *columns,
    )


def test_symmetric_infonce_is_the_mean_of_its_two_directions() -> None:
    a, b = batch("random", 10, 6)
    both = ranking(
        0.05, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
    )
    same(InfoNCE().symmetric(), both, a, b)


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_ntxent_of_pytorch_metric_learning(kind: str, temperature: float) -> None:
    """Every row of both views is an embedding, the label of a row its number."""
    metric_learning = pytest.importorskip("pytorch_metric_learning.losses")
    a, b = batch(kind, 12, 8)
    peer = metric_learning.NTXentLoss(temperature=temperature)
    labels = torch.arange(12).repeat(2)
    same(NTXent(temperature=temperature), lambda x, y: peer(torch.cat([x, y]), labels), a, b)


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("settings", [(25, 25, 1), (1, 0.5, 7)])
def test_vicreg_of_pytorch_metric_learning(kind: str, settings: tuple[float, ...]) -> None:
    """Like its authors' code it divides the first term by D and averages the two deviations."""
    metric_learning = pytest.importorskip("pytorch_metric_learning.losses")
    similarity, variance, covariance = settings
    a, b = batch(kind, 12, 8)
    peer = metric_learning.VICRegLoss(similarity, variance, covariance)
    ours = VICReg(
        sim_coeff=similarity / 8, var_coeff=variance / 2, cov_coeff=covariance, space="raw"
    )
    same(ours, lambda x, y: peer(x, ref_emb=y), a, b)
