"""No code from data, no network unasked, nothing executed: by reading the source, and by trying."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isotrope.core.errors import InputError
from isotrope.encoders.sentence import SentenceEncoder
from tests.reports.folders import write_run
from tests.training.conftest import sentences

SOURCE = Path(__file__).resolve().parents[1] / "src" / "isotrope"

# what may stand where, and why
ALLOWED = {
    ("training/launch.py", "pickle"): "a pipe to a process of our own",
    ("training/worker.py", "pickle"): "the other end of it",
    ("training/launch.py", "subprocess"): "processes of our own",
    ("core/lock.py", "socket"): "the name of this machine",
    ("core/result.py", "subprocess"): "git, with fixed arguments: the state of the repository",
    ("training/card.py", "huggingface_hub"): "the text of a model card; nothing is sent",
    ("core/trust.py", "huggingface_hub"): "whether it knows a given name; a switch that bars it",
    ("data/table.py", "huggingface_hub"): "whether it may be asked",
    ("encoders/names.py", "huggingface_hub"): "a hub id that the user gave",
    ("evaluation/files.py", "joblib"): "processes of our own; nothing is loaded with it",
    ("evaluation/store.py", "zipfile"): "an error that numpy raises",
    ("measures/judgement.py", "zipfile"): "an error that numpy raises",
    ("paradigm/registry.py", "exec_module"): "--plugin FILE",
}
CODE = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "code", "runpy"}
NETWORK = {
    *("socket", "ssl", "http", "urllib", "ftplib", "smtplib", "telnetlib", "requests", "httpx"),
    *("aiohttp", "huggingface_hub", "wandb", "sentry_sdk", "posthog", "fsspec"),
}
OTHER = {"subprocess", "pty", "tarfile", "zipfile", "webbrowser", "ctypes"}


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def _name(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _says(call: ast.Call, name: str) -> object:
    for keyword in call.keywords:
        if keyword.arg == name and isinstance(keyword.value, ast.Constant):
            return keyword.value.value
    return None


def suspicious(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield what runs code, opens pickles or talks to others: a word for it, and the source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            for module in named:
                top = (module or "").partition(".")[0]
                if top in CODE | NETWORK | OTHER and not getattr(node, "level", 0):
                    yield top, ast.unparse(node)
        if not isinstance(node, ast.Call):
            continue
        name, source = _name(node.func), ast.unparse(node)[:100]
        last = name.rpartition(".")[2]
        if name in ("eval", "exec", "compile", "__import__", "os.system", "os.popen", "input"):
            yield name, source
        if name.startswith(("os.exec", "os.spawn", "torch.hub", "torch.jit.load")):
            yield name, source
        if last == "exec_module":
            yield last, source
        if name == "torch.load" and _says(node, "weights_only") is not True:
            yield "torch.load", source
        if name in ("np.load", "numpy.load") and _says(node, "allow_pickle") is not False:
            yield "np.load", source
        if name.startswith("yaml.") and last not in ("safe_load", "safe_dump", "SafeLoader"):
            yield name, source
        if last in ("extract", "extractall", "unpack_archive", "mktemp"):
            yield last, source
        if _says(node, "shell") is True or _says(node, "trust_remote_code") is True:
            yield "shell or trust_remote_code", source
        if last == "from_pretrained" and (
            _says(node, "trust_remote_code") is not False
            or _says(node, "local_files_only") is not True
            or _says(node, "use_safetensors") is not True
        ):
            yield "from_pretrained", source


def test_nothing_in_the_source_runs_what_it_reads() -> None:
    found = [(file, what, text) for file, tree in _trees() for what, text in suspicious(tree)]
    unexpected = [one for one in found if one[:2] not in ALLOWED]
    assert not unexpected, unexpected
    unused = set(ALLOWED) - {one[:2] for one in found}
    assert not unused, unused


@pytest.mark.parametrize(
    "line",
    [
        *("import pickle", "from joblib import load", "import requests", "import wandb"),
        *("eval(text)", "exec(text)", "os.system(text)", "subprocess.run(x, shell=True)"),
        *("torch.load(f)", "torch.load(f, weights_only=False)", "np.load(f)"),
        *("np.load(f, allow_pickle=True)", "yaml.load(f)", "yaml.unsafe_load(f)"),
        *("archive.extractall()", "SentenceTransformer(x, trust_remote_code=True)"),
        *("AutoModel.from_pretrained(x)", "torch.hub.load(a, b)", "shutil.unpack_archive(x)"),
    ],
)
def test_the_reading_sees_what_it_should(line: str) -> None:
    assert list(suspicious(ast.parse(line)))


FORBIDDEN = """
import json, os, socket, sys
asked = []

