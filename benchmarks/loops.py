"""The Doctor in plain loops, each loss written in another style: sound, and with one planted fault.

    OMP_NUM_THREADS=1 python benchmarks/loops.py [--part tuning] [--only LOOP] [--cell CELL]

The rules of the Doctor were set with the loops of the part ``tuning``. Those of ``judged`` were
tried afterwards, and some rules were changed for them, so no part is held out. Right is the planted
fault or ``not-examined``, and for a sound loop ``healthy`` or ``not-examined``. Views of images and
the encoder are those of benchmarks/hosts_trainings.py; texts are docstrings of Python's own
library, and their encoder a mean of word vectors, from scratch.
"""

import argparse
import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
import hosts_trainings as trainings
import isotrope
from hosts_trainings import CELLS, Plan, network, seeded

RIGHT = {
    "healthy": {"healthy", "spreading"},
    "temperature-too-high": {"negatives-not-hard"},
    "temperature-too-low": {"temperature-too-low"},
    "learning-rate-100x": {"diverging", "collapsed"},
    "duplicates": {"false-negatives"},
    "shuffled-positives": {"unrelated-positives"},
}
"""The verdicts that are right, of each fault; not-examined is right everywhere."""

_WORDS, _HELD = 4096, 24


@dataclass(frozen=True)
class Loop:
    """A training loop.

    Attributes:
        build: Makes the loss of a step from a plan, with the modules that are trained.
        temperature: Whether it has one.
        optimizer: Of all modules.
        rate: Learning rate.
        steps: Of the training.
        rows: Of a batch.
        backward: Backward pass of a loss.
        lacks: Faults that it cannot have: copies with a label are not pushed apart, few of the
            drawn negatives of a triplet are copies, and lengths make up for a temperature of dot
            products, as a slope does for one of a sigmoid (accuracies are those of a sound loop).
        judged: Whether it was tried after the first rules were set.
        pairs: Whether it compares embeddings of the batch with each other.
    """

    build: Callable[[Plan], tuple[nn.Module, Callable[[int, int], Tensor]]]
    temperature: bool = True
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    rate: float = 1e-3
    steps: int = 60
    rows: int = 32
    backward: Callable[[Tensor], object] = Tensor.backward
    lacks: tuple[str, ...] = ()
    judged: bool = False
    pairs: bool = True


LOOPS: dict[str, Loop] = {}


def loop(**how: Any) -> Callable[[Any], Any]:
    """Add a loop, by the name of its function."""

    def add(build: Any) -> Any:
        LOOPS[build.__name__.replace("_", "-")] = Loop(build, **how)
        return build

    return add


# --- data --------------------------------------------------------------------------------------


@functools.cache
def _words() -> list[tuple[Tensor, Tensor]]:
    """Return the words of the pairs of the corpus as numbers."""

    def numbers(text: str) -> Tensor:
        words = [1 + sum(map(ord, w)) * len(w) % (_WORDS - 1) for w in text.lower().split()]
        return F.pad(torch.tensor(words[:_HELD], dtype=torch.long), (0, _HELD - len(words[:_HELD])))

    return [(numbers(a), numbers(b)) for a, b in trainings.corpus()]


