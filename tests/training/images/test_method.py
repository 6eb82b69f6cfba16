"""What all methods on images share: crops, caching, what is logged, runs that are resumed."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from isotrope.core.distributed import GlobalBatch
from isotrope.core.errors import InputError
from isotrope.core.image_methods import METHODS
from isotrope.core.views import Views
from isotrope.data.images.batches import ImageBatches
from isotrope.data.images.records import ImagePart
from isotrope.diagnostics.metrics import MEASURED, TRACKED
from isotrope.encoders.image import ImageEncoder
from isotrope.measures.alignment import alignment
from isotrope.paradigm import registry
from isotrope.training.checkpoints import Checkpoints
from isotrope.training.images.method import ImageMethod, Options, measure
from isotrope.training.images.settings import ImageSettings
from isotrope.training.loop import Steps, TrainingTask, make_steps, trainer_of
from isotrope.training.nan_guard import NonFiniteGuard
from isotrope.training.run_callback import RunCallback
from isotrope.training.run_log import Timer
from isotrope.training.trainers import ImageTrainer
from tests.measures.test_spread import entropy_rank
from tests.training.tiny_images import STEPS, batch, encoder, gradients, method, plan


def test_crops_are_a_function_of_seed_and_step() -> None:
    made, same, other = method("simclr"), method("simclr"), method("simclr", seed=4)
    made(batch(2))  # draws of another step leave no trace
    first = made.crops(batch(1))
    assert len(first) == 2
    assert not torch.equal(first[0], first[1])
    for a, b in zip(first, same.crops(batch(1)), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first[0], other.crops(batch(1))[0])
    assert not torch.equal(first[0], made.crops(batch(1)._replace(step=2))[0])


def test_heads_are_a_function_of_the_seed_and_leave_torchs_generator_alone() -> None:
    before = torch.get_rng_state()
    made, same, other = method("byol"), method("byol"), method("byol", seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    weights = [m.predictor[0].weight for m in (made, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_dropout_is_a_function_of_seed_and_step() -> None:
    def loss(step: int) -> float:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, 5))
            wrapped = ImageEncoder.wrap(net, dimension=5, image_size=8)
        made = method("simclr", encoder=wrapped)
        crops = [torch.ones(6, 3, 8, 8).double()] * 2
        made.crops = lambda batch: crops
        return float(made(batch(step)).detach())

    assert loss(1) == loss(1)
    assert loss(1) != loss(2)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_caching_changes_nothing_but_the_number_of_graphs(name: str, norm: bool) -> None:
    """Batch normalisation in the heads sees the whole batch, in the averages' heads too."""
    plain = encoder(batch_norm=False)
    whole, pieces = (
        method(name, encoder=copy.deepcopy(plain), options={"batch_norm": norm}, caching=caching)
        for caching in (None, 4)
    )
    sizes: list[int] = []
    pieces.encoder.register_forward_hook(lambda _, args, out: sizes.append(len(args[0])))
    losses = [m(batch()) for m in (whole, pieces)]
    assert torch.allclose(losses[0], losses[1], rtol=1e-12)
    for loss in losses:
        loss.backward()
    assert max(sizes) == 4
    found, expected = gradients(pieces), gradients(whole)
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[k], expected[k], rtol=1e-9, atol=1e-14) for k in expected)


def test_caching_is_refused_with_batch_statistics_in_the_encoder_only() -> None:
    with pytest.raises(
        InputError, match=r"replace model\.1 \(BatchNorm2d\) by .* or keep it in eval"
    ):
        method("byol", batch_norm=True, caching=4)
    method("byol", encoder=encoder(batch_norm=False), batch_norm=True, caching=4)


@pytest.mark.parametrize("name", METHODS)
def test_half_precision_reaches_no_objective(name: str) -> None:
    made = method(name, batch_norm=True, log_every=1).float()
    seen: list[GlobalBatch] = []
    completed = made.completed
    made.completed = lambda wholes: (seen.extend(wholes), completed(wholes))[1]
    with torch.autocast("cpu", torch.bfloat16):
        loss = made(batch())
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(w.views.anchors.dtype == w.views.positives.dtype == torch.float32 for w in seen)
    assert all(g.isfinite().all() for g in gradients(made).values())


