"""The protocol: equal budgets, stages that wait for each other, and what claims are decided by."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from isotrope.core import InputError, Result
from isotrope.encoders import SentenceEncoder
from isotrope.paradigm import registry
from papers import bench, image_trainings, text_command, text_tables
from papers import text_protocol as protocol
from papers.machinery.claims import LOOKS, claims
from papers.machinery.data_registry import RAW, DataRegistry
from papers.machinery.job import PaperJob
from papers.machinery.store import JobStore
from papers.text_protocol import LOSSES, SCHEDULE, SEEDS, SEEDS_AGAIN, STAGES, rates

RATES = rates(RAW)
TUNED = [loss for loss in LOSSES.values() if loss.grid]


def nothing(job: PaperJob) -> None:
    return None


def result(dev: float = 1.0, **more: float) -> Result:
    return Result("text", "x", {"dev best": dev, "dev last": dev, **more})


def everything(job: PaperJob) -> Result:
    """The second rate is the best, and with it the last of a grid's sets."""
    rate, settings = job.settings["learning_rate"], job.settings
    grids = [list(loss.grid) for loss in TUNED if loss.objective == settings["objective"]]
    own = {k.partition(".")[2]: v for k, v in settings.items() if k.startswith("objective.")}
    return result(2.0 * (rate == RATES[1]) + any(own == grid[-1] for grid in grids))


def test_every_loss_has_the_same_budget():
    assert len(TUNED) == 20
    for loss in TUNED:
        shorts = {protocol.short(RAW, loss, v, RATES[0]) for v in (loss.values, *loss.grid)}
        assert len(shorts) == 6, f"{loss.name}: the published values are one of six"
    counts = Counter(len(loss.grid) for loss in LOSSES.values())
    assert counts == {6: 20, 0: 8}, "seven steps of table 5 and the baseline are not tuned"


@pytest.mark.parametrize("loss", LOSSES.values(), ids=lambda loss: loss.name)
def test_every_set_of_hyperparameters_can_be_built(loss: protocol.ProtocolLoss):
    for values in (loss.values, *loss.grid):
        built = registry.build(loss.objective, values)
        if "variant" not in values and hasattr(built, "variant"):
            assert built.variant == "paper"


def test_a_stage_waits_for_what_it_depends_on():
    counts = {stage: len(set(protocol.jobs(stage, RAW, nothing))) for stage in STAGES}
    assert counts == {**dict.fromkeys(STAGES, 0), "start": 1, "rates": 112}
    counts = {stage: len(set(protocol.jobs(stage, RAW, everything))) for stage in STAGES}
    assert counts == {
        "start": 1,
        "rates": 112,
        "settings": 120,
        "final": 135,
        "curves": 41,
        "passes": 18,
        "again": 160,
        "held": 60,
    }


def test_what_a_claim_needs_is_trained_together_and_everything_once():
    stages = dict.fromkeys(stage for stage, _ in SCHEDULE)
    assert set(stages) == set(STAGES)
    for stage in STAGES:
        groups = [names or tuple(LOSSES) for which, names in SCHEDULE if which == stage]
        scheduled = [
            job for names in groups for job in protocol.jobs(stage, RAW, everything, names)
        ]
        assert set(scheduled) == set(protocol.jobs(stage, RAW, everything)), stage
    first = next(names for _, names in SCHEDULE if names)
    assert len(first) == 12, "table 3"
    assert {"infonce", "barlowtwins", "modifiedbarlowtwins"} <= set(first)


