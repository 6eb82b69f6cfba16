"""Runner: what is missing is done, what is done is kept, whatever becomes of the rest."""

from pathlib import Path

import pytest

from isotrope.core import InputError, format_duration
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.machinery.runner import _without_folder, missing_data, run
from papers.machinery.store import JobStore
from tests.papers.machinery.toy import asked_for, job


def measure(
    out: Path, jobs: list[PaperJob], **options: object
) -> tuple[dict[PaperJob, str], list[str]]:
    lines: list[str] = []
    places = DataRegistry(None, out / "data")
    store = JobStore(out / "cells")
    found = run(jobs, store, places, out / "runs", tell=lines.append, **options)  # type: ignore[arg-type]
    return found, lines


def test_equal_cells_are_done_once_and_never_again(toys: Path) -> None:
    jobs = [job(value=1), job(value=2), job(value=1.0), job(1, value=1)]
    _, lines = measure(toys, jobs)
    assert asked_for(toys) == ["1 0", "2 0", "1 1"]
    assert lines[0] == "3 jobs to run, 0 there already"
    assert lines[-1].startswith("[3/3] toy value=1, seed 1: ")
    assert measure(toys, [*jobs, job(value=3)])[1][0].startswith("1 job to run, 3 there already")
    assert asked_for(toys) == ["1 0", "2 0", "1 1", "3 0"]
    assert measure(toys, jobs) == ({}, [])


def test_provenance_is_that_of_a_measurement_and_of_no_folder(toys: Path) -> None:
    measure(toys, [job(5, value=1)])
    found = JobStore(toys / "cells").find(job(5, value=1))
    assert found is not None
    known = found.provenance
    assert known["seed"] == 5
    assert known["seconds"] >= 0
    assert known["threads"] >= 1
    assert known["machine"]
    assert known["versions"]["torch"]
    assert "/" not in known["command"][0]
    assert found.items == {}
    assert list((toys / "runs").iterdir()) == []


def test_a_cell_that_fails_leaves_the_others(toys: Path) -> None:
    bad = job(value=2, fails=True)
    failed, lines = measure(toys, [job(value=1), bad, job(value=3)])
    assert failed == {bad: "it cannot be done"}
    assert "[2/3] toy value=2 fails=True, seed 0: failed: it cannot be done (" in lines[2]
    assert JobStore(toys / "cells").find(job(value=3)) is not None
    failed, _ = measure(toys, [job(value=1), bad])  # it may be mended by now
    assert list(failed) == [bad]
    assert asked_for(toys) == ["1 0", "2 0", "3 0", "2 0"]


def test_a_training_that_diverged_has_a_result_that_says_so(toys: Path) -> None:
    failed, lines = measure(toys, [job(diverges=True)])
    assert failed == {}
    assert "training diverged: the loss is not finite at step 3" in lines[1]
    found = JobStore(toys / "cells").find(job(diverges=True))
    assert found is not None
    assert found.metrics == {}
    assert found.details["diverged"].startswith("training diverged")
    measure(toys, [job(diverges=True)])
    assert len(asked_for(toys)) == 1


def test_a_bug_is_no_result(toys: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        measure(toys, [job(value=1), job(bug=True), job(value=2)])
    assert JobStore(toys / "cells").find(job(value=1)) is not None
    assert len(asked_for(toys)) == 2


def test_after_so_many_minutes_none_is_started(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10**6, 25))
    monkeypatch.setattr("papers.machinery.runner.time.monotonic", lambda: next(now))
    _, lines = measure(toys, [job(value=value) for value in range(9)], minutes=2.0)
    assert 0 < len(asked_for(toys)) < 9
    left = 9 - len(asked_for(toys))
    assert lines[-1] == f"no more jobs after 2 minutes: {left} left; the same command goes on"


def test_what_a_killed_process_left_of_a_finished_cell_goes(toys: Path) -> None:
    measure(toys, [job(value=1)])
    left = toys / "runs" / job(value=1).key / "run"
    left.mkdir(parents=True)
    measure(toys, [job(value=1), job(value=2)])
    assert not left.exists()


def test_a_second_command_is_refused_before_it_does_anything(toys: Path) -> None:
    with (
        JobStore(toys / "cells").writing(),
        pytest.raises(InputError, match="an earlier call of this process is measuring"),
    ):
        measure(toys, [job(value=1)])
    assert asked_for(toys) == []


@pytest.mark.slow
def test_processes_do_real_cells(tmp_path: Path) -> None:
    """Digits are counted in a moment."""
    jobs = [PaperJob("image_set", {"data": "digits"}, seed) for seed in range(3)]
    wrong = PaperJob("image_set", {"data": "flowers"})
    failed, lines = measure(tmp_path, [*jobs[:2], wrong, jobs[2]], processes=2)
    assert list(failed) == [wrong]
    assert "flowers: no folder of data was given (--data DIR)" in failed[wrong]
    assert lines[0] == "4 jobs to run, 0 there already, 2 at a time"
    store = JobStore(tmp_path / "cells")
    assert [store.find(one).metrics["classes"] for one in jobs] == [10, 10, 10]  # type: ignore[union-attr]


def test_every_name_is_resolved(toys: Path) -> None:
    places = DataRegistry(None, toys / "data")
    needs = job(needs="wiki")
    assert missing_data([job(value=1), needs], places) == {
        job(value=1): [],
        needs: ["wiki: there is none"],
    }
    with pytest.raises(InputError, match=r"toy colour=1, seed 0: unknown setting 'colour'"):
        missing_data([job(colour=1)], places)
    with pytest.raises(InputError, match=r"there is no work 'txet' \(did you mean 'text'\?\)"):
        missing_data([PaperJob("txet", {})], places)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (3700, "1 h 1 min")],
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


def test_a_command_is_kept_without_places() -> None:
    given = ["mio", "--data", "/some/where/data", "--output=/else/where", "--jobs", "2", "a/b"]
    told = ["mio", "--data", "data", "--output=where", "--jobs", "2", "a/b"]
    assert list(map(_without_folder, given)) == told
