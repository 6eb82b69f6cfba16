"""Our objectives as losses of sentence-transformers, by its own trainer."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.optimizer import _global_optimizer_pre_hooks as hooks

pytest.importorskip("accelerate")
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses

from isotrope import Doctor
from isotrope.adapters.doctor.hugging_face import losses_of_backward
from isotrope.adapters.sentence_transformers import CachedObjectiveLoss, ObjectiveLoss
from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.kernels import fused
from isotrope.objectives import InfoNCE
from isotrope.paradigm import registry
from isotrope.paradigm.graph_reading import GraphReading
from tests.adapters.trainers import columns, scratch, texts, trainer
from tests.two_processes import on_two

BOTH = [ObjectiveLoss, pytest.param(CachedObjectiveLoss, marks=pytest.mark.slow)]


def features(model: SentenceTransformer, *parts: list[str]) -> list[dict[str, Tensor]]:
    return [model.preprocess(part) for part in parts]


def quiet(model: SentenceTransformer) -> SentenceTransformer:
    """Without dropout, so that two ways can be compared."""
    return model.eval().double()


def gradient(loss: torch.nn.Module, given: list[dict[str, Tensor]]) -> tuple[float, Tensor]:
    loss.zero_grad()
    value = loss([dict(one) for one in given], None)
    value.backward()
    found = [p.grad.flatten() for p in loss.parameters() if p.grad is not None]
    return float(value.detach()), torch.cat(found)


@pytest.mark.parametrize("name", registry.names())
def test_every_objective_in_one_piece_and_in_several(name: str) -> None:
    """Value and gradient are the objective's own, whole and cached."""
    model = quiet(scratch(width=16, layers=1))
    objective = registry.build(name)
    if objective.space == "logits":
        pytest.skip("of logits, not of embeddings")
    given = features(model, texts(12, 0), texts(12, 1))
    h = [model(dict(one))["sentence_embedding"] for one in given]
    expected = objective.loss(Views(*h))
    model.zero_grad()
    expected.backward()
    own = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    for loss in (
        ObjectiveLoss(model, objective),
        CachedObjectiveLoss(model, objective, mini_batch_size=5),
    ):
        value, found = gradient(loss, given)
        assert value == pytest.approx(float(expected.detach()), rel=1e-9)
        assert torch.allclose(found, own, rtol=1e-6, atol=1e-9 * float(own.abs().max()))
        assert loss.get_config_dict()["objective"] == name
        assert loss.citation.startswith("\n@misc{")


