"""Embeddings and gradients, caught on their way."""

import torch
from torch import Tensor
from torch.nn import functional as F

from isotrope.diagnostics.catch import Catch


def parts(*sizes: int, d: int = 6) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(n, d, generator=random).requires_grad_() for n in sizes]


def test_columns_may_come_in_pieces_or_together() -> None:
    for sizes in ((4, 4), (8,), (3, 1, 3, 1), (4, 4, 4, 4)):
        catch, found = Catch(), parts(*sizes)
        for part in found:
            catch.add(part)
        sum((part.square().sum() for part in found), start=torch.zeros(())).backward()
        caught = catch.first(8)
        assert caught is not None
        assert caught.whole
        assert caught.gradient is not None
        assert torch.equal(caught.embeddings, torch.cat(found)[:8].detach())
        assert torch.equal(caught.gradient, 2 * caught.embeddings)


def test_what_has_no_gradient_counts_where_nothing_has() -> None:
    (x,) = parts(4)
    catch = Catch()
    catch.add(x.detach())
    catch.add(x)
    x.sum().backward()
    caught = catch.first(4)
    assert caught is not None
    assert caught.gradient is not None
    idle = Catch()
    idle.add(x.detach())
    caught = idle.first(4)
    assert caught is not None
    assert caught.gradient is None
    assert Catch().first(4) is None


def test_other_rows_than_were_looked_for_are_not_whole() -> None:
    catch = Catch()
    catch.add(parts(5)[0])
    caught = catch.first(4)
    assert caught is not None
    assert not caught.whole


def test_a_column_that_nothing_depends_on_has_no_slope() -> None:
    catch, (a, b) = Catch(), parts(2, 2)
    catch.add(a)
    catch.add(b)
    a.sum().backward()
    caught = catch.first(4)
    assert caught is not None
    assert caught.gradient is not None
    assert caught.gradient.tolist() == [[1.0] * 6] * 2 + [[0.0] * 6] * 2


def test_nested_prefixes_are_taken_off() -> None:
    """Each prefix is made of the one before; its own gradient is what is left without them."""
    (x,) = parts(4, d=12)
    weight = torch.randn(12, generator=torch.Generator().manual_seed(1))
    catch, longest, loss = Catch(), F.normalize(x, dim=1), torch.zeros(())
    prefix = longest
    for width in (12, 6, 3):
        prefix = F.normalize(prefix[:, :width], dim=1) if width < 12 else longest
        catch.add(prefix)
        loss = loss + (prefix @ weight[:width]).square().sum()
    loss.backward()
    caught = catch.first(4)
    assert caught is not None
    assert caught.gradient is not None
    own = longest.detach().requires_grad_()
    (own @ weight).square().sum().backward()
    torch.testing.assert_close(caught.gradient, own.grad)


def test_another_pass_that_is_no_prefix_is_left_alone() -> None:
    catch, (a, b) = Catch(), parts(4, 4)
    catch.add(a)
    catch.add(F.normalize(b[:, :3], dim=1))
    (a.sum() + b.sum()).backward()
    caught = catch.first(4)
    assert caught is not None
    assert caught.gradient is not None
    assert caught.gradient.tolist() == [[1.0] * 6] * 4


def test_what_is_caught_is_a_copy() -> None:
    catch, (a,) = Catch(), parts(2)
    catch.add(a)
    with torch.no_grad():
        a.zero_()
    caught = catch.first(2)
    assert caught is not None
    assert caught.embeddings.any()
