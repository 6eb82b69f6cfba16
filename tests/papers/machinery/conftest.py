"""A paper of our own for the tests of the machinery."""

from pathlib import Path

import pytest

from tests.papers.machinery.toy import install


@pytest.fixture
def toys(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install it; return an empty output folder."""
    folder = tmp_path_factory.mktemp("toys")
    install(folder, monkeypatch)
    return folder / "out"
