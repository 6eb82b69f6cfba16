"""The files of a run folder are named in one place."""

from pathlib import Path

import pytest

import isotrope
from isotrope.core.run_folder import RECORDING, RunFolder

SOURCE = Path(isotrope.__file__).parent


def test_no_other_file_spells_these_names() -> None:
    run = RunFolder("x")
    names = {path.name for name, path in vars(run).items() if name != "path"}
    files = {f'"{name}"' for name in names if "." in name}
    assert len(files) >= 6
    for path in SOURCE.rglob("*.py"):
        if path.name != "run_folder.py":
            text = path.read_text(encoding="utf-8")
            assert not [name for name in files if name in text], path


def test_whose_folder_it_is(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert not run.is_run
    assert run.recording() is None
    run.metrics.touch()
    assert run.recording() is run, "the Doctor wrote here"
    inner = RunFolder(tmp_path / RECORDING)
    inner.path.mkdir()
    inner.metrics.touch()
    watched = run.recording()
    assert watched is not None
    assert watched.path == inner.path, "the Doctor wrote into its own folder of a trainer's output"
    run.metrics.unlink()
    run.write_settings("files: [a.txt]\n")
    assert run.recording() is not None, "isotrope began here, but the log is the Doctor's"
    run.metrics.touch()
    assert run.is_run
    assert run.recording() is None, "isotrope trained here"


@pytest.mark.parametrize(
    "settings",
    [
        b"",
        b"lr: 0.1\ndata:\n  path: x.tsv\n",
        b"- a\n",
        b"a: !!python/name:os.system\n",
        b"\xff",
    ],
)
def test_settings_of_another_program(tmp_path: Path, settings: bytes) -> None:
    run = RunFolder(tmp_path)
    run.config.write_bytes(settings)
    run.metrics.touch()
    assert (run.is_begun, run.is_run) == (False, False)
    assert run.recording() is run
    run.result.touch()
    assert run.is_run, "settings of a finished run, which were damaged"
