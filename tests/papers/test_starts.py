"""What an exchange gains by the start: which starts, and what waits for what."""

import json
from pathlib import Path

from isotrope.core import Result
from papers import starts, text_protocol
from papers.machinery.data_registry import RAW
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore
from papers.text_command import RESULTS, stored

SCORES = (30.0, 45.0, 31.0, 33.1, 40.0, 20.0, 25.2, 34.0)
SIX = [{"name": f"raw-{i}", "dev": 20.0 + 5 * i, "step": 100 * i} for i in range(6)]


def test_starts_are_taken_by_their_score_alone():
    rows = [{"name": f"raw-{i}", "dev": dev, "step": i} for i, dev in enumerate(SCORES)]
    assert [row["dev"] for row in starts.chosen(rows)] == [20.0, 25.2, 30.0, 34.0, 40.0, 45.0]


def test_rates_are_chosen_at_two_starts_and_the_others_take_those_of_the_nearer():
    raw = stored(RAW, RESULTS)
    trials = starts.rates(SIX, raw)
    assert {start for _, start in trials} == {"raw-1", "raw-4"}

    def find(job: PaperJob) -> Result:
        best = starts.RATES[0 if job.settings["encoder"] == "raw-1" else 2]
        return Result("text", "", {"dev best": float(job.settings["learning_rate"] == best)})

    assert starts.finals(SIX, lambda job: None, raw) == {}
    finals = starts.finals(SIX, find, raw)
    assert len(finals) == 10 * 6
    rates = [finals["mhe", start["name"]][0].settings["learning_rate"] for start in SIX]
    assert rates == [starts.RATES[0]] * 3 + [starts.RATES[2]] * 3
    seeds = [job.seed for job in finals["mhe", "raw-0"]]
    assert seeds == list(text_protocol.SEEDS)


def test_hyperparameters_are_those_chosen_on_the_reference_encoder():
    raw = stored(RAW, RESULTS)
    trials = starts.rates(SIX, raw)
    job = trials["barlowtwins", "raw-1"][0][1]
    assert job.settings["objective.weight"] == 3


def test_the_starts_of_the_results_are_recorded():
    file: Path = starts.RESULTS / "starts.json"
    if file.is_file():
        record = json.loads(file.read_text(encoding="utf-8"))
        assert record["starts"] == starts.chosen(record["candidates"])


def test_gains_are_paired_and_their_slope_is_told(tmp_path: Path) -> None:
    assert "Not known yet" in starts.sentence(tmp_path)
    assert starts.page(tmp_path) is None
    (tmp_path / "starts.json").write_text(json.dumps({"starts": SIX}))
    store, raw = JobStore(tmp_path / "cells"), stored(RAW, RESULTS)
    for trials in starts.rates(SIX, raw).values():
        for rate, job in trials:
            store.keep(job, Result("text", "", {"dev best": float(rate == starts.RATES[1])}))
    for (name, start), jobs in starts.finals(SIX, store.find, raw).items():
        for job in jobs[:2]:
            gain = 0.5 * next(row["dev"] for row in SIX if row["name"] == start)
            score = 20.0 + job.seed + gain * (name == "modifiedmhe")
            store.keep(job, Result("text", "", {"average best": score}))
    assert "mhe +0.50 (+0.50 to +0.50)" in starts.sentence(tmp_path)
    made = starts.page(tmp_path)
    assert made is not None
    assert "| mhe | +10.00 (+10.00 to +10.00) |" in made[0]
    assert made[1].svg.startswith(b"<?xml")
