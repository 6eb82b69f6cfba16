"""A training on text, measured at its checkpoints and scored at its end.

The run itself is ``isotrope train`` with checkpoints that stay (``--keep-every``); everything that
is measured is measured afterwards, on the encoder as it stood at these steps, without the head
that a training may have on top. So every objective is looked at alike, and what is looked at has
no influence on the training.

Settings of a job: those of ``TrainSettings``, with ``texts`` and ``encoder`` by the names of
``DataRegistry``, and

- ``looks``: what is measured at every kept step, of :data:`MEASURES`;
- ``held``: batches of held-out sentences that are looked at, and their size;
- ``held_from``: ``next``, those that follow the ones trained on, or ``trained``, the last of these;
- ``scored``: the pairs that ``dev`` and ``sts`` mean, ``sts`` or ``docs``;
- ``scores``: what is scored at the end, ``sts`` and names of transfer tasks (``mode`` as in
  ``isotrope evaluate --transfer``);
- ``ends``: of which steps: ``first``, before training, ``last``, and ``best`` by the dev score
  (step 0 does not count: papers take the best *after* training);
- ``whitened``: so many held-out sentences give mean and covariance by which the embeddings of these
  steps are whitened, and scored on STS once more (``average whitened last``);
- ``measured_in``: ``bf16`` embeds in bfloat16 for all of these, in half the time; else ``32``.
"""

import csv
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from isotrope import Views
from isotrope.core import InputError, Result, RunFolder, provenance, unit
from isotrope.data import Subset, lines
from isotrope.encoders import SentenceEncoder
from isotrope.evaluation import (
    CachedEncoder,
    WhitenedEncoder,
    score_task,
    sts_dev,
    transfer_task,
    with_average,
)
from isotrope.measures import alignment, uniformity
from isotrope.paradigm import build
from isotrope.sweeps import trained
from isotrope.training import TrainSettings, encoder_of, read_checkpoint
from papers.li2024.model_statistics import (
    angle_statistics,
    densities,
    dynamic_ratios,
    hardest_share,
    held_out,
    lemma_share,
)
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob

_NOT_TRAINING = (
    *("texts", "looks", "held", "held_from", "scored", "scores", "ends", "mode", "whitened"),
    "measured_in",
)
_PARTS = ("loss", "dissipation", "dead", "hardest_share", "ratio", "above_bound", "gradient_norm")
_HELD_OUT, _PROBE_TEMPERATURE = (
    (8, 128),
    0.05,
)  # batches of Li et al. 2024, appendix A.2; the probe's tau
_DEV = 256  # pairs of STS-B scored above 4 that make the probe's dev batches

Row = dict[str, Any]


def check(job: PaperJob, sources: DataRegistry) -> list[str]:
    """Resolve all names of a job; return what is not on this machine, a line each."""
    settings = _settings(job, sources, Path("unused"), "unused.txt")
    build(settings.objective, settings.objective_settings)
    scored = job.settings.get("scored", "sts")
    names = [job.settings["texts"], scored]
    if set(job.settings.get("scores", ())) - {"sts"}:
        names.append(_transfer_set(scored))
    lacking = [lacking for name in names if (lacking := sources.missing(name))]
    return lacking + sources.missing_encoder(job.settings["encoder"])