@pytest.mark.parametrize("name", ["barlowtwins", "vicreg", "mhe", "mhs"])
def test_the_held_step_exchanges_the_dissipation_and_nothing_else(name: str):
    names = (f"{name} held", f"{name} held GD printed", f"{name} held GD released")
    original, *steps = (protocol.trainings(RAW, everything, which)[0].settings for which in names)
    assert {s["learning_rate"] for s in (original, *steps)} == {RATES[1]}
    noise = torch.Generator().manual_seed(0)
    anchors, positives = torch.randn(2, 16, 8, dtype=torch.float64, generator=noise)
    positives += anchors

    def gradient(settings: Mapping[str, object], **other: object) -> torch.Tensor:
        values = {k[10:]: v for k, v in settings.items() if k.startswith("objective.")}
        loss = registry.build(str(settings["objective"]), {**values, **other})
        a, b = (x.clone().requires_grad_() for x in (anchors, positives))
        return torch.cat(torch.autograd.grad(loss(a, b), (a, b)))

    whole = gradient(original)
    for factor, open_gate, step in zip(
        (0.5, 1.0), ({"dissipation": "margin:5"}, {"margin": 5.0}), steps, strict=True
    ):
        torch.testing.assert_close(gradient(step, **open_gate), factor * whole)
        assert (gradient(step) - factor * whole).norm() > 0.1 * whole.norm(), "its gate closes"


def test_all_losses_have_a_first_seed_before_one_has_a_second():
    seeds = [job.seed for job in protocol.jobs("final", RAW, everything)]
    assert seeds == sorted(seeds)


def test_the_best_of_a_stage_is_what_the_next_goes_on_with():
    for job in protocol.trainings(RAW, everything, "infonce"):
        assert job.settings["learning_rate"] == RATES[1]
        assert job.settings["objective.temperature"] == LOSSES["infonce"].grid[-1]["temperature"]
        assert (job.settings["max_steps"], job.settings["ends"]) == (500, ["best"])
    (step, *_) = protocol.trainings(RAW, everything, "modifiedmhe GD")
    whole = LOSSES["modifiedmhe"].grid[-1]
    assert step.settings["objective.step"] == "GD"
    assert step.settings["objective.ratio"] == whole["ratio"]
    assert step.settings["objective.variant"] == "released"


def test_a_training_that_diverged_is_never_the_best():
    jobs = [(rate, PaperJob("text", {"learning_rate": rate})) for rate in RATES]
    scores = dict(zip((job for _, job in jobs), (3.0, None, 9.0, 8.0), strict=True))

    def find(job: PaperJob) -> Result:
        score = scores[job]
        return Result("text", "x", {} if score is None else {"dev best": score})

    assert protocol.best(jobs, find) == RATES[2]
    assert protocol.best(jobs, nothing) is None


def test_seeds_that_are_judged_have_chosen_nothing():
    choosing = {
        job.seed for s in ("rates", "settings") for job in protocol.jobs(s, RAW, everything)
    }
    assert choosing.isdisjoint(SEEDS)
    assert {job.seed for job in protocol.jobs("final", RAW, everything)} == set(SEEDS)
    again = {job.seed for job in protocol.jobs("again", RAW, everything)}
    assert again.isdisjoint({*choosing, *SEEDS})
    assert len(SEEDS) == LOOKS[0][0]
    assert len(SEEDS) + len(again) == LOOKS[1][0]


def test_a_confirming_encoder_takes_the_settings_of_another_and_chooses_nothing():
    (name, chosen_on), *_ = protocol.CONFIRMING.items()
    asked = []

    def find(job: PaperJob) -> Result:
        asked.append(job.settings["encoder"])
        return everything(job)

    (start, *_), *finals = (
        protocol.jobs(stage, name, find, names or tuple(LOSSES))
        for stage, names in protocol.schedule(name)
    )
    assert set(asked) == {chosen_on}
    assert start == protocol.start(name)
    assert [len(group) for group in finals] == [8 * 5, 4 * 5]
    for job in itertools.chain(*finals):
        assert (job.settings["encoder"], job.settings["scores"]) == (name, ["sts"])
    of_first = {
        (loss, job.seed): {**job.settings, "encoder": name, "scores": ["sts"]}
        for loss in LOSSES
        for job in protocol.trainings(RAW, everything, loss)
    }
    for loss in ("mhs", "modifiedmhs", "infonce"):
        for job in protocol.trainings(name, everything, loss):
            assert job.settings == of_first[loss, job.seed]
    assert len(protocol.planned(name, everything)) == 61


