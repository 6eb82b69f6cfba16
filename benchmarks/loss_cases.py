"""What `losses.py` measures: every objective of ours, the peers, and the sizes of each.

A case is one loss on two views of given embeddings, n x d, random, float32. Peers have the
temperatures of our defaults (InfoNCE .05, NT-Xent .1), so that their values, which the table
holds too, can be compared with ours. The plain ones are written as one writes them in torch.
"""

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
Group = Literal["one-sided", "symmetric", "2N", "decorrelating"]

# flops of forward and backward that are counted: the least there can be for one direction and for
# CLIP (6), for moments (6 or 8); for 2N views what is paid without the symmetry of S
FLOPS: dict[str, Callable[[int, int], float]] = {
    "6N^2D": lambda n, d: 6 * n * n * d,
    "6M^2D": lambda n, d: 6 * (2 * n) ** 2 * d,
    "6ND^2": lambda n, d: 6 * n * d * d,
    "8ND^2": lambda n, d: 8 * n * d * d,
}
MOMENTS = {"barlowtwins": "6ND^2", "vicreg": "8ND^2"}
PAPERS_FORM = ("dcl", "dclw")  # Yeh et al. take the negatives of both views, in both directions

SIZES = (256, 4096)
LARGE, LARGEST, HUGE = 16384, 65536, 262144
IN_LARGE = ("infonce", "ntxent", "barlowtwins", "mpt")
FOR_THE_LINE = (64, 1024)  # more points of InfoNCE and its peers
WIDTHS = (128, 768)
SMOKE = ("infonce", "InfoNCE")  # of ours and of torch


@dataclass(frozen=True)
class Case:
    """One loss and where it is measured.

    Attributes:
        by: whose it is: isotrope, torch, or a package.
        name: of the loss.
        sizes: numbers of rows.
        flops: which of ``FLOPS`` its share of the limit counts, or none.
        group: of ours, what its time is compared with InfoNCE's in.
        backend: of ours.
        step: rows that a peer's cached loss takes at a time.
    """

    by: str
    name: str
    sizes: tuple[int, ...]
    flops: str = ""
    group: Group | None = None
    backend: str = "auto"
    step: int = 0

    @property
    def version(self) -> str:
        """Of what is measured; "" if it is not installed."""
        package = {"isotrope": "", "torch": "torch"}.get(self.by, self.by)
        if not package:
            return ours_version()
        if importlib.util.find_spec(package.replace("-", "_")) is None:
            return ""
        return importlib.metadata.version(package)

    def least(self, n: int, d: int) -> float | None:
        """Flops of the convention, for the share of the limit."""
        return FLOPS[self.flops](n, d) if self.flops else None

    def work(self, n: int, d: int) -> float:
        """A guess of the time in flops at the limit, to put cheap rows first."""
        factor = {"isotrope": 1.2, "torch": 1.8}.get(self.by, 14.0 if self.step == 32 else 2.5)
        pairwise = self.group != "decorrelating"
        return factor * (self.least(n, d) or (6 * n * n * d if pairwise else 8 * n * d * d))


@functools.cache
def ours_version() -> str:
    """The version and a digest of what the time depends on: a changed kernel is measured anew."""
    import hashlib
    from pathlib import Path

    import isotrope

    root = Path(isotrope.__file__).parent
    digest = hashlib.sha256()
    rooms = ("core", "kernels", "objectives")
    files = [file for room in rooms for file in root.glob(f"{room}/*.py")]
    for path in sorted([*files, root / "paradigm" / "objective.py"]):
        digest.update(path.read_bytes())
    return f"{isotrope.__version__}+{digest.hexdigest()[:8]}"


def ours(*, huge: bool) -> list[Case]:
    """Every registered objective, and the forms that the targets name."""
    from isotrope.kernels.choose import BACKENDS
    from isotrope.paradigm import registry

    names = registry.names()
    forms = [*names, "infonce symmetric", "mpt symmetric"]
    forms += [f"{name} both symmetric" for name in PAPERS_FORM]
    cases = []
    for name in forms:
        group = group_of(name)
        flops = {"decorrelating": "", "2N": "6M^2D"}.get(group or "", "6N^2D")
        sizes = SIZES + ((LARGE,) if name in IN_LARGE else ())
        if name == "infonce":
            sizes += (*FOR_THE_LINE, LARGEST, *([HUGE] if huge else []))
        cases.append(Case("isotrope", name, sizes, MOMENTS.get(name, flops), group))
    few = (*FOR_THE_LINE, *SIZES)
    for backend in BACKENDS:
        cases.append(Case("isotrope", "infonce", few, "6N^2D", None, backend))
    return cases


