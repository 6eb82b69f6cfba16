"""From settings to a run folder, for images: check everything, train, score, keep the encoder.

The saved model is the one of the last step: nearest neighbours on the test part are measured on
the way, and choosing a step by them would be choosing by the test part.
"""

import functools
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from isotrope.core.distributed import barrier, rank, rows_of, world_size
from isotrope.core.errors import InputError
from isotrope.core.lock import ensure_not_replaced
from isotrope.core.result import Result, provenance
from isotrope.data.images.batches import ImageBatch, ImageBatches, ImageSteps
from isotrope.data.images.pixels import need_kornia
from isotrope.data.images.sets import ImageSet, load_images
from isotrope.diagnostics.observe import MEASURED, columns
from isotrope.encoders.cut_initialize import cut_initialize
from isotrope.encoders.device import find_device
from isotrope.encoders.image import IMAGENET_MEAN, IMAGENET_STD, ImageEncoder
from isotrope.encoders.image_nets import ARCHITECTURES
from isotrope.evaluation.image_scores import image_scores, knn_evaluation
from isotrope.measures.judgement import DevEvaluation
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.training.callbacks import (
    Checkpoints,
    DataFingerprintCheck,
    Dev,
    Metrics,
    ProvenanceWriter,
    Stop,
    Timer,
)
from isotrope.training.fit_text import by_name, speaking_python
from isotrope.training.images.card import image_card
from isotrope.training.images.measures import TRACKED
from isotrope.training.images.method import ImageMethod, Options, Plan
from isotrope.training.images.registry import find_method, options_of
from isotrope.training.images.settings import ImageSettings
from isotrope.training.launch import cores
from isotrope.training.nan_guard import refuse_broken
from isotrope.training.progress import Progress, warn
from isotrope.training.run import (
    Outcome,
    backend_of,
    checkpoint,
    empty_result,
    make_steps,
    remove_intermediates,
    run,
    stopped,
    try_objective,
    write_config,
)

__all__ = ["IMAGE_COLUMNS", "Prepared", "fit_images", "labelled", "prepare", "summary", "train"]

_SOCKETS = 75  # bytes; with /pymp-XXXXXXXX/listener-XXXXXXXX they are the 107 of a socket
SMALL = 96  # pixels of a side up to which images are taken as they are
IMAGE_COLUMNS = columns(*TRACKED, "knn", "skipped", "images_per_second")


def fit_images(
    data: Any,  # noqa: ANN401 - checked by ImageSettings, as all settings
    *,
    encoder: "str | Path | ImageEncoder" = "resnet18",
    resume: bool = False,
    **settings: Any,  # noqa: ANN401
) -> Outcome:
    """Train an image encoder; the arguments are the fields of ``ImageSettings``.

    An objective may be a name, a class, or an objective itself, as ``isotrope.fit`` takes it.

    Args:
        data: folder, .npz file or name.
        encoder: a name or folder, or an encoder of your own, such as
            ``ImageEncoder.wrap(module, dimension=512, image_size=32)``: it is trained in place, and
            its weights count as pretrained.
        resume: continue, start or do nothing, as ``--resume`` does.
        settings: any other setting, e.g. ``output="runs/x"``, ``method="byol"``, ``cut=9``,
            ``method_settings={"decay": 0.99}``, ``max_steps=100``.

    Returns:
        The outcome; ``isotrope.load(outcome.output)`` is the trained encoder.

    Raises:
        InputError: anything wrong with the settings, the data, the encoder or the folder.
    """
    own = encoder if isinstance(encoder, ImageEncoder) else None
    name = encoder if own is None else own.name
    with speaking_python(ImageSettings):
        return _fitted({"data": data, "encoder": name, **by_name(settings)}, own, resume=resume)


def _fitted(settings: dict[str, Any], own: ImageEncoder | None, *, resume: bool) -> Outcome:
    given = ImageSettings.read(settings, python=True)
    if own is not None and given.devices > 1:
        raise InputError(
            f"devices={given.devices} starts other processes, which do not have your encoder; "
            "start them by torchrun, each with its own"
        )
    return run(given, functools.partial(_train, own=own), resume=resume)


