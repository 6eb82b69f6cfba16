"""Runs to interfere with: the servers that start them, their settings, and what must be equal."""

import csv
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file

from isotrope.training.checkpoints import verify
from tests.faults.inject import Call, Fault
from tests.faults.server import fields
from tests.training.conftest import sentences

ROOT = Path(__file__).resolve().parents[2]
_SPEEDS = ("samples_per_second", "images_per_second")
_TIMES = {"seconds", "wall_seconds", *_SPEEDS}


@dataclass(frozen=True)
class Reply:
    """What became of a trial.

    Attributes:
        code: exit code, or minus the signal that killed it.
        seconds: from the fork to the end.
        cpu: seconds of a core.
        output: both of its outputs, together.
        calls: that changed files, if they were counted.
    """

    code: int
    seconds: float
    cpu: float
    output: str
    calls: list[Call]


def environment() -> dict[str, str]:
    """Return the environment of trials: one thread, no network, nothing that starts threads."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }


class Server:
    """A process that forks trials.

    Args:
        seed: of its hashes: the order of a set differs from server to server.
        log: where it writes what is wrong with itself.
    """

    def __init__(self, seed: int, log: Path) -> None:
        self.log = log
        with log.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**environment(), "PYTHONHASHSEED": str(seed)},
                text=True,
            )
        self.count = 0

    def begin(
        self,
        arguments: list[str],
        folder: Path,
        *,
        fault: Fault | None = None,
        kill: float | None = None,
    ) -> int:
        """Start a trial; return its process.

        Args:
            arguments: of the command line.
            folder: to start it in.
            fault: what goes wrong; its calls are counted then.
            kill: seconds after which it is killed.
        """
        self.count += 1
        folder.mkdir(parents=True, exist_ok=True)
        order = {
            "arguments": arguments,
            "folder": str(folder),
            "seed": self.count,
            "fault": None if fault is None else fields(fault),
            "kill": kill,
        }
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return int(self._answer()["pid"])

    def end(self) -> Reply:
        """Wait for the trial that was begun."""
        answer = self._answer()
        calls = [(what, path) for what, path in answer.pop("calls")]
        return Reply(**answer, calls=calls)

    def run(
        self,
        arguments: list[str],
        folder: Path,
        *,
        fault: Fault | None = None,
        kill: float | None = None,
    ) -> Reply:
        """Start a trial and wait for it; see :meth:`begin`."""
        self.begin(arguments, folder, fault=fault, kill=kill)
        return self.end()

    def close(self) -> None:
        """End the server."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server of trials has ended:\n{self.log.read_text()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


_TEXT = {
    "encoder": "scratch",
    "head": "none",
    "batch-size": 8,
    "max-length": 12,
    "max-steps": 6,
    "learning-rate": 1e-3,
    "log-every": 1,
    "eval-every": 2,
    "checkpoint-every": 2,
    "seed": 7,
}
_WATCHED = {"dev": "auto", "holdout": 0.3}
_IMAGES = {
    "limit": 48,
    "encoder": "resnet9",
    "width": 4,
    "batch-size": 16,
    "max-steps": 6,
    "knn-every": 0,
    "log-every": 1,
    "checkpoint-every": 2,
    "seed": 3,
    "no-linear": "",
}
_DINO = {
    "encoder": "vit-tiny",
    "width": 24,
    "method": "dino",
    "method.hidden": 16,
    "method.bottleneck": 8,
    "method.prototypes": 32,
    "method.frozen_epochs": 0,
}
_SIMSIAM = {"method": "simsiam", "method.dimension": 16, "method.bottleneck": 4}

CONFIGURATIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "text": ("corpus.txt", _TEXT),
    "text, micro-batches": ("corpus.txt", {**_TEXT, "micro-batch": 3}),
    "text, a head": ("corpus.txt", {**_TEXT, "head": "mlp", "objective": "barlowtwins"}),
    "text, adjacent": ("corpus.txt", {**_TEXT, "views": "adjacent", "checkpoint-every": 1}),
    "text, hard negatives": ("triples.tsv", {**_TEXT, "query-prompt": "query: "}),
    "text, dev score": (
        "corpus.txt",
        {**_TEXT, **_WATCHED, "checkpoint-every": 3},
    ),
    "text, several epochs": ("few.txt", {**_TEXT, "log-every": 2}),
    "text, all kept": ("corpus.txt", {**_TEXT, "keep-every": 2}),
    "simclr, kNN": ("digits", {**_IMAGES, "method": "simclr", "knn-every": 1}),
    "byol": ("digits", {**_IMAGES, "method": "byol", "method.hidden": 16}),
    "mocov2": ("digits", {**_IMAGES, "method": "mocov2", "method.queue": 64, "method.hidden": 16}),
    "dino": ("digits", {**_IMAGES, **_DINO}),
    "simsiam": ("digits", {**_IMAGES, **_SIMSIAM, "checkpoint-every": 1}),
    "simclr, a worker": ("digits", {**_IMAGES, "method": "simclr", "workers": 1, "max-steps": 12}),
}
TOGETHER = "text, two processes"
_APART = {TOGETHER: ("corpus.txt", {**_TEXT, "devices": 2, "device": "cpu", "max-steps": 40})}


