"""Fixtures shared by all tests: real data where it is there, offline libraries, quiet threads."""

import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

# What a test writes need not survive a power cut. Processes that tests start flush as users' do.
os.fsync = lambda fd: None

# the scripts of benchmarks/ import each other by name
sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real evaluation data beside the checkout; skips, saying so, where it is missing."""
    if not SHARED.is_dir():
        pytest.skip("the real data is not beside this checkout (../shared/data)")
    return SHARED


@pytest.fixture(scope="session", autouse=True)
def _configuration(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the key of runs of this user (isotrope.core.run_folder) out of the user's own folder."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("configuration"))


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is captured of stderr passes for a terminal, and bars show at once."""
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True)
    monkeypatch.setattr("isotrope.core.progress.DELAY", 0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a file with objectives of one's own go through the proofs of the registry."""
    parser.addoption("--plugin", action="append", default=[], help="Python file with objectives")


def pytest_configure(config: pytest.Config) -> None:
    """Register them before the tests are collected."""
    for file in config.getoption("--plugin"):
        from isotrope.paradigm.registry import load_plugin

        load_plugin(Path(file))


def pytest_collection_finish() -> None:
    """Leave what is there before the first test out of garbage collections.

    A trainer collects at its end, and would go through millions of objects of the libraries and of
    the collected tests each time.
    """
    gc.collect()
    gc.freeze()
