"""Runner: what is missing is done, what is done is kept, whatever becomes of the rest."""

from pathlib import Path

import pytest

from isotrope.core.durations import format_duration
from isotrope.core.errors import InputError
from papers.machinery.cell import Cell
from papers.machinery.places import Places
from papers.machinery.runner import _placeless, lacking, run
from papers.machinery.store import Store
from tests.papers.machinery.toy import asked_for, cell


def measure(out: Path, cells: list[Cell], **options: object) -> tuple[dict[Cell, str], list[str]]:
    lines: list[str] = []
    places = Places(None, out / "data")
    store = Store(out / "cells")
    found = run(cells, store, places, out / "runs", tell=lines.append, **options)  # type: ignore[arg-type]
    return found, lines


def test_equal_cells_are_done_once_and_never_again(toys: Path) -> None:
    cells = [cell(value=1), cell(value=2), cell(value=1.0), cell(1, value=1)]
    _, lines = measure(toys, cells)
    assert asked_for(toys) == ["1 0", "2 0", "1 1"]
    assert lines[0] == "3 cells to run, 0 there already"
    assert lines[-1].startswith("[3/3] toy value=1, seed 1: ")
    assert measure(toys, [*cells, cell(value=3)])[1][0].startswith("1 cell to run, 3 there already")
    assert asked_for(toys) == ["1 0", "2 0", "1 1", "3 0"]
    assert measure(toys, cells) == ({}, [])


def test_provenance_is_that_of_a_measurement_and_of_no_folder(toys: Path) -> None:
    measure(toys, [cell(5, value=1)])
    found = Store(toys / "cells").find(cell(5, value=1))
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
    bad = cell(value=2, fails=True)
    failed, lines = measure(toys, [cell(value=1), bad, cell(value=3)])
    assert failed == {bad: "it cannot be done"}
    assert "[2/3] toy value=2 fails=True, seed 0: failed: it cannot be done (" in lines[2]
    assert Store(toys / "cells").find(cell(value=3)) is not None
    failed, _ = measure(toys, [cell(value=1), bad])  # it may be mended by now
    assert list(failed) == [bad]
    assert asked_for(toys) == ["1 0", "2 0", "3 0", "2 0"]


def test_a_training_that_diverged_has_a_result_that_says_so(toys: Path) -> None:
    failed, lines = measure(toys, [cell(diverges=True)])
    assert failed == {}
    assert "training diverged: the loss is not finite at step 3" in lines[1]
    found = Store(toys / "cells").find(cell(diverges=True))
    assert found is not None
    assert found.metrics == {}
    assert found.details["diverged"].startswith("training diverged")
    measure(toys, [cell(diverges=True)])
    assert len(asked_for(toys)) == 1


def test_a_bug_is_no_result(toys: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        measure(toys, [cell(value=1), cell(bug=True), cell(value=2)])
    assert Store(toys / "cells").find(cell(value=1)) is not None
    assert len(asked_for(toys)) == 2


def test_after_so_many_minutes_none_is_started(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10**6, 25))
    monkeypatch.setattr("papers.machinery.runner.time.monotonic", lambda: next(now))
    _, lines = measure(toys, [cell(value=value) for value in range(9)], minutes=2.0)
    assert 0 < len(asked_for(toys)) < 9
    left = 9 - len(asked_for(toys))
    assert lines[-1] == f"no more cells after 2 minutes: {left} left; the same command goes on"


def test_what_a_killed_process_left_of_a_finished_cell_goes(toys: Path) -> None:
    measure(toys, [cell(value=1)])
    left = toys / "runs" / cell(value=1).key / "run"
    left.mkdir(parents=True)
    measure(toys, [cell(value=1), cell(value=2)])
    assert not left.exists()


def test_a_second_command_is_refused_before_it_does_anything(toys: Path) -> None:
    with (
        Store(toys / "cells").writing(),
        pytest.raises(InputError, match="another process is measuring"),
    ):
        measure(toys, [cell(value=1)])
    assert asked_for(toys) == []


def test_processes_do_real_cells(tmp_path: Path) -> None:
    """Digits are counted in a moment."""
    cells = [Cell("image_set", {"data": "digits"}, seed) for seed in range(3)]
    wrong = Cell("image_set", {"data": "flowers"})
    failed, lines = measure(tmp_path, [*cells[:2], wrong, cells[2]], jobs=2)
    assert list(failed) == [wrong]
    assert "flowers: no folder of data was given (--data DIR)" in failed[wrong]
    assert lines[0] == "4 cells to run, 0 there already, 2 at a time"
    store = Store(tmp_path / "cells")
    assert [store.find(one).metrics["classes"] for one in cells] == [10, 10, 10]  # type: ignore[union-attr]


def test_every_name_is_resolved(toys: Path) -> None:
    places = Places(None, toys / "data")
    needs = cell(needs="wiki")
    assert lacking([cell(value=1), needs], places) == {
        cell(value=1): [],
        needs: ["wiki: there is none"],
    }
    with pytest.raises(InputError, match=r"toy colour=1, seed 0: unknown setting 'colour'"):
        lacking([cell(colour=1)], places)
    with pytest.raises(InputError, match=r"there is no work 'txet' \(did you mean 'text'\?\)"):
        lacking([Cell("txet", {})], places)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (3700, "1 h 1 min")],
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


def test_a_command_is_kept_without_places() -> None:
    given = ["mio", "--data", "/some/where/data", "--output=/else/where", "--jobs", "2", "a/b"]
    told = ["mio", "--data", "data", "--output=where", "--jobs", "2", "a/b"]
    assert list(map(_placeless, given)) == told
