"""The protocol for sentence embeddings on raw encoders, and on two that know sentences.

Every loss gets the same budget: four rates at its published values (``rates``), then six sets of
its own hyperparameters at the best of these rates (``settings``), both with 16,000 sentences and
one seed that is not used again; then five seeds of what was best, with 32,000 (``final``). Best
is by the dev split of STS-B, scored every 50 steps, of which the best after step 0 counts; the
seven STS tasks and the seven of classification are scored once, at that step of the final
trainings. ``curves`` are the one-thing-varied trainings of Li et al. 2024, figures 6 and 8(c);
``passes`` are longer trainings (256,000 sentences) for Nie et al. 2023, figures 1 and 3.
``again`` has ten more seeds of the losses about which five have left a claim undecided; tables have
the first five of every loss.

``held`` is the first step of table 5 with everything else held: the original at its published
weight, which is what the step keeps, and at the rate that was best for the original at that weight;
then the same with the printed dissipation, and with the released one. It was written here before
any of its trainings (three earlier ones, of mhs, mhe and barlowtwins, are among them).

On an encoder of :data:`CONFIRMING` nothing is chosen: the losses of table 3 are trained with the
rates and hyperparameters that were chosen on another, and scored on STS.

What a claim needs is trained together: :data:`SCHEDULE` has the losses of table 3 first, through
all of their stages, then the steps of table 5, then what Nie et al. 2023 add, then the curves and
the printed forms.

Batches of 64, at most 32 tokens, sentences of any length, CLS, no head, embeddings frozen. The
losses of Li et al. 2024 are trained in the form of their released code, those of Nie et al. 2023
as printed. A name that ends in ``printed`` is the printed form of a loss of Li et al., ``GD`` and
``GD+W`` are steps of table 5. The names are those of claims.toml.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from isotrope.core import Result
from papers.machinery.data_registry import RAW, STARTS
from papers.machinery.job import PaperJob, brief

Stage = Literal["start", "rates", "settings", "final", "curves", "passes", "again", "held"]
STAGES: tuple[Stage, ...] = get_args(Stage)
Values = Mapping[str, float | str]
Find = Callable[[PaperJob], Result | None]

CONFIRMING = {f"{RAW}-seed1": RAW}
"""Encoders on which nothing is chosen, and those whose rates and hyperparameters they take."""

_RATES = (3e-4, 1e-3, 3e-3, 1e-2)
_PRETRAINED_RATES = (1e-5, 3e-5, 1e-4, 3e-4)
SEEDS = (1, 2, 3, 4, 5)
SEEDS_AGAIN = tuple(range(6, 16))
PASS_SEEDS = (1, 2, 3)
_TUNING = 0  # the seed of stages whose results choose something

_SHORT, _LONG, _PASS = 250, 500, 4_000  # steps
_TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
_SCORED = {"scores": ["sts", *_TRANSFER], "mode": "prototyping", "ends": ["best"]}
_WHITENED = 2_000  # sentences whose statistics whiten


@dataclass(frozen=True)
class ProtocolLoss:
    """What is trained.

    Attributes:
        name: as claims.toml has it.
        objective: in the registry.
        values: published hyperparameters.
        grid: the sets of hyperparameters that ``settings`` tries; none for what has no tuning of
            its own.
        like: the loss whose tuned hyperparameters it takes.
    """

    name: str
    objective: str
    values: Values = field(default_factory=dict)
    grid: tuple[Values, ...] = ()
    like: str = ""


def _grid(base: Values, **choices: Sequence[float]) -> tuple[Values, ...]:
    """Every combination; what is not varied stays as it is."""
    return tuple(
        {**base, **dict(zip(choices, values, strict=True))}
        for values in itertools.product(*choices.values())
    )


_RELEASED: Values = {"variant": "released"}
_TEMPERATURES = (0.02, 0.03, 0.05, 0.08, 0.17, 0.3)
_WEIGHTS = (0.3, 1, 3, 10, 30, 100)
_MARGINS = (0.15, 0.23, 0.31, 0.45, 0.6, 0.8)
_ANGLES = tuple(m * math.pi for m in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3))
_THREE_PARTS = {"margin": (0.3,), "temperature": (0.03, 0.05), "ratio": (1.0, 1.5, 1.75)}
_TWO_PARTS = {"margin": (0.3, 0.37), "ratio": (1.0, 1.5, 1.75)}

_MODIFIED: dict[str, tuple[Values, Mapping[str, Sequence[float]]]] = {
    "modifiedmhe": ({"margin": 0.3, "temperature": 0.05, "ratio": 1.75}, _THREE_PARTS),
    "modifiedmhs": ({"margin": 0.3, "ratio": 1.75}, _TWO_PARTS),
    "modifiedbarlowtwins": ({"margin": 0.3, "temperature": 0.05, "ratio": 1.5}, _THREE_PARTS),
    "modifiedvicreg": ({"margin": 0.3, "temperature": 0.05, "ratio": 1.5}, _THREE_PARTS),
}


def _losses() -> Iterable[ProtocolLoss]:
    """The sixteen of tables 3 to 5 and table 1, then forms and steps."""
    simcse: Values = {"temperature": 0.05}
    yield ProtocolLoss("infonce", "infonce", simcse, _grid({}, temperature=_TEMPERATURES))
    arccon = _grid({}, temperature=(0.03, 0.05, 0.08), margin=(math.pi / 18, math.pi / 9))
    yield ProtocolLoss("arccon", "arccon", {**simcse, "margin": math.pi / 18}, arccon)
    yield ProtocolLoss("mpt", "mpt", {"margin": 0.23}, _grid({}, margin=_MARGINS))
    yield ProtocolLoss("met", "met", {"margin": 0.45}, _grid({}, margin=_MARGINS))
    yield ProtocolLoss(
        "mhe", "mhe", {"weight": 10.0, **_RELEASED}, _grid(_RELEASED, weight=_WEIGHTS)
    )
    yield ProtocolLoss(
        "mhs", "mhs", {"weight": 1.0, **_RELEASED}, _grid(_RELEASED, weight=_WEIGHTS)
    )
    yield ProtocolLoss(
        "barlowtwins", "barlowtwinsgrad", {"weight": 30.0}, _grid({}, weight=_WEIGHTS)
    )
    yield ProtocolLoss("vicreg", "vicreggrad", {"weight": 30.0}, _grid({}, weight=_WEIGHTS))
    for name, (values, varied) in _MODIFIED.items():
        yield ProtocolLoss(name, name, {**values, **_RELEASED}, _grid(_RELEASED, **varied))
    uniform = _grid({"alpha": 2.0}, t=(2.0, 4.0, 6.0), balance=(0.1, 0.3))
    yield ProtocolLoss(
        "alignuniform", "alignuniform", {"alpha": 2.0, "t": 6.0, "balance": 0.1}, uniform
    )
    yield ProtocolLoss("dcl", "dcl", {"temperature": 0.03}, _grid({}, temperature=_TEMPERATURES))
    yield ProtocolLoss(
        "dclplus", "dclplus", {"temperature": 0.17}, _grid({}, temperature=_TEMPERATURES)
    )
    yield ProtocolLoss("mat", "mat", {"margin": 0.15 * math.pi}, _grid({}, margin=_ANGLES))
    for name, (values, varied) in _MODIFIED.items():
        yield ProtocolLoss(f"{name} printed", name, values, _grid({}, **varied))
    for name, (values, _) in _MODIFIED.items():
        for step in ("GD",) if name == "modifiedmhs" else ("GD", "GD+W"):
            settings = {**values, **_RELEASED, "step": step}
            yield ProtocolLoss(f"{name} {step}", name, settings, like=name)
    yield ProtocolLoss("baseline", "paradigm", _baseline())


def _baseline(margin: float = 0.3, temperature: float = 0.05, ratio: float = 1.0) -> Values:
    """Li et al. 2024's empirical baseline, eq. 5."""
    parts = {"dissipation": f"margin:{margin:g}", "weight": f"softmax:{temperature:g}"}
    return {**parts, "ratio": ratio, **_RELEASED}


