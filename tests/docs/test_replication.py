"""The page on replication and its forest plot are those of the measurements that are committed."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from docs.generate.errata_page import errata
from docs.generate.replication_page import (
    LARGE,
    claims_page,
    forest_plot,
    judged_claims,
    missing_trainings,
    other_encoders,
    replication_page,
)
from isotrope.core.result import Result
from papers import text_protocol
from papers.machinery.claims import claims, judge_claim, reference_encoder
from papers.machinery.data_registry import RAW
from papers.machinery.rule import judge, judge_not_behind
from papers.machinery.store import JobStore
from papers.text_command import stored

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "replication.md"  # as generated: the first test


def test_the_pages_are_generated() -> None:
    judged = judged_claims()
    for name, text in (
        ("replication.md", replication_page(judged)),
        ("replication.svg", forest_plot(judged)),
        ("results/claims.md", claims_page(judged)),
    ):
        assert (DOCS / name).read_text(encoding="utf-8") == text, "make docs"
    assert len(replication_page(judged).split()) < 1670, "it is short"


def test_the_first_page_names_what_speaks_against_the_papers_too() -> None:
    judged = [row for row in judged_claims() if not row[0].follows]
    count = Counter(judgement.word for _, judgement in judged)
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"{count['replicated']} of {len(judged)} claims replicate" in readme, "README, Numbers"
    assert f"{count['opposite']} come out opposite" in readme
    numbered = sum(row.kind in ("result", "misprint") for row in errata())
    assert f"[{numbered} errata]" in readme
    assert f"[{numbered} errata]" in replication_page(judged_claims())
    by_id = {claim.id: judgement for claim, judgement in judged}
    encoders = (by_id, *other_encoders(DOCS.parent / "papers" / "results" / "text").values())
    for name in ("mhe", "barlowtwins", "vicreg", "mhs"):
        every = [of[f"li-table3-{name}"] for of in encoders]
        assert [one.change.count for one in every] == [5, 3, 5]
        halves = [(high - low) / 2 for low, high in (one.interval for one in every)]
        shown = (f"{j.change.mean:.1f} ± {h:.1f}" for j, h in zip(every, halves, strict=True))
        assert f"| {'; '.join(shown)} |" in readme


def test_the_words_on_top_are_those_of_the_verdicts() -> None:
    judged = {claim.id: judgement for claim, judgement in judged_claims()}
    words: dict[str, set[str]] = {}
    for name, judgement in judged.items():
        words.setdefault(judgement.word, set()).add(name)
    others = other_encoders(DOCS.parent / "papers" / "results" / "text")
    gained = set(LARGE)
    assert gained <= words["replicated"]
    known = {"replicated", "same direction, uncertain size"}
    for of in (judged, *others.values()):
        assert {of[name].word for name in gained} <= known
    mhs = sorted(of["li-table3-mhs"].word for of in (judged, *others.values()))
    assert mhs == ["opposite", "replicated", "undecided"]
    for name in ("mhe", "barlowtwins", "vicreg"):  # the step that gains
        assert judged[f"li-table5-{name}-weight"].word == "replicated"
        assert judged[f"li-table5-{name}-dissipation"].word == "not tested"
    for name in ("barlowtwins", "vicreg"):
        assert judged[f"li-table4-{name}"].word == "opposite"
        assert others["raw-2x128-pmi-seed0"][f"li-table4-{name}"].word == "undecided"
    assert {"nie-table1-infonce-dcl", "nie-table1-infonce-alignuniform"} <= words["replicated"]
    assert {"nie-table1-met-infonce", "nie-table1-mat-infonce"} <= words["not tested"]
    assert {"li-table3-mhs", "li-figure6-ratio-above", "manna-table2-byol"} <= words["opposite"]
    nie = {claim.id for claim in claims() if claim.paper == "Nie et al. 2023"}
    tested = nie - words["not testable here"] - words["not tested"]
    assert 2 * len(nie & words["undecided"]) > len(tested)
    manna = {claim.id for claim in claims() if claim.paper == "Manna et al. 2023"}
    assert len(manna & words["replicated"]) == 6
    assert "manna-table2-simclr" in words["undecided"]
    page = replication_page(judged_claims())
    assert "BYOL 33.0" in claims_page(judged_claims())
    assert "After 8 epochs: MIOv2; BYOL." in page
    for name in ("simclr", "simsiam", "byol"):  # with cuts, but without the warm-up
        small, recipe = (judged[f"draganov-table3-{name}{way}"] for way in ("", "-recipe"))
        assert small.word == recipe.word == "not tested"
        assert recipe.change.interval[1] < 0
        assert (small.change.interval[0] > 0) == (name != "simsiam")


def test_the_words_on_intervals_and_transfer_are_those_of_the_measurements() -> None:
    encoder = reference_encoder()
    text = DOCS.parent / "papers" / "results" / "text"
    values = text_protocol.measured(encoder, stored(encoder, text))
    before = values("before training", "transfer")
    after = {name: values(name, "transfer") for name in text_protocol.LOSSES}
    first = {
        name: [of[seed] for seed in text_protocol.SEEDS] for name, of in after.items() if 1 in of
    }
    assert len(first) == 20
    assert all(fmean(of) < fmean(before.values()) for of in first.values())
    assert f"({before[1]:.1f} at the start)" in PAGE.read_text(encoding="utf-8")
    claim = next(claim for claim in claims() if claim.id == "li-table3-mhe")
    seed1 = text_protocol.measured(f"{encoder}-seed1", stored(f"{encoder}-seed1", text))
    here, there = judge_claim(claim, values), judge_claim(claim, seed1)
    assert there.interval[1] < here.interval[0]


def test_the_noise_of_the_tuning_is_that_of_its_trainings() -> None:
    encoder = reference_encoder()
    values = text_protocol.measured(
        encoder, stored(encoder, DOCS.parent / "papers" / "results" / "text")
    )
    names = ("", " margin=1", " temperature=0.3", " ratio=0.25", " ratio=2")
    spreads = sorted(stdev(values(f"baseline{name}", "dev").values()) for name in names)
    said = f"standard deviations of {spreads[0]:.1f} to {spreads[-1]:.1f} points"
    assert said in PAGE.read_text(encoding="utf-8")


def test_a_claim_for_and_against_the_paper_is_named_as_such() -> None:
    judged = judged_claims()
    others = other_encoders(DOCS.parent / "papers" / "results" / "text").values()
    by_id = {claim.id: judgement.word for claim, judgement in judged}
    (line,) = [
        s for s in PAGE.read_text(encoding="utf-8").splitlines() if s.startswith("- **The encoder")
    ]
    named = line.partition("For the paper on one encoder, against it on another: ")[2]
    for_it = {"replicated", "same direction, uncertain size"}
    for claim in (c for c, _ in judged if c.headline and c.on == "text"):
        words = {by_id[claim.id], *(of[claim.id].word for of in others if of[claim.id].change)}
        turned = bool(words & for_it) and bool(words & {"opposite", "smaller than a quarter"})
        assert (f'"{claim.headline}"' in named) == turned, claim.id


def test_what_is_excused_once_is_excused_everywhere() -> None:
    by_id = {claim.id: claim for claim in claims()}
    for claim in claims():
        if claim.untested or claim.untestable:
            continue
        names = " ".join((*claim.a, *claim.b))
        cut = "cut" in names or "c = " in names or "slow" in names
        assert not cut or "warm-up" in names, claim.id
        numbers = " ".join(path for _, path in claim.printed if "bert-base/" in path)
        alone = len(claim.a) == 1
        doubtful = "/bert-base/met/" in numbers or "/bert-base/mat/" in numbers
        assert not (doubtful and alone), claim.id
    followed = {by_id[c.follows].id for c in claims() if c.follows}
    assert not [name for name in followed if by_id[name].follows], "a fact has one row that counts"
    numbers = Counter(c.printed for c in claims() if c.printed and not c.follows)
    assert not [path for path, count in numbers.items() if count > 1]


def test_a_row_says_what_was_measured_and_why() -> None:
    claim = replace(
        next(c for c in claims() if c.printed and not c.untestable), headline="a short name"
    )
    assert claim.effect is not None
    near = judge({seed: claim.effect + 0.01 * seed for seed in (1, 2, 3)}, claim.effect)
    page = claims_page([(claim, near)])
    reason = "the whole interval is at least a quarter of the paper's effect"
    assert page.count(f"| replicated | {reason} |") == 1
    assert "Among 1 claims, each fact counted once: 1 replicated." in page
    assert "| 3 | replicated |" in page
    alone = claims_page([(claim, judge({1: claim.effect}, claim.effect))])
    assert "| 1 | undecided | one seed has no interval |" in alone
    nothing = claims_page([(claim, judge({}, claim.effect))])
    assert "1 undecided (1 of these not measured yet)" in nothing
    far = judge({1: -0.4 * claim.effect, 2: claim.effect}, claim.effect)
    assert "seeds would decide it if nothing else changed |" in claims_page([(claim, far)])
    margin = next(c for c in claims() if c.margin is not None and not c.above)
    for change, why in ((0.5, "| replicated | not behind by"), (-9, "| opposite | behind by")):
        not_behind = judge_not_behind({seed: change + 0.01 * seed for seed in (1, 2, 3)}, 1.0)
        assert why in claims_page([(margin, not_behind)])
    drawn = forest_plot([(claim, near)])
    assert drawn.count("<circle") == 1
    assert "not measured yet" not in drawn
    assert "a short name (Li et al. 2024)" in drawn
    assert "not measured yet" in forest_plot([(claim, judge({}, claim.effect))])


def test_what_never_falls_is_not_called_unmeasured() -> None:
    claim = next(c for c in claims() if c.id == "nie-figure1d-alignment")
    page = claims_page([(claim, judge({}, 1.0, interest=0.1))])
    lowest = "seeds, a value is lowest at the first measurement"
    assert f"| 0 | undecided | in 3 of 3 {lowest}" in page
    assert "Among 1 claims, each fact counted once: 1 undecided." in page
    one = claims_page([(claim, judge({1: 4.3}, 1.0, interest=0.1))])
    assert f"| 1 | undecided | one seed has no interval; in 2 of 3 {lowest}" in one
    every = claims_page([(claim, judge({1: 4.3, 2: 4.1, 3: 4.2}, 1.0, interest=0.1))])
    assert lowest not in every


def test_what_is_missing_is_counted_and_costs_what_the_others_cost(tmp_path: Path) -> None:
    encoder = RAW
    assert missing_trainings(tmp_path) == "", "nothing to estimate by"
    every = text_protocol.planned(encoder, lambda job: None)
    lengths = Counter(job.settings["max_steps"] for job in every if job.seed)
    assert (lengths[500], lengths[4_000]) == (27 * 5 + 16 * 10 + 20, 6 * 3)
    store = JobStore(tmp_path / encoder / "cells")
    took = replace(Result("text", "x", {}), provenance={"cpu_seconds": 36.0})
    store.keep(every[0], took)  # of one step
    steps = sum(job.settings["max_steps"] for job in every[1:])
    missing = missing_trainings(tmp_path)
    assert f"{len(every) - 1} trainings with the encoder `{encoder}` are still missing" in missing
    assert f"about {math.ceil(steps / 100)} h on" in missing


def test_other_encoders_stand_beside_it_once_they_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("disturbed", reference_encoder()):
        (tmp_path / name / "cells").mkdir(parents=True)
    assert other_encoders(tmp_path) == {}
    numbers = {"modifiedmhe": 50.0, "mhe": 40.0}

    def measured(encoder: str, find: object) -> object:
        return lambda name, metric: {s: numbers[name] + s for s in (1, 2) if name in numbers}

    monkeypatch.setattr(text_protocol, "measured", measured)
    (of,) = other_encoders(tmp_path).values()
    assert of["li-table3-mhe"].word == "replicated"
    assert of["nie-table1-infonce-dcl"].change is None, "not measured there"