def peers() -> list[Case]:
    """What others compute on the same embeddings; those not installed are left out by name."""
    few = (*FOR_THE_LINE, *SIZES)
    st, pml = "sentence-transformers", "pytorch-metric-learning"
    return [
        Case("torch", "InfoNCE", (*few, LARGE), "6N^2D"),
        Case("torch", "CLIP symmetric", SIZES, "6N^2D"),
        Case("torch", "NT-Xent, 2N x 2N", SIZES, "6M^2D"),
        Case(st, "MultipleNegativesRanking", SIZES, "6N^2D"),
        Case(st, "CachedMultipleNegativesRanking, 32 rows", SIZES, "6N^2D", step=32),
        Case(st, "CachedMultipleNegativesRanking, 1024 rows", (*few, LARGE), "6N^2D", step=1024),
        # it pairs every positive with all negatives: out of memory at n = 1024
        Case(pml, "NTXent", SIZES[:1], "6M^2D"),
        Case(pml, "VICReg", SIZES[:1], "8ND^2"),
        Case("lightly", "NTXent", SIZES, "6M^2D"),
        Case("lightly", "DCL", SIZES, "6M^2D"),
        Case("lightly", "DCLW", SIZES, "6M^2D"),
        Case("lightly", "BarlowTwins", SIZES, "6ND^2"),
        Case("lightly", "VICReg", SIZES, "8ND^2"),
    ]


def every(*, huge: bool) -> list[Case]:
    """Ours, then the peers; the same order in every process."""
    return [*ours(huge=huge), *peers()]


def objective(name: str):
    """Build one of ours by its name, with "both" and "symmetric" behind it."""
    from isotrope.paradigm import registry

    first, *forms = name.split()
    built = registry.build(first, {"views": "both"} if "both" in forms else {})
    return built.symmetric() if "symmetric" in forms else built


def group_of(name: str) -> Group | None:
    """What one of ours is compared with InfoNCE as, found by asking it."""
    built = objective(name)
    if name == "infonce":
        return None
    if not built.pairwise or not built.has_terms:
        return "decorrelating"
    x = torch.eye(4, 6)
    if built.terms(x, x.flip(1)).against == "both":
        return "2N"
    return "symmetric" if built.two_directions else "one-sided"


def loss(case: Case) -> Loss:
    """Return what maps two views to a scalar."""
    if case.by == "isotrope":
        return functools.partial(objective(case.name), backend=case.backend)
    return {
        "torch": _plain,
        "sentence-transformers": _sentence_transformers,
        "pytorch-metric-learning": _metric_learning,
        "lightly": _lightly,
    }[case.by](case)


def plain_infonce(a: Tensor, b: Tensor) -> Tensor:
    """Cross-entropy of cosines over .05: what one writes."""
    similarity = F.normalize(a) @ F.normalize(b).T / 0.05
    return F.cross_entropy(similarity, torch.arange(len(a), device=a.device))


def plain_clip(a: Tensor, b: Tensor) -> Tensor:
    """The mean of both directions, the similarities formed once."""
    similarity = F.normalize(a) @ F.normalize(b).T / 0.05
    own = torch.arange(len(a), device=a.device)
    return (F.cross_entropy(similarity, own) + F.cross_entropy(similarity.T, own)) / 2


def plain_ntxent(a: Tensor, b: Tensor) -> Tensor:
    """All 2n views against each other, the diagonal masked."""
    views, n = F.normalize(torch.cat([a, b])), len(a)
    similarity = (views @ views.T / 0.1).fill_diagonal_(-torch.inf)
    return F.cross_entropy(similarity, torch.arange(2 * n, device=a.device).roll(n))


def _plain(case: Case) -> Loss:
    return {
        "InfoNCE": plain_infonce,
        "CLIP symmetric": plain_clip,
        "NT-Xent, 2N x 2N": plain_ntxent,
    }[case.name]


class Cached(torch.autograd.Function):
    """Their cached loss on given embeddings: it leaves gradients in the chunks it is given."""

    @staticmethod
    def forward(ctx, module, a, b):
        """Run their loss stage, which back-propagates as it goes."""
        size = module.mini_batch_size
        ctx.gradients = [torch.zeros_like(x) for x in (a, b)]
        chunks = [[part.detach().requires_grad_() for part in x.split(size)] for x in (a, b)]
        for parts, gradient in zip(chunks, ctx.gradients, strict=True):
            for part, its in zip(parts, gradient.split(size), strict=True):
                part.grad = its  # collected in place: no second copy that theirs would not have
        with torch.enable_grad():
            return module.calculate_loss(chunks, with_backward=True).detach()

    @staticmethod
    def backward(ctx, gradient):
        """Hand the gradients on."""
        return None, *(its.mul_(gradient) for its in ctx.gradients)


def _sentence_transformers(case: Case) -> Loss:
    from sentence_transformers.sentence_transformer import losses

    model = torch.nn.Sequential(torch.nn.Identity())  # embeddings are given
    if case.step:
        cached = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=case.step)
        return lambda a, b: Cached.apply(cached, a, b)
    module = losses.MultipleNegativesRankingLoss(model)
    return lambda a, b: module.compute_loss_from_embeddings([a, b], None)