LOSSES = {loss.name: loss for loss in _losses()}

CURVES: Mapping[str, tuple[float, ...]] = {
    "margin": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "temperature": (0.01, 0.03, 0.05, 0.1, 0.3, 1.0, 3.0),
    "ratio": (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0),
}
_COMPARED = {"margin": (1.0,), "temperature": (0.3,), "ratio": (0.25, 2.0)}
"""Values that a claim names; the others of a curve have one seed."""

PASSES = tuple(
    f"{name} pass"
    for name in ("infonce", "alignuniform", "dcl", *(f"mpt margin={m:g}" for m in (0.1, 0.23, 0.8)))
)
"""Long trainings, by the names of claims.toml."""


def training(
    encoder: str,
    loss: ProtocolLoss,
    values: Values,
    rate: float,
    steps: int,
    seed: int,
    more: Mapping[str, Any] | None = None,
) -> PaperJob:
    """Return a training of the protocol; ``more`` are other settings."""
    every = 125 if steps == _PASS else 50  # Nie et al. 2023 look every 125 steps
    fixed = {
        "texts": f"wiki:{64 * steps}",
        "encoder": encoder,
        "scored": "sts",
        "pooling": "cls",
        "head": "none",
        "freeze": "embeddings",
        "batch_size": 64,
        "max_length": 32,
        "max_steps": steps,
        "keep_every": every,
        "log_every": every,
        "held": [4, 128],
        "looks": ["dev"],
        "objective": loss.objective,
        "learning_rate": rate,
    }
    settings = {f"objective.{name}": value for name, value in values.items()}
    title = f"{loss.name}, {brief(values)}, rate {rate:g}, {steps} steps, {encoder}"
    return PaperJob("text", {**fixed, **settings, **(more or {})}, seed, title)


