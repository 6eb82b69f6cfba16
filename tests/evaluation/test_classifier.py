"""The transfer classifier: SentEval's rules in the plain loop, and the batched form against it."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from benchmarks import sequential
from benchmarks.sequential import fit_sequential
from isotrope.evaluation import classifier
from isotrope.evaluation.classifier import (
    FULL,
    PROTOTYPING,
    ClassifierProtocol,
    Fitted,
    TrainingSet,
    fit,
    initial,
    predict,
)

WAYS = pytest.mark.parametrize("fit", [fit_sequential, fit])


def toy(n: int, classes: int, dimension: int = 6, seed: int = 0):
    """Overlapping clouds, as float64 features and classes."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    x = rng.normal(size=(n, dimension)) + rng.normal(size=(classes, dimension))[y]
    return torch.from_numpy(x), torch.from_numpy(y)


def folds(y: torch.Tensor, count: int, **settings: object) -> list[TrainingSet]:
    parts = StratifiedKFold(count, shuffle=True, random_state=1111).split(np.zeros(len(y)), y)
    return [TrainingSet(train, dev, **settings) for train, dev in parts]


def agree(one: list[Fitted], other: list[Fitted]) -> None:
    assert [f.accuracies for f in one] == [f.accuracies for f in other]
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a.weights, b.weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("classes", "protocol"),
    [
        (2, dataclasses.replace(FULL, most=20)),  # the cap ends some fits
        (3, dataclasses.replace(FULL, tenacity=0, batch=16)),  # the first failure ends each
        (2, PROTOTYPING),
        (6, dataclasses.replace(PROTOTYPING, batch=13, most=12)),
    ],
)
@pytest.mark.slow
def test_batched_is_sequential(
    classes: int, protocol: ClassifierProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training sets of several sizes, more of one than a stack holds, and held-out examples."""
    monkeypatch.setattr(classifier, "_TOGETHER", 3)
    x, y = toy(93, classes)
    sets = [*folds(y, 6), TrainingSet(np.arange(93))]
    assert sorted(len(given.train) for given in sets) == [77, 77, 77, 78, 78, 78, 93]
    sets += folds(y[:90], 5)[:4]
    sets += [
        TrainingSet(np.arange(i, 80 + i), None, (decay,)) for i, decay in enumerate((1e-5, 1.0))
    ]
    sets += folds(y, 3, decays=(0.0, 0.1))
    ended: dict[str, list[int]] = {"sequential": [], "batched": []}
    one = fit_sequential(x, y, classes, sets, protocol, ended["sequential"].append)
    other = fit(x, y, classes, sets, protocol, ended["batched"].append)
    agree(one, other)
    assert {name: sum(counts) for name, counts in ended.items()} == dict.fromkeys(
        ended, sum(len(given.decays) for given in sets)
    )
    assert len({tuple(f.accuracies) for f in one}) > 3  # not all alike
    for given, fitted in zip(sets, other, strict=True):
        assert fitted.weights.shape == (len(given.decays), classes, 7)
        if given.dev is not None:
            right = [predict(w, x[given.dev]) == y[given.dev] for w in fitted.weights]
            assert fitted.accuracies == [r.double().mean().item() for r in right]


@WAYS
def test_float32_features(fit) -> None:
    x, y = toy(200, 3)
    (given,) = (TrainingSet(np.arange(150), np.arange(150, 200)),)
    (double,), (single,) = (
        fit(features, y, 3, [given], PROTOTYPING) for features in (x, x.float())
    )
    assert single.weights.dtype == torch.float32
    assert np.allclose(double.accuracies, single.accuracies, atol=0.041)


class Draws(np.random.RandomState):
    """Counts the permutations that all its instances have drawn."""

    drawn = 0

    def permutation(self, n: int) -> np.ndarray:
        Draws.drawn += 1
        return super().permutation(n)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch):
    """Replace what a classifier predicts, so that the accuracies on 100 examples are given."""
    monkeypatch.setattr(np.random, "RandomState", Draws)
    Draws.drawn = 0

    def script(percents: list[int]) -> None:
        values = iter(percents)

        def predicted(weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return (torch.arange(100) >= next(values)).long()  # the labels are 0

        for module in (sequential, classifier):
            monkeypatch.setattr(module, "predict", predicted)

    return script


@WAYS
@pytest.mark.parametrize(
    ("percents", "looks", "best"),
    [
        ([50, *[50] * 30], 4, 50),  # tenacity 2: the third look without improvement ends it
        ([50, 40, 60, 60, 70, 70, 99, 99], 6, 70),  # an improvement does not reset the count
        ([*range(10, 60)], 11, 20),  # 20 passes, two between looks: after 0 to 20 passes
    ],
)
def test_when_a_fit_ends(fit, scripted, percents: list[int], looks: int, best: int) -> None:
    x, y = toy(110, 2)
    y[:100] = 0
    given = TrainingSet(np.arange(100, 110), np.arange(100), (0.0,))
    scripted(percents)
    (found,) = fit(
        x, y, 2, [given], ClassifierProtocol(5, "adam", 4, tenacity=2, passes=2, most=20)
    )
    assert Draws.drawn == 2 * looks
    assert found.accuracies == [best / 100]


@WAYS
def test_the_best_weights_are_kept(fit, scripted) -> None:
    """Those of the look that improved, not the last ones."""
    x, y = toy(110, 2)
    y[:100] = 0
    given = TrainingSet(np.arange(100, 110), np.arange(100), (0.0,))
    protocol = ClassifierProtocol(5, "rmsprop", 4, tenacity=1, passes=1)
    scripted([10, 80, 20, 70])
    (found,) = fit(x, y, 2, [given], protocol)
    scripted([10, 80])
    (short,) = fit(x, y, 2, [given], dataclasses.replace(protocol, most=1))
    assert torch.equal(found.weights, short.weights)


def test_the_draws_are_those_of_the_global_seeds() -> None:
    """And the state of torch's generator is left alone."""
    torch.manual_seed(1111)
    expected = torch.nn.Linear(5, 3)
    before = torch.get_rng_state()
    layer = initial(5, 3, torch.float32)
    assert torch.equal(layer.weight, expected.weight)
    assert torch.equal(layer.bias, expected.bias)
    assert torch.equal(torch.get_rng_state(), before)
    np.random.seed(1111)  # noqa: NPY002 - what SentEval calls
    order = np.random.permutation(45)  # noqa: NPY002
    train, dev = classifier.held_out(TrainingSet(np.arange(100, 145)), np.random.RandomState(1111))
    assert dev.tolist() == (100 + order[:2]).tolist()  # int(.05 * 45)
    assert train.tolist() == (100 + order[2:]).tolist()


def test_one_step_of_adam_by_hand() -> None:
    """The first step moves every weight by the learning rate, against its gradient."""
    x, y = torch.tensor([[2.0, -1.0]], dtype=torch.float64), torch.tensor([1])
    given = TrainingSet(np.array([0]), np.array([0]), (0.0,))
    protocol = ClassifierProtocol(5, "adam", 1, tenacity=0, passes=1, most=0)
    (found,) = fit_sequential(x, y, 2, [given], protocol)
    start = initial(2, 2, torch.float64)
    first = torch.cat([start.weight, start.bias[:, None]], dim=1)
    signs = torch.tensor([[-1.0, 1.0, -1.0], [1.0, -1.0, 1.0]], dtype=torch.float64)
    assert torch.allclose(found.weights[0] - first, 0.001 * signs, atol=1e-9)


def test_another_default_device_or_dtype_changes_nothing() -> None:
    x, y = toy(40, 3)
    expected = fit(x, y, 3, folds(y, 2), PROTOTYPING)
    try:
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.bfloat16)
        agree(fit(x, y, 3, folds(y, 2), PROTOTYPING), expected)
    finally:
        torch.set_default_device("cpu")
        torch.set_default_dtype(torch.float32)