def run(job: PaperJob, sources: DataRegistry, folder: Path) -> Result:
    """Train, look, score."""
    options = job.settings
    settings = _settings(job, sources, folder / "run", str(sources.texts(options["texts"])))
    outcome = trained(settings)
    scored, precision = options.get("scored", "sts"), options.get("measured_in", "32")
    dev = sources.sts_dev(scored)
    count, size = options.get("held", _HELD_OUT)
    take_snapshot = functools.partial(
        _Snapshot,
        dev=dev,
        held=_held_out_texts(
            sources, options["texts"], count * size, options.get("held_from", "next")
        ),
        size=size,
        max_length=settings.max_length,
        seed=job.seed,
    )
    rows: list[Row] = []
    details: dict[str, Any] = {"looks": rows, "components": _components(folder / "run")}
    encoder = _encoder(settings, precision)
    last_step = int(outcome.result.metrics["steps"] or 0)
    for step, file in _checkpoints(folder / "run", settings.keep_every or 1, last_step):
        _load(encoder, file)
        details.setdefault("encoder", encoder.fingerprint())  # before training
        newest = CachedEncoder(encoder)  # what was looked at is not embedded to be scored again
        snapshot = take_snapshot(encoder, newest)
        rows.append({"step": step, **_measure(snapshot, options.get("looks", ()))})
    metrics = _metrics(rows)
    if options.get("scores"):
        first, last = (rows[i]["step"] for i in (0, -1))
        steps = {"first": first, "last": last, "best": metrics.get("best_step")}
        for end in options.get("ends", ("last",)):
            if steps[end] is None:
                continue  # no dev score was a number
            step = int(steps[end])
            _load(encoder, folder / "run" / "checkpoints" / f"checkpoint-{step}")
            cached = newest if step == last else CachedEncoder(encoder)
            scores = _scores(cached, options, sources)
            metrics |= {f"{task} {end}": value for task, value in scores.items()}
            if count := options.get("whitened", 0):
                whitened = WhitenedEncoder(
                    cached, _held_out_texts(sources, options["texts"], count, "next")
                )
                scores = _sts_scores(whitened, sources.sts(scored)) | {
                    "dev": sts_dev(whitened, dev)
                }
                metrics |= {f"{task} whitened {end}": value for task, value in scores.items()}
    return Result(
        kind="text",
        name=options["objective"],
        metrics=metrics,
        details=details,
        provenance=provenance(seed=job.seed, data=outcome.result.provenance.get("data")),
    )


def _settings(job: PaperJob, sources: DataRegistry, output: Path, texts: str) -> TrainSettings:
    settings = {name: value for name, value in job.settings.items() if name not in _NOT_TRAINING}
    fixed = {"files": [texts], "output": str(output), "seed": job.seed, "progress": False}
    settings["encoder"] = sources.encoder(settings["encoder"])
    if "keep_every" in settings:  # those that stay are checkpoints to go on from, too
        settings.setdefault("checkpoint_every", 10**9)
    return TrainSettings.read({"recipe": "papers", **settings, **fixed})


def _held_out_texts(sources: DataRegistry, name: str, count: int, source: str) -> list[str]:
    """Texts to look at: those that follow in the same corpus, or else its last."""
    kind, _, trained = name.partition(":")
    if trained.isdecimal() and source == "next":
        name = f"{kind}:{int(trained) + count}"
    return [text for _, text in lines(sources.texts(name))][-count:]


def _checkpoints(run: Path, every: int, last: int) -> list[tuple[int, Path]]:
    """Return the checkpoints that stayed, by step."""
    found = (run / "checkpoints").glob("checkpoint-*")
    every_step = ((int(file.name.rpartition("-")[2]), file) for file in found)
    folders = sorted(item for item in every_step if item[0] % every == 0 or item[0] == last)
    if not folders:
        raise InputError(f"{run} kept no checkpoint; delete it to train anew")
    return folders


def _encoder(settings: TrainSettings, precision: str) -> SentenceEncoder:
    """Return the encoder that is trained, without its head and its data, which take time."""
    encoder = encoder_of(settings)
    if precision == "bf16":  # the encoder alone: what is measured on its rows stays as it is
        forward = torch.autocast("cpu", torch.bfloat16)(encoder.forward)
        encoder.forward = lambda *a, **k: forward(*a, **k).float()  # type: ignore[method-assign]
    return encoder.eval()


def _load(encoder: SentenceEncoder, file: Path) -> None:
    """Give an encoder the weights that it had at a checkpoint."""
    weights = read_checkpoint(file)["state_dict"]
    own = encoder.model.state_dict().keys()  # the rest is of a head
    encoder.model.load_state_dict({name: weights[name] for name in own})