def test_what_is_logged_is_measured_on_the_first_term() -> None:
    made = method("byol", log_every=2)
    made(batch(1))
    assert made.measured == {}
    loss = made(batch(2))
    crops = [x.double() for x in made.crops(batch(2))]
    views = made.views(crops)[0]
    found = made.measured
    assert {*MEASURED, *TRACKED, "loss"} <= found.keys()
    assert found["loss"] == float(loss.detach())
    assert found["norm"] == pytest.approx(views.anchors.norm(dim=1).mean().item(), rel=1e-12)
    expected = float(alignment(views.anchors, views.positives).detach())
    assert found["alignment"] == pytest.approx(expected, rel=1e-12)
    features = made.encoder(crops[1]).norm(dim=1).mean().item()
    assert found["norm_backbone"] == pytest.approx(features, rel=1e-12)
    made.measured = {}
    made(batch(STEPS - 1))  # the last step
    assert made.measured


@pytest.mark.parametrize("shape", [(12, 5), (5, 12)])
def test_the_measured_rank_is_the_effective_rank(shape: tuple[int, int]) -> None:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    found = measure(registry.build("infonce"), Views(x, -x), 3 * x)
    assert found["effective_rank"] == pytest.approx(entropy_rank(x), rel=1e-6)
    assert found["opposite_halves"] == found["far_opposite"] == 1
    assert found["norm_backbone"] == pytest.approx(3 * found["norm"], rel=1e-6)


def test_the_centre_is_not_rounded_to_half_precision() -> None:
    made = method("dino", log_every=1).float()
    with torch.autocast("cpu", torch.bfloat16):
        made(batch())
        expected = made._outputs.float().mean(dim=0)
        made.after_step()
    torch.testing.assert_close(made.middle, 0.1 * expected, rtol=1e-5, atol=0)


def test_of_logits_there_are_norms_and_rank_only() -> None:
    made = method("dino", log_every=1)
    made(batch())
    measured = {k for k, v in made.measured.items() if v is not None}
    assert measured == {*TRACKED, "loss", "norm", "effective_rank", "embedding_gradient"}


def test_a_method_that_writes_nothing_says_so() -> None:
    class Nothing(ImageMethod):
        name = "nothing"

    with pytest.raises(TypeError, match="abstract"):
        Nothing(
            encoder=encoder(batch_norm=False),
            objective=registry.build("infonce"),
            plan=plan(),
            options=Options(),
            augments=(),
        )


def test_a_task_that_saves_the_last_step_has_no_best_one() -> None:
    with pytest.raises(TypeError, match="define keep"):
        TrainingTask.keep(object(), 3)  # type: ignore[arg-type]


FOLLOW = ("target", "teacher", "queue", "middle")


