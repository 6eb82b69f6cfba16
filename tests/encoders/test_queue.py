import pytest
import torch
from torch import nn

from isotrope.core.errors import InputError
from isotrope.encoders import Queue


def unit(rows):
    return nn.functional.normalize(rows.float(), dim=1)


def test_it_starts_with_unit_rows_of_its_seed():
    queue = Queue(6, 4, 3)
    assert queue.rows.shape == (6, 4)
    assert queue.rows.dtype == torch.float32
    torch.testing.assert_close(queue.rows.norm(dim=1), torch.ones(6))
    state = torch.random.get_rng_state()
    assert torch.equal(queue.rows, Queue(6, 4, 3).rows)
    assert not torch.equal(queue.rows, Queue(6, 4, 4).rows)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("size", [1, 5, 8])
def test_any_number_of_rows_as_if_they_came_one_by_one(size):
    together, alone = Queue(size, 3, 0), Queue(size, 3, 0)
    for n in (2, 0, 3, 8, 1, 17, 5):
        rows = torch.randn(n, 3)
        together.push(rows)
        for row in rows:
            alone.push(row[None])
        assert torch.equal(together.rows, alone.rows)
        assert together.place == alone.place


def test_the_oldest_go_first():
    queue, rows = Queue(4, 2, 0), torch.randn(6, 2)
    queue.push(rows[:3])
    torch.testing.assert_close(queue.rows[:3], unit(rows[:3]))
    queue.push(rows[3:])
    torch.testing.assert_close(queue.rows, unit(rows[[4, 5, 2, 3]]))


def test_rows_are_normalised_and_without_history():
    queue = Queue(2, 3, 0)
    rows = (5 * torch.randn(2, 3)).bfloat16().requires_grad_()
    queue.push(rows)
    assert not queue.rows.requires_grad
    assert queue.rows.dtype == torch.float32
    torch.testing.assert_close(queue.rows, unit(rows.detach()))


def test_pushing_before_the_loss_went_backward_is_noticed():
    queue, anchors = Queue(4, 3, 0), torch.randn(2, 3, requires_grad=True)
    loss = (anchors @ queue.rows.T).sum()
    queue.push(torch.randn(1, 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_state_is_whole():
    queue, fresh = Queue(4, 3, 0), Queue(4, 3, 1)
    queue.push(torch.randn(3, 3))
    fresh.load_state_dict(queue.state_dict())
    more = torch.randn(2, 3)
    queue.push(more)
    fresh.push(more)
    assert torch.equal(queue.rows, fresh.rows)


def test_a_queue_for_nothing():
    with pytest.raises(InputError, match="give the queue a size of at least 1 row; found 0"):
        Queue(0, 3, 0)
