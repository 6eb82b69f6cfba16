"""``python -m papers`` end to end, on a paper of our own that takes no time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from papers.__main__ import main
from papers.machinery.pages import MEANINGLESS
from tests.cli.conftest import Ran
from tests.papers.machinery.toy import ASKED, asked_for, install


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: object) -> Ran:
        code = main([str(argument) for argument in arguments])
        found = capsys.readouterr()
        return Ran(code, found.out, found.err)

    return call


@pytest.fixture
def toys(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing else is there to be reproduced; no data is beside the checkout."""
    folder = tmp_path_factory.mktemp("toys")
    install(folder, monkeypatch)
    monkeypatch.setattr("papers.reproduce.DATA", folder / "nowhere")
    monkeypatch.chdir(folder)
    return folder / "out"


def test_without_a_paper_the_list(run, toys: Path) -> None:
    found = run()
    assert found.code == 0
    assert found.out.splitlines() == [
        "toys              figure2 figure 2: a picture of toys",
        "toys              table1  table 1: values of toys",
    ]
    assert not toys.exists()


def test_what_it_prints_and_writes(run, toys: Path) -> None:
    found = run("toys", "--output", toys)
    assert found.code == 0, found.err
    for said in ("values | of toys", "1.0    1.00 ± 0.00", "replicated: values rise (2 of 2)"):
        assert said in found.out
    names = {file.name for file in (toys / "toys").iterdir()}
    assert names == {"figure2.csv", "figure2.md", "figure2.svg", "table1.csv", "table1.md"}
    assert str(toys / "toys" / "figure2.svg") in found.out
    page = (toys / "toys" / "table1.md").read_text()
    assert "- command: python -m papers toys table1 --scale cpu" in page
    assert "- cells: 4 of 4 run" in page
    assert "- seeds: 0, 1" in page
    assert "[4/4] toy value=2.5, seed 1: 0 s" in found.err
    assert asked_for(toys) == ["1.0 0", "2.5 0", "1.0 1", "2.5 1"]  # seed by seed
    assert not (toys / "verdicts.md").exists()


def test_every_scale_has_an_output_of_its_own(run, toys: Path) -> None:
    run("toys", "table1", "--smoke")
    run("toys", "table1")
    for scale in ("smoke", "cpu"):
        assert (toys.parent / "reproduced" / scale / "toys" / "table1.md").is_file()


def test_again_nothing_is_measured(run, toys: Path) -> None:
    command = ("toys", "table1", "--output", toys)
    run(*command)
    before = (toys / "toys" / "table1.md").read_text()
    found = run(*command)
    assert found.code == 0
    assert found.err == ""
    assert len(asked_for(toys)) == 4
    assert (toys / "toys" / "table1.md").read_text() == before


def test_show_measures_nothing_and_says_what_is_missing(run, toys: Path) -> None:
    found = run("toys", "table1", "--show", "--output", toys)
    assert found.code == 0
    assert "1.0    not run" in found.out
    assert "undecided: values rise (0 of 2)" in found.out
    assert asked_for(toys) == []
    ASKED["cpu"] = [{"value": 1.0}]
    run("toys", "table1", "--output", toys)
    ASKED["cpu"] = [{"value": 1.0}, {"value": 7.0}]
    found = run("toys", "table1", "--show", "--output", toys)
    assert "1.0    1.00 ± 0.00\n7.0    not run" in found.out
    assert "cells: 2 of 4 run" in (toys / "toys" / "table1.md").read_text()


def test_a_claim_that_fails_is_no_error(run, toys: Path) -> None:
    ASKED["cpu"] = [{"value": 3.0}, {"value": 1.0}]
    found = run("toys", "table1", "--output", toys)
    assert found.code == 0
    assert "contradicted: values rise" in found.out


def test_numbers_of_smoke_scale_mean_nothing_and_say_so(run, toys: Path) -> None:
    found = run("--all", "--smoke", "--output", toys)
    assert found.out.count(MEANINGLESS) == 2
    files = [*(toys / "toys").glob("*.md"), *(toys / "toys").glob("*.csv"), toys / "verdicts.md"]
    assert len(files) == 5
    assert all(MEANINGLESS in file.read_text() for file in files)
    assert MEANINGLESS not in run("--all", "--output", toys).out


def test_all_verdicts_are_one_page(run, toys: Path) -> None:
    assert run("--all", "--output", toys).code == 0
    page = (toys / "verdicts.md").read_text()
    assert "| [toys table1](toys/table1.md) | values rise | replicated | 2 of 2 |" in page


def test_a_cell_that_fails_is_one_line_after_the_tables(run, toys: Path) -> None:
    ASKED["cpu"] = [{"value": 1.0}, {"value": 2.0, "fails": True}, {"value": 3.0}]
    found = run("toys", "table1", "--output", toys)
    assert found.code == 2
    assert "3.0    3.00 ± 0.00" in found.out
    assert "2.0    not run" in found.out
    assert found.err.splitlines()[-1] == (
        "papers: error: 2 jobs failed, the others are kept; toy value=2 fails=True, seed 0: "
        "it cannot be done"
    )