class Kept(TrainerCallback):
    """Keeps the state at the end of each step, and ends before one."""

    def __init__(self, made: ImageMethod, stop: int) -> None:
        self.made, self.stop = made, stop
        self.states: list[dict[str, torch.Tensor]] = []
        self.rates: list[float] = []

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.rates.append(given["optimizer"].param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.states.append({k: v.clone() for k, v in self.made.state_dict().items()})
        control.should_training_stop |= state.global_step == self.stop


class Noise:
    """Thirty-six pictures."""

    def __len__(self) -> int:
        return 36

    def read(self, indices: np.ndarray) -> np.ndarray:
        pixels = np.random.default_rng(0).integers(0, 256, (36, 3, 8, 8), dtype=np.uint8)
        return pixels[indices]


def trained(
    made: ImageMethod, folder: Path, start: int, stop: int, *, resumed: Path | None = None
) -> Kept:
    """The steps from ``start`` of a run of six, which ends before ``stop``."""
    settings = ImageSettings.read(
        {"data": "digits", "output": str(folder), "device": "cpu", "logger": []}
    )
    kept = Kept(made, stop)
    checkpoints = Checkpoints(folder / "checkpoints", every=2, last=6)
    steps = Steps(ImageBatches(ImagePart(Noise(), None), 6).at, start, 6)
    trainer = trainer_of(ImageTrainer, settings, made, 1.0, 6)
    run_callback = RunCallback(
        module=made,
        timer=Timer(1),
        checkpoints=checkpoints,
        save=trainer.save_now,
        dev=SimpleNamespace(is_exhausted=False),
        fingerprint="data",
        log=None,
    )
    batches = DataLoader(steps, batch_size=None)
    # what follows a step is done when callbacks see it
    trainer.attach(run_callback, NonFiniteGuard(made, settings), batches, [kept])
    make_steps(trainer, resumed)
    return kept


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_the_environment_of_accelerate_does_not_choose_the_precision(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    given = {"data": "digits", "output": str(tmp_path), "device": "cpu", "precision": precision}
    settings = ImageSettings.read({**given, "logger": []})
    made = method("simclr", plan=plan())
    found = trainer_of(ImageTrainer, settings, made, None, 6).accelerator
    assert found.mixed_precision == {"32": "no"}.get(precision, precision)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_that_stops_goes_on_as_if_it_had_not(name: str, tmp_path: Path) -> None:
    kinds = {"simclr": "lars", "mocov3": "adamw", "dino": "adamw"}
    values = {
        "plan": plan(optimizer=kinds.get(name, "sgd"), warmup_steps=2, last_weight_decay=0.1),
        "batch_norm": True,
    }
    whole = method(name, **values)
    kept = trained(whole, tmp_path / "whole", 0, 6)
    assert kept.rates == pytest.approx([whole.learning_rate_at(s) for s in range(6)], rel=1e-12)

    first = method(name, **values)
    trained(first, tmp_path, 0, 2)
    second = method(name, **values, encoder=encoder(batch_norm=True, seed=1))
    trained(second, tmp_path, 2, 6, resumed=tmp_path / "checkpoints" / "checkpoint-2")
    state = second.state_dict()
    assert all(torch.equal(state[k], v) for k, v in whole.state_dict().items())
    assert all(torch.equal(kept.states[-1][k], v) for k, v in whole.state_dict().items())
    fresh = method(name, **values).state_dict()
    follow = {k for k, v in fresh.items() if k.startswith(FOLLOW) and v.is_floating_point()}
    assert bool(follow) is (name in {"mocov2", "mocov3", "byol", "dino"})
    assert not any(torch.equal(state[k], fresh[k]) for k in follow)
    assert whole.gradient_norm is not None
    assert all(p.grad is None for p in whole.parameters())


def test_heads_are_cut_with_their_averages_and_the_encoder_is_not() -> None:
    made, cut = method("byol", batch_norm=True), method("byol", batch_norm=True)
    cut.cut_heads(4.0)
    for (name, a), b in zip(made.named_parameters(), cut.parameters(), strict=True):
        divided = a.ndim > 1 and "model" not in name
        assert torch.equal(b, a / 4 if divided else a)
    assert any(n.startswith("target.") and "model" not in n for n, _ in cut.named_parameters())


def test_a_cut_that_will_do_harm_is_told_before_the_first_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = method("simclr")
    optimizer = made.optimizer()
    for parameter in made.parameters():
        parameter.grad = parameter.detach() * 1e-3 / made.plan.learning_rate
    made.before_update(made.step, optimizer)
    assert capsys.readouterr().err == "", "not cut"
    made.cut_heads(1.5)
    made.before_update(made.step, optimizer)
    assert capsys.readouterr().err == "", "a turn of a thousandth"
    for parameter in made.parameters():
        parameter.grad = parameter.detach() / made.plan.learning_rate
    made.before_update(made.step, optimizer)
    told = capsys.readouterr().err
    assert "warning: train without --cut 1.5, or with --learning-rate" in told
    assert "will turn the weights by 0.79 radians; above 0.02 radians, --cut" in told
    made.step = 1
    made.before_update(made.step, optimizer)
    assert capsys.readouterr().err == ""
