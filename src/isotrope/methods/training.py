"""From settings to a run folder: check everything, read the data once, train, keep the best.

Nothing is written before the settings, the objective, the dev set and the encoder have been
found good; what fails while the data is read leaves no folder behind.
"""

import math
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from isotrope.core.errors import InputError, LostProcess, NoTerms
from isotrope.core.gather import agreed, joined, lost, rank, rows_of, started, wait, world_size
from isotrope.core.result import Result, provenance
from isotrope.data.batches import CHUNK_OVERHEAD, Batch, Batches, collate
from isotrope.data.corpora import read
from isotrope.data.tokens import TokenStore, build
from isotrope.encoders.heads import MLPHead
from isotrope.encoders.sentence import SentenceEncoder, find_device
from isotrope.methods.callbacks import MEASURED, AtOnce, Bar, Checkpoints, Dev, Metrics, Stop, Timer
from isotrope.methods.card import model_card
from isotrope.methods.gradient_cache import refuse_batch_statistics
from isotrope.methods.launch import REQUEUE, launch
from isotrope.methods.settings import TrainSettings, read_yaml
from isotrope.methods.simcse import SimCSE, Steps
from isotrope.methods.watch import Watch, watch_file, watch_held_out
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

__all__ = ["Outcome", "fit", "summary", "train"]

# what may differ between a run and its continuation: nothing of it changes what a step learns from
# which batch (another number of devices draws other dropout masks)
_FREE = {"checkpoint_every", "progress", "device", "devices"}
_SCRATCH_TEXTS = 200_000  # enough text for a small vocabulary
_LAUNCH = 4096  # tokens that one more pass is worth on an accelerator; not measured


@dataclass(frozen=True)
class Outcome:
    """What a training came to.

    Attributes:
        result: numbers and provenance; of an interrupted run, the state so far.
        output: the run folder.
        exit_code: 0 done, 130 after Ctrl-C, 75 after SIGTERM.
        encoder: as the last step left it, for whoever wants to look; what is saved in ``model/``
            is the best step. None if the run had been finished before, or was other processes'.
        first: whether this is the first of several processes, which knows the numbers and tells.
    """

    result: Result
    output: Path
    exit_code: int = 0
    encoder: SentenceEncoder | None = None
    first: bool = True


def fit(files: Any, *, resume: bool = False, **settings: Any) -> Outcome:  # noqa: ANN401 - checked by TrainSettings
    """Train a sentence encoder; the arguments are the fields of ``TrainSettings``.

    Args:
        files: path or paths of text or pairs.
        resume: continue, start or do nothing, as ``--resume`` does.
        settings: any other setting, e.g. ``output="runs/x"``, ``objective="infonce"``,
            ``objective_settings={"temperature": 0.05}``, ``max_steps=100``.

    Returns:
        The outcome; ``isotrope.load(outcome.output)`` is the trained encoder.

    Raises:
        InputError: anything wrong with the settings, the data, the encoder or the folder.
    """
    return train(TrainSettings.read({"files": files, **settings}), resume=resume)


def train(settings: TrainSettings, *, resume: bool = False) -> Outcome:
    """Train as the settings say and write the run folder.

    With ``devices`` above 1 the processes are started here; those that torchrun has started are
    joined.

    Raises:
        InputError: anything wrong with the settings, the data, the encoder or the folder.
        LostProcess: one of several processes has gone.
    """
    output = Path(settings.output)
    device = _check_devices(settings)
    try:
        if settings.devices > 1 and started()[0] == 1:
            return _launch(settings, output, resume=resume)
        with joined(device):
            return _train(settings, output, resume=resume)
    except Exception as error:
        if not isinstance(error, LostProcess) and not lost(error):
            raise
        what = error if isinstance(error, LostProcess) else "another process of this run has gone"
        saved = (output / "checkpoints" / "last.ckpt").is_file()
        then = "go on from the last checkpoint" if saved else "start again: there is no checkpoint"
        raise LostProcess(f"{what}; run the same command with --resume to {then}") from error


def _launch(settings: TrainSettings, output: Path, *, resume: bool) -> Outcome:
    """Train in processes of our own."""
    finished = _check_output(output, settings, resume=resume)
    if finished is not None:
        return finished
    run = {"settings": settings.model_dump(), "resume": resume, "command": sys.argv}
    code, result = launch(settings.devices, run)
    return Outcome(result or _nothing(output), output, exit_code=code)