def start(encoder: str) -> PaperJob:
    """Return the encoder before training, scored as it is and whitened."""
    loss = LOSSES["infonce"]
    more = {"max_steps": 1, "keep_every": 1, "ends": ["first"], "whitened": _WHITENED}
    # its one step is not looked at, and neither is its rate
    return training(encoder, loss, loss.values, 1e-4, _SHORT, _TUNING, {**_SCORED, **more})


def short(
    encoder: str,
    loss: ProtocolLoss,
    values: Values,
    rate: float,
    more: Mapping[str, Any] | None = None,
) -> PaperJob:
    """Return a training of the stages that choose; ``more`` are further settings."""
    return training(encoder, loss, values, rate, _SHORT, _TUNING, more)


def final(
    encoder: str,
    loss: ProtocolLoss,
    values: Values,
    rate: float,
    seed: int,
    more: Mapping[str, Any] | None = None,
) -> PaperJob:
    """Return a training that is judged, by STS alone unless ``more`` says otherwise."""
    return training(
        encoder, loss, values, rate, _LONG, seed, {**_SCORED, "scores": ["sts"], **(more or {})}
    )


def best(jobs: Iterable[tuple[Any, PaperJob]], find: Find) -> Any:  # noqa: ANN401 - beside a job
    """Return what stands beside the job with the best score on dev; None until all are there.

    A training that diverged, or without a score, is behind all others.
    """
    scored = []
    for which, job in jobs:
        if (result := find(job)) is None:
            return None
        score = result.metrics.get("dev best")
        scored.append((float(score) if isinstance(score, int | float) else -math.inf, which))
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def rates(encoder: str) -> tuple[float, ...]:
    """Return the rates that are tried: smaller ones of encoders that sentences were taught to."""
    return _PRETRAINED_RATES if encoder in STARTS else _RATES


def tuned_on(encoder: str) -> str:
    """Return the encoder on which rates and hyperparameters are chosen: mostly the same one."""
    return CONFIRMING.get(encoder, encoder)


def rate(encoder: str, loss: ProtocolLoss, find: Find) -> float | None:
    """Return the best rate of a loss at its published values; None until it is known."""
    encoder = tuned_on(encoder)
    candidates = [(rate, short(encoder, loss, loss.values, rate)) for rate in rates(encoder)]
    best_rate: float | None = best(candidates, find)
    return best_rate


def tuned(encoder: str, loss: ProtocolLoss, find: Find) -> Values | None:
    """Return the best hyperparameters of a loss at its best rate; None until they are known.

    The published ones are among those that are compared. A step of table 5 has those of the loss
    it leads to.
    """
    whose = LOSSES[loss.like] if loss.like else loss
    encoder = tuned_on(encoder)
    at = rate(encoder, whose, find)
    if at is None:
        return None
    chosen: Values | None = best(
        [(values, short(encoder, whose, values, at)) for values in (whose.values, *whose.grid)],
        find,
    )
    if chosen is None or not loss.like:
        return chosen
    return {**chosen, "step": loss.values["step"]}


HELD = (
    # first those that decide something together with trainings that are there already
    *("barlowtwins held", "barlowtwins held GD released", "mhe held", "mhe held GD released"),
    *("vicreg held", "vicreg held GD released", "mhs held", "mhs held GD released"),
    *(f"{name} held GD printed" for name in ("barlowtwins", "vicreg", "mhe", "mhs")),
)
"""The first step of table 5 at the published weight and one rate: the original, then the step."""