class Stored(torch.nn.Module):
    """An encoder whose weights are its embeddings, so that only the loss can be rounded."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = torch.nn.Parameter(rows)

    def forward(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        return given | {"sentence_embedding": self.rows[given["input_ids"][:, 0]]}


@pytest.mark.parametrize("kind", [ObjectiveLoss, CachedObjectiveLoss])
def test_within_autocast_no_gradient_is_rounded(kind: Any) -> None:
    """Float16 would even lose it: it is small where the negatives are easy."""
    random = torch.Generator().manual_seed(0)
    anchors, noise = torch.randn(2, 64, 64, generator=random)
    model = SentenceTransformer(
        modules=[Stored(torch.cat([anchors, anchors + 0.8 * noise]))], device="cpu"
    )
    loss = kind(model, InfoNCE(temperature=0.02))
    each = torch.ones(64, 1, dtype=torch.long)
    given = [
        {"input_ids": torch.arange(start, start + 64)[:, None], "attention_mask": each}
        for start in (0, 64)
    ]
    _, plain = gradient(loss, given)
    with torch.autocast("cpu", dtype=torch.float16):
        _, found = gradient(loss, given)
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6 * float(plain.abs().max()))


def test_it_is_their_loss_where_theirs_is_infonce() -> None:
    model = quiet(scratch())
    given = features(model, texts(8, 0), texts(8, 1), texts(8, 2))
    ours = gradient(ObjectiveLoss(model, "infonce", temperature=0.1), given)
    theirs = gradient(losses.MultipleNegativesRankingLoss(model, scale=10.0), given)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-9)
    assert torch.allclose(ours[1], theirs[1], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("kind", [ObjectiveLoss, CachedObjectiveLoss])
@pytest.mark.parametrize("both", [False, True])
def test_a_temperature_that_is_a_parameter_is_trained(
    kind: Any, both: bool, tmp_path: Path
) -> None:
    temperature = torch.nn.Parameter(torch.tensor(0.05))
    objective = InfoNCE(temperature=temperature)
    model = scratch(width=16, layers=1)
    loss = kind(model, objective.symmetric() if both else objective)
    trainer(model, loss, columns("anchor", "positive"), tmp_path).train()
    assert abs(temperature.item() - 0.05) > 1e-3  # 4 steps of AdamW at 1e-3, falling
    assert loss.get_config_dict()["temperature"] == temperature.item()


def test_a_tensor_that_no_optimiser_finds_is_refused() -> None:
    temperature = torch.tensor(0.05, requires_grad=True)
    for kind in (ObjectiveLoss, CachedObjectiveLoss):
        with pytest.raises(InputError, match="give temperature as an nn"):
            kind(scratch(width=16, layers=1), InfoNCE(temperature=temperature))
        with pytest.raises(InputError, match="temperature cannot be learnt if the objective is"):
            kind(scratch(width=16, layers=1), "infonce", temperature=temperature)


@pytest.mark.parametrize("factor", [1.0, 0.25, 65536.0])
def test_a_factor_of_the_loss_reaches_a_temperature_that_is_trained(factor: float) -> None:
    """As gradient accumulation, float16 scaling and weights of several losses have it."""
    model = quiet(scratch(width=16, layers=1))
    given = features(model, texts(8, 0), texts(8, 1))
    temperature = torch.nn.Parameter(torch.tensor(0.1, dtype=torch.float64))
    objective = InfoNCE(temperature=temperature)
    found = []
    for loss in (
        ObjectiveLoss(model, objective),
        CachedObjectiveLoss(model, objective, mini_batch_size=3),
    ):
        loss.zero_grad()
        value = loss([dict(one) for one in given], None) * factor
        value.backward()
        assert temperature.grad is not None
        found.append((float(value.detach()), float(temperature.grad)))
    assert found[1] == pytest.approx(found[0], rel=1e-9)
    assert found[0][1] != 0


def test_a_cached_loss_with_a_trained_temperature_is_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In large batches, the value and all gradients are computed together."""
    sweeps: list[object] = []
    plain = fused._sweep
    monkeypatch.setattr(fused, "_sweep", lambda *given: sweeps.append(given) or plain(*given))
    model = quiet(scratch(width=16, layers=1))
    temperature = torch.nn.Parameter(torch.tensor(0.1, dtype=torch.float64))
    temperature.grad = torch.tensor(2.0, dtype=torch.float64)
    loss = CachedObjectiveLoss(model, InfoNCE(temperature=temperature), backend="rowblock")
    loss(features(model, texts(8, 0), texts(8, 1)), None).backward()
    assert len(sweeps) == 1
    assert temperature.grad != 2


@pytest.mark.parametrize("kind", [ObjectiveLoss, CachedObjectiveLoss])
def test_a_last_batch_of_one_pair_teaches_a_temperature_nothing(kind: Any) -> None:
    model = quiet(scratch(width=16, layers=1))
    temperature = torch.nn.Parameter(torch.tensor(0.1))
    value, found = gradient(
        kind(model, InfoNCE(temperature=temperature)), features(model, texts(1, 0), texts(1, 1))
    )
    assert value == 0
    assert not found.any()
    assert temperature.grad == 0


def test_the_doctor_reads_a_cached_loss_whose_temperature_is_trained() -> None:
    model = quiet(scratch(width=16, layers=1))
    given = features(model, texts(8, 0), texts(8, 1))
    objective = InfoNCE(temperature=torch.nn.Parameter(torch.tensor(0.1)))
    loss = CachedObjectiveLoss(model, objective, mini_batch_size=3)
    readings: list[GraphReading] = []
    with losses_of_backward(lambda value: readings.append(GraphReading(value))):
        loss(given, None)
    assert [kind for kind, _ in readings[0].known] == [objective]


