"""What `gpu.py` measures: our losses on a GPU, and the same formulas as others compute them.

A case is one loss on two views of given embeddings, n x d. InfoNCE has the temperature .05,
NT-Xent .1. Similarities in bfloat16 become float32 before they are exponentiated, as with autocast.
"""

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import loss_cases

Loss = Callable[[Tensor, Tensor], Tensor]

SIZES = (1024, 4096, 16384, 65536)
FEW = (4096, 65536)  # of losses without a peer
WIDTH = 768
STEPS = (2048,)  # sentences of a training step
CHUNK = 1024  # rows that the chunked peer takes at a time
TEMPERATURE = 0.05
HEADS = 256  # numbers that Inf-CL multiplies at a time
# flops that the share of the limit counts, by loss: see loss_cases.FLOPS
COUNTED = {
    "infonce": "6N^2D",
    "infonce symmetric": "6N^2D",
    "ntxent": "6M^2D",
    "mpt": "6N^2D",
    "miov3": "6M^2D",
    "modifiedmhe": "",
    "simclrgrad": "",
}
BACKENDS = ("rowblock", "eager")
TORCH = ("plain", "chunked", "compiled")
ST = "sentence-transformers"


@dataclass(frozen=True)
class Case:
    """One loss, computed in one way.

    Attributes:
        loss: its name, or "step": a whole training step of SimCSE.
        by: whose it is: isotrope, torch, or a package.
        how: a backend of ours; plain, chunked, compiled or cached.
        dtype: of the embeddings.
        sizes: numbers of rows.
        width: numbers of each of them.
    """

    loss: str
    by: str
    how: str
    dtype: str = "bfloat16"
    sizes: tuple[int, ...] = SIZES
    width: int = WIDTH

    @property
    def version(self) -> str:
        """Of what is measured; "" if it is not installed."""
        if self.by == "isotrope":
            return loss_cases.ours_version()
        if self.by == "torch":
            return str(torch.__version__)
        if importlib.util.find_spec(self.by.replace("-", "_")) is None:
            return ""
        return importlib.metadata.version(self.by)

    @property
    def counted(self) -> str:
        """The flops that its share counts."""
        return COUNTED.get(self.loss, "")


def every() -> list[Case]:
    """All cases; the same order in every process."""
    main, others = list(COUNTED)[:3], list(COUNTED)[3:]
    cases = []
    for dtype, ways, those in (("bfloat16", TORCH, main), ("float32", TORCH[:2], main[:1])):
        for x in those:
            cases += [Case(x, "isotrope", how, dtype) for how in BACKENDS]
            cases += [Case(x, "torch", how, dtype) for how in ways]
        cases += [Case(x, "inf-cl", "plain", dtype) for x in those[:2]]
        cases += [Case(main[0], ST, how, dtype) for how in ("plain", "cached")]
    cases += [Case(x, "isotrope", how, sizes=FEW) for x in others for how in BACKENDS]
    return cases + [Case("step", "isotrope", x, sizes=STEPS) for x in BACKENDS]


def loss(case: Case) -> Loss:
    """Return what maps two views to a scalar."""
    if case.by == "isotrope":
        return functools.partial(loss_cases.objective(case.loss), backend=case.how)
    if case.by == "inf-cl":
        return functools.partial(_inf_cl, symmetric=case.loss != "infonce")
    if case.by == ST:
        cached = CHUNK if case.how == "cached" else 0
        return loss_cases.loss(loss_cases.Case(ST, "MultipleNegativesRanking", (), step=cached))
    if case.how == "chunked":
        return CHUNKED[case.loss]
    plain = PLAIN[case.loss]
    return torch.compile(plain, dynamic=False) if case.how == "compiled" else plain


