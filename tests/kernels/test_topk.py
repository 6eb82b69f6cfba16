"""The largest entries of rows: what a stable sort of them says."""

import pytest
import torch

from isotrope.kernels.tiles import Vectors, chunked_topk


@pytest.mark.parametrize("k", [1, 2, 9])
@pytest.mark.parametrize("columns", [1, 5, 511, 512, 513, 640, 1031])
def test_as_a_stable_sort(columns: int, k: int) -> None:
    """With many ties, rows of one value, and rows with few or no entries above -inf."""
    generator = torch.Generator().manual_seed(columns)
    tile = torch.randn(20, columns, generator=generator).mul(4).round()
    tile[3] = 1.0
    tile[4] = -torch.inf
    tile[5, 1:] = -torch.inf
    tile[6, :-1] = -torch.inf
    before = tile.clone()
    values, found = chunked_topk(tile, k)
    order = tile.argsort(dim=1, descending=True, stable=True)[:, :k]
    expected = tile.gather(1, order)
    order[expected == -torch.inf] = -1
    assert torch.equal(found[:, :columns], order)
    assert torch.equal(values[:, :columns], expected)
    assert (found[:, columns:] == -1).all()
    assert (values[:, columns:] == -torch.inf).all()
    assert torch.equal(tile, before), "the block is needed afterwards"


def test_no_rows() -> None:
    values, found = chunked_topk(torch.empty(0, 700), 3)
    assert values.shape == found.shape == (0, 3)


def test_no_vectors() -> None:
    """On a device that is no CPU, one block has all rows, here none."""
    vectors = Vectors(torch.empty(0, 4, device="meta"))
    vectors.to_raw(torch.empty(0, 4, device="meta"))


@pytest.mark.parametrize("columns", [600, 1024])
def test_neighbouring_chunks_with_one_maximum(columns: int) -> None:
    """Three equal maxima in three chunks, the last column one of them: the first two are found."""
    tile = torch.zeros(3, columns)
    tile[0, [63, 64, columns - 1]] = 1.0
    tile[1, [columns - 2, columns - 1]] = 1.0
    tile[2, [200, columns - 1]] = torch.tensor([1.0, 2.0])
    _, found = chunked_topk(tile, 2)
    assert found.tolist() == [[63, 64], [columns - 2, columns - 1], [columns - 1, 200]]


def test_a_row_with_nan_is_not_hidden() -> None:
    tile = torch.zeros(1, 700)
    tile[0, 650] = torch.nan
    values, found = chunked_topk(tile, 1)
    assert found.item() == 650
    assert values.isnan().all()