def test_a_trained_temperature_is_refused_within_a_cached_matryoshka_loss() -> None:
    """Their weights of the dimensions reach embeddings only."""
    model = quiet(scratch(width=16, layers=1))
    given = features(model, texts(8, 0), texts(8, 1))
    learnt = InfoNCE(temperature=torch.nn.Parameter(torch.tensor(0.1)))
    loss = losses.MatryoshkaLoss(model, CachedObjectiveLoss(model, learnt), [16, 8])
    with pytest.raises(InputError, match="use ObjectiveLoss, or give the hyper"):
        loss(given, None)
    values = [
        gradient(losses.MatryoshkaLoss(model, inner, [16, 8], [1.0, 0.5]), given)
        for inner in (
            ObjectiveLoss(model, "infonce"),
            CachedObjectiveLoss(model, "infonce", mini_batch_size=3),
        )
    ]
    assert values[0][0] == pytest.approx(values[1][0], rel=1e-9)
    assert torch.allclose(values[0][1], values[1][1], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    "objective", [InfoNCE().modify(dissipation="margin:0.3"), registry.build("simclrgrad")]
)
def test_negatives_that_are_held_constant_are_no_unused_column(objective: Any) -> None:
    model = quiet(scratch(width=16, layers=1))
    given = features(model, texts(8, 0), texts(8, 1), texts(8, 2))
    whole = gradient(ObjectiveLoss(model, objective), given)
    pieces = gradient(CachedObjectiveLoss(model, objective, mini_batch_size=3), given)
    assert pieces[0] == pytest.approx(whole[0], rel=1e-9)
    assert torch.allclose(pieces[1], whole[1], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("kind", BOTH)
def test_rows_of_one_label_are_not_pushed_apart(kind: Any) -> None:
    model = quiet(scratch(width=16, layers=1))
    given, groups = features(model, texts(6, 0), texts(6, 1)), torch.tensor([0, 1, 0, 2, 3, 1])
    h = [model(dict(one))["sentence_embedding"] for one in given]
    expected = float(InfoNCE().loss(Views(*h, groups=groups)).detach())
    loss = kind(model, "infonce", groups=True)
    assert float(loss([dict(one) for one in given], groups).detach()) == pytest.approx(expected)
    plain = float(kind(model, "infonce")([dict(one) for one in given], groups).detach())
    assert plain > expected + 1e-6
    with pytest.raises(InputError, match="add a column 'label' of integers, or"):
        loss([dict(one) for one in given], None)
    # scores would become one group of all below 1
    with pytest.raises(InputError, match="found fractions"):
        loss([dict(one) for one in given], groups / 4)


@pytest.mark.parametrize("kind", BOTH)
def test_training_resumes_exactly(kind: Any, tmp_path: Path) -> None:
    """By their trainer, dropout on; and the embeddings spread."""
    data = columns("text", count=64)
    saving = {"save_strategy": "steps", "save_steps": 4, "max_steps": 8}
    model = scratch()
    whole = trainer(model, kind(model, "infonce"), data, tmp_path / "whole", **saving)
    start = model.encode(data["text"], normalize_embeddings=True)
    whole.train()
    end = model.encode(data["text"], normalize_embeddings=True)
    assert (end @ end.T).mean() < (start @ start.T).mean() - 0.01

    other = scratch(1)  # other weights, until the checkpoint is read
    again = trainer(other, kind(other, "infonce"), data, tmp_path / "again", **saving)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    ours, theirs = model.state_dict(), other.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_modified_objectives_and_the_anatomy(tmp_path: Path) -> None:
    model = scratch()
    loss = ObjectiveLoss(model, InfoNCE(temperature=0.1).modify(dissipation="margin:0.3"))
    theirs = trainer(model, loss, columns("text"), tmp_path, max_steps=2)
    anatomy = Doctor(every=1, say=None)
    theirs.add_callback(anatomy)  # type: ignore[arg-type]
    theirs.train()
    assert [row["step"] for row in anatomy.rows if row["norm"]] == [0, 1]
    assert all(0 <= row["dissipation"] <= 1 for row in anatomy.rows if row["norm"])
    about = loss.get_config_dict()
    assert about["dissipation"] == "margin:0.3:dot"
    assert "temperature=0.1" in about["parent"]


@pytest.mark.parametrize("kind", BOTH)
def test_matryoshka_adds_up_the_losses_of_prefixes(kind: Any, tmp_path: Path) -> None:
    """Value and gradient of their wrapper are the objective's on each prefix, added up."""
    model = quiet(scratch())
    given = features(model, texts(8, 0), texts(8, 1))
    objective = registry.build("miov3")
    h = [model(dict(one))["sentence_embedding"] for one in given]
    expected = sum(objective.loss(Views(*(x[:, :d] for x in h))) for d in (128, 32, 16))
    model.zero_grad()
    expected.backward()
    own = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    nested = losses.MatryoshkaLoss(model, kind(model, objective), [128, 32, 16])
    value, found = gradient(nested, given)
    assert value == pytest.approx(float(expected.detach()), rel=1e-9)
    assert torch.allclose(found, own, rtol=1e-6, atol=1e-9 * float(own.abs().max()))
    trainer(model, nested, columns("a", "p"), tmp_path, max_steps=1).train()
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize(
    "wrapper",
    [losses.AdaptiveLayerLoss, pytest.param(losses.Matryoshka2dLoss, marks=pytest.mark.slow)],
)
def test_wrappers_that_look_into_the_layers(wrapper: Any, tmp_path: Path) -> None:
    model = scratch()
    more = {"matryoshka_dims": [64, 32]} if wrapper is losses.Matryoshka2dLoss else {}
    wrapped = wrapper(model, ObjectiveLoss(model, "infonce"), **more)
    trainer(model, wrapped, columns("a", "p"), tmp_path, max_steps=1).train()
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize("kind", BOTH)
def test_an_epoch_may_leave_one_row_over(kind: Any, tmp_path: Path) -> None:
    model = scratch()
    data = columns("a", "p", count=9)
    trainer(model, kind(model, "infonce"), data, tmp_path, max_steps=2).train()
    assert all(torch.isfinite(p).all() for p in model.parameters())
    one = features(model, texts(1, 0), texts(1, 1))
    value, found = gradient(kind(model, "barlowtwins"), one)
    assert value == 0
    assert not found.any()
    hard = features(model, texts(1, 0), texts(1, 1), texts(1, 2))
    assert gradient(kind(model, "infonce"), hard)[0] > 0, "a hard negative is one to compare with"


@pytest.mark.slow
def test_their_adapters_and_several_data_sets(tmp_path: Path) -> None:
    """LoRA by their ``add_adapter``: the weights of the model stay."""
    peft = pytest.importorskip("peft")
    model = scratch()
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"]))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loss = {"a": ObjectiveLoss(model, "met"), "b": CachedObjectiveLoss(model, "dcl")}
    data = {"a": columns("a", "p"), "b": columns("text")}
    trainer(model, loss, data, tmp_path, max_steps=4).train()  # type: ignore[arg-type]
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) != ("lora_" in name), name


