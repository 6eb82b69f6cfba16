"""Batch norms over two processes are those of one process with the whole batch."""

import pytest
import torch
from torch import nn

from isotrope.core.errors import InputError
from isotrope.encoders import share_statistics
from isotrope.encoders.image import ImageEncoder
from isotrope.encoders.shared_norm import SharedBatchNorm, _Norm

from .norm_ranks import Case, network, on_two, one_process

CASES = [
    *(Case(kind, sizes) for kind in ("1d", "2d") for sizes in ((4, 4), (5, 3), (7, 1), (8, 0))),
    *(Case(kind, affine=False) for kind in ("1d", "2d")),
    Case("2d", momentum=None),
    Case("1d", tracked=False),
]
APART = Case("2d", (4, 4), shared=False)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return on_two([*CASES, APART], tmp_path_factory.mktemp("ranks"))


def close(found, truth):
    torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.slow  # a process that imports everything
def test_two_processes_are_one(two, case):
    first, second = two[case]
    truth = one_process(case)
    close(torch.cat([first.outputs, second.outputs]), truth.outputs)
    # the loss of each process counts twice, for DDP's mean
    close(torch.cat([first.of_inputs, second.of_inputs]) / 2, truth.of_inputs)
    for found in (first, second):
        close(found.of_parameters, truth.of_parameters)
        close(found.buffers, truth.buffers)


@pytest.mark.slow
def test_without_sharing_they_are_not(two):
    first, second = two[APART]
    error = torch.cat([first.outputs, second.outputs]) - one_process(APART).outputs
    assert error.abs().max() > 0.01


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 2)])
def test_the_rule_itself_is_torchs(affine, shape):
    x = (torch.randn(shape, dtype=torch.float64) + 3).requires_grad_()
    weight, bias = (
        torch.randn(2, 3, dtype=torch.float64).requires_grad_() if affine else (None,) * 2
    )
    wanted = torch.randn(shape, dtype=torch.float64)
    learnt = [x, weight, bias] if affine else [x]

    def gradients(y):
        return torch.autograd.grad((y * wanted).sum(), learnt)

    truth = nn.functional.batch_norm(x, None, None, weight, bias, training=True)
    found = _Norm.apply(x, weight, bias, 1e-5)[0]
    close(found, truth)
    for mine, its in zip(gradients(found), gradients(truth), strict=True):
        close(mine, its)


def test_values_far_from_zero_do_not_cancel():
    x = torch.randn(256, 3) + 1e3
    variance = _Norm.apply(x, None, None, 1e-5)[2]
    torch.testing.assert_close(variance, x.double().var(0, correction=0).float(), rtol=1e-5, atol=0)


def test_half_precision_is_summed_in_single():
    x = torch.randn(512, 2, dtype=torch.bfloat16) + 10
    output, mean, _, _ = _Norm.apply(x, torch.ones(2), torch.zeros(2), 1e-5)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(mean, x.float().mean(0))


def test_alone_and_in_evaluation_it_is_the_norm_it_was():
    net, x = network(Case("2d")), torch.randn(4, 3, 4, 5, dtype=torch.float64)
    shared = share_statistics(network(Case("2d")))
    assert torch.equal(shared(x), net(x))
    assert torch.equal(shared.eval()(x), net.eval()(x))
    assert shared.state_dict().keys() == net.state_dict().keys()


def test_parameters_buffers_and_modes_are_taken_over():
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4).eval()))
    before = net[1][0]
    assert share_statistics(net) is net
    after = net[1][0]
    assert isinstance(after, SharedBatchNorm)
    assert after.weight is before.weight
    assert after.running_mean is before.running_mean
    assert not after.training
    assert share_statistics(net)[1][0] is after
    assert isinstance(share_statistics(nn.BatchNorm2d(3)), SharedBatchNorm)


class Active(nn.BatchNorm2d):
    """A batch norm with an activation, as timm has."""

    def forward(self, x):
        return super().forward(x).relu()


class Named(nn.BatchNorm2d):
    """A batch norm under another name."""


def test_no_activation_within_a_batch_norm_is_lost():
    assert isinstance(share_statistics(Named(3)), SharedBatchNorm)
    assert isinstance(share_statistics(nn.SyncBatchNorm(3)), SharedBatchNorm)
    with pytest.raises(InputError, match=r"one process.*statistics of Active"):
        share_statistics(nn.Sequential(nn.Conv2d(3, 3, 1), Active(3)))


def test_the_fingerprint_of_an_encoder_stays():
    encoder = ImageEncoder.build("resnet9", width=4, image_size=16, seed=0)
    before = encoder.fingerprint()
    share_statistics(encoder)
    assert any(isinstance(module, SharedBatchNorm) for module in encoder.modules())
    assert encoder.fingerprint() == before


def test_what_has_no_features():
    with pytest.raises(
        ValueError, match=r"give inputs n x d or n x d x \.\.\.; found the shape \(3,\)"
    ):
        SharedBatchNorm(nn.BatchNorm1d(3))(torch.randn(3))


def test_a_single_value():
    with pytest.raises(
        ValueError, match=r"2 or more values of each feature; found the shape \(1, 3\)"
    ):
        _Norm.apply(torch.randn(1, 3), None, None, 1e-5)