def test_results_of_two_encoders_are_found_where_each_has_them(tmp_path: Path):
    (name, chosen_on), *_ = protocol.CONFIRMING.items()
    jobs = [protocol.start(encoder) for encoder in (name, chosen_on)]
    for job in jobs:
        folder = tmp_path / job.settings["encoder"] / "cells"
        JobStore(folder).keep(job, result(1.0, seed=float(job.settings["encoder"] == name)))
    find = text_command.stored(name, tmp_path)
    assert [find(job).metrics["seed"] for job in jobs] == [1.0, 0.0]
    store = JobStore(tmp_path / name / "cells")
    find = text_command.stored(name, tmp_path, store)
    later = protocol.start(name).seeded(9)
    assert find(later) is None
    store.keep(later, result(3.0))
    assert find(later).metrics["dev best"] == 3.0, "what is kept in this process is found"


def test_more_seeds_repeat_the_final_trainings():
    for name in LOSSES:
        first = protocol.trainings(RAW, everything, name)
        for job in protocol.again(RAW, everything, name):
            kept = {k: v for k, v in job.settings.items() if k != "scores"}
            assert kept == {k: v for k, v in first[0].settings.items() if k != "scores"}
    values = protocol.measured(RAW, lambda job: result(2.0, **{"average best": float(job.seed)}))
    assert set(values("mat", "average")) == set(range(1, 16))
    assert set(values("vicreg", "average")) == set(SEEDS)


def test_every_name_of_a_claim_is_a_training():
    for claim in claims():
        for name in (*claim.a, *claim.b):
            found = (
                image_trainings.trainings(name)
                if claim.on == "images"
                else protocol.trainings(RAW, everything, name)
            )
            assert found, f"{claim.id}: {name}"


def test_a_metric_is_read_from_the_results_of_all_seeds():
    looks = [
        {"step": step, "dev contrastive": value, "positive cosine": value / 10}
        for step, value in ((0, 9.0), (125, 4.0), (250, 2.0), (375, 2.5))
    ]
    one = result(50.0, **{"average best": 40.0, "transfer best": 70.0, "dev last": 47.0})
    one = dataclasses.replace(one, details={"looks": looks})
    finals = set(protocol.trainings(RAW, everything, "infonce"))

    def find(job: PaperJob) -> Result | None:
        if job in finals:
            return one if job.seed != SEEDS[0] else None
        return everything(job) if job.seed not in SEEDS_AGAIN else None

    values = protocol.measured(RAW, find)
    expected = {
        "average": 40.0,
        "transfer": 70.0,
        "average - transfer": -30.0,
        "dev": 50.0,
        "positive cosine": 0.25,
        "dev contrastive regained": 0.25,
    }
    for metric, value in expected.items():
        assert values("infonce", metric) == dict.fromkeys(SEEDS[1:], value), metric
    assert values("dcl", "average") == {}


def test_before_training_is_the_same_for_every_seed():
    found = result(20.0, **{"average first": 23.0})
    values = protocol.measured(RAW, lambda job: found if "first" in job.settings["ends"] else None)
    assert values("before training", "average") == dict.fromkeys(SEEDS, 23.0)


@pytest.mark.parametrize(
    ("course", "share"),
    [
        ([4.0, 2.0, 2.5], 0.25),
        ([4.0, 2.0], 0.0),
        ([4.0, 2.0, 5.0], 1.5),
        ([1.0, 2.0], None),
        ([None, None], None),
        ([], None),
    ],
)
def test_what_is_regained_is_a_share_of_the_fall(course: list, share: float | None):
    assert protocol.regained(course) == share