def write_corpus(folder: Path) -> None:
    """Write the text that the configurations read."""
    folder.mkdir(parents=True, exist_ok=True)
    made = sentences(120)
    (folder / "corpus.txt").write_text("\n".join(made) + "\n")
    (folder / "few.txt").write_text("\n".join(made[:20]) + "\n")
    triples = ("\t".join(made[i : i + 3]) for i in range(0, 120, 3))
    (folder / "triples.tsv").write_text("\n".join(triples) + "\n")


def command(name: str, corpus: Path, output: Path, **changed: object) -> list[str]:
    """Return the command line of a configuration."""
    data, settings = {**CONFIGURATIONS, **_APART}[name]
    verb, data = ("train-images", data) if data == "digits" else ("train", str(corpus / data))
    given = {**settings, **changed, "output": output, "no-progress": ""}
    return [verb, data, *(f"--{k}={v}" if v != "" else f"--{k}" for k, v in given.items())]


def state(output: Path) -> dict[str, Any]:
    """Return what two equal runs have equal: everything but time, place and logs of loggers."""
    result = json.loads((output / "result.json").read_text(encoding="utf-8"))
    with (output / "metrics.csv").open(newline="", encoding="utf-8") as handle:
        rows = [
            {k: v for k, v in row.items() if k not in _SPEEDS} for row in csv.DictReader(handle)
        ]
    found: dict[str, Any] = {
        "metrics.csv": rows,
        "result": {k: v for k, v in result["metrics"].items() if k not in _TIMES},
        "verdict": result["details"]["verdict"],
        "data": result["provenance"]["data"],
        "model": sorted(p.name for p in (output / "model").rglob("*")),
    }
    for name, tensor in load_file(output / "model" / "model.safetensors").items():
        found[f"model: {name}"] = _digest(tensor)
    for path in sorted((output / "checkpoints").glob("*/complete.json")):
        for part in ("model.pt", "optimizer.pt", "scheduler.pt"):
            saved = torch.load(path.with_name(part), map_location="cpu", weights_only=True)
            found[f"{path.parent.name}: {part}"] = _digest(saved)
    return found


def ends(output: Path) -> dict[str, Any]:
    """Return :func:`state` without checkpoints: of a run that saved one more when it was ended."""
    return {name: value for name, value in state(output).items() if "checkpoint-" not in name}


def _digest(value: object) -> object:
    """Return a value with its tensors as fingerprints of their bits."""
    if isinstance(value, torch.Tensor):
        raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return str(value.dtype), tuple(value.shape), hashlib.sha256(raw).hexdigest()[:16]
    if isinstance(value, dict):
        return {k: _digest(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_digest(v) for v in value]
    return value


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Return what differs between two states, a line for each."""
    return [
        f"{name}: {found.get(name)!r} instead of {expected.get(name)!r}"[:2000]
        for name in sorted({*found, *expected})
        if found.get(name) != expected.get(name)
    ]


def torn(output: Path) -> list[str]:
    """Return the files of a run folder that bear their final name and are not whole."""
    readers: dict[str, Callable[[Path], Any]] = {
        "checkpoints/*/complete.json": lambda path: verify(path.parent),
        "model/*.safetensors": load_file,
        "*.json": lambda path: json.loads(path.read_text(encoding="utf-8")),
        "model/*.json": lambda path: json.loads(path.read_text(encoding="utf-8")),
        "*.yaml": lambda path: yaml.safe_load(path.read_text(encoding="utf-8"))["output"],
    }
    found = []
    for pattern, read in readers.items():
        for path in sorted(output.glob(pattern)):
            try:
                read(path)
            except Exception as error:
                found.append(f"{path.relative_to(output)}: {type(error).__name__}: {error}")
    return found


_KNOWN = {
    *("config.yaml", "metrics.csv", "result.json", "provenance.json", "dev.npz"),
    *("model", "rejected", "checkpoints", "tensorboard"),
}


def leftovers(output: Path) -> list[str]:
    """Return what a finished run folder has beside what it promises."""
    there = {path.name for path in output.iterdir()} - _KNOWN
    hidden = {str(path.relative_to(output)) for path in output.rglob(".*")}
    return sorted(there | hidden)


@dataclass
class Whole:
    """An uninterrupted run of a configuration.

    Attributes:
        name: of the configuration.
        state: what every other run of it must end with.
        calls: of it, that changed files.
        seconds: it took, the fastest of several.
        sizes: of the files it left, in bytes.
    """

    name: str
    state: dict[str, Any]
    calls: list[Call]
    seconds: float
    sizes: list[int] = field(default_factory=list)

    @property
    def ends(self) -> dict[str, Any]:
        """What :func:`ends` returns of it."""
        return {name: value for name, value in self.state.items() if "checkpoint-" not in name}


def make_whole(server: Server, name: str, corpus: Path, folder: Path) -> Whole:
    """Run a configuration without interruption, twice: with the calls counted, and without."""
    replies = [
        server.run(command(name, corpus, folder / sub / "run"), folder / sub, fault=fault)
        for sub, fault in (("counted", Fault()), ("plain", None))
    ]
    for reply in replies:
        assert reply.code == 0, reply.output
    first, second = (state(folder / sub / "run") for sub in ("counted", "plain"))
    assert not differences(first, second), differences(first, second)
    left = leftovers(folder / "plain" / "run")
    assert not left, left
    files = [path for path in (folder / "plain" / "run").rglob("*") if path.is_file()]
    return Whole(
        name,
        first,
        replies[0].calls,
        min(reply.seconds for reply in replies),
        sorted(path.stat().st_size for path in files),
    )