def train(settings: ImageSettings, *, resume: bool = False, lines: bool = False) -> Outcome:
    """Train as the settings say and write the run folder; see :func:`isotrope.training.run.run`.

    Args:
        settings: of the run.
        resume: continue, start or do nothing, as ``--resume`` does.
        lines: say how far it is without a bar, too; warnings are always printed.

    Raises:
        InputError: anything wrong with the settings, the data, the encoder or the folder.
        LostProcess: one of several processes has gone.
    """
    return run(settings, _train, resume=resume, lines=lines)


@dataclass(frozen=True)
class Prepared:
    """What was found good before anything is written.

    Attributes:
        objective: its name.
        images: to train and to test on.
        batches: of every step.
        module: what is trained, as it is before the first step.
        steps: of the run.
    """

    objective: str
    images: ImageSet
    batches: ImageBatches
    module: ImageMethod
    steps: int


def _train(settings: ImageSettings, lines: bool, own: ImageEncoder | None = None) -> Outcome:
    """Check everything, and only then write: what is wrong leaves no folder behind."""
    prepared = prepare(settings, own)
    if rank() == 0:
        write_config(settings)
    barrier()
    return _run(settings, prepared, lines=lines)


def prepare(settings: ImageSettings, own: ImageEncoder | None = None) -> Prepared:
    """Check everything, read the data and build what is trained; nothing is written.

    Args:
        settings: of the run.
        own: the user's encoder, if it is one.

    Raises:
        InputError: anything wrong with the settings, the data or the encoder.
    """
    for plugin in settings.plugin:
        registry.load_plugin(Path(plugin))
    method = find_method(settings.method)
    options = options_of(settings.method, settings.method_settings)
    name, objective = _objective(settings, method, options)
    if settings.precision == "16" and find_device(settings.device).type == "cpu":
        raise InputError("--precision 16 needs a GPU; use bf16 or 32 on a CPU")
    need_kornia()
    scratch = own is None and settings.encoder in ARCHITECTURES
    encoder = None if scratch else _pretrained(settings, own)
    images = _data(settings, encoder.image_size if encoder else settings.image_size)
    images.train.images.read([0])  # where nothing can be decoded, this says so
    if encoder is None:
        encoder = _encoder(settings, images.side)
        cut_initialize(encoder, settings.cut, what=settings.cut_what)
    if _workers(settings, images):
        _short_enough(tempfile.gettempdir())
    batches = ImageBatches(images.train, settings.batch_size, settings.seed)
    if batches.size < world_size():
        raise InputError(
            f"{batches.size} images leave some of {world_size()} processes without one; use fewer "
            "--devices"
        )
    steps = settings.max_steps or max(1, math.ceil(settings.epochs * batches.steps_per_epoch))
    module = method(
        encoder=encoder,
        objective=objective,
        plan=_plan(settings, method, steps, batches),
        options=options,
        augments=method.augments_of(encoder.image_size, options, settings.augment),
        seed=settings.seed,
        log_every=settings.log_every,
        caching=settings.micro_batch,
        scaled=settings.precision == "16",
        backend=settings.backend,
    )
    module.cut_heads(settings.cut, settings.cut_what)
    return Prepared(name, images, batches, module, steps)


