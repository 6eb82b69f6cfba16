"""Errata: each printed form is computed from the formula as the page quotes it, and fails.

The quotations themselves are compared with the texts of the papers, where these are.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Names
from typing import Any

import pytest
import torch
from torch import Tensor

from docs.generate.errata_page import document, errata

TEXTS = Path(__file__).resolve().parents[3] / "shared" / "papers"
ROWS = {row.number: row for row in errata()}
CHECKS: dict[str, Callable[[str], tuple[Any, Any]]] = {}
F64 = torch.float64


def check(number: str) -> Callable:
    def add(function: Callable) -> Callable:
        CHECKS[number] = function
        return function

    return add


def norm(x: Tensor) -> Tensor:
    return x.norm(dim=-1, keepdim=True)


def unit(x: Tensor) -> Tensor:
    return x / norm(x)


def perp(x: Tensor, of: Tensor) -> Tensor:
    """The part of x that is orthogonal to ``of``."""
    return x - (x * of).sum(-1, keepdim=True) / (of * of).sum(-1, keepdim=True) * of


def no_diagonal(x: Tensor) -> Tensor:
    return x - torch.diag(x.diagonal())


def grad(loss: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    at = at.clone().requires_grad_()
    return torch.autograd.grad(loss(at), at)[0]


_TORCH = ("exp", "log", "sin", "cos", "relu", "outer", "sigmoid", "all", "sum")
FUNCTIONS = {name: getattr(torch, name) for name in _TORCH} | {
    "diag": torch.diagonal,
    "max": max,
    "min": min,
    "pi": math.pi,
    "norm": norm,
    "unit": unit,
    "perp": perp,
    "no_diagonal": no_diagonal,
}


def value(formula: str, **names: Any) -> Any:
    return eval(formula, {"__builtins__": {}}, {**FUNCTIONS, **names})


def batch(n: int = 10, d: int = 4, seed: int = 0, spread: float = 0.4) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    h = unit(torch.randn(n, d, dtype=F64, generator=draw))
    return h, unit(h + spread * torch.randn(n, d, dtype=F64, generator=draw))


@check("E1")
def _(formula: str) -> tuple[Any, Any]:
    h, g = batch()
    n, d = h.shape
    nu1 = 0.7

    def covariance(x: Tensor) -> Tensor:
        return (x - x.mean(0)).T @ (x - x.mean(0)) / (n - 1)

    def vicreg(x: Tensor) -> Tensor:  # nu2 = 0
        spread = sum(no_diagonal(covariance(y)).square().sum() for y in (x, g))
        return (x - g).square().sum(1).mean() + nu1 / d * spread

    names = {"x": h - h.mean(0), "C": covariance(h), "nu": 2 * nu1 * n**2 / (d * (n - 1) ** 2)}
    return perp(value(formula, h=h, g=g, N=n, D=d, nu1=nu1, **names), h), perp(grad(vicreg, h), h)


@check("E2")
def _(formula: str) -> tuple[Any, Any]:
    h, g = batch()
    n = len(h)
    near = (h @ g.T - 9 * torch.eye(n, dtype=F64)).argmax(1)
    m = 0.45

    def loss(x: Tensor) -> Tensor:
        d = torch.cdist(x, g)
        rows = ([d[i, j] for j in range(n) if j != i] for i in range(n))
        return sum(
            value(formula, d_p=d[i, i], d_n=row, m=torch.tensor(m, dtype=F64))
            for i, row in enumerate(rows)
        )

    d_p, d_n = norm(h - g), norm(h - g[near])
    eq3 = (d_n - d_p < m) * (g[near] / d_n - g / d_p)
    return perp(grad(loss, h), h), perp(eq3, h)


@check("E3")
def _(formula: str) -> tuple[Any, Any]:
    d_p, d_n = torch.linspace(0, 2, 21, dtype=F64), torch.linspace(1.9, 0.05, 21, dtype=F64)
    m = 0.45
    return value(formula, d_p=d_p, d_n=d_n, m=m), grad(
        lambda x: (x - d_n + m).relu().sum(), d_p
    ) > 0


@check("E5")
def _(formula: str) -> tuple[Any, Any]:
    h, g = batch()
    r, i = 1.75, 3
    others = torch.cat([h[:i], h[i + 1 :]])
    distances = (h[i] - others).norm(dim=1)
    near = distances.argmin()

    def loss(x: Tensor) -> Tensor:
        coefficient = value(formula, r=r, d_within=list(distances))
        return coefficient * (x - g[i]).square().sum() - (x - others).norm(dim=1).min()

    return perp(grad(loss, h[i]), h[i]), perp((others[near] - r * g[i]) / distances[near], h[i])


@check("E38")
def _(formula: str) -> tuple[Any, Any]:
    """The shares of the page are of the draws that have bounds and meet the given one."""
    draw = torch.Generator().manual_seed(1)
    x = torch.rand(4, 200_000, dtype=F64, generator=draw)
    told, truth, shares = [], [], []
    for step in (0.01, 0.1, 0.25, 0.5, 1.0):
        sin_p, sin_n = 0.05 + 0.95 * x[:2]
        alpha, r = x[2] * math.pi, 2 * x[3]
        p = torch.stack([sin_p, torch.zeros_like(sin_p)])
        q = sin_n * torch.stack([alpha.cos(), alpha.sin()])
        closer = (step * (r * p - q) - p).norm(dim=0) < sin_p
        middle = 1 / step + sin_n * alpha.cos() / sin_p
        square = 1 / step**2 - (sin_n * alpha.sin() / sin_p) ** 2
        root = square.clamp_min(0).sqrt()
        met = value(formula, r=r, low=middle - root, high=middle + root)
        told.append(met[square >= 0])
        truth.append(closer[square >= 0])
        shares.append(100 * float((told[-1] & ~truth[-1]).sum() / told[-1].sum()))
    if any(shares):
        assert shares == pytest.approx([0, 0.02, 0.8, 3.5, 24], rel=0.15)
    return torch.cat(told), torch.cat(truth)


@check("E39")
def _(formula: str) -> tuple[Any, Any]:
    """What Barlow Twins and VICReg had before, by the scores and gains of table 3."""
    scores = (
        (71.22, 84.01, 76.49, 83.17, 80.41, 79.94, 72.45),
        (71.42, 84.43, 76.19, 83.13, 80.80, 80.05, 72.34),
    )
    gains = ((15.3, 13.7, 16.4, 13.4, 10.0, 14.4, 5.8), (15.8, 13.6, 16.0, 13.4, 10.2, 14.5, 5.6))
    before = [(sum(x) - sum(y)) / 7 for x, y in zip(scores, gains, strict=True)]
    assert [round(x, 2) for x in before] == [65.53, 65.61]
    told = value(formula, barlow=65.60, vicreg=65.53)  # the names of table 5
    return [abs(x - y) < 0.02 for x, y in zip(told, before, strict=True)], [True, True]


@check("E40")
def _(formula: str) -> tuple[Any, Any]:
    """The ratio of eq. 18 is the pull over the summed weights."""
    h, _ = batch()
    weights = no_diagonal((h @ h.T / 0.05).exp())
    weights = weights / weights.sum()
    return value(formula, w_n=weights, r=1.5) / weights.sum(1), torch.full(
        (len(h),), 1.5, dtype=F64
    )


@check("E13")
def _(formula: str) -> tuple[Any, Any]:
    h, g = batch()
    s = h @ g.T
    tau, negatives = 0.05, torch.cat([s[0, 1:]])
    eq35 = torch.log1p(torch.exp(-s[0, 0] / tau) * (negatives / tau).exp().sum())
    told = value(formula, s_p=s[0, 0], s_n=negatives, tau=tau)
    assert float((told - eq35).abs() / eq35) == pytest.approx(0.98, abs=0.01) or fits(told, eq35)
    return told, eq35


@check("E14")
def _(formula: str) -> tuple[Any, Any]:
    """The norm of the pull of DCL on a vector of length 1, by autograd."""
    p, n = torch.tensor([0.7, 1.9], dtype=F64)
    anchor, positive = torch.tensor([[1.0, 0.0], [p.cos(), p.sin()]], dtype=F64)
    pull = grad(lambda x: -(unit(x) @ positive) / 0.17, anchor)
    return value(formula, theta_p=p, theta_n=n, tau=0.17), pull.norm()


@check("E15")
def _(formula: str) -> tuple[Any, Any]:
    """Eq. 12 holds with tau times this in at least as many batches as can be; it is a bound."""
    draw = torch.Generator().manual_seed(0)
    broken = 0
    for _ in range(500):
        k = int(torch.randint(3, 12, (), generator=draw))
        s, tau = 2 * torch.rand(k, dtype=F64, generator=draw) - 1, 0.2
        bound = s.max() / tau + value(formula, K=torch.tensor(float(k), dtype=F64))
        broken += bool((s / tau).logsumexp(0) > bound)
    flat = torch.logsumexp(torch.zeros(7, dtype=F64), 0)  # equal negatives meet it
    broken += bool(flat > value(formula, K=torch.tensor(7.0, dtype=F64)) + 1e-12)
    return broken, 0


@check("E16")
def _(formula: str) -> tuple[Any, Any]:
    angles = torch.linspace(0, math.pi, 301, dtype=F64)
    p, n = torch.meshgrid(angles, angles, indexing="ij")
    names = {"s_p": p.cos(), "s_n": n.cos(), "theta_p": p, "theta_n": n}
    names |= {"d_p": 2 * (p / 2).sin(), "d_n": 2 * (n / 2).sin()}
    losses = (
        n.cos() - p.cos() + 0.23,
        names["d_p"] - names["d_n"] + 0.45,
        p - n + 0.15 * math.pi,
    )
    told = torch.stack(value(formula, **names))
    active = torch.stack(losses) > 0
    if not torch.equal(told, active):
        shares = (told != active).double().mean(dim=(1, 2))
        assert shares.tolist() == pytest.approx([0.49, 0.59, 0.72], abs=0.02)
    return told, active


@check("E17")
def _(formula: str) -> tuple[Any, Any]:
    h, g = batch()
    away = ~torch.eye(len(h), dtype=torch.bool)
    s = (h @ g.T)[away]
    return value(formula, d2=2 - 2 * s, tau=0.05, M=len(h), N=len(h)), s.mean() / 0.05


@check("E42")
def _(formula: str) -> tuple[Any, Any]:
    return value(formula, dcl=85.18, pretrained=85.34), True


def _pair() -> Names:
    draw = torch.Generator().manual_seed(1)
    z_i, z_j, *others = torch.randn(7, 6, dtype=F64, generator=draw)
    return Names(z_i=1.5 * z_i, z_j=3 * z_j, others=torch.stack(others))


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    return (unit(x) * unit(y)).sum(-1)


@check("E20")
def _(formula: str) -> tuple[Any, Any]:
    z = _pair()
    return value(formula, z_i=z.z_i, z_j=z.z_j), grad(lambda x: -_cosine(x, z.z_j), z.z_i)


@check("E21")
def _(formula: str) -> tuple[Any, Any]:
    z = _pair()
    moved = z.z_i - 0.8 * grad(lambda x: -_cosine(x, z.z_j), z.z_i)
    return value(formula, z_i=z.z_i, z_j=z.z_j, gamma=0.8), norm(moved) ** 2


def _angles(acute: bool) -> Names:
    draw = torch.Generator().manual_seed(2)
    x = torch.rand(3, 20_000, dtype=F64, generator=draw)
    phi = x[0] * math.pi / 2 + (0 if acute else math.pi / 2)
    return Names(phi=phi, rho=0.2 + 5 * x[1], gamma=10 ** (4 * x[2] - 3))


def _gain(at: Names) -> Tensor:
    """What a step by unit vectors gains, exactly."""
    x, s2, c = at.gamma / at.rho**2, at.phi.sin() ** 2, at.phi.cos()
    return 2 * x * s2 * (1 - x * c) / (1 + x**2 * s2)


@check("E22")
def _(formula: str) -> tuple[Any, Any]:
    at = _angles(acute=True)
    zero = torch.zeros_like(at.phi)
    z_i = at.rho[:, None] * torch.stack([zero + 1, zero], 1)
    z_j = at.rho[:, None] * torch.stack([at.phi.cos(), at.phi.sin()], 1)
    names = {"gamma": at.gamma[:, None], "rho": at.rho[:, None]}
    a = z_i + value(formula, z_i=z_i, z_j=z_j, **names)
    b = z_j + value(formula, z_i=z_j, z_j=z_i, **names)
    gain = _cosine(a, b) - at.phi.cos()
    return int((gain > 2 * at.gamma * at.phi.sin() ** 2 / at.rho**2 + 1e-12).sum()), 0


@check("E23")
def _(formula: str) -> tuple[Any, Any]:
    at = _angles(acute=False)
    example = Names(**{k: torch.tensor(v, dtype=F64) for k, v in (("phi", 2.5), ("rho", 1.0))})
    example.gamma = torch.tensor(0.1, dtype=F64)
    assert float(_gain(example)) == pytest.approx(0.0771, abs=1e-4)
    return int((_gain(at) > value(formula, **vars(at)) + 1e-12).sum()), 0


@check("E24")
def _(formula: str) -> tuple[Any, Any]:
    acute, obtuse = _angles(acute=True), _angles(acute=False)
    broken = [_gain(at) > value(formula, **vars(at)) + 1e-12 for at in (acute, obtuse)]
    assert (acute.gamma > 2 * acute.rho**2)[broken[0]].all(), "acute: only for long steps"
    for at, found in zip((acute, obtuse), broken, strict=True):
        x, s2, c = at.gamma / at.rho**2, at.phi.sin() ** 2, at.phi.cos()
        bracket = c + 2 * x * s2 - x**2 * s2 * c  # in front of which the proof enlarges
        assert (bracket[found] < 0).all()
        assert found[(bracket < 0) & (x**2 * s2 > 1e-6)].all() or not found.any()
    return sum(int(x.sum()) for x in broken), 0


@check("E25")
def _(formula: str) -> tuple[Any, Any]:
    z = _pair()

    def loss(x: Tensor) -> Tensor:
        return -_cosine(x, z.z_j) + _cosine(x, z.others).logsumexp(0)

    shares = _cosine(z.z_i, z.others).softmax(0)
    push = (shares[:, None] * perp(unit(z.others), z.z_i)).sum(0)
    return value(formula, z_i=z.z_i, z_j=z.z_j, push=push), grad(loss, z.z_i)


@check("E26")
def _(formula: str) -> tuple[Any, Any]:
    z = _pair()
    return value(formula, z_i=z.z_i, z_j=z.z_j), grad(lambda x: _cosine(x, z.z_j), z.z_i)


def _hessian() -> tuple[Tensor, Tensor, Tensor]:
    """h_n, h_m and the Hessian of z_n . z_m by a projector of two columns, as blocks."""
    draw = torch.Generator().manual_seed(3)
    h_n, h_m = torch.randn(2, 3, dtype=F64, generator=draw)

    def product(psi: Tensor) -> Tensor:
        psi = psi.view(3, 2)
        return (h_n @ psi) @ (h_m @ psi)

    dense = torch.autograd.functional.hessian(product, torch.zeros(6, dtype=F64))
    return h_n, h_m, dense.view(3, 2, 3, 2)


@check("E27")
def _(formula: str) -> tuple[Any, Any]:
    h_n, h_m, blocks = _hessian()
    block = torch.outer(h_m, h_n) + torch.outer(h_n, h_m)
    pairs = [(a, b) for a in range(2) for b in range(2)]
    told = torch.stack([value(formula, B=block, k=a, l=b) for a, b in pairs])
    return told, torch.stack([blocks[:, a, :, b] for a, b in pairs])


@check("E28")
def _(formula: str) -> tuple[Any, Any]:
    h_n, h_m, blocks = _hessian()
    return value(formula, h_n=h_n, h_m=h_m), blocks[:, 0, :, 0]


def _table() -> dict[str, Any]:
    joint = torch.tensor([[0.3, 0.1, 0.1], [0.05, 0.15, 0.3]], dtype=F64)
    apart = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    return {
        "r": joint / apart,
        "E_pos": lambda x: (joint * x).sum(),
        "E_neg": lambda x: (apart * x).sum(),
    }


@check("E29")
def _(formula: str) -> tuple[Any, Any]:
    """The binary cross entropy of eq. 1 at the best critic."""
    names = _table()
    p = names["r"] / (1 + names["r"])
    return value(formula, **names), -names["E_pos"](p.log()) - names["E_neg"]((1 - p).log())


@check("E30")
def _(formula: str) -> tuple[Any, Any]:
    return bool(value(formula, **_table())), True


@check("E31")
def _(formula: str) -> tuple[Any, Any]:
    told = value(formula, C=torch.linspace(-1, 1, 41, dtype=F64), tau=0.2)
    return told, torch.ones_like(told)


@check("E32")
def _(formula: str) -> tuple[Any, Any]:
    c = torch.linspace(-1, 1, 41, dtype=F64)
    slope = grad(lambda x: -torch.nn.functional.logsigmoid(x / 0.2).sum(), c)
    return value(formula, C=c, tau=0.2), slope < 0


@check("E33")
def _(formula: str) -> tuple[Any, Any]:
    before, after = (0.5 * 0.1 * x**2 for x in (1.0, 1.0 - 0.1))
    return value(formula, mu=0.1, lam=0.1, L=1.0), after / before


@check("E34")
def _(formula: str) -> tuple[Any, Any]:
    curvature, w, total = torch.tensor([0.1, 1.0], dtype=F64), torch.ones(2, dtype=F64), 0.0
    gaps = []
    for _ in range(100):
        gaps.append(0.5 * (curvature * w * w).sum())
        total = total + 0.5 * ((curvature * w) ** 2).sum()
        w = w - curvature * w
    gaps.append(0.5 * (curvature * w * w).sum())
    ends = {"gap_at_the_start": gaps[0], "gap_at_the_end": gaps[-1]}
    assert [float(x) for x in (total, *ends.values())] == pytest.approx(
        [0.526, 0.55, 3.5e-11], rel=0.02
    )
    return bool(value(formula, sum_of_squares=total, **ends)), True


@check("E35")
def _(formula: str) -> tuple[Any, Any]:
    """The sums of T steps; the printed second one stays below a bound, so its growth is 0."""
    eta = 0.06
    sums = []
    for steps in (100, 1_000, 10_000):
        t = torch.arange(1, steps + 1, dtype=F64)
        rates = eta * (1 + (t / steps * math.pi).cos()) / 2
        sums.append(torch.stack([rates.sum(), (rates**2).sum()]))
    assert [float(x[1]) for x in sums] == pytest.approx([0.133, 1.35, 13.5], rel=2e-3)
    sums = sums[1:]
    told = [torch.tensor(value(formula, T=T, eta=eta), dtype=F64) for T in (1_000, 10_000)]
    return ((told[1] - told[0]) / 9_000).round(decimals=6), ((sums[1] - sums[0]) / 9_000).round(
        decimals=6
    )


@check("E45")
def _(formula: str) -> tuple[Any, Any]:
    row = {"simclr": 75.65, "mocov2": 75.64, "dcl": 74.46, "dclw": 75.49, "miov3": 77.49}
    best = max(score for name, score in row.items() if name != "miov3")
    return round(value(formula, **row), 2), round(row["miov3"] - best, 2)


@check("E46")
def _(formula: str) -> tuple[Any, Any]:
    x = torch.tensor([-2.0, 0.1, 1.0], dtype=F64)
    return bool(value(formula, g=x, gap=x**2 / 2, mu=1.5)), True


@check("E48")
def _(formula: str) -> tuple[Any, Any]:
    """Two views that show one of n classes have the ratio n; a cosine has to reach it."""
    reached = value(formula, C=torch.tensor(1.0, dtype=F64), tau=0.2)
    told = []
    for n in (2, 3, 10, 100):
        joint = torch.eye(n, dtype=F64) / n
        ratio = joint / (joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True))
        assert float(ratio.max()) == pytest.approx(n)
        told.append(bool(reached >= ratio.max()))
    assert told[0], "two classes: 2 < e"
    return told, [True] * 4


def fits(told: Any, truth: Any) -> bool:
    if isinstance(told, Tensor) and told.dtype.is_floating_point:
        return torch.allclose(told, truth.to(told.dtype), rtol=0, atol=1e-12)
    return torch.equal(told, truth) if isinstance(told, Tensor) else told == pytest.approx(truth)


@pytest.mark.parametrize("number", [n for n, row in ROWS.items() if row.formula])
def test_the_printed_form_fails_and_the_right_one_fits(number: str) -> None:
    printed, right = (CHECKS[number](ROWS[number].formula[form]) for form in ("printed", "right"))
    assert fits(*right)
    assert not fits(*printed)
    if isinstance(printed[0], Tensor) and printed[0].dtype.is_floating_point:
        error = (printed[0] - printed[1]).abs().max() / printed[1].abs().max()
        assert error > 0.01, "it is no rounding"


def test_equation_11_on_a_batch_as_anisotropic_as_bert() -> None:
    draw = torch.Generator().manual_seed(0)
    n, d = 128, 768
    centre, noise = (
        torch.randn(1, d, dtype=F64, generator=draw),
        torch.randn(n, d, dtype=F64, generator=draw),
    )
    h = unit(math.sqrt(0.5) * unit(centre) + math.sqrt(0.5) * unit(noise))

    def repulsion(x: Tensor) -> Tensor:
        x = x - x.mean(0)
        return no_diagonal(x.T @ x / (n - 1)).square().sum() / d

    nu = 2 * n**2 / (d * (n - 1) ** 2)
    printed = perp(2 / n * nu * no_diagonal(h @ h.T) / n @ h, h)
    assert 100 < printed.norm() / perp(grad(repulsion, h), h).norm() < 125


@pytest.mark.parametrize(("nu", "error"), [(1.0, 0.002), (30.0, 0.07)])
def test_equation_11_on_random_vectors(nu: float, error: float) -> None:
    h, g = batch(128, 768, spread=0.4 / math.sqrt(768))
    n, d = h.shape

    def vicreg(x: Tensor) -> Tensor:
        covariance = (x - x.mean(0)).T @ (x - x.mean(0)) / (n - 1)
        weight = nu * d * (n - 1) ** 2 / (2 * n**2)
        return (x - g).square().sum(1).mean() + weight / d * no_diagonal(covariance).square().sum()

    printed = perp(2 / n * (-g + nu * no_diagonal(h @ h.T) / n @ h), h)
    exact = perp(grad(vicreg, h), h)
    assert float((printed - exact).norm() / exact.norm()) == pytest.approx(error, rel=0.25)


def test_mean_ratio_of_the_released_form() -> None:
    """E11: r (A_i + B_i) / A_i, weighted by A_i, at r = 1; of eq. 17 it is no constant."""
    views = batch(32, 16, spread=0.3)
    away = 1 - torch.eye(32, dtype=F64)

    def energies(x: Tensor) -> Tensor:
        return (x @ x.T / 0.05).exp() * away

    def hardest(x: Tensor, y: Tensor) -> Tensor:
        return 1 / (torch.cdist(x, y) + 9 * torch.eye(32, dtype=F64)).amin(1)

    weights: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "eq. 16": lambda x, y: 2 * energies(x).sum(1) / (0.05 * energies(x).sum()),
        "eq. 17": hardest,
        "eq. 18": lambda x, y: energies(y).sum(1) / energies(y).sum(),
        "eq. 19": lambda x, y: energies(x).sum(1) / energies(x).sum(),
    }
    for name, of in weights.items():
        a, b = of(*views), of(*reversed(views))
        mean = float((a * (a + b) / a).sum() / a.sum())
        if name == "eq. 17":
            assert 1e-6 < abs(mean - 2) < 0.1
        else:
            assert mean == pytest.approx(2, abs=1e-12)


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.number)
def test_quotations_are_in_the_text(row) -> None:
    text = TEXTS / document()["files"][row.paper]
    if not text.is_file():
        pytest.skip("the texts of the papers are not here")

    def squeezed(words: str) -> str:  # the texts break lines of formulas with %
        return re.sub(r"[%\s]+", "", words)

    whole = squeezed(text.read_text(encoding="utf-8"))
    assert row.quote or row.kind in ("code", "withdrawn")
    for quote in row.quote:
        assert squeezed(quote) in whole


def test_what_is_withdrawn_was_right() -> None:
    """The literal losses of E6, E7 and E8 have the printed gradients."""
    h, g = batch()
    n, i, r, tau, nu = len(h), 3, 1.75, 0.5, 0.5
    others = torch.cat([h[:i], h[i + 1 :]])
    distances = (h[i] - others).norm(dim=1)
    near, d = others[distances.argmin()], distances.min()
    a, b = torch.triu_indices(n, n, 1)
    energy = (h @ h.T / tau).exp()[a, b].sum()
    row = (others @ h[i] / tau).exp()

    def rows(x: Tensor) -> Tensor:
        return torch.cat([h[:i], x[None], h[i + 1 :]])

    def mhe(x: Tensor) -> Tensor:  # eq. 14 at d_i = 1
        apart = (rows(x)[a] - rows(x)[b]).square().sum(1)
        pull = r * row.sum() / (2 * tau * energy)
        return pull * (x - g[i]).square().sum() + (-apart / (2 * tau)).logsumexp(0)

    def mhs(x: Tensor) -> Tensor:
        return nu * -(x - others).norm(dim=1).min() + (rows(x) - g).square().sum(1).mean()

    eq16 = (row[:, None] * (others - r * g[i])).sum(0) / (tau * energy)
    torch.testing.assert_close(perp(grad(mhe, h[i]), h[i]), perp(eq16, h[i]), rtol=0, atol=1e-13)
    ratio = 2 * d / (nu * n)
    table2 = nu / d * (near - ratio * g[i])
    torch.testing.assert_close(perp(grad(mhs, h[i]), h[i]), perp(table2, h[i]), rtol=0, atol=1e-13)
