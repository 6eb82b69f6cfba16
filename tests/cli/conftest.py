"""Running the command line in this process, as a user would type it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from isotrope.cli.main import guarded


@dataclass
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _no_line_on_slow_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the number of lines on stderr be the same on a slow machine."""
    monkeypatch.setattr("isotrope.cli.main._SILENT", threading.TIMEOUT_MAX)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: object) -> Ran:
        try:
            code = guarded([str(a) for a in arguments])
        except SystemExit as stop:  # argparse's own way out of --help and --version
            code = int(stop.code or 0)
        found = capsys.readouterr()
        return Ran(code, found.out, found.err)

    return call