def _plan(
    settings: ImageSettings, method: type[ImageMethod], steps: int, batches: ImageBatches
) -> Plan:
    """Return the recipe's plan with what the settings change of it."""
    per_epoch = batches.steps_per_epoch
    plan = method.recipe.plan(steps=steps, steps_per_epoch=per_epoch, batch_size=batches.size)
    if settings.optimizer not in (None, plan.optimizer):
        if settings.learning_rate is None:
            raise InputError(
                f"--optimizer {settings.optimizer}: the learning rate of {method.name} is one for "
                f"{plan.optimizer}; give --learning-rate, too"
            )
        # SimCLR, BYOL, Barlow Twins and MoCo v3 all keep LARS from biases and norms
        all_decay = plan.decay_all and settings.optimizer != "lars"
        plan = replace(plan, optimizer=settings.optimizer, decay_all=all_decay)
    if settings.learning_rate is not None:
        rate = settings.learning_rate
        last = min(plan.last_learning_rate, rate)
        plan = replace(plan, learning_rate=rate, last_learning_rate=last)
    if settings.weight_decay is not None:
        plan = replace(plan, weight_decay=settings.weight_decay, last_weight_decay=None)
    if settings.warmup_epochs is not None:
        warmup = round(settings.warmup_epochs * per_epoch)
        if warmup > steps:
            raise InputError(
                f"--warmup-epochs {settings.warmup_epochs:g} is {warmup} steps and the run has "
                f"{steps}: its learning rate would never reach {plan.learning_rate:g}; train "
                "longer or warm up for less"
            )
        plan = replace(plan, warmup_steps=warmup)
    return plan


def _objective(
    settings: ImageSettings, method: type[ImageMethod], options: Options
) -> tuple[str, Objective]:
    """Return the objective and its name: as asked, with the recipe's numbers where none are."""
    name = (settings.objective or method.recipe.objective).lower()
    own = method.settings_of(name, options)
    objective = registry.build(name, {**own, **settings.objective_settings})
    try_objective(objective, negatives=False)
    return name, objective


def _data(settings: ImageSettings, size: int | None) -> ImageSet:
    """Load the images, a seventh larger than the crops where they are not small."""
    side = size if size is None or size <= SMALL else round(size * 8 / 7)
    return load_images(
        settings.data,
        side=side,
        holdout=settings.holdout,
        seed=settings.seed,
        limit=settings.limit,
        classes=None if settings.classes is None else Path(settings.classes),
    )


def _encoder(settings: ImageSettings, side: int) -> ImageEncoder:
    """Build an encoder for images of ``side``."""
    size = settings.image_size or (side if side <= SMALL else round(side * 7 / 8))
    return ImageEncoder.build(
        settings.encoder,
        width=settings.width,
        stem=settings.stem,
        image_size=size,
        seed=settings.seed,
        mean=IMAGENET_MEAN if settings.pixels == "imagenet" else (0.0, 0.0, 0.0),
        std=IMAGENET_STD if settings.pixels == "imagenet" else (1.0, 1.0, 1.0),
    )


def _pretrained(settings: ImageSettings, own: ImageEncoder | None) -> ImageEncoder:
    """Load an encoder, or take the user's; it brings its size of images and normalisation."""
    for name, default in (("width", None), ("stem", "auto"), ("pixels", "imagenet")):
        if getattr(settings, name) != default:
            raise InputError(
                f"--{name} is for an encoder from scratch; {settings.encoder} brings its own"
            )
    encoder = own or ImageEncoder.load(settings.encoder, device=settings.device)
    if settings.image_size not in (None, encoder.image_size):
        raise InputError(
            f"--image-size {settings.image_size}: {settings.encoder} takes images of "
            f"{encoder.image_size} x {encoder.image_size}; leave it out"
        )
    return encoder


