"""Doctor: the object that a training is given, and that says what its loss does to the embeddings.

One object for every trainer. transformers and Lightning call methods ``on_...`` of what they are
given; these are handed on to a part for each, and a loop of one's own calls :meth:`Doctor.observe`.
"""

import functools
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from isotrope.adapters.doctor.hugging_face import HuggingFaceEvents
from isotrope.adapters.doctor.lightning import LightningEvents
from isotrope.adapters.doctor.sentences import at_the_end, changed, first_look
from isotrope.diagnostics.anatomy import Anatomy, Row
from isotrope.diagnostics.findings import HEALTHY, Diagnosis
from isotrope.diagnostics.recording import save
from isotrope.paradigm.objective import Objective

__all__ = ["Doctor"]

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
"""The columns that go to the trainer's loggers, as ``isotrope/dissipation`` and so on."""

_NOT_YET = ("not-enough-seen",)
_LOOKS = 3  # before which no verdict is told
_TIMES = 20  # as many diagnoses as rows up to here, from there on one for each 5% more


class Doctor:
    """Looks at every tenth step of a training, and says what is wrong and what to change.

    Give it to a trainer of sentence-transformers, to transformers' ``Trainer`` or to Lightning::

        SentenceTransformerTrainer(..., callbacks=[isotrope.Doctor()])
        transformers.Trainer(..., callbacks=[isotrope.Doctor(module="encoder")])
        lightning.Trainer(callbacks=[isotrope.Doctor()])  # training_step returns the embeddings

    It says one line at the first look, one line when its verdict changes, and the verdict at the
    end. The numbers go to the trainer's own loggers as ``isotrope/...``, and into
    ``OUTPUT_DIR/isotrope``, from where ``isotrope diagnose OUTPUT_DIR`` and ``isotrope report
    OUTPUT_DIR`` read them. Within a trainer it never raises: what goes wrong is said in one
    warning of the logger ``isotrope``, and the doctor looks no further.

    In a loop of one's own, call :meth:`observe` between the loss and its ``backward()``::

        doctor = isotrope.Doctor()
        for batch in loader:
            anchors, positives = encoder(batch.a), encoder(batch.b)
            loss = my_loss(anchors, positives)
            doctor.observe(anchors, positives, loss)
            ...
        doctor.save("runs/mine")
        print(doctor.diagnose(batch_size=64))

    Args:
        every: steps from one look to the next; step 0 is looked at.
        path: folder of metrics.csv and diagnosis.json, instead of ``OUTPUT_DIR/isotrope``.
        module: name of the module that makes the embeddings, one vector an input, as
            ``named_modules()`` of the model has it; by default the model itself.
        objective: what the loss is, if it is one of isotrope's; of an ``ObjectiveLoss`` it is
            known.
        against: of another loss, the negatives: the other view, or both; None finds out.
        reduction: how the loss makes one number of its n anchors.
        temperature: of its softmax, if the gradient does not show it; by default that of the loss
            (its ``temperature``, or 1 over its ``scale``), if it has one.
        dev: name of a metric of validation by which to judge, larger is better; by default the
            trainer's ``metric_for_best_model``.
        say: what the lines are given to; None says nothing.

    Attributes:
        anatomy: the rows, one a look (:class:`~isotrope.diagnostics.anatomy.Anatomy`).
        losses: what was seen of each loss by its name: family, temperature, misfit, negatives.
        off: whether something went wrong, so that the doctor looks no further.

    Raises:
        ValueError: an ``every`` or a temperature that is not positive.
    """

    # by which Lightning keeps the rows in its checkpoints
    state_key = _legacy_state_key = "isotrope.Doctor"

    def __init__(
        self,
        *,
        every: int = 10,
        path: str | Path | None = None,
        module: str | None = None,
        objective: Objective | None = None,
        against: Literal["cross", "both"] | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        temperature: float | None = None,
        dev: str | None = None,
        say: Callable[[str], object] | None = print,
    ) -> None:
        self.anatomy = Anatomy(
            objective,
            every=every,
            against=against,
            reduction=reduction,
            temperature=temperature,
        )
        self.path = self._given = None if path is None else Path(path)
        self.module, self.dev, self.say = module, dev, say
        self.losses: dict[str, dict[str, Any]] = {}
        self.off = False
        self._verdict: tuple[str, ...] = (HEALTHY,)
        self._parts = (HuggingFaceEvents(self), LightningEvents(self))

    @property
    def rows(self) -> list[Row]:
        """The numbers, one row a look, by column."""
        return self.anatomy.rows

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what to do when a trainer calls ``on_...``; nothing for most of its events."""
        if not name.startswith("on_") and name not in ("setup", "teardown"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        for part in self._parts:
            if hasattr(part, name):
                return self.quietly(getattr(part, name))
        return _nothing

    def quietly(self, what: Callable[..., object]) -> Callable[..., None]:
        """Return the same, from which no error reaches the training, and which is None once off."""

        @functools.wraps(what)
        def done(*given: Any, **named: Any) -> None:  # noqa: ANN401 - anyone's signature
            if self.off:
                return
            try:
                what(*given, **named)
            except Exception as error:  # whatever it is, the training goes on
                self.stop(f"{type(error).__name__}: {error}")

        return done

    def stop(self, why: str) -> None:
        """Look no further, and say why, once."""
        self.off = True
        for part in self._parts:
            part.close()
        logger.warning("the doctor looks no further (%s); the training is not touched by that", why)

    def observe(
        self,
        anchors: Tensor,
        positives: Tensor | None,
        loss: Tensor | None = None,
        *,
        negatives: Tensor | None = None,
        groups: Tensor | None = None,
        gradient: Tensor | None = None,
        labelled: bool = False,
        step: int | None = None,
    ) -> Row | None:
        """Look at a batch of a loop of one's own, if it is its turn, and return the new row.

        Call it between the loss and its ``backward()``, with the very tensors that the loss was
        computed from, before they are normalised.

        Args:
            anchors: n x d embeddings.
            positives: n x d, row i the positive of anchor i; None where there are none.
            loss: the scalar to minimise, not yet scaled for float16 or for accumulation.
            negatives: q x d further negatives of all anchors.
            groups: n integers; rows of one group are no negatives of each other.
            gradient: n x d, of the loss on the anchors, where it is known already.
            labelled: the loss has labels as well: of two columns the second need not be a positive.
            step: number of the step; by default of the call, from 0.

        Raises:
            ValueError: shapes that do not fit, a loss that is no scalar, or one that does not
                depend on the anchors.
        """
        row = self.anatomy.observe(
            anchors,
            positives,
            loss,
            negatives=negatives,
            groups=groups,
            gradient=gradient,
            labelled=labelled,
            step=step,
        )
        if row is not None:
            self.noted("the loss", row)
        return row

    def keep_in(self, folder: Path | None) -> None:
        """Write into a folder of the trainer's, unless the doctor was given one."""
        self.path = self._given or folder

    def forget(self) -> None:
        """Begin anew, with a training that begins anew."""
        self.anatomy.clear()
        self.losses.clear()
        self._verdict = (HEALTHY,)

    def noted(self, name: str, row: Row | None) -> None:
        """Speak of a new row, and of a verdict that has changed.

        Args:
            name: of the loss.
            row: None where there was nothing to measure.
        """
        known = self.losses.setdefault(name, {"name": name, "family": None})
        first = known["family"] is None
        kind = "vectorless" if row is None else self.anatomy.kind
        if first or kind not in ("nothing", "broken"):
            known["family"] = kind
            for column in ("temperature", "misfit", "negatives"):
                known[column] = None if row is None else row[column]
            if kind == "known" and self.anatomy.objective is not None:
                known["family"] = self.anatomy.objective.name
        if first:
            self.tell(first_look(name, kind, row, self.anatomy))
        self._judge()

    def _judge(self) -> None:
        """Say a verdict that has changed; the more rows there are, the more rarely."""
        looks = len(self.rows)
        if looks < _LOOKS or looks % max(1, looks // _TIMES):
            return
        found = self.diagnose()
        if found.verdict in (self._verdict, _NOT_YET):
            return
        new = [f for f in found.findings if f.verdict not in self._verdict]
        self._verdict = found.verdict
        self.tell(changed(int(self.rows[-1]["step"] or 0), found))
        for finding in new:
            _alert(finding.verdict, f"{finding.detail} Change: {finding.change}")

    def tell(self, line: str) -> None:
        """Say a line, if anyone listens."""
        if self.say is not None:
            self.say(f"isotrope: {line}")

    def numbers(self) -> dict[str, float]:
        """Return the newest numbers as the trainer's loggers have them, ``isotrope/...``."""
        row: Mapping[str, float | None] = next(
            (r for r in reversed(self.rows) if any(r[name] is not None for name in LOGGED)), {}
        )
        found = ((name, row.get(name)) for name in LOGGED)
        return {f"isotrope/{name}": value for name, value in found if value is not None}

    def diagnose(self, **settings: Any) -> Diagnosis:  # noqa: ANN401 - any setting
        """Return what is wrong with the training, as ``isotrope diagnose`` does.

        Args:
            settings: what is known of it and was not read from a trainer, in the words of the
                command line, with underscores: ``batch_size=64, learning_rate=3e-5``.
        """
        from isotrope.diagnostics.doctor import diagnose  # with all its rules: when it is called

        return diagnose(self.anatomy.case(self.losses.values(), **settings))

    def save(self, path: str | Path | None = None) -> Path:
        """Write metrics.csv and diagnosis.json, and return their folder.

        Args:
            path: of the folder; by default that of the doctor.

        Raises:
            ValueError: nobody said where.
            InputError: it cannot be written.
        """
        folder = self.path if path is None else Path(path)
        if folder is None:
            raise ValueError("nobody said where to save: give a folder")
        save(folder, self.anatomy, self.diagnose())
        return folder

    def finish(self) -> None:
        """Say the verdict at the end, and write it where there is a place for it."""
        if self.rows:
            self.tell(at_the_end(self.diagnose(), self.path))
        if self.path is not None:
            self.save()

    def state_dict(self) -> dict[str, Any]:
        """Return the rows, which go into Lightning's checkpoints."""
        return {"rows": self.anatomy.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the rows of a checkpoint."""
        self.anatomy.rows = list(state_dict["rows"])


def _nothing(*given: Any, **named: Any) -> None:  # noqa: ANN401 - anyone's signature
    """What the doctor does at most events of a trainer."""


def _alert(title: str, text: str) -> None:
    """Tell trackio, where the training is tracked by it."""
    tracker = sys.modules.get("trackio")
    if tracker is not None and hasattr(tracker, "alert"):
        tracker.alert(title=title, text=text)