def _one_way(x: Tensor, y: Tensor, own: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of unit vectors, summed over the rows."""
    return F.cross_entropy((x @ y.T).float() / temperature, own, reduction="sum")


def plain_infonce(a: Tensor, b: Tensor) -> Tensor:
    """The mean of one direction."""
    own = torch.arange(len(a), device=a.device)
    return _one_way(F.normalize(a), F.normalize(b), own, TEMPERATURE) / len(a)


def plain_symmetric(a: Tensor, b: Tensor) -> Tensor:
    """The mean of both directions, the similarities formed once."""
    similarity = (F.normalize(a) @ F.normalize(b).T).float() / TEMPERATURE
    own = torch.arange(len(a), device=a.device)
    return (F.cross_entropy(similarity, own) + F.cross_entropy(similarity.T, own)) / 2


def plain_ntxent(a: Tensor, b: Tensor) -> Tensor:
    """All 2n views against each other, the diagonal masked."""
    views, n = F.normalize(torch.cat([a, b])), len(a)
    similarity = ((views @ views.T).float() / 0.1).fill_diagonal_(-torch.inf)
    return F.cross_entropy(similarity, torch.arange(2 * n, device=a.device).roll(n))


def chunked_infonce(a: Tensor, b: Tensor) -> Tensor:
    """A chunk of rows at a time, formed again for the gradient."""
    x, y = F.normalize(a), F.normalize(b)
    own, parts = torch.arange(len(a), device=a.device).split(CHUNK), []
    for rows, at in zip(x.split(CHUNK), own, strict=True):
        parts.append(checkpoint(_one_way, rows, y, at, TEMPERATURE, use_reentrant=False))
    return torch.stack(parts).sum() / len(a)


def chunked_symmetric(a: Tensor, b: Tensor) -> Tensor:
    """One direction after the other."""
    return (chunked_infonce(a, b) + chunked_infonce(b, a)) / 2


def _masked(rows: Tensor, views: Tensor, at: Tensor) -> Tensor:
    similarity = (rows @ views.T).float() / 0.1
    similarity = similarity.scatter(1, at[:, None], -torch.inf)
    return F.cross_entropy(similarity, (at + len(views) // 2) % len(views), reduction="sum")


def chunked_ntxent(a: Tensor, b: Tensor) -> Tensor:
    """A chunk of the 2n views at a time."""
    views = F.normalize(torch.cat([a, b]))
    numbers, parts = torch.arange(len(views), device=a.device).split(CHUNK), []
    for rows, at in zip(views.split(CHUNK), numbers, strict=True):
        parts.append(checkpoint(_masked, rows, views, at, use_reentrant=False))
    return torch.stack(parts).sum() / len(views)


PLAIN = {"infonce": plain_infonce, "infonce symmetric": plain_symmetric, "ntxent": plain_ntxent}
CHUNKED = {
    "infonce": chunked_infonce,
    "infonce symmetric": chunked_symmetric,
    "ntxent": chunked_ntxent,
}


def _inf_cl(a: Tensor, b: Tensor, *, symmetric: bool) -> Tensor:
    """As its README calls it; the kernels are of one direction."""
    from inf_cl import cal_flash_loss

    x, y, scale = F.normalize(a), F.normalize(b), 1 / TEMPERATURE
    heads = min(HEADS, a.shape[1])
    loss = cal_flash_loss(x, y, scale=scale, head_dim=heads).mean()
    if not symmetric:
        return loss
    return (loss + cal_flash_loss(y, x, scale=scale, head_dim=heads).mean()) / 2


def step(case: Case, n: int, device: str, *, tiny: bool) -> Callable[[], Tensor]:
    """Return a training step of SimCSE: BERT-base from scratch, n sentences of 32 tokens, AdamW."""
    from transformers import BertConfig, BertModel

    small = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    small |= {"intermediate_size": 16, "vocab_size": 100}
    encoder = BertModel(BertConfig(**(small if tiny else {})), add_pooling_layer=False).to(device)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=3e-5)
    tokens = torch.randint(0, encoder.config.vocab_size, (n, 32), device=device)
    objective = loss_cases.objective("infonce")

    def run() -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            a, b = (encoder(tokens).last_hidden_state[:, 0] for _ in range(2))
            value = objective(a.bfloat16(), b.bfloat16(), backend=case.how)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    return run
