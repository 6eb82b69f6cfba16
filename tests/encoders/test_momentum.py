import pytest
import torch
from torch import nn

from isotrope.core.errors import InputError
from isotrope.encoders import Momentum


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_the_average_is_that_of_the_parameters():
    source = net()
    copy = Momentum(source, 0.75)
    start = source[0].weight.detach().clone()
    expected = start.clone()
    for _ in range(3):
        with torch.no_grad():
            source[0].weight.add_(torch.randn(4, 3))
        copy.update(source)
        expected = 0.75 * expected + 0.25 * source[0].weight.detach()
    torch.testing.assert_close(copy.module[0].weight, expected)
    copy.update(source, decay=0.0)
    assert torch.equal(copy.module[0].weight, source[0].weight)
    with torch.no_grad():
        source[0].weight.zero_()
    copy.update(source, decay=1.0)
    assert not copy.module[0].weight.eq(0).any()


def test_running_statistics_are_the_copys_own():
    source = net()
    copy = Momentum(source, 0.5)
    source(torch.randn(8, 3) + 5)
    copy.update(source)
    assert copy.module[1].running_mean.eq(0).all()
    copy(torch.randn(8, 3))
    assert copy.module[1].running_mean.ne(0).all()
    assert copy.module[1].num_batches_tracked == 1


def test_nothing_learns_through_the_copy():
    source = net()
    copy = Momentum(source, 0.5)
    assert not any(parameter.requires_grad for parameter in copy.parameters())
    assert all(parameter.requires_grad for parameter in source.parameters())
    assert not copy(torch.randn(4, 3, requires_grad=True)).requires_grad


def test_the_state_is_whole():
    source, other = net(), net()
    copy, fresh = Momentum(source, 0.5), Momentum(other, 0.5)
    copy(torch.randn(8, 3))
    copy.update(other)
    fresh.load_state_dict(copy.state_dict())
    x = torch.randn(4, 3)
    assert torch.equal(copy.eval()(x), fresh.eval()(x))


def test_what_is_shared_inside_stays_shared():
    a, b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    b.weight = a.weight
    copy = Momentum(nn.Sequential(a, b), 0.5)
    assert copy.module[0].weight is copy.module[1].weight


@pytest.mark.parametrize("decay", [-0.1, 1.5, float("nan")])
def test_a_decay_that_is_none(decay):
    with pytest.raises(InputError, match=r"the moving average in \[0, 1\]; found"):
        Momentum(net(), decay)
    with pytest.raises(InputError, match=r"the moving average in \[0, 1\]; found"):
        Momentum(net(), 0.5).update(net(), decay)


def test_another_shape():
    with pytest.raises(ValueError, match="zip"):
        Momentum(net(), 0.5).update(nn.Linear(3, 4))
