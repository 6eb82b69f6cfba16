"""What an exchange gains by the start: which starts, and what waits for what."""

import json
from pathlib import Path

from isotrope.core import Result
from papers import starts
from papers.machinery.data_registry import RAW
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore
from papers.text_command import RESULTS, stored

SCORES = (30.0, 45.0, 31.0, 33.1, 40.0, 20.0, 25.2, 34.0)
SIX = [{"name": f"raw-{i}", "dev": 20.0 + 5 * i, "step": 100 * i} for i in range(6)]
OTHERS = [{"name": f"raw-b{i}", "dev": 21.0 + 3 * i, "step": 100 * i} for i in range(6)]


def test_starts_are_taken_by_their_score_alone():
    rows = [{"name": f"raw-{i}", "dev": dev, "step": i} for i, dev in enumerate(SCORES)]
    assert [row["dev"] for row in starts.chosen(rows)] == [20.0, 25.2, 30.0, 34.0, 40.0, 45.0]


def test_rates_are_chosen_at_two_starts_and_the_others_take_those_of_the_nearer():
    raw = stored(RAW, RESULTS)
    trials = starts.rates({1: SIX, 2: OTHERS}, raw)
    assert {start for _, start in trials} == {"raw-1", "raw-4"}

    def find(job: PaperJob) -> Result:
        best = starts.RATES[0 if job.settings["encoder"] == "raw-1" else 2]
        return Result("text", "", {"dev best": float(job.settings["learning_rate"] == best)})

    assert starts.finals({1: SIX, 2: OTHERS}, lambda job: None, raw) == {}
    finals = starts.finals({1: SIX, 2: OTHERS}, find, raw)
    assert len(finals) == 10 * 2
    low, high = starts.RATES[0], starts.RATES[2]
    rates = [[job.settings["learning_rate"] for job in finals["mhe", seed]] for seed in (1, 2)]
    assert rates == [[low] * 3 + [high] * 3, [low] * 4 + [high] * 2]
    assert {(job.seed, job.settings["encoder"][:5]) for job in finals["mhe", 2]} == {(2, "raw-b")}


def test_hyperparameters_are_those_chosen_on_the_reference_encoder():
    raw = stored(RAW, RESULTS)
    trials = starts.rates({1: SIX, 2: OTHERS}, raw)
    job = trials["barlowtwins", "raw-1"][0][1]
    assert job.settings["objective.weight"] == 3


def test_the_starts_of_the_results_are_recorded():
    assert starts.recorded()
    for seed, six in starts.recorded().items():
        assert seed in starts.SEEDS
        assert len(six) == starts.COUNT
        assert six == sorted(six, key=lambda row: row["dev"])


def test_gains_are_paired_and_their_slope_is_told(tmp_path: Path) -> None:
    assert "Not known yet" in starts.sentence(tmp_path)
    assert starts.page(tmp_path) is None
    both = {1: SIX, 2: OTHERS}
    (tmp_path / "starts.json").write_text(json.dumps(both))
    store, raw = JobStore(tmp_path / "cells"), stored(RAW, RESULTS)
    for trials in starts.rates(both, raw).values():
        for rate, job in trials:
            store.keep(job, Result("text", "", {"dev best": float(rate == starts.RATES[1])}))
    for (name, seed), jobs in starts.finals(both, store.find, raw).items():
        for job, start in zip(jobs, both[seed], strict=True):
            if (name, seed) != ("vicreg", 2):  # not complete, so it is left out
                gain = 0.5 * start["dev"] * (name == "modifiedmhe")
                store.keep(job, Result("text", "", {"average best": 20.0 + seed + gain}))
    assert "mhe +0.50 (+0.50 to +0.50), n=2;" in starts.sentence(tmp_path)
    assert "vicreg +0.00, n=1 (" in starts.sentence(tmp_path)
    made = starts.page(tmp_path)
    assert made is not None
    assert "| mhe | +10.25 (+8.67 to +11.83) |" in made[0]
    assert made[1].svg.startswith(b"<?xml")