def _train(settings: TrainSettings, output: Path, *, resume: bool) -> Outcome:
    """Train in this process, which may be one of several; the first checks and writes."""
    finished = _check_output(output, settings, resume=resume) if rank() == 0 else None
    if agreed(finished is not None):
        return finished or Outcome(_nothing(output), output, first=False)
    with _terminable():
        try:
            if rank() > 0:
                wait()  # until the first has read the data
            prepared = _prepare(settings, output)
            if rank() == 0:
                wait()
            return _run(settings, *prepared)
        except _Terminated:
            # no step has been made yet: the same command starts again
            return Outcome(_nothing(output), output, exit_code=REQUEUE)


def _nothing(output: Path) -> Result:
    return Result(kind="train", name=output.name, metrics={"steps": 0})


def _check_devices(settings: TrainSettings) -> str:
    """Return the kind of device to train on; there must be one for each process.

    Raises:
        InputError: too few GPUs, too small a batch, or another number than torchrun started.
    """
    kind = find_device(settings.device).type
    total, here = started()
    if total == 1:
        total = here = settings.devices
    elif settings.devices not in (1, here):
        raise InputError(
            f"torchrun has started {here} processes on this machine, and --devices says "
            f"{settings.devices}; leave --devices out"
        )
    if total > 1 and kind == "mps":
        raise InputError(f"--devices {here}: an Apple GPU is one device; add --device cpu")
    if kind == "cuda" and here > (found := torch.cuda.device_count()):
        raise InputError(
            f"--devices {here}: this machine has {found} GPU{'s' * (found > 1)}; "
            f"use --devices {found}, or --device cpu"
        )
    if settings.batch_size < total:
        raise InputError(
            f"--batch-size {settings.batch_size} leaves some of {total} processes without a row; "
            f"use a batch size of at least {total}"
        )
    return kind


def _prepare(
    settings: TrainSettings, output: Path
) -> tuple[SentenceEncoder, Objective, TokenStore, Batches, Watch | None]:
    """Check everything and read the data; what fails leaves nothing behind."""
    for plugin in settings.plugin:
        registry.load_plugin(Path(plugin))
    objective = registry.build(settings.objective, settings.objective_settings)
    _try(objective, negatives=objective.takes_negatives)
    watch = None if settings.dev in (None, "auto") else watch_file(Path(str(settings.dev)))
    next(_records(settings))  # the first record: what is wrong with the files shows early
    encoder = _encoder(settings)
    made = [folder for folder in (output, *output.parents) if not folder.exists()]
    ours = made or not any(output.iterdir())
    try:
        if rank() == 0:
            settings.save(output / "config.yaml")  # from here on --resume knows it as a run
            for stale in (*output.glob(".*.*"), *output.glob("checkpoints/.*.*")):
                shutil.rmtree(stale, ignore_errors=True)  # of a run killed while it wrote
        store = _store(settings, encoder, output / "tokens")
        if settings.dev == "auto":
            watch = watch_held_out(store, prompts=(settings.query_prompt, settings.passage_prompt))
        batches = Batches(store, settings.batch_size, settings.seed)
        if objective.takes_negatives is False and store.columns == 3:
            raise InputError(
                f"objective {settings.objective} takes no hard negatives, but the file has a third "
                "column: remove it, or choose infonce"
            )
        _try(objective, negatives=store.columns == 3)
    except BaseException:
        if ours:
            shutil.rmtree(made[-1] if made else output, ignore_errors=True)
        if not made:
            output.mkdir(exist_ok=True)  # the empty folder that we were given
        raise
    return encoder, objective, store, batches, watch


def _try(objective: Objective, *, negatives: bool) -> None:
    """Compute the loss once, on noise: what it refuses shows before any work is done."""
    noise = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))
    try:
        objective(noise[0], noise[1], noise[2] if negatives else None)
    except (ValueError, NoTerms) as error:
        raise InputError(f"objective {objective.name}: {error}") from error