def _run(settings: ImageSettings, prepared: Prepared, *, lines: bool) -> Outcome:
    output, module, steps = Path(settings.output), prepared.module, prepared.steps
    per_epoch = prepared.batches.steps_per_epoch
    torch.manual_seed(settings.seed)
    module.train()
    progress = Progress(steps=steps, bar=settings.progress, lines=lines)
    timer = Timer()
    metrics = Metrics(
        output,
        batch_size=prepared.batches.size,
        steps_per_epoch=per_epoch,
        timer=timer,
        columns=IMAGE_COLUMNS,
        wandb=settings.wandb,
        progress=progress,
    )
    checkpoints = Checkpoints(
        output / "checkpoints",
        every=settings.checkpoint_every,
        keep=settings.keep_every,
        last=steps,
        timer=timer,
    )
    stop = Stop(checkpoints)
    same = DataFingerprintCheck(prepared.images.fingerprint)
    origin = ProvenanceWriter(output, seed=settings.seed, data=same.fingerprint)
    dev = Dev(
        _neighbours(settings, prepared),
        every=settings.knn_every * per_epoch,
        last=steps,
        keep=None,  # what is saved is the last step
        metrics=metrics,
        timer=timer,
        progress=progress,
        name="kNN accuracy",
        column="knn",
    )
    _introduce(settings, prepared, progress.say)
    resumed, start = checkpoint(output / "checkpoints", warn)
    began = time.perf_counter()
    code = make_steps(
        settings,
        module,
        _loader(settings, prepared, start),
        steps=steps,
        resumed=resumed,
        callbacks=[
            timer,
            # the first process alone tells, scores and writes
            *([progress, origin, metrics, dev] if rank() == 0 else []),
            *(same, checkpoints, stop),
        ],
        clip=settings.clip or type(module).recipe.clip,
    )
    if code:
        result = _result(settings, prepared, dev, metrics, timer, module.global_step)
        return Outcome(result, output, code, module.encoder, first=rank() == 0)
    if rank() > 0:
        return Outcome(empty_result(output), output, encoder=module.encoder, first=False)
    result = _result(settings, prepared, dev, metrics, timer, steps)
    refuse_broken(module.encoder, steps)
    _probe(settings, prepared, result, progress.say)
    ensure_not_replaced(output)
    module.encoder.save(output / "model", card=image_card(settings, result))
    result.metrics["wall_seconds"] = round(time.perf_counter() - began, 3)
    result.save(output / "result.json")
    remove_intermediates(output)
    return Outcome(result, output, encoder=module.encoder)


def labelled(images: ImageSet) -> bool:
    """Return whether there are classes to tell apart, and pictures to see it on."""
    known, test = images.train.labels, images.test
    if known is None or test is None or test.labels is None:
        return False
    return bool((known != known[0]).any())


def _neighbours(settings: ImageSettings, prepared: Prepared) -> Callable[[], DevEvaluation] | None:
    """Return what scores the encoder by its neighbours, in percent; None without labels."""
    if not labelled(prepared.images):
        return None
    most = settings.knn_images
    return lambda: knn_evaluation(
        prepared.module.encoder, prepared.images, limit_train=most, limit_test=most
    )


def _probe(
    settings: ImageSettings,
    prepared: Prepared,
    result: Result,
    say: Callable[[str], None],
) -> None:
    """Add the linear probe at the end to the result."""
    if not settings.linear or not labelled(prepared.images):
        return
    found = image_scores(prepared.module.encoder, prepared.images, knn=False, linear=True)
    accuracy = 100 * float(found.metrics["linear_top1"] or 0)
    result.metrics["linear"] = accuracy
    say(f"linear probe: {accuracy:.2f}")


def _loader(settings: ImageSettings, prepared: Prepared, start: int) -> DataLoader[ImageBatch]:
    """Return what gives the batches of the steps that are left, decoded by workers if need be."""
    batches = prepared.batches
    dataset = ImageSteps(batches, start, prepared.steps, rows_of(batches.size))
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=_workers(settings, prepared.images),
        pin_memory=find_device(settings.device).type == "cuda",
        # Ctrl-C is ours to handle: the workers go on until the present step is done
        worker_init_fn=_deaf,
    )


def _workers(settings: ImageSettings, images: ImageSet) -> int:
    if settings.workers is None:
        return 0 if images.in_memory else min(8, cores())
    return settings.workers


def _short_enough(folder: str) -> None:
    """Refuse a folder in which workers cannot have their sockets: they would wait for ever."""
    if os.name == "posix" and len(os.fsencode(folder)) > _SOCKETS:
        raise InputError(
            f"the folder for temporary files is too deep for the sockets of workers: {folder} has "
            f"{len(os.fsencode(folder))} bytes, at most {_SOCKETS} leave room; set TMPDIR to a "
            "shorter one, or use --workers 0"
        )


