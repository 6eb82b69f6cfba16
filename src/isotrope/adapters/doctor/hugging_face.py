"""Handles the events of the trainers of transformers and sentence-transformers for the doctor.

These trainers do not pass themselves to callbacks, so the Doctor finds its trainer on the call
stack when training begins. In ``training_step``, the Doctor receives each loss before the backward
pass.
"""

import atexit
import contextlib
import functools
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from isotrope.adapters.doctor.messages import on_the_card, words_of
from isotrope.core.rounding import exact
from isotrope.core.run_folder import RECORDING
from isotrope.diagnostics.anatomy import Anatomy
from isotrope.diagnostics.evidence import Words
from isotrope.diagnostics.findings import Diagnosis
from isotrope.paradigm.graph_reading import GraphReading
from isotrope.paradigm.operands import MOST_ENTRIES

if TYPE_CHECKING:
    from isotrope.adapters.doctor.doctor import Doctor

_DIMENSIONS = 4096

_SECTION = re.compile(r"<!-- isotrope -->.*?<!-- /isotrope -->\n\n", re.DOTALL)
_NEXT = "### Framework Versions"


@contextlib.contextmanager
def losses_of_backward(
    received: Callable[[Tensor], object], ended: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Within a ``with`` block, call ``received`` with each loss before its backward pass.

    Only backward passes of this thread count: ``torch.autograd.backward`` is replaced until the
    block ends. Trainers, accelerate, DeepSpeed and the first pass of a gradient cache all call this
    function. Backward passes within another backward pass (gradient checkpointing) are ignored.

    Args:
        received: Function of a loss that has a ``grad_fn``. It must not raise an error.
        ended: Function that is called after each backward pass. It must not raise an error.
    """
    original, thread, inside = torch.autograd.backward, threading.get_ident(), False

    @functools.wraps(original)
    def backward(tensors: Any, *arguments: Any, **named: Any) -> None:
        nonlocal inside
        if inside or threading.get_ident() != thread:
            original(tensors, *arguments, **named)
            return
        losses = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if len(losses) == 1 and losses[0].numel() == 1 and losses[0].grad_fn is not None:
            received(losses[0])
        inside = True
        try:
            original(tensors, *arguments, **named)
        finally:
            inside = False
        ended()

    torch.autograd.backward = backward
    try:
        yield
    finally:
        if torch.autograd.backward is backward:
            torch.autograd.backward = original


class HuggingFaceEvents:
    """Handlers of the transformers events that the Doctor needs."""

    def __init__(self, doctor: "Doctor") -> None:
        self.doctor = doctor
        self._temperature = doctor.anatomy.temperature
        self._trainer: Any = None
        self._replaced: Any = None
        self._series = ""  # data set of the batch, if the batch names it
        self._batches = 0
        self._divides = True  # whether the trainer divides the loss by the accumulated batches
        self._readings: list[GraphReading] = []
        self._tokens: list[Tensor] = []
        self._name = "the loss"
        self._model: Any = None
        self._optimizer: Any = None
        self._state: Any = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, details: Mapping[str, Any]
    ) -> None:
        """Wrap ``training_step``. If the training is resumed, read the earlier rows of the log."""
        self.close()  # an interrupted training may have left its replacement
        doctor = self.doctor
        trainer = _trainer(args)
        self._state, self._optimizer = state, details.get("optimizer")
        doctor.begin(Path(args.output_dir) / RECORDING, is_first=state.is_world_process_zero)
        if state.global_step == 0:
            doctor.forget()
        else:
            doctor.resume(state.global_step)
        losses = _losses(trainer)
        self._learn(args, trainer, losses)
        if args.n_gpu > 1:
            doctor.stop(
                "start one process for each GPU with torchrun, or set CUDA_VISIBLE_DEVICES=0: a "
                f"batch that one process splits between {args.n_gpu} GPUs cannot be measured"
            )
            return
        model = details["model"]
        if trainer is not None:
            handler = trainer.callback_handler
            handler.callbacks = [doctor, *(c for c in handler.callbacks if c is not doctor)]
            model = trainer.model  # not wrapped in DistributedDataParallel
            self._watch(trainer)
        self._model = model
        doctor.know(model.named_parameters())
        self._name = type(losses[0] if losses else model).__name__

    def _watch(self, trainer: Any) -> None:
        """Wrap the trainer's ``training_step``, to receive the losses of measured steps."""
        original, self._trainer = trainer.training_step, trainer
        self._replaced = vars(trainer).get("training_step")  # if the user has replaced it too

        @functools.wraps(original)
        def training_step(*arguments: Any, **named: Any) -> Any:
            self._series = _dataset(arguments, named)
            self._batches += 1
            if self.doctor.off or not self._due():
                return original(*arguments, **named)
            self._divides = _divides(trainer, arguments, named)
            self._readings, self._tokens = [], []
            quietly = self.doctor.quietly
            quietly(lambda: self._tokens.extend(_tokens((arguments, named))))()
            with losses_of_backward(quietly(self._read), quietly(self._ended)):
                return original(*arguments, **named)

        trainer.training_step = training_step

    def _read(self, loss: Tensor) -> None:
        """Watch the backward pass of a loss, unless the user calls ``observe``."""
        if not self.doctor.observes:
            self._readings.append(GraphReading(loss))

    def _ended(self) -> None:
        """End the reading of a backward pass; if a batch has several, keep about 2^20 pairs."""
        for reading in self._readings[-1:]:
            reading.end()
            before = (t for r in self._readings[:-1] for t in r.compared)
            if sum(t.scores.numel() for t in before) >= MOST_ENTRIES:
                reading.compared = []

    def _due(self) -> bool:
        """Whether to measure this batch. If unnamed data sets take turns, each is measured."""
        anatomy = self._anatomy()
        if self._series:
            anatomy.settings.pop("mixed", None)
        if not anatomy.due(self._state.global_step):
            return False
        sets = anatomy.settings.get("mixed", 1)
        return bool((self._batches - 1 - len(anatomy.measured)) % sets == 0)

    def _learn(self, args: Any, trainer: Any, losses: list[nn.Module]) -> None:
        """Read the settings for the diagnosis from the trainer's arguments and losses."""
        anatomy = self.doctor.anatomy
        anatomy.words = words_of((m for loss in losses for m in loss.modules()), trainer)
        # a new dict, without the settings of an earlier training
        anatomy.settings = {
            "trainer": "sentence-transformers" if losses else "transformers",
            # smaller than that of the arguments after auto_find_batch_size
            "batch-size": getattr(trainer, "_train_batch_size", args.per_device_train_batch_size),
            "learning-rate": args.learning_rate,
            "planned": self._state.max_steps,  # removed when the training has ended
        }
        groups = getattr(self._optimizer, "param_groups", ())
        rates = [float(group.get("initial_lr", group["lr"])) for group in groups]
        if rates and args.learning_rate not in rates:  # an optimizer of the user's own
            anatomy.settings["learning-rate"] = max(rates)
            anatomy.words = replace(anatomy.words, rate=Words().rate)
        data = getattr(trainer, "train_dataset", None)
        if len(losses) == 1:
            anatomy.settings |= _margin(losses[0])
            anatomy.settings |= {"mixed": len(data)} if isinstance(data, dict) else {}
        elif losses and isinstance(data, dict):
            anatomy.settings["series"] = list(data)
        anatomy.objective = None
        anatomy.temperature = self._temperature or _temperature(losses)

    @property
    def step(self) -> int | None:
        """The number of the step of a training that runs now; None without one."""
        return None if self._trainer is None else self._state.global_step

    def _anatomy(self) -> Anatomy:
        """Return the log of the data set that the batch is from."""
        anatomy = self.doctor.anatomy
        return anatomy.of(self._series) if self._series else anatomy

    def close(self) -> None:
        """Restore the trainer's ``training_step``."""
        if self._trainer is not None:
            vars(self._trainer).pop("training_step", None)
            if self._replaced is not None:
                self._trainer.training_step = self._replaced
        self._trainer, self._readings = None, []

    def on_substep_end(self, *_: object) -> None:
        """Measure the batch whose backward pass has ended."""
        readings, self._readings = self._readings, []
        step = self._state.global_step
        anatomy = self._anatomy()
        if self.doctor.observes:
            row = next((r for r in anatomy.rows[-1:] if r["step"] == step), None)
        else:
            divisors = _divisors(self._trainer, divides=self._divides)
            row = anatomy.see(readings, step, divisors=divisors, copies=_repeated(self._tokens))
        if row is None:
            return
        if self._tokens:
            anatomy.settings.setdefault("kind", "text")
        rate = highest_rate(self._optimizer)
        anatomy.note(step, epoch=self._state.epoch, learning_rate=rate)
        if self.doctor.observes:
            return
        name = self._name
        if self._series:
            loss = getattr(self._trainer, "loss", None)
            of_set = type(loss[self._series]).__name__ if isinstance(loss, Mapping) else name
            name = f"{of_set} on {self._series}"
        self.doctor.record(name, row, self._series)

    on_pre_optimizer_step = on_substep_end  # before the weights change

    def on_log(self, args: Any, state: Any, control: Any, details: Mapping[str, Any]) -> None:
        """Add the Doctor's numbers to the trainer's log; record the norm of the gradient."""
        logs = details.get("logs")
        if not logs or "loss" not in logs:
            return
        if "grad_norm" in logs:
            norm = float(logs["grad_norm"])
            self.doctor.anatomy.note(state.global_step - 1, gradient_norm=norm)
        numbers = self.doctor.numbers()
        logs.update(numbers)
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(numbers)

    def on_evaluate(self, args: Any, state: Any, control: Any, details: Mapping[str, Any]) -> None:
        """Record the dev score: the metric named by ``dev`` or by ``metric_for_best_model``."""
        metrics = details.get("metrics")
        name = self.doctor.dev or (args.metric_for_best_model if args.greater_is_better else None)
        for key in (name, f"eval_{name}") if name else ():
            if metrics and key in metrics:
                self.doctor.anatomy.note(state.global_step, dev=float(metrics[key]))

    def on_save(self, *_: object) -> None:
        """Save the rows so far."""
        if self.doctor.path is not None:
            self.doctor.save()

    def on_train_end(self, *_: object) -> None:
        """Report the verdict, and add it to the model's card."""
        self.close()
        self.doctor.anatomy.settings.pop("planned", None)
        self.doctor.finish()
        if self.doctor.rows and self._state.is_world_process_zero:
            add_to_card(self._model, self.doctor.losses.values(), self.doctor.diagnose())
        self._model = None


def _trainer(args: Any) -> Any:
    """Return from the call stack the trainer that has these arguments."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if hasattr(type(owner), "compute_loss") and getattr(owner, "args", None) is args:
            return owner
        frame = frame.f_back
    return None


def scale_of(precision: object) -> float:
    """Return the factor by which the gradient scaler of a trainer multiplies losses, or 1."""
    scaler = getattr(precision, "scaler", None)
    return 1.0 if scaler is None else float(scaler.get_scale())


def highest_rate(optimizer: Any) -> float | None:
    """Return the highest learning rate of an optimizer's groups; None without an optimizer."""
    return None if optimizer is None else float(max(g["lr"] for g in optimizer.param_groups))


def _divides(trainer: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether ``training_step`` divides the loss by the number of accumulated batches."""
    items = named.get("num_items_in_batch", arguments[2] if len(arguments) > 2 else None)
    whole = getattr(trainer, "model_accepts_loss_kwargs", False) and items is not None
    return not whole and getattr(trainer, "compute_loss_func", None) is None


def _divisors(trainer: Any, *, divides: bool) -> tuple[float, ...]:
    """Return the numbers by which the trainer may divide a loss of the current step."""
    if trainer is None:
        return ()
    usual = trainer.args.gradient_accumulation_steps  # the last step of an epoch may have fewer
    accumulated = getattr(trainer, "current_gradient_accumulation_steps", usual)
    return accumulated if divides else 1, 1 / scale_of(trainer.accelerator)


def _losses(trainer: Any) -> list[nn.Module]:
    """Return the losses of a sentence-transformers trainer; an empty list for others."""
    trainer_loss = getattr(trainer, "loss", None)
    candidates = trainer_loss.values() if isinstance(trainer_loss, dict) else [trainer_loss]
    return [loss for loss in candidates if isinstance(loss, nn.Module)]


def _margin(loss: nn.Module) -> dict[str, float]:
    """Return the margin of a triplet loss and the largest distance of two unit vectors."""
    margin = getattr(loss, "triplet_margin", None)
    distance = getattr(loss, "distance_metric", None)
    if isinstance(margin, (int, float)) and callable(distance):
        unit = torch.full((1, _DIMENSIONS), _DIMENSIONS**-0.5)  # the largest distance in L1, too
        with contextlib.suppress(Exception):  # some distances accept only a batch and itself
            return {"margin": margin, "largest-distance": float(distance(unit, -unit))}
    return {}


def _temperature(losses: list[nn.Module]) -> float | None:
    """Return the temperature that all losses share, or None if they differ."""
    temperatures = set()
    for loss in losses:
        scale, temperature = getattr(loss, "scale", None), getattr(loss, "temperature", None)
        if isinstance(scale, (int, float)) and scale > 0:
            temperature = 1 / scale
        known = isinstance(temperature, (int, float)) and temperature > 0
        temperatures.add(temperature if known else None)
    return temperatures.pop() if len(temperatures) == 1 else None


def _tokens(inputs: object) -> list[Tensor]:
    """Return all tensors of token ids in the inputs of a step, in order."""
    if isinstance(inputs, Mapping):
        found = []
        for name, value in inputs.items():
            if str(name).endswith("input_ids") and isinstance(value, Tensor) and value.ndim == 2:
                found.append(value)
            else:
                found += _tokens(value)
        return found
    if isinstance(inputs, (list, tuple)):
        return [tokens for value in inputs for tokens in _tokens(value)]
    return []


def _dataset(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Return the name of the data set of a batch, or an empty string."""
    batch = named.get("inputs", arguments[1] if len(arguments) > 1 else None)
    name = batch.get("dataset_name") if isinstance(batch, Mapping) else None
    return name if isinstance(name, str) else ""


def _repeated(columns: list[Tensor]) -> float:
    """Return the share of the rows whose anchor or positive equals a text of another row."""
    # Only the first two columns count, and only if their lengths are equal; other columns may be
    # negatives that all rows share.
    repeated: Tensor | None = None
    for tokens in columns[:2]:
        _, text, count = tokens.cpu().unique(dim=0, return_inverse=True, return_counts=True)
        again = count[text] > 1
        if repeated is None:
            repeated = again
        elif len(again) == len(repeated):
            repeated = repeated | again
    return 0.0 if repeated is None else float(exact(repeated).mean())


def add_to_card(model: object, losses: Iterable[Mapping[str, Any]], diagnosis: Diagnosis) -> None:
    """Add the diagnosis to a model's card, in place of an earlier diagnosis."""
    data = getattr(model, "model_card_data", None)
    path = getattr(data, "template_path", None)
    if data is None or path is None:
        return
    template = _SECTION.sub("", Path(path).read_text(encoding="utf-8"))
    before, marker, after = template.partition(_NEXT)
    section = (
        "<!-- isotrope -->\n### Diagnosis of the Training\n\n{% raw %}"
        f"{on_the_card(losses, diagnosis)}"
        "{% endraw %}\n<!-- /isotrope -->\n\n"
    )
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="isotrope-card-", suffix=".md", delete=False
    ) as copy:
        copy.write(f"{before}{section}{marker}{after}" if marker else f"{before}\n\n{section}")
    atexit.register(Path(copy.name).unlink, missing_ok=True)  # models are saved until the end
    data.template_path = Path(copy.name)
