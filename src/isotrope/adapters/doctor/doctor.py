"""The ``Doctor`` callback: records and diagnoses a training while it runs, in any trainer.

transformers and Lightning call the ``on_...`` methods of a callback. The Doctor forwards these
calls to one class for each library. A custom loop calls :meth:`Doctor.observe`.
"""

import atexit
import contextlib
import functools
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from isotrope.adapters.doctor.hugging_face import HuggingFaceEvents
from isotrope.adapters.doctor.lightning import LightningEvents
from isotrope.adapters.doctor.messages import at_the_end, changed, first_look
from isotrope.core.distributed import rank
from isotrope.core.errors import InputError
from isotrope.core.spelling import brief
from isotrope.diagnostics.anatomy import Anatomy, Row, evidence, save
from isotrope.diagnostics.evidence import RunEvidence
from isotrope.diagnostics.findings import HEALTHY, Diagnosis
from isotrope.paradigm.graph import texts_of
from isotrope.paradigm.graph_reading import GraphReading

logger = logging.getLogger("isotrope")

LOGGED = (
    "dissipation",
    "dead",
    "hardest_share",
    "ratio",
    "above_bound",
    "temperature",
    "negatives",
    "uniformity",
    "effective_rank",
    "misfit",
)
"""The columns that the trainer's loggers get, as ``isotrope/dissipation`` and so on."""

_NOT_YET = {"not-enough-seen", "not-examined"}  # verdicts that are reported only at the end
_LEAST_ROWS = 3  # number of rows from which verdicts are reported
_TIMES = 20  # each new row is diagnosed, but from twice this number of rows only one in several
_PAUSE = 100  # from one saving to the next, in durations of the first: saving takes 1% of the time
_AT_END: dict[Path, Callable[[], None]] = {}  # what writes each folder when the program ends


