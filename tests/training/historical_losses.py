"""Seven bugs of published losses, each rebuilt small and repaired, for the check of losses.

Written from the descriptions in the pull requests and issues that are named; no code is theirs.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from isotrope.core.distributed import all_gather_views, rank, world_size
from isotrope.core.views import Views


def _everywhere(x: Tensor) -> Tensor:
    """The rows of all processes, with gradients."""
    return all_gather_views(Views(x, x)).views.anchors


def _cosines(a: Tensor, b: Tensor) -> Tensor:
    return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T


def _margin(scores: Tensor, first: int) -> Tensor:
    """A hinge on the hardest negative; the positive of row i is column first + i."""
    own = torch.arange(first, first + len(scores))[:, None]
    positive = scores.gather(1, own)[:, 0]
    hardest = scores.scatter(1, own, -2.0).amax(dim=1)
    return F.relu(0.3 - positive + hardest) + F.softplus(hardest - positive)


# sentence-transformers, pull requests 3854 and 3862: MegaBatchMarginLoss in mini-batches went
# backward on the last one only


def dropped_gradients_broken(
    anchors: Tensor, positives: Tensor, mini_batch_size: int = 8
) -> Tensor:
    total = anchors.new_zeros(())
    part = total
    for start in range(0, len(anchors), mini_batch_size):
        total = total + part.detach()
        scores = _cosines(anchors[start : start + mini_batch_size], positives)
        part = _margin(scores, start).sum() / len(anchors)
    return total + part


def dropped_gradients_repaired(
    anchors: Tensor, positives: Tensor, mini_batch_size: int = 8
) -> Tensor:
    parts = [
        _margin(_cosines(anchors[start : start + mini_batch_size], positives), start).sum()
        for start in range(0, len(anchors), mini_batch_size)
    ]
    return torch.stack(parts).sum() / len(anchors)


# sentence-transformers, issue 2932: CachedGISTEmbedLoss compared each mini-batch with the guide's
# similarities of the first one


def _guided(anchors: Tensor, positives: Tensor, first: int, *, threshold: int, own: int) -> Tensor:
    """InfoNCE without the negatives that a guide finds nearer than the positive."""
    guide = torch.randn(anchors.shape[1], 8, generator=torch.Generator().manual_seed(3))
    guide = guide.to(anchors)
    guided = _cosines(anchors.detach() @ guide, positives.detach() @ guide)
    limit = guided.diagonal(offset=threshold)[: len(anchors), None]
    positive = torch.zeros_like(guided, dtype=torch.bool)
    rows = torch.arange(len(anchors))
    positive[rows, own + rows] = True
    scores = _cosines(anchors, positives) / 0.2
    scores = scores.masked_fill((guided > limit - 0.1) & ~positive, -torch.inf)
    return F.cross_entropy(scores, first + rows, reduction="sum")


def guided_chunks_broken(anchors: Tensor, positives: Tensor, mini_batch_size: int = 8) -> Tensor:
    return _guided_chunks(anchors, positives, mini_batch_size, moved=False)


def guided_chunks_repaired(anchors: Tensor, positives: Tensor, mini_batch_size: int = 8) -> Tensor:
    return _guided_chunks(anchors, positives, mini_batch_size, moved=True)


def _guided_chunks(anchors: Tensor, positives: Tensor, size: int, *, moved: bool) -> Tensor:
    parts = [
        _guided(
            anchors[start : start + size],
            positives,
            start,
            threshold=start if moved else 0,
            own=start,
        )
        for start in range(0, len(anchors), size)
    ]
    return torch.stack(parts).sum() / len(anchors)


# sentence-transformers, pull request 3821: a relative margin of GIST let negatives through that are
# more similar than the positive, where the guide's similarity of the positive is negative


def _relative(anchors: Tensor, positives: Tensor, margin: float, *, size: bool) -> Tensor:
    guided = _cosines(anchors.detach(), positives.detach())
    own = guided.diagonal()[:, None]
    limit = own - (own.abs() if size else own) * margin
    left_out = (guided > limit) & ~torch.eye(len(guided), dtype=torch.bool)
    scores = (_cosines(anchors, positives) / 0.2).masked_fill(left_out, -torch.inf)
    return F.cross_entropy(scores, torch.arange(len(scores)))


def relative_margin_broken(anchors: Tensor, positives: Tensor, margin: float = 0.05) -> Tensor:
    return _relative(anchors, positives, margin, size=False)


def relative_margin_repaired(anchors: Tensor, positives: Tensor, margin: float = 0.05) -> Tensor:
    return _relative(anchors, positives, margin, size=True)


# sentence-transformers, pull request 3817: on other processes than the first, the mask of GIST
# protected the wrong columns, and the positives were taken out


def guided_gathered_broken(anchors: Tensor, positives: Tensor) -> Tensor:
    first = rank() * len(anchors)
    columns = _everywhere(positives)
    return _guided(anchors, columns, first, threshold=first, own=0) / len(anchors)


def guided_gathered_repaired(anchors: Tensor, positives: Tensor) -> Tensor:
    first = rank() * len(anchors)
    columns = _everywhere(positives)
    return _guided(anchors, columns, first, threshold=first, own=first) / len(anchors)


# sentence-transformers, pull request 3453: positives and negatives of a process were gathered
# together, and labels counted as if all positives came first


def gathered_order_broken(anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    columns = _everywhere(torch.cat([positives, negatives]))
    return _ranked(anchors, columns)


def gathered_order_repaired(anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    columns = torch.cat([_everywhere(positives), _everywhere(negatives)])
    return _ranked(anchors, columns)


def _ranked(anchors: Tensor, columns: Tensor) -> Tensor:
    labels = torch.arange(len(anchors)) + rank() * len(anchors)
    return F.cross_entropy(_cosines(anchors, columns) / 0.2, labels)


# lightly, pull request 1980: the cross-correlations of Barlow Twins were added up by an all_reduce
# that autograd does not see


def _reduced(x: Tensor) -> Tensor:
    """The sum over processes, of which autograd sees the part of this one only."""
    total = x.clone()
    if world_size() > 1:
        dist.all_reduce(total.data)
    return x + (total - x).detach()


def _of_correlation(matrix: Tensor) -> Tensor:
    return ((matrix - torch.eye(len(matrix)).to(matrix)) ** 2).sum()


def correlation_broken(anchors: Tensor, positives: Tensor) -> Tensor:
    matrix = F.normalize(anchors, dim=1).T @ F.normalize(positives, dim=1)
    return _of_correlation(_reduced(matrix) / (world_size() * len(anchors)))


def correlation_repaired(anchors: Tensor, positives: Tensor) -> Tensor:
    a, b = _everywhere(anchors), _everywhere(positives)
    return _of_correlation(F.normalize(a, dim=1).T @ F.normalize(b, dim=1) / len(a))


# lightly, pull request 1923: so were the characteristic functions of SIGReg


def _waves(x: Tensor) -> Tensor:
    directions = torch.randn(x.shape[1], 4, generator=torch.Generator().manual_seed(4)).to(x)
    return torch.stack([(x @ directions).cos().sum(dim=0), (x @ directions).sin().sum(dim=0)])


def _of_waves(total: Tensor, count: int, near: Tensor) -> Tensor:
    normal = torch.tensor([[0.6], [0.0]]).to(total)
    return ((total / count - normal) ** 2).sum() + near


def characteristic_broken(anchors: Tensor, positives: Tensor) -> Tensor:
    near = (anchors - positives).square().mean()
    return _of_waves(_reduced(_waves(anchors)), world_size() * len(anchors), near)


def characteristic_repaired(anchors: Tensor, positives: Tensor) -> Tensor:
    near = (anchors - positives).square().mean()
    everywhere = _everywhere(anchors)
    return _of_waves(_waves(everywhere), len(everywhere), near)