def refuse(what):
    def refused(*arguments, **settings):
        asked.append([what, repr(arguments[-1:])[:200]])
        raise OSError(f"no network here: {what}")
    return refused

class Shut(socket.socket):
    def connect(self, address):
        if self.family != socket.AF_UNIX:  # how processes of one machine hand over memory
            refuse("connect")(address)
        return super().connect(address)

    connect_ex = refuse("connect")
    sendto = refuse("sendto")

socket.socket = Shut
for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refuse(name))
from isotrope.cli.main import guarded
for line in json.loads(sys.argv[1]):
    code = guarded(line)
    assert code == 0, (code, line)
try:
    socket.create_connection(("127.0.0.1", 9))
except OSError:
    pass
print("ASKED", json.dumps(asked))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    file.write_text("\n".join(sentences(300)) + "\n")
    return file


@pytest.mark.slow
def test_no_network_from_training_to_report(corpus: Path, tmp_path: Path) -> None:
    """Text and pictures (also those of a dataset folder), with every library free to call home."""
    import datasets
    from PIL import Image

    from tests.data.pictures import ramp

    table = datasets.Dataset.from_dict(
        {"image": [Image.fromarray(ramp(8, 8, seed)) for seed in range(8)]},
        features=datasets.Features({"image": datasets.Image()}),
    )
    (tmp_path / "set").mkdir()
    table.to_parquet(tmp_path / "set" / "train.parquet")
    text, images = str(tmp_path / "text"), str(tmp_path / "images")
    quick = ["--max-steps", "2", "--batch-size", "8", "--no-progress", "--device", "cpu"]
    small = ["--encoder", "resnet9", "--width", "4"]
    lines = [
        ["train", str(corpus), "--encoder", "scratch", "--dev", "auto", *quick, "--output", text],
        ["train-images", str(tmp_path / "set"), *small, *quick, "--output", images],
        ["diagnose", text, "--data", str(corpus)],
        ["encode", text, str(corpus), "-o", str(tmp_path / "out.npy")],
        ["diagnose", text],
        ["report", text, images, "-o", str(tmp_path / "report.html")],
    ]
    unset = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "DO_NOT_TRACK")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    done = subprocess.run(
        [sys.executable, "-c", FORBIDDEN, json.dumps(lines)],
        capture_output=True,
        text=True,
        env={**environment, "HF_HOME": str(tmp_path / "hf"), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked = json.loads(done.stdout.rpartition("ASKED ")[2])
    assert asked == [["create_connection", "(('127.0.0.1', 9),)"]]  # the last line alone


CODE_OF_A_MODEL = (
    "from pathlib import Path\nfrom sentence_transformers.sentence_transformer.modules import "
    "Pooling\nPath({mark!r}).touch()\nclass Mine(Pooling): pass\n"
)


def test_code_in_a_model_folder_needs_a_flag(tmp_path: Path) -> None:
    folder, mark = tmp_path / "model", tmp_path / "ran"
    SentenceEncoder.scratch(["some words"] * 3, width=8, layers=1, heads=1).save(folder)
    (folder / "mine.py").write_text(CODE_OF_A_MODEL.format(mark=str(mark)))
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "mine.Mine"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=r"module class 'mine\.Mine'"):
        SentenceEncoder.load(folder)
    assert not mark.exists()
    SentenceEncoder.load(folder, trust_remote_code=True)
    assert mark.exists()
    config = json.loads((folder / "config.json").read_text())
    mark.unlink()
    shutil.copy(folder / "mine.py", folder / "modeling.py")
    for name in ("config.json", "tokenizer_config.json"):
        told = {"auto_map": {"AutoModel": "modeling.Mine", "AutoConfig": "modeling.Mine"}}
        kept = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        (folder / name).write_text(json.dumps({**kept, **told, "model_type": "mine"}))
    modules[1]["type"] = "sentence_transformers.models.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="is not a model that can be loaded"):
        SentenceEncoder.load(folder)
    assert not mark.exists()
    assert config["model_type"] == "bert"


PLUGIN = """
from pathlib import Path
from isotrope.core.hyper import Paper
from isotrope.paradigm.objective import Objective
Path({mark!r}).touch()


class OfAFolder(Objective, paper=Paper("none", "none", "none")):
    \"\"\"One that a run folder names.\"\"\"

    def formula(self, pairs):
        return -pairs.positive
"""


def test_code_that_a_run_folder_names_needs_a_flag(tmp_path: Path, capsys) -> None:
    from isotrope.cli.main import guarded
    from isotrope.paradigm.objective import Objective

    mark, plugin = tmp_path / "ran", tmp_path / "of_a_folder.py"
    plugin.write_text(PLUGIN.format(mark=str(mark)))
    run = write_run(
        tmp_path / "run", objective="ofafolder", parameters={}, settings=f"plugin: [{plugin}]\n"
    )
    try:
        assert guarded(["diagnose", str(run)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "isotrope does not run code that only a folder names" in said
        assert guarded(["report", str(run), "--diagnose", "-o", str(tmp_path / "r.html")]) == 0
        assert not mark.exists()
        assert guarded(["diagnose", str(run), "--plugin", str(plugin)]) == 0
        assert "not run" not in capsys.readouterr().out
        assert mark.exists()
    finally:
        Objective.registered.pop("ofafolder", None)


def test_weights_are_safetensors_or_plain(corpus: Path, tmp_path: Path) -> None:
    """What a run leaves holds no pickle but its checkpoints, and these load without classes."""
    import torch

    import isotrope

    outcome = isotrope.fit(
        str(corpus), output=str(tmp_path / "run"), encoder="scratch", batch_size=8, max_steps=2,
        checkpoint_every=1, keep_every=1, progress=False,
    )  # fmt: skip
    held = {file.suffix for file in outcome.output.rglob("*") if file.is_file()}
    assert not held & {".pkl", ".pickle", ".pth", ".joblib", ".npy"}
    kept = sorted(outcome.output.rglob("*.pt"))
    assert {file.parent.parent.name for file in kept} == {"checkpoints"}
    assert kept
    for file in kept:
        torch.load(file, weights_only=True)
    assert (outcome.output / "model" / "model.safetensors").exists()


def test_the_card_of_a_model_has_no_path_whatever_the_encoder_is_called(
    corpus: Path, tmp_path: Path
) -> None:
    import yaml

    import isotrope

    name = "a: [b], *c & 'd' \"e\" #f"
    SentenceEncoder.scratch(["some words"] * 3, width=8, layers=1, heads=1).save(tmp_path / name)
    outcome = isotrope.fit(
        str(corpus), output=str(tmp_path / "run"), encoder=str(tmp_path / name), batch_size=8,
        max_steps=1, progress=False,
    )  # fmt: skip
    card = (outcome.output / "model" / "README.md").read_text()
    assert "base_model" not in yaml.safe_load(card.split("---")[1]), "the hub refuses a path"
    assert str(tmp_path) not in card
    assert name in card