class _Terminated(BaseException):
    """SIGTERM before the first step."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM raise while the data is read; later the Stop callback handles it."""

    def asked(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, asked)
    except ValueError:  # not the main thread: whoever runs us handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_output(output: Path, settings: TrainSettings, *, resume: bool) -> Outcome | None:
    """Return the outcome of a run that is already finished, or None to go on.

    Raises:
        InputError: the folder is in use, is a file, or belongs to another run.
    """
    if output.exists() and not output.is_dir():
        raise InputError(f"output {output} is a file; give a folder")
    for folder in map(Path, settings.files):
        if folder.is_dir() and output.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"output {output} lies in {folder}, which is read as text: the run would train on "
                "its own files; choose an output folder elsewhere"
            )
    if not output.exists() or not any(output.iterdir()):
        return None
    if not resume:
        raise InputError(
            f"output folder {output} is not empty; choose another, or add --resume to continue "
            "the run in it"
        )
    config = output / "config.yaml"
    if not config.is_file():
        raise InputError(f"{output} holds no run (no config.yaml); choose another output folder")
    before = TrainSettings.read(read_yaml(config), source=str(config))
    for name in TrainSettings.model_fields:
        old, new = getattr(before, name), getattr(settings, name)
        if name not in _FREE | {"output"} and old != new:
            shown = name.replace("_", "-")
            raise InputError(
                f"cannot resume {output}: its --{shown} was {old!r}, now {new!r}; repeat the first "
                "command, or choose another output folder"
            )
    if (output / "result.json").is_file():
        return Outcome(Result.load(output / "result.json"), output)
    return None


def _encoder(settings: TrainSettings) -> SentenceEncoder:
    device = settings.device
    if settings.precision == "16" and find_device(device).type == "cpu":
        raise InputError("--precision 16 needs a GPU; use bf16 or 32 on a CPU")
    if settings.encoder == "scratch":
        if settings.pooling not in (None, "mean"):
            raise InputError(f"an encoder from scratch pools by mean; found {settings.pooling!r}")
        texts = (text for record in _records(settings) for text in record.texts)
        encoder = SentenceEncoder.scratch(
            islice(texts, _SCRATCH_TEXTS),
            seed=settings.seed,
            max_length=max(128, settings.max_length),
        ).to(find_device(device))
    else:
        encoder = SentenceEncoder.load(settings.encoder, pooling=settings.pooling, device=device)
    if settings.max_length > encoder.max_length:
        raise InputError(
            f"--max-length {settings.max_length} is more than {settings.encoder} takes "
            f"({encoder.max_length} tokens)"
        )
    if settings.dropout is not None:
        for module, name in _dropouts(encoder):
            setattr(module, name, settings.dropout)
    if settings.micro_batch is not None:
        refuse_batch_statistics(encoder.train())  # the mode it is going to be trained in
    return encoder


