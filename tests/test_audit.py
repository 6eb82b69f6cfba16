"""What `make check` says of the locked packages: licences and known vulnerabilities."""

import importlib.util
import json
import subprocess
import sys
from email.message import Message
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"


def program(name: str) -> ModuleType:
    """A program of requirements/, as a module."""
    spec = importlib.util.spec_from_file_location(f"of_{name}", REQUIREMENTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answered(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> int:
    """What the audit returns where pip-audit says this of the one lock and of the other."""
    left = list(answers)

    def run(asked: list[str], **_: object) -> SimpleNamespace:
        assert asked[:3] == [sys.executable, "-m", "pip_audit"]
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(stdout=answer if isinstance(answer, str) else json.dumps(answer))

    monkeypatch.setattr(subprocess, "run", run)
    code = program("audit").main()
    assert not left
    return int(code)


FINE = {"dependencies": [{"name": "a", "version": "1", "vulns": []}]}
HOLE = {"dependencies": [{"name": "b", "version": "2", "vulns": [{"id": "X-1"}]}]}
UNKNOWN = {"dependencies": [{"name": "c", "skip_reason": "not there"}]}


def test_a_known_vulnerability_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(monkeypatch, FINE, HOLE) == 1
    assert capsys.readouterr().out.splitlines() == [
        "b 2: X-1",
        "pip-audit: 2 packages audited, 1 vulnerabilities",
    ]


def test_what_the_service_does_not_know_is_not_called_audited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(monkeypatch, FINE, UNKNOWN) == 0
    assert "1 packages audited, 1 unknown to the service, 0" in capsys.readouterr().out
    assert answered(monkeypatch, UNKNOWN, UNKNOWN) == 0
    assert "service knows none of the packages; nothing was audited" in capsys.readouterr().out


def test_without_a_network_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(monkeypatch, "", subprocess.TimeoutExpired("pip-audit", 120)) == 0
    said = capsys.readouterr().out
    assert said == "pip-audit: the vulnerability service does not answer; nothing was audited\n"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"License-Expression": "(MIT OR Apache-2.0) AND Apache-2.0 WITH LLVM-exception"}, set()),
        ({"License-Expression": "MIT AND GPL-3.0-only"}, {"gpl-3.0-only"}),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, set()),
        ({"Classifier": "License :: OSI Approved :: AGPL", "License": "MIT"}, {"agpl"}),
        ({"License": "Apache 2.0\nand its text"}, set()),
        ({"License": ""}, {"says nothing"}),
    ],
)
def test_a_licence_that_is_not_allowed_is_seen(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], expected: set[str]
) -> None:
    about = Message()
    for name, value in said.items():
        about[name] = value
    monkeypatch.setattr(metadata, "metadata", lambda package: about)
    assert program("licences").refused("x") == expected


def test_licences_of_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    licences = program("licences")
    assert licences.main() == 0, capsys.readouterr().out
    capsys.readouterr()
    monkeypatch.setattr(licences, "ALLOWED", licences.ALLOWED - {"mit"})
    assert licences.main() == 1
    assert "licence not allowed, or unknown: pytest: mit\n" in capsys.readouterr().out
