"""A reduced set of what `make faults` does: kills, failed writes, contended folders, soak."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import kills, trials
from tests.faults.folders import contend
from tests.faults.inject import Fault
from tests.faults.kills import kill_points
from tests.faults.scheduler import requeue
from tests.faults.soak import soak
from tests.faults.trials import CONFIGURATIONS, Server, Whole, command, differences, state
from tests.faults.workers import WORKER, kill_child
from tests.faults.writes import faults_of, full_disk, interrupt

Wholes = Callable[[str], Whole]


@pytest.mark.slow
def test_killed_runs_of_text_end_in_the_same_state(
    server: Server, whole: Wholes, corpus: Path, tmp_path: Path
) -> None:
    found = kill_points(server, whole("text, dev score"), corpus, tmp_path, count=3, seed=100)
    assert found.total >= 3


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if name != "text, dev score"])
def test_killed_runs_end_in_the_same_state(
    server: Server, whole: Wholes, corpus: Path, tmp_path: Path, name: str
) -> None:
    assert kill_points(server, whole(name), corpus, tmp_path, count=2, seed=100).total >= 2


@pytest.mark.slow
def test_what_differs_is_seen(server: Server, whole: Wholes, corpus: Path, tmp_path: Path) -> None:
    """The harness can fail: a run with another seed is not the same run."""
    reply = server.run(command("text, dev score", corpus, tmp_path / "run", seed=8), tmp_path)
    assert reply.code == 0
    wrong = differences(state(tmp_path / "run"), whole("text, dev score").state)
    assert any(line.startswith("metrics.csv") for line in wrong)
    assert any(line.startswith("model: ") for line in wrong)
    assert any(": optimizer.pt" in line for line in wrong)


@pytest.mark.slow
def test_every_kind_of_failed_write_is_one_line(
    server: Server, whole: Wholes, corpus: Path, tmp_path: Path
) -> None:
    """One of each kind of call; `make faults` takes all of them."""
    of, seen = whole("text, dev score"), set()
    faults = []
    for fault, (what, path) in zip(faults_of(of), of.calls, strict=False):
        kind = what, Path(path).name if "run" in path else "elsewhere"
        if what in ("write", "os.rename", "os.link") and kind not in seen:
            seen.add(kind)
            faults.append(fault)
    refused = sum(
        interrupt(server, of, corpus, tmp_path / str(fault.at), fault).refused
        for fault in [*faults[::7], Fault(at=1, do="limit", size=20_000)]
    )
    assert refused >= 3


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["text, all kept", "mocov2"])
def test_failed_writes_are_one_line(
    server: Server, whole: Wholes, corpus: Path, tmp_path: Path, name: str
) -> None:
    some = faults_of(whole(name))[3::17]
    assert sum(interrupt(server, whole(name), corpus, tmp_path / "x", f).refused for f in some) >= 3


@pytest.mark.nightly
def test_a_full_disk(server: Server, whole: Wholes, corpus: Path, tmp_path: Path) -> None:
    found = full_disk(server, whole("text"), corpus, tmp_path / "disk", share=0.3)
    if found is None:
        pytest.skip("this user may not make a disk of memory")
    assert found.refused == 1


@pytest.mark.nightly
def test_one_of_two_runs_on_a_folder_is_refused(
    server: Server, other: Server, whole: Wholes, corpus: Path, tmp_path: Path
) -> None:
    for moment in range(6):
        contend((server, other), whole("text, dev score"), corpus, tmp_path / str(moment))


@pytest.mark.nightly
def test_a_worker_that_dies_is_one_line(
    server: Server, whole: Wholes, corpus: Path, tmp_path: Path
) -> None:
    of = whole("simclr, a worker")
    kill_child(server, of, corpus, tmp_path / "x", number=0, said=WORKER)


@pytest.mark.nightly
def test_runs_that_a_scheduler_ends_end_in_the_same_state(
    server: Server, whole: Wholes, corpus: Path, tmp_path: Path
) -> None:
    of = whole("text, dev score")
    assert sum(requeue(server, of, corpus, tmp_path / str(n)) for n in range(3)) >= 1


@pytest.mark.nightly
def test_memory_and_files_do_not_grow(corpus: Path, tmp_path: Path) -> None:
    changed = {"max-steps": 600, "eval-every": 20, "checkpoint-every": 20, "batch-size": 4}
    arguments = command("text, dev score", corpus, tmp_path / "run", **changed)
    found = soak(arguments, tmp_path / "run", steps=600, warm=0.4)
    assert found.flat, found
    assert not dataclasses.replace(found, late=1.03 * found.early).flat
    assert not dataclasses.replace(found, files=(9, 27)).flat  # one for each of 18 evaluations


@pytest.mark.slow
def test_a_run_that_does_not_go_on_is_told(
    server: Server, whole: Wholes, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The harness can fail: so are a torn file and a state that differs."""
    of = whole("text, dev score")
    monkeypatch.setattr(kills, "torn", lambda output: ["checkpoint-4: it is cut"])
    with pytest.raises(AssertionError, match=r"text, dev score, seed \d+.*\n.*\n.*it is cut"):
        kill_points(server, of, corpus, tmp_path, count=1, seed=100)
    monkeypatch.undo()
    other = dataclasses.replace(of, state={**of.state, "verdict": "another"})
    with pytest.raises(AssertionError, match=r"verdict: .* instead of 'another'"):
        kill_points(server, other, corpus, tmp_path / "2", count=1, seed=100)


def test_files_that_are_cut_are_found(whole: Wholes, tmp_path: Path) -> None:
    assert trials.torn(tmp_path) == []
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "model").mkdir()
    marker = "checkpoints/checkpoint-2/complete.json"
    (tmp_path / marker).parent.mkdir()
    for name in (marker, "model/model.safetensors", "result.json", "config.yaml"):
        (tmp_path / name).write_text("{")
    assert [line.split(":")[0] for line in trials.torn(tmp_path)] == [
        marker,
        "model/model.safetensors",
        "result.json",
        "config.yaml",
    ]
    (tmp_path / ".model.12345678").touch()
    assert trials.leftovers(tmp_path) == [".model.12345678"]