def test_numbers_that_are_none(run, toys: Path) -> None:
    """NaN, and a training that diverged: no number, and the page says why."""
    ASKED["cpu"] = [{"value": "nan"}, {"value": 2.0, "diverges": True}, {"value": 3.0}]
    found = run("toys", "table1", "--output", toys)
    assert found.code == 0
    assert "nan    not run\n2.0    not run\n3.0    3.00" in found.out
    note = "has no numbers: training diverged: the loss is not finite at step 3"
    assert found.out.count(note) == 2
    assert note in (toys / "toys" / "table1.md").read_text()


def test_a_dry_run_resolves_every_name_and_runs_nothing(run, toys: Path) -> None:
    ASKED["paper"] = [{"value": 1.0}, {"value": 2.0, "needs": "wiki"}]
    found = run("--all", "--scale", "paper", "--dry-run", "--output", toys)
    assert found.code == 0
    assert found.out.splitlines() == [
        "toys              figure2    0 jobs, ready",
        "toys              table1     4 jobs, needs what is not here: 1",
        "4 different jobs; every name in them resolves",
        "not here: wiki: there is none",
    ]
    assert not toys.exists()
    ASKED["paper"] = [{"value": 1.0, "colour": "blue"}]
    found = run("--all", "--scale", "paper", "--dry-run", "--output", toys)
    assert found.code == 2
    assert found.err == (
        "papers: error: toys table1: toy value=1 colour=blue, seed 0: unknown setting 'colour'\n"
    )


def test_missing_data_are_told_before_anything_runs(run, toys: Path) -> None:
    ASKED["cpu"] = [{"value": 1.0}, {"value": 2.0, "needs": "wiki"}]
    found = run("toys", "--output", toys)
    assert found.code == 2
    assert "not on this machine: wiki: there is none. --dry-run says" in found.err
    assert found.out == ""
    assert asked_for(toys) == []
    found = run("toys", "table1", "--output", toys, "--skip-missing")
    assert found.code == 0
    assert found.err.startswith("left out: wiki: there is none\n2 jobs to run")
    assert "1.0    1.00 ± 0.00\n2.0    not run" in found.out
    assert "cells: 2 of 4 run" in (toys / "toys" / "table1.md").read_text()


def test_a_read_only_output_is_told_before_anything_runs(run, toys: Path) -> None:
    toys.write_text("a file")
    found = run("toys", "table1", "--output", toys)
    assert found.code == 2
    assert "cannot write" in found.err
    assert found.err.count("\n") == 1
    assert found.out == ""


def test_what_was_kept_and_edited_is_named(run, toys: Path) -> None:
    run("toys", "--output", toys)
    with (toys / "cells" / "toy.jsonl").open("a") as file:
        file.write("{}\n")
    found = run("toys", "--output", toys)
    assert found.code == 2
    assert "toy.jsonl:5 is not a result of a job" in found.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["toy"], "unknown paper 'toy' (did you mean 'toys'?)"),
        (["toys", "tabel1"], "toys has no 'tabel1' (did you mean 'table1'?)"),
        (["toys", "--all"], "--all means every paper; found toys too"),
        (["toys", "--smoke", "--scale", "cpu"], "--smoke is --scale smoke; found --scale cpu too"),
        (["toys", "--scale", "huge"], "invalid choice: 'huge'"),
        (["toys", "--jobs", "0"], "--jobs must be 1 or more; found 0"),
        (["toys", "--minutes", "0"], "--minutes must be more than 0; found 0"),
        (["toys", "--minutes", "nan"], "--minutes must be more than 0; found nan"),
        (["toys", "--show", "--dry-run"], "two questions"),
        (["toys", "--data", "nowhere"], "--data: there is no folder nowhere"),
        (["toys", "--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_what_is_wrong_is_one_line(run, toys: Path, arguments: list[str], said: str) -> None:
    found = run(*arguments, "--output", toys)
    assert found.code == 2
    assert said in found.err
    assert found.err.count("\n") == 1
    assert found.out == ""
    assert not toys.exists()


def test_ctrl_c_keeps_what_is_finished(run, toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from papers.machinery.store import JobStore

    plain = JobStore.keep

    def keep(self, job, result) -> None:
        plain(self, job, result)
        if job.settings["value"] == 2.5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(JobStore, "keep", keep)
        found = run("toys", "table1", "--output", toys)
    assert found.code == 130
    assert found.err.endswith("papers: interrupted\n")
    assert "cells: 2 of 4 run" not in found.out
    assert run("toys", "table1", "--output", toys).code == 0
    assert len(asked_for(toys)) == 4