def _held(encoder: str, find: Find, name: str) -> list[PaperJob]:
    """One of :data:`HELD`, five seeds scored on STS."""
    whose, _, step = name.partition(" held")
    original, modified = LOSSES[whose], LOSSES[f"modified{whose}"]
    at, chosen = rate(encoder, original, find), tuned(encoder, original, find)
    gate = tuned(encoder, modified, find)
    if at is None or chosen is None or gate is None:
        return []
    if not step:
        # the same job as the final training where tuning has kept the published weight
        more = _SCORED if chosen == original.values else None
        return [final(encoder, original, original.values, at, seed, more) for seed in SEEDS]
    if step == " GD released":
        return [final(encoder, modified, {**gate, "step": "GD"}, at, seed) for seed in SEEDS]
    values = {**original.values, "dissipation": f"margin:{gate['margin']:g}"}
    return [final(encoder, original, values, at, seed) for seed in SEEDS]


def trainings(encoder: str, find: Find, name: str) -> list[PaperJob]:
    """Return the trainings of a name in claims.toml; none until their settings are known."""
    if name == "before training":
        return [start(encoder)]
    if name in LOSSES and name != "baseline":
        return _final(encoder, LOSSES[name], find)
    if name in HELD:
        return _held(encoder, find, name)
    first, _, varied = name.partition(" ")
    if first == "baseline":
        return _curve(encoder, find, varied)
    return _pass(encoder, find, name.removesuffix(" pass"))


def again(encoder: str, find: Find, name: str) -> list[PaperJob]:
    """Return the further seeds of a training that claims are judged on a second time; or none."""
    if not any(name in group for group in _AGAIN):
        return []
    more = _SCORED if name in _AGAIN[0] else {}  # of the others no claim about transfer is open
    return _final(encoder, LOSSES[name], find, SEEDS_AGAIN, more)


def _final(
    encoder: str,
    loss: ProtocolLoss,
    find: Find,
    seeds: Sequence[int] = SEEDS,
    more: Mapping[str, Any] | None = None,
) -> list[PaperJob]:
    at, values = rate(encoder, loss, find), tuned(encoder, loss, find)
    if at is None or values is None:
        return []
    if more is None:
        more = {} if loss.like or encoder in CONFIRMING else _SCORED
    return [final(encoder, loss, values, at, seed, more) for seed in seeds]


def _curve(encoder: str, find: Find, varied: str) -> list[PaperJob]:
    """The baseline with one value changed, as in ``ratio=2``; nothing for the baseline itself."""
    name, _, value = varied.partition("=")
    loss = LOSSES["baseline"]
    at = rate(encoder, loss, find)
    if at is None:
        return []
    values = _baseline(**({name: float(value)} if name else {}))
    compared = not name or float(value) in _COMPARED[name] or values == _baseline()
    seeds = SEEDS if compared else SEEDS[:1]
    more = {"looks": ["dev", "closeness"]}
    return [training(encoder, loss, values, at, _SHORT, seed, more) for seed in seeds]


def _pass(encoder: str, find: Find, name: str) -> list[PaperJob]:
    """A long training; ``mpt margin=0.1`` has that margin and MPT's best rate."""
    which, _, margin = name.partition(" margin=")
    loss = LOSSES[which]
    at = rate(encoder, loss, find)
    values = {"margin": float(margin)} if margin else tuned(encoder, loss, find)
    if at is None or values is None:
        return []
    more = {**_SCORED, "looks": ["dev", "probes"]}
    return [training(encoder, loss, values, at, _PASS, seed, more) for seed in PASS_SEEDS]


_STEPS = tuple(name for name, loss in LOSSES.items() if loss.like)
_PRINTED = tuple(name for name in LOSSES if name.endswith(" printed"))
_NIE = ("alignuniform", "dcl", "dclplus", "mat")
_FIRST = tuple(n for n in LOSSES if n not in {*_STEPS, *_PRINTED, *_NIE, "baseline"})
_GROUPS = (_FIRST, _STEPS, _NIE)
_AGAIN = (
    ("infonce", "dcl", "dclplus", "alignuniform"),
    ("mpt", "met", "mat"),
    ("arccon",),
    ("modifiedmhe", "modifiedmhe GD+W", "modifiedmhe GD", "mhe"),
    ("modifiedmhs", "modifiedmhs GD", "modifiedvicreg", "modifiedvicreg GD+W"),
)

SCHEDULE: tuple[tuple[Stage, tuple[str, ...]], ...] = (
    ("start", ()),
    *((stage, group) for group in _GROUPS for stage in ("rates", "settings", "final")),
    ("rates", ("baseline",)),
    ("curves", ()),
    *((stage, _PRINTED) for stage in ("rates", "settings", "final")),
    ("passes", ()),
    *(("again", group) for group in _AGAIN),
    ("held", ()),
)
"""What is trained, in order: a stage, and the losses of :data:`LOSSES` it is about."""