def texts(plan: Plan, step: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return the words of the pairs of a batch."""
    pairs = _words()
    random = torch.Generator().manual_seed(31 + step * rows // len(pairs))
    order, at = torch.randperm(len(pairs), generator=random), step * rows % len(pairs)
    some = order.roll(-at)[:rows]
    some = some[torch.arange(rows) % 4] if plan.data == "duplicates" else some
    other = (some + trainings.SHIFT) % len(pairs) if plan.data == "shuffled" else some
    return (
        torch.stack([pairs[i][0] for i in some]),
        torch.stack([pairs[i][1] for i in other]),
    )


class Bag(nn.Module):
    """A mean of word vectors and a layer."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(_WORDS, 64, mode="mean", padding_idx=0)
        self.top = nn.Linear(64, width)

    def forward(self, words: Tensor) -> Tensor:
        """Return a vector for each text."""
        out: Tensor = self.top(self.words(words))
        return out


def both(model: nn.Module, plan: Plan, step: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return the two views of a batch of images as the model embeds them."""
    a, b = trainings.views(plan, step, rows)
    return model(a), model(b)


def labelled(plan: Plan, step: int, rows: int, classes: int = 8) -> tuple[Tensor, Tensor]:
    """Return images of some classes, with their labels, which a fault may shuffle."""
    random = torch.Generator().manual_seed(500 + step)
    labels = torch.arange(rows) % classes
    kinds = trainings.prototypes()[0][:classes]
    images = kinds[labels] + 1.5 * torch.randn(rows, *kinds.shape[1:], generator=random)
    if plan.data == "shuffled":
        labels = labels[torch.randperm(rows, generator=random)]
    return images, labels


def targets(n: int) -> Tensor:
    """Return the places of the positives."""
    return torch.arange(n)


# --- loops that the rules were set with --------------------------------------------------------


@loop()
def simclr_masked(plan: Plan) -> Any:
    """NT-Xent of both views at once, itself masked."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        z = F.normalize(torch.cat(both(model, plan, step, rows)), dim=1)
        scores = (z @ z.T / plan.tau(0.1)).masked_fill(torch.eye(len(z)).bool(), -math.inf)
        return F.cross_entropy(scores, targets(2 * rows).roll(rows))

    return model, loss


@loop()
def clip_learnt_scale(plan: Plan) -> Any:
    """Two towers of images and words, both directions, a learnt scale."""
    model = nn.ModuleDict({"a": network(), "b": network()})
    model.scale = nn.Parameter(torch.tensor(math.log(1 / plan.tau(0.07))))

    def loss(step: int, rows: int) -> Tensor:
        a, b = trainings.views(plan, step, rows)
        x, y = F.normalize(model["a"](a), dim=-1), F.normalize(model["b"](b), dim=-1)
        scores, own = model.scale.exp() * x @ y.t(), targets(rows)
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.t(), own)) / 2

    return model, loss


@loop(lacks=("temperature-too-low",))
def siglip(plan: Plan) -> Any:
    """A sigmoid for each pair, with a learnt scale and bias."""
    model = network()
    model.t = nn.Parameter(torch.tensor(math.log(1 / plan.tau(0.1))))
    model.bias = nn.Parameter(torch.tensor(-5.0))

    def loss(step: int, rows: int) -> Tensor:
        x, y = (F.normalize(v, dim=-1) for v in both(model, plan, step, rows))
        signs = 2 * torch.eye(rows) - 1
        return -F.logsigmoid(signs * (x @ y.T * model.t.exp() + model.bias)).sum() / rows

    return model, loss


@loop()
def moco(plan: Plan) -> Any:
    """A queue of keys of a momentum encoder."""
    model, keys = network(), network()
    keys.load_state_dict(model.state_dict())
    queue = F.normalize(torch.randn(256, 32), dim=1)
    state = {"queue": queue}

    def loss(step: int, rows: int) -> Tensor:
        a, b = trainings.views(plan, step, rows)
        q = F.normalize(model(a), dim=1)
        with torch.no_grad():
            for slow, fast in zip(keys.parameters(), model.parameters(), strict=True):
                slow.mul_(0.95).add_(fast, alpha=0.05)
            k = F.normalize(keys(b), dim=1)
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", q, state["queue"].T.clone())
        state["queue"] = torch.cat([state["queue"][rows:], k])
        scores = torch.cat([positive, negative], dim=1) / plan.tau(0.1)
        return F.cross_entropy(scores, torch.zeros(rows, dtype=torch.long))

    return model, loss


@loop()
def euclidean_softmax(plan: Plan) -> Any:
    """A softmax of squared distances."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        x, y = (F.normalize(v, dim=1) for v in both(model, plan, step, rows))
        return F.cross_entropy(-torch.cdist(x, y).pow(2) / (2 * plan.tau(0.1)), targets(rows))

    return model, loss


@loop(rate=0.05, optimizer=torch.optim.SGD)
def sgd_small(plan: Plan) -> Any:
    """InfoNCE of a single layer, by plain gradient descent."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 24))

    def loss(step: int, rows: int) -> Tensor:
        x, y = (F.normalize(v, dim=1) for v in both(model, plan, step, rows))
        return F.cross_entropy(x @ y.T / plan.tau(0.1), targets(rows))

    return model, loss


@loop(temperature=False, lacks=("duplicates",))
def triplet_cosine(plan: Plan) -> Any:
    """A margin of cosines, each negative from the next row."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        x, y = both(model, plan, step, rows)
        near, far = F.cosine_similarity(x, y), F.cosine_similarity(x, y.roll(1, 0))
        return F.relu(0.5 - near + far).mean()

    return model, loss


@loop(temperature=False, lacks=("duplicates",))
def batch_hard(plan: Plan) -> Any:
    """The farthest row of the same label and the nearest of another."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        images, labels = labelled(plan, step, rows)
        z = F.normalize(model(images), dim=1)
        apart, same = torch.cdist(z, z), labels[:, None] == labels
        far = apart.masked_fill(~same, -1).amax(dim=1)
        near = apart.masked_fill(same, 9).amin(dim=1)
        return F.relu(far - near + 0.5).mean()

    return model, loss


