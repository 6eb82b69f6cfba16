"""Finished tasks on disk: found by what decides their numbers, and never half there."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.evaluation.store import Store, store_folder

KEY = {"model": "ab", "kind": "sts", "task": "a/b c", "data": "cd", "protocol": 1, "settings": {}}


def result(value: float = 1.5) -> Result:
    items = {"STS12/gold": np.arange(5) * value, "100%2F/x": np.array([True, False])}
    return Result("sts", "m", {"STS12": value}, {"tasks": {"STS12": {"n": [1]}}}, {}, items)


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "er")
    assert store.find(KEY) is None
    store.keep(KEY, result())
    found = Store(store.folder).find(KEY)
    assert found is not None
    assert (found.metrics, found.details) == (result().metrics, result().details)
    assert set(found.items) == set(result().items)
    for name, values in result().items.items():
        assert np.array_equal(found.items[name], values)
        assert found.items[name].dtype == values.dtype


def test_results_without_items(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.keep(KEY, Result("corpus", "m", {"x": 1.0}))
    assert [file.suffix for file in tmp_path.iterdir()] == [".json"]
    assert store.find(KEY).metrics == {"x": 1.0}


@pytest.mark.parametrize("what", KEY)
def test_everything_in_the_key_counts(tmp_path: Path, what: str) -> None:
    store = Store(tmp_path)
    store.keep(KEY, result())
    other = {"protocol": 2, "settings": {"mode": "prototyping"}}.get(what, "other")
    assert store.find({**KEY, what: other}) is None


def test_what_cannot_be_read_is_not_finished(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for damage in (b"{", b'{"kind": "sts"}', b"[]"):
        store.keep(KEY, result())
        (record,) = tmp_path.glob("*.json")
        record.write_bytes(damage)
        assert store.find(KEY) is None
    store.keep(KEY, result())
    (arrays,) = tmp_path.glob("*.npz")
    whole = arrays.read_bytes()
    flipped = bytes([*whole[:150], whole[150] ^ 255, *whole[151:]])
    for damage in (b"", b"PK", whole[: len(whole) // 2], flipped):
        arrays.write_bytes(damage)
        assert store.find(KEY) is None
    arrays.unlink()
    assert store.find(KEY) is None
    held = json.loads(record.read_text())
    broken = ({"key": {}}, None, [], {"key": KEY, "items": 5})
    for provenance in broken:
        record.write_text(json.dumps({**held, "provenance": provenance}))
        assert store.find(KEY) is None


def test_arrays_that_are_not_those_of_the_record(tmp_path: Path) -> None:
    """An archive has checksums of its arrays, but none of their names and of how they are kept."""
    store = Store(tmp_path)
    store.keep(KEY, result())
    (arrays,) = tmp_path.glob("*.npz")
    whole = arrays.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    method = bytes([*whole[: directory + 10], 99, *whole[directory + 11 :]])
    encrypted = bytes([*whole[: directory + 8], 1, *whole[directory + 9 :]])
    for damage in (whole.replace(b"gold", b"cold"), method, encrypted):
        arrays.write_bytes(damage)
        assert store.find(KEY) is None
    arrays.write_bytes(whole)
    assert store.find(KEY) is not None


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"cannot write .*file: file exists"):
        Store(tmp_path / "file")
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(InputError, match="permission denied"):
            Store(tmp_path)


def test_a_folder_nobody_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=r"cannot write .*: permission denied"):
        Store(tmp_path)


def test_where_tasks_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / "isotrope" / "evaluations"
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    assert store_folder(run) == cached
    RunFolder(run).write_settings("")
    assert store_folder(run) == store_folder(str(run)) == run / "evaluations"
    for closed in (run, run / "evaluations"):  # root may write anywhere: asked, it says otherwise
        closed.mkdir(exist_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr(os, "access", lambda path, _, closed=closed: path != closed)
            assert store_folder(run) == cached
    assert store_folder(run) == run / "evaluations"
    assert store_folder("all-MiniLM-L6-v2") == store_folder(object()) == cached
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_folder(object()) == tmp_path / ".cache" / "isotrope" / "evaluations"


def test_two_runs_on_one_store(tmp_path: Path) -> None:
    """Each record finds the arrays that were written with it, whoever came last."""

    def keep(value: int) -> None:
        Store(tmp_path).keep(KEY, result(float(value)))

    def look(_: int) -> None:
        found = Store(tmp_path).find(KEY)
        if found is not None:
            assert found.items["STS12/gold"][1] == found.metrics["STS12"]

    with ThreadPoolExecutor(4) as pool:
        for job in [pool.submit(*call) for i in range(1, 25) for call in ((keep, i), (look, i))]:
            job.result()
    look(0)


SLOWLY = """
import sys, time
from pathlib import Path
from isotrope.evaluation import evaluate
class Slow:
    name = "slow"
    def fingerprint(self): return "slow"
    def encode(self, texts):
        if sys.argv[3:] and len(list(Path(sys.argv[2]).glob("STS*.json"))) >= 2:
            time.sleep(600)  # to be killed
        return [[len(t), t.count("i") + 1.0, t.count("o") + 1.0, hash(t[-1]) % 7] for t in texts]
found = evaluate(Slow(), sts=sys.argv[1], results=sys.argv[2], progress=True)
print(found.to_json())
"""


@pytest.mark.slow  # a process that imports everything
def test_a_killed_run_goes_on(sts_folder: Path, tmp_path: Path) -> None:
    """SIGKILL between two tasks: what was finished is not scored again."""
    command = [sys.executable, "-c", SLOWLY, str(sts_folder), str(tmp_path / "kept")]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    running = subprocess.Popen([*command, "stop"], env=environment, stdout=subprocess.DEVNULL)
    while len(list((tmp_path / "kept").glob("STS*.json"))) < 2 and running.poll() is None:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    kept = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "kept").glob("*.json")}
    assert 2 <= len(kept) < 7

    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "already scored" in again.stderr
    assert "STS12, STS13" in again.stderr
    for name, written in kept.items():
        assert (tmp_path / "kept" / name).stat().st_mtime_ns == written
    assert len(list((tmp_path / "kept").glob("*.json"))) == 7

    other = [*command[:-1], str(tmp_path / "other")]
    whole = subprocess.run(other, env=environment, capture_output=True, text=True, check=True)
    assert "already scored" not in whole.stderr
    numbers = [json.loads(run.stdout)["details"] for run in (again, whole)]
    assert numbers[0] == numbers[1]