class Doctor:
    """Measures every tenth step of a training, and reports faults and what to change.

    Pass it to a trainer of sentence-transformers, to transformers' ``Trainer`` or to Lightning::

        SentenceTransformerTrainer(..., callbacks=[isotrope.Doctor()])
        transformers.Trainer(..., callbacks=[isotrope.Doctor()])
        lightning.Trainer(callbacks=[isotrope.Doctor()])

    In the backward pass, the Doctor sees which pairs of embeddings the loss compares, so it works
    with any model and batch. The verdict is ``not-examined`` if the loss compares no pairs, or if
    the pairs explain less than 98% of the loss's gradient with respect to the embeddings.

    The Doctor prints one line at the first measured step, one line when its verdict changes, and
    the verdict at the end. The measured numbers go to the trainer's loggers, as
    ``isotrope/COLUMN``. ``isotrope diagnose OUTPUT_DIR`` and ``isotrope report OUTPUT_DIR`` read
    them from the folder ``OUTPUT_DIR/isotrope``. Within a trainer the Doctor never raises an error.
    If an error occurs, the logger ``isotrope`` warns once, and measuring stops.

    In a custom training loop, call :meth:`observe` between the loss and its ``backward()``::

        doctor = isotrope.Doctor()
        for batch in loader:
            loss = my_loss(encoder(batch.a), encoder(batch.b))
            doctor.observe(loss)
            loss.backward()
            ...
        doctor.save("runs/mine")
        print(doctor.diagnose(batch_size=64))

    Args:
        every: Number of steps from one measured step to the next: with 10, steps 0, 10, 20 ...
        path: Folder to write metrics.csv and diagnosis.json to, instead of ``OUTPUT_DIR/isotrope``.
            The files are also written during the training, so that a killed training has them.
        temperature: Temperature of the loss's softmax, used only if the gradient does not show it.
            The default is the loss's attribute ``temperature``, or 1 / its attribute ``scale``.
        dev: Name of the validation metric that shows whether training helps; larger must be better.
            The default is the trainer's ``metric_for_best_model``.
        say: Function that receives each printed line. With None, nothing is printed.

    Attributes:
        anatomy: Log of the measured steps (:class:`~isotrope.diagnostics.anatomy.Anatomy`).
        losses: A dict from the name of a loss to the dict of its properties (``temperature`` ...).
        off: Whether an error has stopped the Doctor; :meth:`diagnose` then notes the reason.
        observes: Whether the training calls :meth:`observe`. Within a trainer, only these losses
            are then measured.

    Raises:
        ValueError: ``every`` or the temperature is not positive.
    """

    # the key under which Lightning stores the rows in its checkpoints
    state_key = _legacy_state_key = "isotrope.Doctor"

    def __init__(
        self,
        *,
        every: int = 10,
        path: str | Path | None = None,
        temperature: float | None = None,
        dev: str | None = None,
        say: Callable[[str], object] | None = print,
    ) -> None:
        self.anatomy = Anatomy(every=every, temperature=temperature)
        self.path = self._own_path = None if path is None else Path(path)
        self.dev, self.say = dev, say
        self.losses: dict[str, dict[str, Any]] = {}
        self.off = self.observes = False
        self._verdict: tuple[str, ...] = (HEALTHY,)
        self._next_save = 0.0  # time.monotonic()
        self._hugging_face, self._lightning = HuggingFaceEvents(self), LightningEvents(self)

    @property
    def rows(self) -> list[Row]:
        """The measurements by column, one row per measured step (see ``Anatomy.rows``)."""
        return self.anatomy.rows

    def __repr__(self) -> str:
        return f"Doctor(every={self.anatomy.every}), {len(self.anatomy.measured)} steps measured"

    def __str__(self) -> str:
        return str(self.diagnose())

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return the handler of a trainer's event ``on_...``; for most events, it does nothing."""
        if not name.startswith("on_") and name not in ("setup", "teardown"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return functools.partial(self._receive, name)

    def _receive(self, event: str, *arguments: Any, **details: Any) -> None:
        """Pass an event to its handler; only transformers passes details by name."""
        handler = getattr(self._hugging_face if details else self._lightning, event, None)
        if handler is not None:
            self.quietly(handler)(*arguments, *([details] if details else []))

    def quietly(self, function: Callable[..., object]) -> Callable[..., None]:
        """Wrap a function: catch its errors, and do not call it if the Doctor is off."""

        @functools.wraps(function)
        def guarded(*args: Any) -> None:
            if self.off:
                return
            try:
                function(*args)
            except Exception as error:  # after any error, the training continues
                self.stop(f"{type(error).__name__}: {error}")

        return guarded

    def stop(self, why: str) -> None:
        """Stop measuring, warn once with the reason, and save what was measured until then."""
        self.off, self.anatomy.settings["stopped"] = True, why
        self.anatomy.settings.pop("planned", None)  # nothing will record the end
        self._hugging_face.close()
        self._lightning.close()
        logger.warning("the training continues, but the Doctor no longer measures it: %s", why)
        with contextlib.suppress(Exception):  # perhaps the same error
            self.finish()

    def observe(self, *batch: Tensor, loss: Tensor | None = None, step: int | None = None) -> None:
        """Prepare to measure a loss of a custom training loop, if ``every`` selects the step.

        In a trainer that has the Doctor as a callback, the step is that of the trainer, and the
        Doctor measures the observed loss (for example, one term) instead of the trainer's.

        Call ``observe(loss)`` before ``loss.backward()``. After the backward pass, ``rows[-1]`` has
        the numbers. Calls under ``torch.no_grad()`` (an evaluation) are ignored. Losses observed at
        different lines of a program are measured and diagnosed separately. In
        ``observe(anchors, positives, loss)``, the embeddings are ignored.

        Args:
            batch: The loss. If several arguments are given, the last is the loss.
            loss: The loss, not yet scaled for float16 or for accumulation.
            step: Number of the step; if it falls, a new epoch begins and counting continues. If
                None, the calls of ``observe`` are counted from 0.

        Raises:
            InputError: The loss is not a tensor of one number.
        """
        loss = batch[-1] if loss is None and batch else loss
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise InputError(
                "pass the scalar tensor on which backward() is called next; found "
                f"{brief(loss)} ({type(loss).__name__})"
            )
        self.anatomy.settings.setdefault("trainer", "loop")
        self.observes = self.observes or torch.is_grad_enabled()
        for events in (self._hugging_face, self._lightning):
            step = events.step if step is None else step
        caller = sys._getframe(1)  # losses that differ are observed at different lines
        line = f"of the loss in line {caller.f_lineno} ({caller.f_code.co_name})"
        self.quietly(self._listen)(loss, step, line)

    def _listen(self, loss: Tensor, step: int | None, line: str) -> None:
        """Measure a batch at the end of the backward pass of its loss."""
        if loss.grad_fn is None and not torch.is_grad_enabled():
            return  # an evaluation
        at = self.anatomy.counted(step)
        if not self.anatomy.of(line).due(at):
            return
        if loss.grad_fn is None and (loss.requires_grad or self.rows):
            return  # this batch has no pairs
        if loss.grad_fn is None:
            raise InputError("call observe(loss) before loss.backward(): the loss has no grad_fn")
        texts = texts_of(loss.grad_fn)
        GraphReading(loss, self.quietly(functools.partial(self._measure, at, line, texts)))

    def _measure(self, step: int, line: str, texts: list[Tensor], reading: GraphReading) -> None:
        """Measure an observed loss, whose texts (as token ids) are ``texts``."""
        anatomy = self.anatomy.of(line)
        if (row := anatomy.see([reading], step)) is not None:
            anatomy.seen_again(texts, step)
            if texts:
                anatomy.settings.setdefault("kind", "text")
            self.record(line.removeprefix("of ") if anatomy.place else "the loss", row, line)
            self._finish_at_exit()

    def _finish_at_exit(self) -> None:
        """Let :meth:`finish` run when the program ends: nothing else says that a loop has ended."""
        atexit.unregister(self.finish)
        if self.path is not None and not rank():
            folder = self.path.resolve()
            atexit.unregister(_AT_END.get(folder, self.finish))  # perhaps an earlier Doctor's
            _AT_END[folder] = self.finish
            atexit.register(self.finish)

    def begin(self, folder: Path | None, *, is_first: bool) -> None:
        """Write to ``folder``, unless the user gave a path; others than the first write nothing."""
        self.path = self._own_path or folder
        if not is_first:
            self.say = self.path = None

    def know(self, parameters: Iterable[tuple[str, Tensor]]) -> None:
        """Store the names of a model's parameters, and which of them are frozen."""
        own = list(parameters)
        self.anatomy.names = {id(x): name for name, x in own}
        self.anatomy.settings["frozen"] = [name for name, x in own if not x.requires_grad]

    def resume(self, step: int) -> None:
        """Continue with the rows of the steps before ``step`` that the Doctor's folder has."""
        folder, self.path = self.path, None  # if it cannot be read, it is left as it is
        if folder is not None:
            self.anatomy.resume(folder, step)
        self.path = folder

    def forget(self) -> None:
        """Delete all rows and verdicts, for a new training."""
        self.observes = False
        self.anatomy.clear()
        self.losses.clear()
        self._verdict, self._next_save = (HEALTHY,), 0.0

    def record(self, name: str, row: Row, series: str = "") -> None:
        """Record a loss and the measured ``row``; print the verdict if it has changed."""
        anatomy = self.anatomy.of(series) if series else self.anatomy
        entry = self.losses.setdefault(name, {"name": name, "family": None})
        entry |= {"series": series} if series else {}
        first = entry["family"] is None
        kind = anatomy.kind
        if first or kind not in ("nothing", "broken"):
            entry["family"] = kind
            entry |= {column: row[column] for column in ("temperature", "misfit", "negatives")}
            entry["reason"] = anatomy.reason or None
            entry |= {"false_negatives": anatomy.places, "over_guess": anatomy.over_guess}
            if kind == "known" and anatomy.objective is not None:
                entry["family"] = anatomy.objective.name
        if first:
            self.tell(first_look(name, kind, row, anatomy))
        self._judge()

    def _judge(self) -> None:
        """Save the rows, and report the verdict if it changed; with more rows, less often."""
        looks = len(self.anatomy.measured)
        if looks % max(1, looks // _TIMES):
            return
        began = time.monotonic()
        if self.path is not None and not rank() and began >= self._next_save:
            with contextlib.suppress(InputError):  # at the end, saving reports the error
                self.save()
            self._next_save = began + _PAUSE * (time.monotonic() - began)
        if looks < _LEAST_ROWS:
            return
        cases = evidence(self.anatomy, self.losses.values(), least=_LEAST_ROWS)
        if any(len(case.rows) < _LEAST_ROWS for case in cases.values()):
            return
        diagnosis = _diagnosis(cases)
        same = diagnosis.verdict in (self._verdict, self._verdict[:1])  # or a remark has ended
        if same or _NOT_YET.issuperset(diagnosis.verdict):
            return
        new = [f for f in diagnosis.findings if f.verdict not in self._verdict]
        self._verdict = diagnosis.verdict
        self.tell(changed(int(self.rows[-1]["step"] or 0), diagnosis))
        for finding in new:
            _alert(finding.verdict, f"{finding.detail} Change: {finding.change}")

    def tell(self, line: str) -> None:
        """Print a line, unless ``say`` is None or this is not the first of several processes."""
        if self.say is not None and not rank():
            tqdm = sys.modules.get("tqdm") if self.say is print else None
            (self.say if tqdm is None else tqdm.tqdm.write)(f"isotrope: {line}")  # above its bars

    def numbers(self) -> dict[str, float]:
        """Return the newest measured numbers: a dict from ``isotrope/COLUMN`` to the number.

        If several data sets or losses are measured, the keys are ``isotrope/NAME/COLUMN``.
        """
        names = self.anatomy.settings.get("series", ())
        some = [row for row in self.rows if any(row[column] is not None for column in LOGGED)]
        newest = {int(row["series"] or 0): row for row in some}  # of each data set or loss
        numbers: dict[str, float] = {}
        for place, row in newest.items():
            prefix = "isotrope" if len(names) < 2 else f"isotrope/{names[place]}"
            for column in LOGGED:
                if (value := row[column]) is not None:
                    numbers[f"{prefix}/{column}"] = value
        return numbers

    def diagnose(
        self,
        *,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        kind: Literal["text", "images"] | None = None,
    ) -> Diagnosis:
        """Return the diagnosis of the training, which ``isotrope diagnose`` also makes.

        What is passed here is kept for later diagnoses, and saved.

        Args:
            batch_size: Batch size of the training, if the trainer does not report it.
            learning_rate: Peak learning rate, if the trainer does not report it.
            kind: Kind of the inputs. None means text if the batches had token ids, else unknown.
        """
        sizes: dict[str, Any] = {"batch_size": batch_size, "learning_rate": learning_rate}
        return _diagnosis(evidence(self.anatomy, self.losses.values(), kind=kind, **sizes))

    def save(self, path: str | Path | None = None) -> Path:
        """Write metrics.csv and diagnosis.json, and return their folder.

        Args:
            path: Folder to write the files to. If None, this is the Doctor's ``path``.

        Raises:
            ValueError: ``path`` is None, and the Doctor has no ``path``.
            InputError: The folder cannot be written.
        """
        folder = self.path if path is None else Path(path)
        if folder is None:
            raise ValueError("name a folder in save(path=FOLDER): the Doctor has no path")
        save(folder, self.anatomy, self.diagnose())
        atexit.unregister(self.finish)
        atexit.unregister(_AT_END.pop(folder.resolve(), self.finish))  # perhaps an earlier Doctor's
        for place in [place for place, end in _AT_END.items() if end == self.finish]:
            del _AT_END[place]
        return folder

    def finish(self) -> None:
        """Report the final verdict, and save it if there is a folder."""
        if self.rows:
            self.tell(at_the_end(self.diagnose(), self.path))
        if self.path is not None:
            self.save()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint of Lightning: a dict with ``rows`` and ``calls``."""
        return {"rows": self.anatomy.rows, "calls": self.anatomy.calls}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the rows of a checkpoint."""
        self.anatomy.rows, self.anatomy.calls = list(state_dict["rows"]), state_dict["calls"]


def _diagnosis(cases: Mapping[str, RunEvidence]) -> Diagnosis:
    from isotrope.diagnostics import doctor  # here, because it imports many modules

    return doctor.together({name: doctor.diagnose(case) for name, case in cases.items()})


def _alert(title: str, text: str) -> None:
    """Send an alert to trackio if the training uses it; ignore its error without a run."""
    tracker = sys.modules.get("trackio")
    if tracker is not None and hasattr(tracker, "alert"):
        with contextlib.suppress(Exception):
            tracker.alert(title=title, text=text)