def test_the_claims_are_shown_without_any_training(tmp_path: Path):
    job = protocol.start(RAW)
    JobStore(tmp_path / RAW / "cells").keep(job, result(30.0, **{"average first": 23.0}))
    (tmp_path / "data").mkdir()
    given = ["--show", "--output", str(tmp_path), "--data", str(tmp_path / "data")]
    assert text_command.run(given) == 0
    page = (tmp_path / RAW / "claims.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "Nie" in line]
    assert any(row.endswith("| not testable here |") for row in rows)
    assert sum(row.endswith("| undecided |") for row in page.splitlines()) == 67


def test_tables_show_what_there_is(tmp_path: Path):
    first = result(
        20.0, **{"dev first": 28.78, "average first": 23.0, "average whitened first": 45.0}
    )
    finals = {job: 40.0 + job.seed for job in protocol.trainings(RAW, everything, "mpt")}

    def find(job: PaperJob) -> Result | None:
        if job == protocol.start(RAW):
            return first
        if job in finals:
            found = result(50.0, **{"average best": finals[job]})
            parts = [{"step": 0, "ratio": 9.0}, {"step": 1_999, "ratio": 1.0, "dissipation": 0.25}]
            return dataclasses.replace(found, details={"components": parts})
        return everything(job) if job.settings["max_steps"] == 250 else None

    lines = text_tables.tables(RAW, find).splitlines()
    assert "| before training | - | - | 28.78 | 23.00 | - | - | - | - |" in lines
    assert "| whitened | - | - | - | 45.00 | - | - | - | - |" in lines
    assert "| mpt | margin=0.8 | 0.001 | 50.00 ± 0.00 | 43.00 ± 1.58 | - | 0.25 | - | 1 |" in lines
    assert "| infonce | temperature=0.3 | 0.001 | - | - | - | - | - | - |" in lines
    assert "| mpt | margin=0.23 | 0.00 | **2.00** | 0.00 | 0.00 |" in lines
    nothing_yet = text_tables.tables(RAW, nothing).splitlines()
    assert "| mpt | margin=0.23 | - | - | - | - |" in nothing_yet


def test_it_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"stages are start, rates, .* found 'rate'"):
        text_command.run(["rate", "--data", str(tmp_path)])
    with pytest.raises(InputError, match="--data: there is no folder"):
        text_command.run(["--data", str(tmp_path / "none")])
    given = ["--encoder", "raw-2x128-pmi-seed7", "--output", str(tmp_path / "out")]
    with pytest.raises(
        InputError, match=r"raw-2x128-pmi-seed7: `python -m papers encoder raw-2x128-pmi"
    ):
        text_command.run(["--data", str(tmp_path), *given])


def test_trainings_of_another_encoder_of_that_name_are_not_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name, data = "raw-1x64-seed0", tmp_path / "data"
    here = SentenceEncoder.scratch(["a river", "a stone"], vocabulary=100, layers=1)
    here.save(tmp_path / "cache/isotrope/papers/encoders" / name)
    (data / "sts").mkdir(parents=True)
    (data / "transfer").mkdir()
    (data / "corpus").mkdir()
    (data / "corpus/wiki_en_1m.txt.gz").touch()
    loss = protocol.LOSSES["infonce"]
    job = protocol.short(name, loss, loss.values, 1e-3)
    other = dataclasses.replace(result(30.0), details={"encoder": "of another machine"})
    JobStore(tmp_path / name / "cells").keep(job, other)
    given = ["rates", "--encoder", name, "--output", str(tmp_path), "--data", str(data)]
    with pytest.raises(InputError, match=r"is another encoder here \(.*of another machine"):
        text_command.run(given)
    given = ["infonce", "--encoder", name, "--output", str(tmp_path), "--data", str(data)]
    with pytest.raises(InputError, match=r"is another encoder here \(.*of another machine"):
        bench.run(given)


def test_encoders_that_know_sentences_have_smaller_rates_and_names_of_their_own(tmp_path):
    assert max(rates("trained")) == min(rates(RAW))
    places = DataRegistry(tmp_path, tmp_path)
    (lacking,) = places.missing_encoder("disturbed")
    assert "standin-mlm" in lacking
    assert places.encoder("trained") == "all-MiniLM-L6-v2"
