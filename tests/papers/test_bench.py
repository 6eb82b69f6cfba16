"""A loss of one's own gets the budget of every loss, and its row beside theirs."""

from pathlib import Path

import pytest

from isotrope.core import InputError, Result
from papers import bench
from papers import text_protocol as protocol
from papers.machinery import runner
from papers.machinery.data_registry import RAW
from papers.machinery.store import JobStore
from papers.text_command import stored

CODE = '''
from isotrope.objectives import InfoNCE
from isotrope.core.hyper import Paper


class {name}(InfoNCE, paper=Paper("A loss", "Nobody, 2026", "here")):
    """InfoNCE by another name.

    Loss: that of InfoNCE.
    """
'''


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list:
    """Jobs that would have been trained: the third rate is the best, a seed scores its number."""
    done = []

    def run(jobs, store, sources, runs, **options):
        for job in jobs:
            if store.find(job) is None:
                done.append(job)
                dev = 2.0 * (job.settings["learning_rate"] == protocol.rates("raw")[2])
                scores = {"dev best": dev, "average best": 40.0 + job.seed}
                store.keep(job, Result("text", "x", scores))
        return {}

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(runner, "missing_data", lambda jobs, sources: {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return done


def test_a_loss_in_a_file_gets_four_rates_and_seeds_at_the_best(trained, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(CODE.format(name="MineToBench"), encoding="utf-8")
    arguments = [str(file), "--set", "temperature=0.1", "--seeds", "3", "--output", str(tmp_path)]
    assert bench.run(arguments) == 0
    rates = [(job.settings["learning_rate"], job.seed) for job in trained]
    assert rates[:4] == [(rate, 0) for rate in protocol.rates("raw")]
    assert rates[4:] == [(protocol.rates("raw")[2], seed) for seed in (1, 2, 3)]
    assert {job.settings["objective.temperature"] for job in trained} == {0.1}
    assert all(job.settings["plugin"] == [str(file)] for job in trained)
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.startswith("| **minetobench** | temperature=0.1")
    assert "| 0.003 | 2.00 ± 0.00 | 42.00 ± 1.00 | - |" in row
    assert row.endswith("| 2.00 |"), "the best of its four rates"
    assert bench.run(arguments) == 0
    assert len(trained) == 7, "what was measured is not measured again"
    file.write_text(file.read_text(encoding="utf-8") + "\n# another\n", encoding="utf-8")
    assert bench.run(arguments) == 0
    assert len(trained) == 14, "other code is another loss"


def test_its_row_stands_below_those_that_were_measured(trained, tmp_path, capsys):
    encoder = RAW
    store = JobStore(tmp_path / encoder / "cells")
    start = Result("text", "x", {"dev first": 28.0, "average first": 19.6})
    store.keep(protocol.start(encoder), start)
    assert bench.run(["dcl", "--seeds", "1", "--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split(" | ")[0] for line in lines[2:]]
    assert names == ["| loss", "| ---", "| before training", "| **dcl**"]
    assert "plugin" not in trained[0].settings


@pytest.mark.parametrize("encoder", [RAW, *protocol.CONFIRMING])
def test_the_other_losses_are_tuned_and_the_page_says_so(trained, tmp_path, capsys, encoder):
    mpt, where = protocol.LOSSES["mpt"], protocol.tuned_on(encoder)
    tuning = JobStore(tmp_path / where / "cells")
    for place, rate in enumerate(protocol.rates(where)):
        job = protocol.short(where, mpt, mpt.values, rate)
        tuning.keep(job, Result("text", "", {"dev best": 30.0 - place}))
    for values in mpt.grid:
        job = protocol.short(where, mpt, values, protocol.rates(where)[0])
        if tuning.find(job) is None:
            tuning.keep(job, Result("text", "", {"dev best": 35.0}))
    final = protocol.trainings(encoder, stored(encoder, tmp_path), "mpt")
    store = JobStore(tmp_path / encoder / "cells")
    for job in final:
        store.keep(job, Result("text", "", {"dev best": 40.0, "average best": 50.0}))
    assert bench.run(["dcl", "--seeds", "1", "--encoder", encoder, "--output", str(tmp_path)]) == 0
    first, *_, other, mine = capsys.readouterr().out.splitlines()
    assert f"the best of six settings, chosen on dev on {where}" in first
    untuned = "30.00" if encoder == where else "-"
    assert other.startswith("| mpt | margin=0.15 | 0.0003 | 40.00 ± 0.00 | 50.00 ± 0.00 |")
    assert other.endswith(f"| {untuned} |")
    assert mine.endswith("| 2.00 |")


def test_it_says_what_is_wrong(trained, tmp_path):
    file = tmp_path / "two.py"
    file.write_text(CODE.format(name="BenchOne") + CODE.format(name="BenchTwo"), encoding="utf-8")
    with pytest.raises(
        InputError, match=r"defines benchone, benchtwo: choose one, .*two.py:benchone"
    ):
        bench.run([str(file)])
    with pytest.raises(
        InputError, match=r"--set takes NAME=VALUE, such as .*; found 'temperature'"
    ):
        bench.run(["dcl", "--set", "temperature"])
    assert not trained