def _deaf(worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _introduce(settings: ImageSettings, prepared: Prepared, say: Callable[[str], None]) -> None:
    """Say what is about to happen."""
    images, module = prepared.images, prepared.module
    tested = "no test part" if images.test is None else f"{len(images.test.images):,} to test on"
    skipped = f", {len(images.skipped):,} unreadable files skipped" if images.skipped else ""
    say(
        f"{images.name}: {len(images.train.images):,} images of {images.side} x {images.side}, "
        f"{tested}{skipped}"
    )
    plan = module.plan
    say(
        f"{prepared.steps:,} steps of {prepared.batches.size}; {module.name} with "
        f"{prepared.objective}; {module.encoder.name}, {module.encoder.dimension} features; "
        f"{plan.optimizer}, learning rate {plan.learning_rate:g}, weight decay "
        f"{plan.weight_decay:g}" + (f"; cut {settings.cut:g}" if settings.cut != 1 else "")
    )
    say("loss by the {} backend: {}".format(*backend_of(settings)))
    if not labelled(images):
        say("no kNN: it needs labels of two classes, and a test part (--holdout 0.1 makes one)")


def _result(
    settings: ImageSettings,
    prepared: Prepared,
    dev: Dev,
    metrics: Metrics,
    timer: Timer,
    steps: int,
) -> Result:
    scores, best, newest = dev.scores, dev.best, metrics.last()
    images, module = prepared.images, prepared.module
    tested = images.test
    judgement = dev.judgement("no labels to test with: whether training helped is not known")
    return Result(
        kind="train-images",
        name=Path(settings.output).name,
        metrics={
            "knn_start": scores[min(scores)] if scores else None,
            "knn_final": scores[max(scores)] if scores else None,
            "knn_best": None if best is None else best[1],
            "knn_best_step": None if best is None else best[0],
            "linear": None,
            "steps": steps,
            **module.guard.counted,
            "seconds": round(timer.seconds, 3),
            "images_per_second": round(
                timer.steps * prepared.batches.size / max(timer.seconds, 1e-9), 2
            ),
            **{name: newest.get(name) for name in ("loss", *MEASURED, *TRACKED)},
        },
        details={
            "method": {"name": module.name, "options": asdict(module.options)},
            "objective": {
                "name": prepared.objective,
                "parameters": {
                    k: v if isinstance(v, (int, float, str)) or v is None else str(v)
                    for k, v in module.objective.hyperparameters().items()
                },
            },
            "backend": dict(zip(("name", "reason"), backend_of(settings), strict=True)),
            "encoder": {"name": module.encoder.name, "dimension": module.encoder.dimension},
            "model": {"fingerprint": module.encoder.fingerprint()},
            "plan": asdict(module.plan),
            "batch_size": prepared.batches.size,
            "augments": [asdict(augment) for augment in module.augments],
            "cut": {"c": settings.cut, "what": settings.cut_what},
            "data": {
                "path": settings.data,
                "images": len(images.train.images),
                "test": None if tested is None else len(tested.images),
                "side": images.side,
                "skipped": len(images.skipped),
                "replaced": len(images.replaced),
            },
            "verdict": judgement.sentence,
            "judgement": asdict(judgement),
        },
        provenance=provenance(seed=settings.seed, data=images.fingerprint),
    )


def summary(outcome: Outcome) -> str:
    """Return what the command line prints at the end."""
    result, output = outcome.result, outcome.output
    metrics = result.metrics
    if outcome.exit_code:
        return stopped(outcome)
    linear = metrics.get("linear")
    probed = "" if linear is None else f"linear probe {linear:.2f}\n"
    data = result.details["data"]
    broken = data["skipped"] + data["replaced"]
    skipped = f"{broken:,} images could not be read and were skipped\n" if broken else ""
    return (
        f"{result.details['verdict']}\n{probed}{skipped}"
        f"{metrics['steps']} steps, {metrics['seconds']:.0f} s, "
        f"{metrics['images_per_second']:.0f} images/s\n"
        f"model:  {output / 'model'}\n"
        f"report: isotrope report {output}"
    )