_PAIRS = tuple(
    name for modified in _MODIFIED for name in (modified.removeprefix("modified"), modified)
)


def schedule(encoder: str) -> tuple[tuple[Stage, tuple[str, ...]], ...]:
    """Return what is trained on an encoder: of those of :data:`CONFIRMING` table 3 alone."""
    if encoder not in CONFIRMING:
        return SCHEDULE
    others = tuple(name for name in _FIRST if name not in _PAIRS)
    return (("start", ()), ("final", _PAIRS), ("final", others))


def jobs(
    stage: Stage, encoder: str, find: Find, names: Sequence[str] = tuple(LOSSES)
) -> list[PaperJob]:
    """Return the jobs of a stage, as far as what they depend on is known."""
    losses = [LOSSES[name] for name in names]
    if stage == "start":
        return [start(encoder)]
    if stage == "rates":
        return [
            short(encoder, loss, loss.values, rate) for loss in losses for rate in rates(encoder)
        ]
    jobs_: list[PaperJob] = []
    if stage == "settings":
        for loss in losses:
            if (at := rate(encoder, loss, find)) is not None:
                jobs_ += [short(encoder, loss, values, at) for values in loss.grid]
        return jobs_
    if stage == "again":
        jobs_ = [job for name in names for job in again(encoder, find, name)]
        return sorted(jobs_, key=lambda job: job.seed)
    if stage == "final":
        names = [name for name in names if name != "baseline"]
    elif stage == "held":
        return [job for name in HELD for job in _held(encoder, find, name)]
    elif stage == "curves":
        names = ["baseline", *(f"baseline {k}={v:g}" for k, vs in CURVES.items() for v in vs)]
    else:
        names = list(PASSES)
    jobs_ = [job for name in names for job in trainings(encoder, find, name)]
    return sorted(jobs_, key=lambda job: job.seed)  # every comparison has a first seed soon


def planned(encoder: str, find: Find) -> list[PaperJob]:
    """Return every training of the schedule.

    Where the results that choose rates and settings are not there yet, others stand for those that
    will be chosen: the number of the trainings and their lengths are right.
    """
    nothing = Result("text", "", {})

    def pretended(job: PaperJob) -> Result:
        return find(job) or nothing

    wanted = [
        job
        for stage, names in schedule(encoder)
        for job in jobs(stage, encoder, pretended, names or tuple(LOSSES))
    ]
    return list(dict.fromkeys(wanted))


def scores(jobs: Iterable[PaperJob], find: Find) -> dict[int, float]:
    """Return the average of the STS tasks at the best step, by seed; of those that were run."""
    results = {job.seed: find(job) for job in jobs}
    values = {seed: _number(of.metrics.get("average best")) for seed, of in results.items() if of}
    return {seed: value for seed, value in values.items() if value is not None}


def measured(encoder: str, find: Find) -> Callable[[str, str], dict[int, float]]:
    """Return what gives the values of a metric of a training by seed, as claims are decided by."""

    def values(name: str, metric: str) -> dict[int, float]:
        values_by_seed = {}
        for job in (*trainings(encoder, find, name), *again(encoder, find, name)):
            if (result := find(job)) is not None and (value := _value(result, metric)) is not None:
                values_by_seed[job.seed] = value
        if name == "before training":  # the same, whatever is trained on it
            return {seed: value for value in values_by_seed.values() for seed in SEEDS}
        return values_by_seed

    return values


def _value(result: Result, metric: str) -> float | None:
    """A metric of claims.toml of one training."""
    if metric == "average - transfer":
        parts = [_value(result, part) for part in ("average", "transfer")]
        return None if None in parts else float(parts[0] or 0) - float(parts[1] or 0)
    if metric == "positive cosine":
        return _number(result.details.get("looks", [{}])[-1].get(metric))
    if metric.endswith(" regained"):
        rows = result.details.get("looks", [])[1:]  # the papers' first look is after some steps
        return regained([row.get(metric.removesuffix(" regained")) for row in rows])
    names = {"dev": ["dev best"], "dev last": ["dev last"]}
    for name in names.get(metric, [f"{metric} best", f"{metric} first"]):
        if (value := _number(result.metrics.get(name))) is not None:
            return value
    return None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def regained(course: Sequence[float | None]) -> float | None:
    """Return which share of its fall a quantity has risen again at the end.

    0 where it ends at its lowest, 1 where it is back where it began; None where it never fell, or
    was not measured.

    >>> regained([4.0, 2.0, 2.5])
    0.25
    """
    values = [value for value in course if value is not None]
    if not values or values[0] == min(values):
        return None
    return (values[-1] - min(values)) / (values[0] - min(values))
