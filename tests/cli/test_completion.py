"""What a shell offers after the Tab key: verbs, flags, choices, objectives, files."""

import subprocess
import sys
from pathlib import Path

import pytest

from isotrope.cli.main import guarded

SHELL = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_isotrope isotrope "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("shtab")
    file = tmp_path_factory.mktemp("completion") / "isotrope.bash"
    done = subprocess.run(
        [sys.executable, "-m", "isotrope", "--print-completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    )
    file.write_text(done.stdout)
    return file


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tr", ["train", "train-images"]),
        ("--print", ["--print-completion"]),
        ("train --sched", ["--scheduler"]),
        ("train --scheduler ", ["constant", "linear", "cosine"]),
        ("train --objective modifiedm", ["modifiedmhe", "modifiedmhs"]),
        ("train sent", ["sentences.txt"]),
        ("train sentences.txt --dev s", ["sentences.txt", "sts.tsv"]),
        ("simulate diss", ["dissipation"]),
        ("report --out", ["--output"]),
    ],
)
def test_bash(program: Path, tmp_path: Path, line: str, offered: list[str]) -> None:
    for name in ("sentences.txt", "sts.tsv"):
        (tmp_path / name).write_text("")
    words = ["isotrope", *line.split(" ")]
    done = subprocess.run(
        ["bash", "-c", SHELL, "bash", program, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.split()) == sorted(offered)


def test_zsh_knows_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert guarded(["--print-completion", "zsh"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("#compdef isotrope")
    assert "train-images" in said


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["--print-completion", "fish"]) == 2
    assert "invalid choice: 'fish'" in capsys.readouterr().err


def test_without_shtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert guarded(["--print-completion", "bash"]) == 2
    assert "run pip install '.[completion]' in a checkout of isotrope: this step needs the" in (
        capsys.readouterr().err
    )