def _metric_learning(case: Case) -> Loss:
    from pytorch_metric_learning import losses

    if case.name == "VICReg":
        module = losses.VICRegLoss()
        return lambda a, b: module(a, ref_emb=b)
    module = losses.NTXentLoss(temperature=0.1)

    def both(a: Tensor, b: Tensor) -> Tensor:
        label = torch.arange(len(a), device=a.device)
        return module(torch.cat([a, b]), torch.cat([label, label]))

    return both


def _lightly(case: Case) -> Loss:
    from lightly import loss as losses

    options = {"NTXent": {"temperature": 0.1}, "DCL": {"temperature": 0.1}}.get(case.name, {})
    return getattr(losses, f"{case.name}Loss")(**options)


def plain_dcl(a: Tensor, b: Tensor, weighted: bool = False) -> Tensor:
    """Decoupled: the other rows of both views push, in both directions, as Yeh et al. have it."""
    a, b = F.normalize(a), F.normalize(b)
    own, n = (a * b).sum(1), len(a)
    weights = 2 - n * (own / 0.5).softmax(0) if weighted else 1
    across = (a @ b.T / 0.1).fill_diagonal_(-torch.inf)
    value: Tensor = a.new_zeros(())
    for one, similarity in ((a, across), (b, across.T)):
        within = (one @ one.T / 0.1).fill_diagonal_(-torch.inf)
        push = torch.logsumexp(torch.cat([similarity, within], dim=1), dim=1)
        value = value + (push - weights * own / 0.1).mean() / 2
    return value


def plain_barlow(a: Tensor, b: Tensor, sphere: bool = True) -> Tensor:
    """The cross-correlation of rows of unit length, or of standardised columns."""
    if sphere:
        a, b, nu = F.normalize(a), F.normalize(b), 30.0
    else:
        a, b = (F.batch_norm(x, None, None, training=True) for x in (a, b))
        nu = 0.0051
    c = a.T @ b / len(a)
    diagonal = c.diagonal()
    off = c.square().sum() - diagonal.square().sum()
    return (diagonal - 1).square().sum() + nu * off


def plain_vicreg(a: Tensor, b: Tensor) -> Tensor:
    """Distance, deviations and covariances of rows of unit length."""
    a, b = F.normalize(a), F.normalize(b)
    n, d = a.shape
    value = 25 * (a - b).square().sum(1).mean()
    for x in (a, b):
        x = x - x.mean(0)
        covariance = x.T @ x / (n - 1)
        variance = covariance.diagonal()
        value = value + 25 * F.relu(1 - (variance + 1e-4).sqrt()).mean()
        value = value + (covariance.square().sum() - variance.square().sum()) / d
    return value


def _beside(peers: dict[str, Loss | Case], name: str, **settings: object):
    from isotrope.paradigm import registry

    first, *forms = name.split()
    built = registry.build(first, settings)
    return (built.symmetric() if forms else built), peers


_ST, _PML = "sentence-transformers", "pytorch-metric-learning"
# what ours are compared with, by name: the objective, and its peers, which compute the same value
BESIDE = {
    "infonce": lambda: _beside(
        {
            "torch": plain_infonce,
            _ST: Case(_ST, "MultipleNegativesRanking", ()),
            f"{_ST} cached": Case(_ST, "CachedMultipleNegativesRanking", (), step=1024),
        },
        "infonce",
    ),
    "infonce symmetric": lambda: _beside({"torch": plain_clip}, "infonce symmetric"),
    "ntxent": lambda: _beside({"torch": plain_ntxent, _PML: Case(_PML, "NTXent", ())}, "ntxent"),
    "dcl both symmetric": lambda: _beside(
        {"torch": plain_dcl}, "dcl symmetric", views="both", temperature=0.1
    ),
    "dclw both symmetric": lambda: _beside(
        {"torch": functools.partial(plain_dcl, weighted=True)}, "dclw symmetric", views="both"
    ),
    "barlowtwins": lambda: _beside({"torch": plain_barlow}, "barlowtwins"),
    "barlowtwins batchnorm": lambda: _beside(
        {"torch": functools.partial(plain_barlow, sphere=False)},
        "barlowtwins",
        space="batchnorm",
        weight=0.0051,
    ),
    "vicreg": lambda: _beside({"torch": plain_vicreg}, "vicreg"),
}


def installed(peers: dict[str, Loss | Case], n: int) -> dict[str, Loss]:
    """Return the peers that are installed, and that have a reason to be tried at this size."""
    found: dict[str, Loss] = {}
    for name, peer in peers.items():
        if not isinstance(peer, Case):
            found[name] = peer
        # cached in steps larger than the batch is not cached; pml pairs every positive with all
        elif peer.version and n >= peer.step and (peer.by != _PML or n <= 256):
            found[name] = loss(peer)
    return found