def _dropouts(encoder: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield where the rates are: dropout modules, and numbers that attention keeps by itself."""
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            yield module, "p"
            continue
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                yield module, name


def _records(settings: TrainSettings) -> Iterator[Any]:
    return read([Path(f) for f in settings.files], columns=settings.columns or None)


def _store(settings: TrainSettings, encoder: SentenceEncoder, folder: Path) -> TokenStore:
    """Return the tokenised corpus, from an earlier part of this run if it is there."""
    if (folder / "manifest.json").is_file():
        return TokenStore.open(folder)
    if rank() > 0:
        raise InputError(
            f"process {rank()} sees no {folder}, which the first process has written; give an "
            "--output on a file system that all machines share"
        )
    with tqdm(
        desc="read",
        unit=" records",
        file=sys.stderr,
        disable=not settings.progress,
        leave=False,
        delay=1,
    ) as bar:
        return build(
            folder,
            _records(settings),
            encoder.tokenize,
            vocabulary=len(encoder.tokenizer),
            max_length=settings.max_length,
            prompts=_prompts(settings, encoder),
            holdout=settings.held_out,
            seed=settings.seed,
            views=settings.views,
            progress=bar.update,
        )


def _prompts(settings: TrainSettings, encoder: SentenceEncoder) -> tuple[str, str]:
    """Return what stands before anchors and positives: as asked, else the model's own prompt."""
    if encoder.prompt and (settings.query_prompt or settings.passage_prompt):
        raise InputError(
            f"{settings.encoder} puts its own prompt before every text ({encoder.prompt!r}); leave "
            "--query-prompt and --passage-prompt out, or remove default_prompt_name from its "
            "config_sentence_transformers.json"
        )
    return settings.query_prompt or encoder.prompt, settings.passage_prompt or encoder.prompt


def _run(
    settings: TrainSettings,
    encoder: SentenceEncoder,
    objective: Objective,
    store: TokenStore,
    batches: Batches,
    watch: Watch | None,
) -> Outcome:
    output = Path(settings.output)
    per_epoch = batches.steps_per_epoch
    steps = settings.max_steps or max(1, math.ceil(settings.epochs * per_epoch))
    torch.manual_seed(settings.seed)
    module = SimCSE(
        encoder=encoder,
        head=MLPHead(encoder.dimension) if settings.head == "mlp" else None,
        objective=objective,
        steps=steps,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        seed=settings.seed,
        caching=settings.micro_batch is not None,
        log_every=settings.log_every,
        scaled=settings.precision == "16",
    )
    module.train()  # loading left the encoder in evaluation mode, and Lightning keeps modes
    bar = Bar(steps=steps, shown=settings.progress and rank() == 0)
    timer = Timer()
    metrics = Metrics(
        output, batch_size=settings.batch_size, steps_per_epoch=per_epoch, timer=timer
    )
    checkpoints = Checkpoints(
        output / "checkpoints", every=settings.checkpoint_every, last=steps, timer=timer
    )
    stop = Stop(checkpoints, bar.tell)

    if settings.query_prompt or settings.passage_prompt:
        # where encode_query and encode_document of sentence-transformers look for them
        encoder.model.prompts = {
            "query": settings.query_prompt,
            "document": settings.passage_prompt,
        }

    def keep(step: int, value: float | None) -> None:
        card = model_card(
            settings, objective, store.report, step=step, steps=steps, dev=dev.scores, name=dev.name
        )
        encoder.save(output / "model", card=card)

    dev = Dev(
        None if watch is None else lambda: watch.score(encoder),
        every=settings.eval_every,
        last=steps,
        keep=keep,
        metrics=metrics,
        timer=timer,
        tell=bar.tell,
        name="dev" if watch is None else watch.name,
    )
    _introduce(settings, encoder, store, steps, bar.tell)
    resumed, start = _checkpoint(output / "checkpoints", bar.tell)
    pad = encoder.tokenizer.pad_token_id or 0
    overhead = CHUNK_OVERHEAD if encoder.device.type == "cpu" else _LAUNCH

    def at(step: int) -> Batch:
        indices = batches.at(step)
        return collate(
            store,
            indices,
            pad_id=pad,
            overhead=overhead,
            most=settings.micro_batch,
            part=rows_of(len(indices)),
        )

    together = world_size() > 1
    here = started()[1] if together else 1
    with _quiet():
        trainer = L.Trainer(
            accelerator={"auto": "auto", "cuda": "gpu"}.get(settings.device, settings.device),
            devices=here,
            num_nodes=world_size() // here,
            # buffers are the same everywhere: no step needs them sent around
            strategy=DDPStrategy(broadcast_buffers=False) if together else "auto",
            plugins=[TorchElasticEnvironment()] if together else None,
            sync_batchnorm=together,
            precision={"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}[settings.precision],  # type: ignore[arg-type]
            max_steps=steps,
            max_epochs=-1,
            gradient_clip_val=settings.clip,
            # the first process alone tells, scores and writes
            callbacks=[timer, *([bar, metrics, dev] if rank() == 0 else []), checkpoints, stop],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
        loader: DataLoader[Batch] = DataLoader(Steps(at, start, steps), batch_size=None)
        began = time.perf_counter()
        try:
            trainer.fit(module, loader, ckpt_path=resumed, weights_only=True)
        except AtOnce:
            raise KeyboardInterrupt from None
        finally:
            stop.restore()
            bar.close()
            metrics.flush()
            metrics.board.finalize("success")
    if stop.signal is not None and trainer.global_step < steps:
        result = _result(settings, objective, store, dev, metrics, timer, trainer.global_step)
        code = 128 + signal.SIGINT if stop.signal == signal.SIGINT else REQUEUE
        return Outcome(result, output, code, encoder, first=rank() == 0)
    if rank() > 0:
        return Outcome(_nothing(output), output, encoder=encoder, first=False)
    if watch is None:
        keep(steps, None)
    result = _result(settings, objective, store, dev, metrics, timer, steps)
    result.metrics["wall_seconds"] = round(time.perf_counter() - began, 3)
    result.save(output / "result.json")
    shutil.rmtree(output / "tokens", ignore_errors=True)
    return Outcome(result, output, encoder=encoder)


_PARTS = {"global_step", "state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks"}


def _checkpoint(folder: Path, tell: Callable[[str], None]) -> tuple[Path | None, int]:
    """Return the newest whole checkpoint and the updates it holds; (None, 0) where there is none.

    Raises:
        InputError: there are checkpoints, but none can be read.
    """
    damaged = []
    for path in (folder / "last.ckpt", folder / "previous.ckpt"):
        if not path.is_file():
            continue
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
            if missing := _PARTS - set(found):
                raise ValueError(f"no {sorted(missing)[0]} in it")
        # whatever a damaged archive makes torch raise
        except Exception as error:
            damaged.append(f"{path} ({type(error).__name__})")
            tell(f"warning: {damaged[-1]} is damaged; looking for the one before")
            continue
        return path, int(found["global_step"])
    if damaged:
        raise InputError(
            f"no checkpoint can be read: {', '.join(damaged)}; start again in another folder"
        )
    return None, 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning's advertising and its advice about our own loader off the screen."""
    import logging

    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning.*")
            yield
    finally:
        logger.setLevel(level)


def _introduce(
    settings: TrainSettings,
    encoder: SentenceEncoder,
    store: TokenStore,
    steps: int,
    tell: Callable[[str], None],
) -> None:
    """Say what is about to happen: what most silent failures of SimCSE would have shown."""
    report = store.report
    rates = sorted({getattr(module, name) for module, name in _dropouts(encoder)})
    shown = ", ".join(f"{p:g}" for p in rates) or "none"
    pieces = f" (micro-batches of {settings.micro_batch})" if settings.micro_batch else ""
    tell(
        f"{report.kept:,} {'texts' if report.columns == 1 else 'pairs'} "
        f"({report.duplicates_dropped:,} duplicates dropped, {report.held_out:,} held out), "
        f"{report.truncated_share:.1%} of the texts cut at {report.max_length} tokens"
    )
    tell(
        f"{steps:,} steps of {settings.batch_size}{pieces}; views by {report.views}; "
        f"dropout {shown}; pooling {encoder.pooling}"
    )
    if report.views == "dropout" and not any(rates):
        tell("warning: without dropout the two views are the same; the positives teach nothing")


def _result(
    settings: TrainSettings,
    objective: Objective,
    store: TokenStore,
    dev: Dev,
    metrics: Metrics,
    timer: Timer,
    steps: int,
) -> Result:
    best = dev.best
    first, last = (dev.scores[f(dev.scores)] if dev.scores else None for f in (min, max))
    newest = metrics.last()
    report = store.report
    return Result(
        kind="train",
        name=Path(settings.output).name,
        metrics={
            "dev_start": first,
            "dev_best": None if best is None else best[1],
            "dev_best_step": None if best is None else best[0],
            "dev_final": last,
            "steps": steps,
            "seconds": round(timer.seconds, 3),
            "sentences_per_second": round(
                timer.steps * settings.batch_size / max(timer.seconds, 1e-9), 2
            ),
            **{name: newest.get(name) for name in ("loss", *MEASURED)},
        },
        details={
            "objective": {
                "name": settings.objective,
                "parameters": {k: _plain(v) for k, v in objective.hyperparameters().items()},
            },
            "dev": None if best is None else {"name": dev.name, "kind": settings.dev},
            "data": {
                "files": list(settings.files),
                "records": report.kept,
                "duplicates_dropped": report.duplicates_dropped,
                "truncated_share": report.truncated_share,
                "holdout": report.held_out,
                "views": report.views,
            },
            "verdict": _verdict(dev),
        },
        provenance=provenance(seed=settings.seed, data=report.fingerprint),
    )


def _plain(value: object) -> object:
    return value if isinstance(value, (int, float, str)) or value is None else str(value)


def _verdict(dev: Dev) -> str:
    """Return one sentence: did training help?"""
    best = dev.best
    if best is None:
        return "no dev score was asked for: whether training helped is not known (use --dev)"
    step, score = best
    first, last = dev.scores[min(dev.scores)], dev.scores[max(dev.scores)]
    if step == 0:
        what = "training made it worse" if last < first else "training did not help"
        return (
            f"{what}: {dev.name} was {first:.2f} at the start and never higher "
            f"({last:.2f} at the end); the saved model is the one you came with"
        )
    return f"{dev.name} rose from {first:.2f} to {score:.2f} at step {step}"


def summary(outcome: Outcome) -> str:
    """Return what the command line prints at the end."""
    result, output = outcome.result, outcome.output
    if outcome.exit_code:
        return (
            f"stopped at step {result.metrics['steps']}; a checkpoint is in {output}/checkpoints: "
            "run the same command with --resume to go on"
        )
    metrics = result.metrics
    dead = float(metrics["dead"] or 0)
    spent = (
        f"gradient dissipation {metrics['dissipation']:.2g}: {dead:.0%} of the last batch's "
        "anchors had nothing left to learn from this objective\n"
        if dead >= 0.9
        else ""
    )
    return (
        f"{result.details['verdict']}\n{spent}"
        f"{metrics['steps']} steps, {metrics['seconds']:.0f} s, "
        f"{metrics['sentences_per_second']:.0f} sentences/s\n"
        f"model:  {output / 'model'}\n"
        f"report: isotrope report {output}"
    )