def _scores(
    encoder: CachedEncoder, settings: Mapping[str, Any], sources: DataRegistry
) -> dict[str, float]:
    """Score an encoder on what was asked."""
    scored, tasks = settings.get("scored", "sts"), settings["scores"]
    scores_by_name: dict[str, float] = {}
    if "sts" in tasks:
        scores_by_name |= _sts_scores(encoder, sources.sts(scored))
    names = [name for name in tasks if name != "sts"]
    if names:
        mode = settings.get("mode", "full")
        given = sources.transfer(_transfer_set(scored), names)
        scores = {k: float(transfer_task(encoder, v, mode=mode).accuracy) for k, v in given.items()}
        scores_by_name |= {**scores, "transfer": sum(scores[name] for name in names) / len(names)}
    return scores_by_name


def _sts_scores(
    encoder: CachedEncoder | WhitenedEncoder, sets: Mapping[str, Sequence[Subset]]
) -> dict[str, float]:
    tasks = [score_task(encoder, task, subsets) for task, subsets in sets.items()]
    metrics = with_average(tasks).metrics
    return {k: float(v) for k, v in metrics.items() if isinstance(v, int | float)}


def _components(run: Path) -> list[Row]:
    """Return the loss and the gradient's components as the run's metrics.csv has them, by step."""
    with RunFolder(run).metrics.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("loss")]
    components: list[Row] = []
    for row in rows:
        short = {name: float(f"{float(row[name]):.4g}") for name in _PARTS if row.get(name)}
        components.append({"step": int(row["step"]), **short})
    return components


def _transfer_set(scored: str) -> str:
    return "transfer" if scored == "sts" else scored


def _metrics(rows: Sequence[Row]) -> dict[str, float | int | str | None]:
    """Make flat numbers of the dev scores: the first, the last, the best after the first."""
    # a set on which all embeddings are alike has no correlation
    scores = [(row["step"], row["dev"]) for row in rows if math.isfinite(row.get("dev", math.nan))]
    metrics: dict[str, float | int | str | None] = {"steps": rows[-1]["step"]}
    if scores:
        step, best = max(scores[1:] or scores, key=lambda score: score[1])
        metrics |= {"dev first": scores[0][1], "dev last": scores[-1][1]}
        metrics |= {"dev best": best, "best_step": step}
    return metrics


def _measure(snapshot: "_Snapshot", names: Sequence[str]) -> Row:
    """Return what was asked for of an encoder at one step."""
    row: Row = {}
    for name in names:
        row |= MEASURES[name](snapshot)
    return row


@dataclass
class _Snapshot:
    """An encoder, with the batches that several looks share; made when the first asks."""

    encoder: SentenceEncoder
    known: CachedEncoder
    dev: Subset
    held: Sequence[str]
    size: int
    max_length: int
    seed: int

    @functools.cached_property
    def batches(self) -> list[Views]:
        """Held-out sentences, dropout on: Li et al. 2024, appendix A.2."""
        return held_out(
            self.encoder,
            self.held,
            batch_size=self.size,
            max_length=self.max_length,
            seed=self.seed,
        )

    @functools.cached_property
    def close(self) -> Views:
        """Pairs of the dev set that are scored above 4, without dropout."""
        rows = [i for i, score in enumerate(self.dev.scores) if score > 4][:_DEV]
        sides = [[side[i] for i in rows] for side in (self.dev.first, self.dev.second)]
        first, second = (torch.from_numpy(self.known.encode(side)) for side in sides)
        return Views(first, second)


def _dev_scores(snapshot: _Snapshot) -> Row:
    """Return the dev score, and its place in figure 1a of Nie et al. 2023.

    The place is the alignment of all pairs scored above 4 and the uniformity of all sentences.
    """
    encoder, dev = snapshot.known, snapshot.dev
    score = sts_dev(encoder, dev)
    close = [i for i, gold in enumerate(dev.scores) if gold > 4]
    sentences = list(dict.fromkeys([*dev.first, *dev.second]))
    texts = ([dev.first[i] for i in close], [dev.second[i] for i in close], sentences)
    a, b, rows = (torch.from_numpy(encoder.encode(part)).double() for part in texts)
    return {
        "dev": score,
        "dev set": {"alignment": float(alignment(a, b)), "uniformity": float(uniformity(rows))},
    }