@loop(lacks=("duplicates",))
def supcon(plan: Plan) -> Any:
    """All rows of a label are positives."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        images, labels = labelled(plan, step, rows)
        z = F.normalize(model(images), dim=1)
        off = ~torch.eye(rows).bool()
        scores = z @ z.T / plan.tau(0.1)
        share = scores - scores.masked_fill(~off, -math.inf).logsumexp(dim=1, keepdim=True)
        same = (labels[:, None] == labels) & off
        return -((share * same).sum(1) / same.sum(1).clamp_min(1)).mean()

    return model, loss


@loop(temperature=False, pairs=False)
def vicreg(plan: Plan) -> Any:
    """Variances and covariances; no pair is pushed."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        x, y = both(model, plan, step, rows)
        total = 25 * F.mse_loss(x, y)
        for z in (x, y):
            z = z - z.mean(0)
            covariance = z.T @ z / (rows - 1)
            off = covariance - torch.diag(covariance.diagonal())
            total = total + 25 * F.relu(1 - z.var(0).add(1e-4).sqrt()).mean()
            total = total + off.square().sum() / z.shape[1]
        return total

    return model, loss


@loop(temperature=False, pairs=False)
def byol(plan: Plan) -> Any:
    """A predictor towards a slow encoder."""
    model, slow = network(), network()
    slow.load_state_dict(model.state_dict())
    model.predictor = nn.Sequential(
        nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32)
    )

    def loss(step: int, rows: int) -> Tensor:
        a, b = trainings.views(plan, step, rows)
        with torch.no_grad():
            for old, new in zip(slow.parameters(), model.parameters(), strict=False):
                old.mul_(0.95).add_(new, alpha=0.05)
            y = F.normalize(slow(b), dim=1)
        features = a
        for part in list(model)[:7]:
            features = part(features)
        return 2 - 2 * (F.normalize(model.predictor(features), dim=1) * y).sum(1).mean()

    return model, loss


@loop(rate=5e-3)
def words_infonce(plan: Plan) -> Any:
    """InfoNCE of texts from scratch, several epochs of few pairs."""
    model = Bag()

    def loss(step: int, rows: int) -> Tensor:
        x, y = (F.normalize(model(v), dim=-1) for v in texts(plan, step, rows))
        return F.cross_entropy(x.matmul(y.T).div(plan.tau(0.05)), targets(rows))

    return model, loss


@loop(backward=lambda loss: (loss * 1024).backward())
def autocast_scaled(plan: Plan) -> Any:
    """Half precision, with the loss scaled for its backward pass."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x, y = (F.normalize(v, dim=-1) for v in both(model, plan, step, rows))
            return F.cross_entropy(x @ y.T / plan.tau(0.1), targets(rows))

    return model, loss


# --- loops that were tried afterwards -----------------------------------------------------------


@loop(judged=True)
def simclr_batch_norm(plan: Plan) -> Any:
    """NT-Xent with the positives first, a head with batch normalisation."""
    model = nn.Sequential(network(64), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())
    model.append(nn.Linear(64, 32))

    def loss(step: int, rows: int) -> Tensor:
        x, y = (F.normalize(v, dim=1) for v in both(model, plan, step, rows))
        z = torch.cat([x, y])
        near = (x * y).sum(1).repeat(2) / plan.tau(0.2)
        all_others = (z @ z.T / plan.tau(0.2))[~torch.eye(2 * rows).bool()].view(2 * rows, -1)
        return (all_others.logsumexp(1) - near).mean()

    return model, loss


@loop(judged=True)
def matryoshka(plan: Plan) -> Any:
    """InfoNCE of the embeddings and of their beginnings."""
    model = network(64)

    def loss(step: int, rows: int) -> Tensor:
        x, y = both(model, plan, step, rows)
        parts = [
            F.cross_entropy(
                F.normalize(x[:, :d], dim=1) @ F.normalize(y[:, :d], dim=1).T / plan.tau(0.1),
                targets(rows),
            )
            for d in (64, 32, 16)
        ]
        return torch.stack(parts).mean()

    return model, loss


@loop(judged=True, rate=5e-3, lacks=("duplicates",))
def words_hard_negative(plan: Plan) -> Any:
    """Each query against its own passage and two passages of others, by a batched product."""
    model = Bag()

    def loss(step: int, rows: int) -> Tensor:
        a, b = texts(plan, step, rows)
        q, p = F.normalize(model(a), dim=-1), F.normalize(model(b), dim=-1)
        own = torch.stack([p, p.roll(1, 0), p.roll(2, 0), p.roll(5, 0), p.roll(9, 0)], dim=1)
        scores = torch.bmm(own, q.unsqueeze(-1)).squeeze(-1)
        return F.cross_entropy(scores / plan.tau(0.05), torch.zeros(rows, dtype=torch.long))

    return model, loss


@loop(judged=True)
def decoupled(plan: Plan) -> Any:
    """DCL: the positive is not in the denominator."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        x, y = (F.normalize(v, dim=1) for v in both(model, plan, step, rows))
        scores = x @ y.T / plan.tau(0.1)
        others = scores.masked_fill(torch.eye(rows).bool(), -math.inf)
        return (others.logsumexp(1) - scores.diagonal()).mean()

    return model, loss


