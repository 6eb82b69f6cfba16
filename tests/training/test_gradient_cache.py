"""Gradient caching: the gradient of all graphs kept, with the activations of one of them.

The oracle is the plain comprehension: the same chunks, one after the other, every graph kept.
"""

import csv
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from isotrope.adapters.sentence_transformers import ObjectiveLoss
from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.data.text.batches import Batch, Column
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.training import fit
from isotrope.training.gradient_cache import cached, refuse_batch_statistics
from isotrope.training.settings import TrainSettings
from isotrope.training.text_module import TextModule
from tests.refused import refused_setting

from .conftest import sentences
from .interrupted import power_cut
from .tiny_images import plan

WIDTH = 12


class Encoder(nn.Module):
    """Two layers with dropout; one weight is used twice and one never."""

    def __init__(self, hidden: int = 32, dropout: float = 0.2) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, hidden)
        self.shared = nn.Linear(hidden, hidden, bias=False)
        self.norm = nn.LayerNorm(hidden)
        self.last = nn.Linear(hidden, WIDTH)
        self.left = nn.Parameter(torch.zeros(WIDTH))
        self.right = nn.Parameter(torch.zeros(WIDTH))  # autograd gives both the same tensor
        self.unused = nn.Parameter(torch.zeros(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        h = self.dropout(torch.tanh(self.first(x)))
        h = self.norm(self.dropout(self.shared(torch.tanh(self.shared(h)))))
        return self.last(h) + (self.left + self.right)


Embed = Callable[[nn.Module, list[tuple[Tensor]]], list[Tensor]]


def kept(module: nn.Module, chunks: list[tuple[Tensor]]) -> list[Tensor]:
    return [module(*chunk) for chunk in chunks]


def encoder(dtype: torch.dtype = torch.float64, **options: float) -> Encoder:
    torch.manual_seed(3)
    return Encoder(**options).to(dtype)


def cut(rows: int, size: int | list[int], dtype: torch.dtype) -> list[tuple[Tensor]]:
    x = torch.randn(rows, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    return [(chunk,) for chunk in x.to(dtype).split(size)]


def gradients(
    embed: Embed, module: nn.Module, chunks: list[tuple[Tensor]], loss: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    module.zero_grad()
    torch.manual_seed(11)
    loss(torch.cat(embed(module, chunks))).backward()
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def assert_same(found: dict[str, Tensor], truth: dict[str, Tensor]) -> None:
    """The bounds of the issue: over all parameters, and of each tensor."""
    assert found.keys() == truth.keys()
    double = next(iter(truth.values())).dtype == torch.float64
    for name, gradient in truth.items():
        error = (found[name] - gradient).norm() / gradient.norm()
        assert error <= (1e-12 if double else 1e-5), name
    whole = torch.cat([g.flatten() for g in truth.values()])
    error = torch.cat([found[k].flatten() for k in truth]) - whole
    assert error.norm() / whole.norm() <= (1e-12 if double else 2e-6)


def of_rows(objective: Objective, sizes: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """The loss of rows that stand in another order than the views."""
    places = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(7))

    def loss(rows: Tensor) -> Tensor:
        anchors, positives, *hard = rows[places].split(sizes)
        return objective.loss(Views(anchors, positives, hard[0] if hard else None))

    return loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("infonce", (16, 16)),
        ("infonce", (16, 16, 6)),
        ("ntxent", (16, 16)),
        ("met", (16, 16)),
        ("barlowtwins", (16, 16)),
        ("modifiedbarlowtwins", (16, 16)),
        ("vicreg", (16, 16)),
        ("mhe", (16, 16)),
    ],
)
def test_the_gradient_of_all_graphs_kept(
    name: str, sizes: tuple[int, ...], dtype: torch.dtype
) -> None:
    loss = of_rows(registry.build(name), sizes)
    chunks = cut(sum(sizes), [7, 1, 12, 4, sum(sizes) - 24], dtype)
    truth = gradients(kept, encoder(dtype), chunks, loss)
    assert_same(gradients(cached, encoder(dtype), chunks, loss), truth)


@pytest.mark.parametrize("size", [1, 5, 32, 100])
def test_any_size_of_chunk(size: int) -> None:
    """One row, uneven, everything, and more than there is."""
    loss = of_rows(registry.build("infonce").symmetric(), (16, 16))
    chunks = cut(32, size, torch.float64)
    truth = gradients(kept, encoder(), chunks, loss)
    assert_same(gradients(cached, encoder(), chunks, loss), truth)


def test_values_and_random_numbers_are_those_of_all_graphs_kept() -> None:
    chunks, module = cut(32, 5, torch.float64), encoder()
    torch.manual_seed(1)
    truth = kept(module, chunks)
    after = torch.get_rng_state()
    torch.manual_seed(1)
    found = cached(module, chunks)
    assert all(torch.equal(h, t) for h, t in zip(found, truth, strict=True))
    assert torch.equal(torch.get_rng_state(), after)
    drawn = torch.rand(4)  # between the passes, as a loss might
    state = torch.get_rng_state()
    torch.cat(found).square().sum().backward()
    assert torch.equal(torch.get_rng_state(), state)
    torch.set_rng_state(after)
    assert torch.equal(torch.rand(4), drawn)


def test_gradients_accumulate_scaled_and_arrive_once() -> None:
    """Two batches into one gradient; hooks, which distributed training hangs on, see it whole."""
    loss = of_rows(registry.build("infonce"), (16, 16))
    results, calls = [], []
    for embed in (kept, cached):
        module = encoder()
        if embed is cached:
            module.first.weight.register_post_accumulate_grad_hook(calls.append)
        torch.manual_seed(2)
        for scale, size in ((1024.0, 5), (0.5, 9)):
            (scale * loss(torch.cat(embed(module, cut(32, size, torch.float64))))).backward()
        results.append({k: p.grad for k, p in module.named_parameters() if p.grad is not None})
    assert_same(results[1], results[0])
    assert len(calls) == 2


def test_gradients_without_backward() -> None:
    """``torch.autograd.grad`` finds them too, as nothing is written past autograd."""
    module, chunks, found = encoder(), cut(32, 5, torch.float64), []
    for embed in (kept, cached):
        torch.manual_seed(4)
        loss = torch.cat(embed(module, chunks)).square().sum()
        found.append(torch.autograd.grad(loss, [module.first.weight, module.last.bias]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_frozen_parameters_stay_frozen() -> None:
    module = encoder()
    module.first.requires_grad_(False)
    loss = of_rows(registry.build("infonce"), (16, 16))
    found = gradients(cached, module, cut(32, 5, torch.float64), loss)
    assert "first.weight" not in found
    assert "unused" not in found
    assert_same(found, gradients(kept, module, cut(32, 5, torch.float64), loss))
    assert not any(h.requires_grad for h in cached(module.requires_grad_(False), cut(4, 2, float)))


def test_bfloat16_is_no_less_exact_than_with_all_graphs_kept() -> None:
    """The backward pass runs outside of autocast, where training_step has ended."""
    loss = of_rows(registry.build("infonce"), (16, 16))
    chunks, dtypes = cut(32, 5, torch.float32), set()

    def half(embed: Embed) -> Embed:
        def inner(module: nn.Module, chunks: list[tuple[Tensor]]) -> list[Tensor]:
            with torch.autocast("cpu", torch.bfloat16):
                module.last.register_forward_hook(lambda m, x, y: dtypes.add(y.dtype))
                return embed(module, chunks)

        return inner

    truth, plain, found = (
        torch.cat(
            [g.flatten() for g in gradients(embed, encoder(torch.float32), chunks, loss).values()]
        )
        for embed in (kept, half(kept), half(cached))
    )
    assert dtypes == {torch.bfloat16}
    assert 0 < (found - truth).norm() <= 1.1 * (plain - truth).norm()


def live_peak(work: Callable[[], object]) -> int:
    """The largest number of bytes that autograd keeps for backward passes at one time."""
    live = peak = 0

    class Held:
        def __init__(self, value: Tensor) -> None:
            self.value = value

    def release(size: int) -> None:
        nonlocal live
        live -= size

    def pack(value: Tensor) -> Held:
        nonlocal live, peak
        size = value.numel() * value.element_size()
        live += size
        peak = max(peak, live)
        held = Held(value.detach())  # an output would hold its own graph
        weakref.finalize(held, release, size)
        return held

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.value):
        work()
    return peak


def test_memory_is_that_of_one_chunk() -> None:
    module = encoder(hidden=512)
    row = WIDTH * 8  # bytes of an embedding

    def peak(embed: Embed, rows: int) -> int:
        chunks = cut(rows, 8, torch.float64)
        return live_peak(lambda: torch.cat(embed(module, chunks)).sum().backward())

    one_chunk = peak(kept, 8)
    assert peak(kept, 64) > 7 * one_chunk  # what it is about
    small, large = (peak(cached, rows) for rows in (64, 1024))
    parameters = sum(8 * p.numel() for p in module.parameters())  # not copies
    assert small <= one_chunk + 64 * row + parameters
    assert large - small <= (1024 - 64) * row  # the embeddings themselves


def test_batch_statistics_are_refused() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    message = (
        r"without micro_batch .* replace 1 \(BatchNorm1d\) by GroupNorm .* keep it in eval mode"
    )
    with pytest.raises(InputError, match=message):
        cached(module, cut(8, 4, torch.float32))
    with pytest.raises(InputError, match=r"replace this module \(SyncBatchNorm\)"):
        refuse_batch_statistics(nn.SyncBatchNorm(WIDTH))
    with pytest.raises(InputError, match="BatchNorm2d"):  # has nothing but the batch's
        refuse_batch_statistics(nn.BatchNorm2d(3, track_running_stats=False).eval())
    module[1].eval()
    assert len(cached(module, cut(8, 4, torch.float32))) == 2
    refuse_batch_statistics(
        nn.Sequential(nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.InstanceNorm1d(4))
    )


def test_batch_statistics_would_be_wrong() -> None:
    """The reason for the refusal: chunks of it do not make the batch."""
    norm, x = nn.BatchNorm1d(WIDTH).double(), cut(32, 32, torch.float64)
    whole = torch.cat(kept(norm, x))
    pieces = torch.cat(kept(norm, cut(32, 8, torch.float64)))
    assert (whole - pieces).norm() / whole.norm() > 0.1


def test_checkpoints_within_the_module() -> None:
    class Checkpointed(Encoder):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=False)

    module = Checkpointed().double().eval()
    found = gradients(cached, module, cut(32, 8, torch.float64), torch.sum)
    assert_same(found, gradients(kept, module, cut(32, 8, torch.float64), torch.sum))


def test_a_module_without_parameters() -> None:
    parts = cached(nn.Tanh(), cut(32, 8, torch.float64))
    assert len(parts) == 4
    assert not parts[0].requires_grad


# training


@pytest.fixture(scope="module")
def scratch() -> SentenceEncoder:
    return SentenceEncoder.scratch(sentences(300), width=32)


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_the_first_column_has_the_anchors(
    scratch: SentenceEncoder, micro_batch: int | None
) -> None:
    """An objective of one direction would be another one with the columns exchanged."""
    rows = [Column(np.full((n, 5), n), np.ones((n, 5), np.int64)) for n in (6, 7, 5)]
    rows[1] = Column(*(x[:6] for x in rows[1]))
    given = Batch(rows, np.arange(6))
    settings = TrainSettings(files=["-"], output="-", seed=1, log_every=1, micro_batch=micro_batch)
    module = TextModule(
        settings,
        encoder=scratch,
        head=None,
        objectives={"": registry.build("infonce")},
        plan=plan(steps=10, learning_rate=1e-3),
    ).eval()
    module.model.eval()
    seen: list[Views] = []
    loss = module.losses[""]
    (loss if isinstance(loss, ObjectiveLoss) else loss.loss).observe = seen.append
    inputs = module.inputs(given)
    columns = [
        {k: inputs[f"column{i}_{k}"] for k in ("input_ids", "attention_mask")} for i in range(3)
    ]
    with torch.no_grad():
        loss(columns, inputs["label"])
        expected = [scratch(*map(torch.from_numpy, column)) for column in rows]
    views = [seen[0].anchors, seen[0].positives, seen[0].negatives]
    for ours, theirs in zip(views, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as lines:
        return [
            {k: v for k, v in row.items() if k != "samples_per_second"}
            for row in csv.DictReader(lines)
        ]


def weights(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")


def test_a_run_is_the_same_with_micro_batches(quick: dict, tmp_path: Path) -> None:
    """Without dropout, whose masks depend on the chunks; pairs with hard negatives and prompts."""
    texts = sentences(150)
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{a}\t{b}\t{c}\n" for a, b, c in zip(*[iter(texts)] * 3, strict=True)))
    given = {**quick, "files": [str(file)], "dropout": 0.0, "query_prompt": "query: "}
    whole = fit(**given).output
    pieces = fit(**{**given, "output": str(tmp_path / "pieces")}, micro_batch=5).output
    assert "micro-batch: 5" in (pieces / "config.yaml").read_text()
    assert "micro-batch" not in (whole / "config.yaml").read_text()
    for one, other in zip(metrics(pieces), metrics(whole), strict=True):
        for name, value in other.items():
            if value:
                # float32: other chunks pad and sum otherwise (3e-6 seen); a distance gap is the
                # difference of two numbers near 1, each of which is rounded (7e-8 seen)
                near = 1e-6 if name == "distance_gap" else 0
                assert float(one[name]) == pytest.approx(float(value), rel=2e-5, abs=near), name
    # a step of Adam is the gradient's sign, whatever its size: rounding may turn single ones
    first, second = weights(whole), weights(pieces)
    far = sum(float((first[k] - second[k]).abs().sum()) for k in first)
    assert far / sum(value.numel() for value in first.values()) < 1e-6


def test_resuming_equals_never_stopping(quick: dict, tmp_path: Path) -> None:
    given = {**quick, "micro_batch": 6}
    whole = fit(**given).output
    broken = {**given, "output": str(tmp_path / "broken")}
    with power_cut(5):
        fit(**broken)
    torch.rand(3)
    with pytest.raises(InputError, match="micro_batch was 6 there, and is 7 now"):
        fit(**{**broken, "micro_batch": 7}, resume=True)
    resumed = fit(**broken, resume=True).output
    first, second = weights(whole), weights(resumed)
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert metrics(whole) == metrics(resumed)


def test_no_chunk_is_larger_than_asked(quick: dict, monkeypatch) -> None:
    rows, forward = [], Transformer.forward

    def counted(self, features, **given):
        if self.training:
            rows.append(len(features["input_ids"]))
        return forward(self, features, **given)

    monkeypatch.setattr(Transformer, "forward", counted)
    fit(**{**quick, "max_steps": 2}, micro_batch=6, objective="ntxent")
    assert max(rows) == 6
    assert sum(rows) == 2 * 2 * 2 * 16  # steps, views, passes


def test_bfloat16_trains(quick: dict) -> None:
    outcome = fit(**{**quick, "max_steps": 2}, micro_batch=6, precision="bf16")
    assert np.isfinite(outcome.result.metrics["loss"])


def test_an_encoder_with_batch_statistics_leaves_nothing_behind(quick: dict, monkeypatch) -> None:
    scratch = SentenceEncoder.scratch

    def normalised(*arguments, **options) -> SentenceEncoder:
        encoder = scratch(*arguments, **options)
        encoder.model[0].model.extra = nn.BatchNorm1d(8).eval()
        return encoder

    monkeypatch.setattr(SentenceEncoder, "scratch", normalised)
    with pytest.raises(
        InputError, match=r"replace .*extra \(BatchNorm1d\) by .* or keep it in eval"
    ):
        fit(**{**quick, "encoder": "scratch"}, micro_batch=6)
    assert not Path(quick["output"]).exists()


def test_the_flag(quick: dict, capsys) -> None:
    from isotrope.cli.train import run

    with pytest.raises(SystemExit):
        run(["--help"])
    assert "--micro-batch N" in capsys.readouterr().out
    with refused_setting("micro_batch"):
        run([quick["files"][0], "--output", quick["output"], "--micro-batch", "0"])