def _probes(snapshot: _Snapshot) -> Row:
    """Return the three losses of Nie et al. 2023, figures 1 and 3, on held-out and dev pairs.

    They have their own tau and t, whatever is trained.
    """
    losses = [_probe_losses(views) for views in snapshot.batches]
    train = {name: sum(row[name] for row in losses) / len(losses) for name in losses[0]}
    return {
        **{f"train {name}": value for name, value in train.items()},
        **{f"dev {name}": value for name, value in _probe_losses(snapshot.close).items()},
    }


def _probe_losses(views: Views) -> dict[str, float]:
    a, b = (x.double() for x in (views.anchors, views.positives))
    return {
        "contrastive": float(_PROBE(a, b)),
        "alignment": float(alignment(a, b)),
        "uniformity": float((uniformity(a) + uniformity(b)) / 2),
        **gaps(a, b),
    }


def gaps(a: Tensor, b: Tensor) -> dict[str, float]:
    """Return both d_ij of Nie et al. 2023: of the caption of figure 3, and of section 4.3."""
    distance = torch.cdist(unit(a), unit(b))
    own, others = distance.diagonal(), ~torch.eye(len(a), dtype=torch.bool)
    to_negatives = distance[others].view(len(a), -1)
    return {
        "distance gap": float((to_negatives.mean(dim=1) - own).mean()),
        "margin gap": float((own - to_negatives.amin(dim=1)).abs().mean()),
    }


def _angles(snapshot: _Snapshot) -> Row:
    """Li et al. 2024, figure 9."""
    statistics = angle_statistics(snapshot.batches)
    return {f"{name} {k}": v for name, angles in statistics.items() for k, v in angles.items()}


def _cosines(snapshot: _Snapshot) -> Row:
    """Li et al. 2024, figure 5."""
    columns = densities(snapshot.batches, points=101)
    return {"densities": {name: _rounded(values) for name, values in columns.items()}}


def _hardest(snapshot: _Snapshot) -> Row:
    """Li et al. 2024, figure 7: by temperature, of the weight and of the released statistic."""
    return {
        f"hardest {kind}": {
            f"{tau:g}": share
            for tau, share in hardest_share(
                snapshot.batches, margin=None if kind == "weight" else 0.3, kind=kind
            ).items()
        }
        for kind in _KINDS
    }


def _lemma(snapshot: _Snapshot) -> Row:
    """Li et al. 2024, figure 8a: the smallest ratios that Lemma 1 asks for, and who has them."""
    by_step: dict[str, Row] = {}
    for views in snapshot.batches[:1]:
        for share in lemma_share(views):
            low = share.minimum.double()
            by_step[f"{share.step:g}"] = {
                "share": share.share,
                "counted": len(low),
                "unbounded": share.unbounded,
                "obtuse": share.obtuse,
                "minimum": _rounded(low.quantile(_QUANTILES)) if len(low) else [],
                "below": {f"{r:g}": float((low < r).double().mean()) for r in _RATIOS}
                if len(low)
                else {},
            }
    return {"lemma": by_step}


def _ratios(snapshot: _Snapshot) -> Row:
    """Li et al. 2024, figure 8b: all registered dynamic ratios."""
    return {"ratios": dynamic_ratios(snapshot.batches)}


def _closeness(snapshot: _Snapshot) -> Row:
    """Li et al. 2024, figure 8c: how close held-out positives lie."""
    cosines = [v.unit().map(lambda x: x.double()) for v in snapshot.batches]
    mean = sum(float((v.anchors * v.positives).sum(dim=1).mean()) for v in cosines)
    return {"positive cosine": mean / len(cosines)}


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


_PROBE = build("infonce", {"temperature": _PROBE_TEMPERATURE})
_KINDS: tuple[Literal["weight", "projection"], ...] = ("weight", "projection")
_QUANTILES = torch.tensor([0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0], dtype=torch.float64)
_RATIOS = (1.0, 1.25, 1.5, 1.75, 2.0)

MEASURES: dict[str, Callable[[_Snapshot], Row]] = {
    "dev": _dev_scores,
    "probes": _probes,
    "angles": _angles,
    "cosines": _cosines,
    "hardest": _hardest,
    "lemma": _lemma,
    "ratios": _ratios,
    "closeness": _closeness,
}
"""What can be measured at every kept step."""