@loop(judged=True, temperature=False, lacks=("duplicates",))
def triplet_fused(plan: Plan) -> Any:
    """PyTorch's own triplet loss of distances, negatives drawn from the batch."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        x, y = both(model, plan, step, rows)
        random = torch.Generator().manual_seed(step)
        far = y.roll(int(torch.randint(1, rows, (1,), generator=random)), 0)
        return F.triplet_margin_loss(x, y, far, margin=0.3)

    return model, loss


@loop(judged=True, temperature=False, lacks=("duplicates",))
def hinge_of_pairs(plan: Plan) -> Any:
    """Hadsell's loss over all pairs of a batch, by their labels."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        images, labels = labelled(plan, step, rows)
        z = F.normalize(model(images), dim=1)
        i, j = torch.triu_indices(rows, rows, 1)
        apart = (z[i] - z[j]).norm(dim=1)
        same = (labels[i] == labels[j]).float()
        return (same * apart.square() + (1 - same) * F.relu(1 - apart).square()).mean()

    return model, loss


@loop(judged=True, lacks=("duplicates",))
def supcon_two_views(plan: Plan) -> Any:
    """Khosla's loss: two views a row, contrasted all with all."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        images, labels = labelled(plan, step, rows, classes=16)
        random = torch.Generator().manual_seed(step)
        noisy = images + 0.5 * torch.randn(images.shape, generator=random)
        z = F.normalize(torch.cat([model(images), model(noisy)]), dim=1)
        marks = torch.cat([labels, labels])
        same = torch.eq(marks[:, None], marks[None]).float()
        scores = torch.div(torch.matmul(z, z.T), plan.tau(0.1))
        scores = scores - scores.max(dim=1, keepdim=True).values.detach()
        itself = 1 - torch.eye(len(z))
        weights = scores.exp() * itself
        share = scores - weights.sum(1, keepdim=True).log()
        same = same * itself
        return -(same * share).sum(1).div(same.sum(1)).mean()

    return model, loss


@loop(judged=True, pairs=False)
def arcface(plan: Plan) -> Any:
    """A classifier of unit rows with a margin of angles."""
    model = network()
    model.classes = nn.Parameter(torch.randn(8, 32))

    def loss(step: int, rows: int) -> Tensor:
        images, labels = labelled(plan, step, rows)
        features = images
        for part in list(model)[:7]:
            features = part(features)
        cosine = F.linear(F.normalize(features), F.normalize(model.classes)).clamp(-0.999, 0.999)
        margin = torch.where(F.one_hot(labels, 8).bool(), (cosine.arccos() + 0.3).cos(), cosine)
        return F.cross_entropy(margin / plan.tau(0.1), labels)

    return model, loss


@loop(judged=True, temperature=False, pairs=False)
def barlow_twins(plan: Plan) -> Any:
    """The correlations of the dimensions."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        x, y = ((v - v.mean(0)) / v.std(0) for v in both(model, plan, step, rows))
        c = x.T @ y / rows
        off = c - torch.diag(c.diagonal())
        return (c.diagonal() - 1).square().sum() + 5e-3 * off.square().sum()

    return model, loss


@loop(judged=True, temperature=False, pairs=False)
def distilled(plan: Plan) -> Any:
    """Embeddings of a teacher, by their squared difference."""
    model, teacher = network(), network()

    def loss(step: int, rows: int) -> Tensor:
        a, b = trainings.views(plan, step, rows)
        return F.mse_loss(model(a), teacher(b).detach())

    return model, loss


