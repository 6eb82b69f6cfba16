"""One pair of servers for all tests of this folder, and the uninterrupted runs that they need."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.trials import Server, Whole, make_whole, write_corpus

if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]  # /proc, audit of native calls, limits that kill


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(1, tmp_path_factory.mktemp("server") / "log")
    yield made
    made.close()


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(2, tmp_path_factory.mktemp("other") / "log")
    yield made
    made.close()


@pytest.fixture(scope="session")
def whole(
    server: Server, corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Whole]:
    known: dict[str, Whole] = {}

    def made(name: str) -> Whole:
        if name not in known:
            known[name] = make_whole(server, name, corpus, tmp_path_factory.mktemp("whole"))
        return known[name]

    return made