def test_the_model_card_names_objective_and_source(tmp_path: Path) -> None:
    model = scratch()
    loss = ObjectiveLoss(model, "dcl", temperature=0.2)
    theirs = trainer(model, loss, columns("a", "p"), tmp_path, max_steps=1)
    theirs.train()
    theirs.create_model_card()
    card = (tmp_path / "README.md").read_text()
    assert '"objective": "dcl"' in card
    assert '"temperature": 0.2' in card
    assert "Decoupled Contrastive Learning" in card


def test_what_cannot_be_is_said() -> None:
    model = scratch()
    with pytest.raises(InputError, match="infonc"):
        ObjectiveLoss(model, "infonc")
    with pytest.raises(InputError, match=r"set temperature in InfoNCE\("):
        ObjectiveLoss(model, InfoNCE(), temperature=0.1)
    with pytest.raises(InputError, match="mini_batch_size"):
        CachedObjectiveLoss(model, "infonce", mini_batch_size=0)
    with pytest.raises(InputError, match="takes no hard negatives; found 3 columns"):
        ObjectiveLoss(model, "vicreg")(features(model, *(texts(4, i) for i in range(3))))
    with pytest.raises(InputError, match="found 1"):
        ObjectiveLoss(model, "infonce").compute_loss_from_embeddings([torch.ones(2, 2)])