@loop(judged=True)
def similarities_distilled(plan: Plan) -> Any:
    """The teacher's softmax over the batch, by its divergence."""
    model, teacher = network(), network()

    def loss(step: int, rows: int) -> Tensor:
        a, b = trainings.views(plan, step, rows)
        with torch.no_grad():
            t = [F.normalize(teacher(v), dim=1) for v in (a, b)]
            wanted = (t[0] @ t[1].T / 0.1).softmax(dim=1)
        x, y = F.normalize(model(a), dim=1), F.normalize(model(b), dim=1)
        return F.kl_div((x @ y.T / plan.tau(0.1)).log_softmax(1), wanted, reduction="batchmean")

    return model, loss


@loop(judged=True, temperature=False)
def dot_products(plan: Plan) -> Any:
    """N-pair: dot products without a norm, and a penalty of lengths."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        x, y = both(model, plan, step, rows)
        return F.cross_entropy(x @ y.T / (10 * plan.tau(0.1)), targets(rows))

    return model, loss


@loop(judged=True)
def graded_in_parts(plan: Plan) -> Any:
    """A gradient cache by hand: the loss of embeddings without a graph."""
    model = network()

    def loss(step: int, rows: int) -> Tensor:
        a, b = trainings.views(plan, step, rows)
        with torch.no_grad():
            found = [model(v) for v in (a, b)]
        leaves = [v.requires_grad_() for v in found]
        x, y = (F.normalize(v, dim=1) for v in leaves)
        value = F.cross_entropy(x @ y.T / plan.tau(0.1), targets(rows))
        value.after = lambda: sum(
            (model(v[i : i + 8]) * leaf.grad[i : i + 8]).sum()
            for v, leaf in zip((a, b), leaves, strict=True)
            for i in range(0, rows, 8)
        ).backward()
        return value

    return model, loss


# --- a cell ------------------------------------------------------------------------------------


def diagnosis(how: Loop, plan: Plan) -> Any:
    """Return what the doctor says of a training, and the doctor."""
    seeded()
    model, loss = how.build(plan)
    optimizer = how.optimizer(model.parameters(), lr=how.rate * plan.rate)
    heard: list[str] = []
    doctor = isotrope.Doctor(every=1, say=heard.append)
    for step in range(how.steps):
        value = loss(step, plan.batch or how.rows)
        doctor.observe(value)
        optimizer.zero_grad()
        how.backward(value)
        getattr(value, "after", lambda: None)()
        optimizer.step()
    return doctor.diagnose(batch_size=how.rows), doctor


def exists(how: Loop, cell: str) -> bool:
    """Return whether a fault can be planted in a loop."""
    return cell not in how.lacks and (how.temperature or not cell.startswith("temperature"))


def main() -> None:
    """Train, and print a line for each cell, and the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--part", choices=["tuning", "judged"], help="loops [all]")
    add("--only", action="append", choices=list(LOOPS), help="loop [all]")
    add("--cell", action="append", choices=list(RIGHT), help="cell [all]")
    options = parser.parse_args()
    counts = dict.fromkeys(("right", "not-examined", "another fault", "false alarm", "missed"), 0)
    of_pairs: list[str] = []
    for name, how in LOOPS.items():
        if options.part and how.judged != (options.part == "judged"):
            continue
        if options.only and name not in options.only:
            continue
        for cell in options.cell or RIGHT:
            if not exists(how, cell):
                continue
            found, doctor = diagnosis(how, CELLS[cell])
            word = found.verdict[0]
            sound = word in RIGHT["healthy"]
            mark = "another fault"
            if word in RIGHT[cell]:
                mark = "right"
            elif word == "not-examined":
                mark = "not-examined"
            elif cell == "healthy":
                mark = "false alarm"
            elif sound:
                mark = "missed"
            counts[mark] += 1
            of_pairs += [mark] if how.pairs else []
            off = " OFF" if doctor.off else ""
            kind = next(iter(doctor.losses.values()), {}).get("family")
            print(
                f"{name:22} {cell:21} {mark:13} {' '.join(found.verdict)} [{kind}]{off}", flush=True
            )
    print("; ".join(f"{mark} {count}" for mark, count in counts.items()))
    unknown = of_pairs.count("not-examined")
    print(f"not-examined where the loss compares pairs: {unknown} of {len(of_pairs)} cells")


if __name__ == "__main__":
    main()
