"""What can be known without torch is said without importing it."""

import json
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest

from isotrope.core.errors import InputError
from isotrope.core.hyper import hypers
from isotrope.paradigm import registry
from isotrope.paradigm.declared import check_declared, declared
from isotrope.training.early_checks import check_early
from isotrope.training.settings import TrainSettings

CASES = {
    "train nowhere.txt --output new": "nowhere.txt: check the path; there is no such file",
    "train texts.txt --output used": "choose another output folder: used has files, but no run",
    "train texts.txt --output texts.txt": "give a folder as output: texts.txt is a file",
    "train texts.txt --output new --objective infonec": "did you mean 'infonce'?",
    "train texts.txt --output new --objective.temprature 1": "did you mean 'temperature'?",
    "train texts.txt --output new --learningrate 1": "did you mean --learning-rate?",
    "train texts.txt --output new --batch-size 0": "--batch-size 0: input should be greater",
    "train texts.txt --output new --dev nowhere.tsv": "nowhere.tsv: check the path",
    "train texts.txt --output new --plugin nowhere.py": "nowhere.py: check the path",
    "train pairs.csv --output new --columns question": "has no column 'question'; its columns:",
    "train texts.txt --output new --encoder /nowhere": "there is no folder '/nowhere'",
    "train texts.txt --output new --encoder used": "used holds no model",
    "encode /nowhere texts.txt -o out.npy": "there is no folder '/nowhere'",
    "search /nowhere texts.txt query": "there is no folder '/nowhere'",
    "diagnose /nowhere": "there is no folder '/nowhere'",
    "evaluate /nowhere --retrieval texts.txt": "there is no folder '/nowhere'",
    "train-images digits --output used": "choose another output folder: used has files, but no run",
    "train-images digits --output new --objective met --objective.margn 1": "mean 'margin'?",
    "encode model nowhere.txt -o out.npy": "nowhere.txt: check the path; there is no such file",
    "encode model texts.txt -o out.csv": "--output out.csv must end in .npy",
    "search model nowhere.txt query": "nowhere.txt: check the path; there is no such file",
    "train pairs.csv --views dropout --output new": "pairs.csv, line 2: use --views pairs",
    "search model texts.txt query --embeddings nowhere.npy": "nowhere.npy: check the path",
    "search model texts.txt": "no query; give words",
    "report nowhere": "nowhere is not a folder",
}

PROGRAM = """
import contextlib, io, json, sys
from isotrope.cli.main import guarded
for words in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = guarded(words)
    print(json.dumps([code, said.getvalue(), "torch" in sys.modules]))
"""


def test_mistakes_are_told_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("one\ntwo\n")
    (tmp_path / "pairs.csv").write_text("anchor,positive\na,b\n")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([case.split() for case in CASES]),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for (case, message), (code, said, torch) in zip(CASES.items(), answers, strict=True):
        assert code == 2, case
        assert message in said, case
        assert not torch, case
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.csv", "texts.txt", "used"]


def test_what_the_source_declares_is_what_is_registered() -> None:
    known = declared()
    assert sorted(known) == registry.names()
    for name, settings in known.items():
        assert set(settings) == set(hypers(registry.find(name))), name


@pytest.mark.parametrize(
    ("name", "settings"), [("infonec", {}), ("infonce", {"temprature": 1}), ("met", {"tau": 1})]
)
def test_the_message_is_the_registry_s(name: str, settings: dict[str, float]) -> None:
    messages = []
    for check in (check_declared, registry.build):
        with pytest.raises(InputError) as caught:
            check(name, settings)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_data_set_that_nobody_knows_is_refused_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(self: object, name: str, repo_type: str, timeout: float) -> None:
        raise OSError(f"no {repo_type} called {name}")

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", unknown)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    settings = TrainSettings.read({"files": ["nobody/pairs"], "output": str(tmp_path / "run")})
    message = r"^check the name nobody/pairs: no such file, .*: no dataset called nobody/pairs\)$"
    with pytest.raises(InputError, match=message):
        check_early(settings, resume=False)
    (tmp_path / "cache/nobody___pairs").mkdir(parents=True)
    check_early(settings, resume=False)