def _rank(rank: int) -> dict[tuple[str, str], tuple[float, Tensor]]:
    model = quiet(scratch())
    own = slice(0, 5) if rank == 0 else slice(5, 8)
    found = {}
    for name in ("infonce", "ntxent", "barlowtwins"):
        for kind in (ObjectiveLoss, CachedObjectiveLoss):
            loss = kind(model, name, gather_across_devices=True)
            given = features(model, texts(8, 0)[own], texts(8, 1)[own])
            value, mine = gradient(loss, given)
            dist.all_reduce(mine)
            found[name, kind.__name__] = value, mine / 2
    return found


SPLITS = {True: 5, False: 7}
"""Rows of the first of two processes, by ``gather``; without it, a last batch may be one pair."""


def _of_temperature(kind: Any, gather: bool, rows: slice) -> float:
    model = quiet(scratch(width=16, layers=1))
    temperature = torch.nn.Parameter(torch.tensor(0.1, dtype=torch.float64))
    loss = kind(model, InfoNCE(temperature=temperature), gather_across_devices=gather)
    gradient(loss, features(model, texts(8, 0)[rows], texts(8, 1)[rows]))
    torch.optim.SGD([temperature], lr=0.1).step()
    assert temperature.grad is not None
    return float(temperature.grad)


def _learnt_by_one(rank: int) -> list[float | None]:
    """The gradients after a step of two temperatures: the first process trains the first."""
    model = quiet(scratch(width=16, layers=1))
    both = [torch.nn.Parameter(torch.tensor(0.1)) for _ in range(2)]
    loss, _ = (ObjectiveLoss(model, InfoNCE(temperature=one)) for one in both)
    if rank == 0:
        gradient(loss, features(model, texts(8, 0), texts(8, 1)))
    torch.optim.SGD(both, lr=0.1).step()
    return [None if one.grad is None else float(one.grad) for one in both]


def _learnt(rank: int) -> dict[bool, list[float]]:
    return {
        gather: [
            _of_temperature(kind, gather, slice(first, 8) if rank else slice(first))
            for kind in (ObjectiveLoss, CachedObjectiveLoss)
        ]
        for gather, first in SPLITS.items()
    }


@pytest.mark.slow
def test_processes_learn_one_temperature(tmp_path: Path) -> None:
    """Their trainer wraps the model only, so no DDP averages the gradient of the loss's number."""
    whole = _of_temperature(ObjectiveLoss, False, slice(8))
    mean = _of_temperature(ObjectiveLoss, False, slice(SPLITS[False])) / 2  # a pair adds 0
    for found in on_two(_learnt, tmp_path):
        assert found[True] == pytest.approx([whole] * 2, rel=1e-6)
        assert found[False] == pytest.approx([mean] * 2, rel=1e-6)


@pytest.mark.slow
def test_a_process_without_the_loss_learns_its_temperature_too(tmp_path: Path) -> None:
    """Several data sets: the batch of the other process has another loss."""
    (mean, unused), other = on_two(_learnt_by_one, tmp_path)
    assert mean
    assert unused is None
    assert other == [mean, None]


@pytest.mark.slow
def test_two_processes_have_the_loss_of_one(tmp_path: Path) -> None:
    """Their gradients, which their trainer averages, are those of the whole batch."""
    found, _ = on_two(_rank, tmp_path)
    model = quiet(scratch())
    given = features(model, texts(8, 0), texts(8, 1))
    for (name, _), (value, shared) in found.items():
        expected, own = gradient(ObjectiveLoss(model, name), given)
        assert value == pytest.approx(expected, rel=1e-6)
        assert torch.allclose(shared, own, rtol=1e-5, atol=1e-8 * float(own.abs().max()))


def test_no_hook_outlives_a_learnt_temperature() -> None:
    before, temperature = dict(hooks), torch.nn.Parameter(torch.tensor(0.05))
    loss = ObjectiveLoss(scratch(width=16, layers=1), InfoNCE(temperature=temperature))
    assert len(hooks) == len(before) + 1
    del loss, temperature
    gc.collect()
    assert dict(hooks) == before
