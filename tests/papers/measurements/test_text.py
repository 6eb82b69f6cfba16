"""Jobs of text: a small training, looked at on the way and scored at its end."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from isotrope.core import InputError, Result
from papers.machinery.data_registry import DataRegistry
from papers.machinery.job import PaperJob
from papers.machinery.recipes import text_jobs
from papers.measurements import text


def smoke(**more: Any) -> PaperJob:
    (job,) = text_jobs("smoke", "infonce", {"temperature": 0.05}, **more)
    return job


def test_gaps_are_those_of_the_paper() -> None:
    a, b = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a, b = (x / x.norm(dim=1, keepdim=True) for x in (a, b))
    own = [float((x - y).norm()) for x, y in zip(a, b, strict=True)]
    rest = [[float((a[i] - b[j]).norm()) for j in range(9) if j != i] for i in range(9)]
    found = text.gaps(7 * a, b / 3)
    each = list(zip(rest, own, strict=True))
    assert found["distance gap"] == pytest.approx(sum(sum(r) / 8 - o for r, o in each) / 9)
    assert found["margin gap"] == pytest.approx(sum(abs(o - min(r)) for r, o in each) / 9)
    x = torch.eye(2, dtype=torch.float64)
    assert list(text.gaps(x, x.flip(0)).values()) == pytest.approx([-math.sqrt(2), math.sqrt(2)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text")


@pytest.fixture(scope="module")
def measured(folder: Path) -> Result:
    return text.run(
        smoke(ends=["first", "best", "last"]), DataRegistry(None, folder), folder / "cell"
    )


@pytest.mark.slow
def test_every_kept_step_is_looked_at(measured: Result) -> None:
    looks = measured.details["looks"]
    assert [row["step"] for row in looks] == [0, 2, 4]
    for row in looks:
        assert -1 <= row["positive cosine"] <= 1
        assert row["dev set"]["alignment"] >= 0
        for name in ("contrastive", "alignment", "uniformity", "distance gap", "margin gap"):
            assert math.isfinite(row[f"train {name}"])
            assert math.isfinite(row[f"dev {name}"])
        assert set(row["densities"]) == {"cosine", "positive", "negative"}
        assert len(row["densities"]["cosine"]) == 101
        assert all(0 <= share <= 1 for share in row["hardest weight"].values())
        assert row["lemma"]
        assert row["ratios"]
    assert looks[0]["train contrastive"] != looks[2]["train contrastive"]


@pytest.mark.slow
def test_the_ends_are_scored(measured: Result) -> None:
    metrics, looks = measured.metrics, measured.details["looks"]
    assert metrics["steps"] == 4
    assert metrics["dev first"] == looks[0]["dev"]
    assert metrics["dev last"] == looks[2]["dev"]
    assert metrics["dev best"] == max(looks[1]["dev"], looks[2]["dev"])  # never step 0
    for end in ("first", "best", "last"):
        assert isinstance(metrics[f"average {end}"], float)
        assert isinstance(metrics[f"CR {end}"], float)
    assert metrics["average first"] != metrics["average last"]
    same = metrics["best_step"] == 4
    assert (metrics["average best"] == metrics["average last"]) is same


@pytest.mark.slow
def test_the_same_again_is_the_same(measured: Result, folder: Path) -> None:
    """Of the finished training; and of one from the start, without its scores."""
    places = DataRegistry(None, folder)
    job = smoke(ends=["first", "best", "last"])
    assert text.run(job, places, folder / "cell").metrics == measured.metrics
    anew = text.run(smoke(scored=False), places, folder / "anew")
    assert anew.details == measured.details
    assert anew.metrics == {k: v for k, v in measured.metrics.items() if k in anew.metrics}


@pytest.mark.slow
def test_a_seed_is_of_everything(measured: Result, folder: Path) -> None:
    job = replace(smoke(scored=False, looks=["dev", "closeness"]), seed=1)
    other = text.run(job, DataRegistry(None, folder), folder / "other")
    assert other.details["looks"][0]["dev"] != measured.details["looks"][0]["dev"]
    assert other.provenance["seed"] == 1


@pytest.mark.slow
def test_measuring_in_bfloat16_is_close(folder: Path) -> None:
    found = {}
    for precision in ("32", "bf16"):
        job = smoke(scored=False, looks=["closeness"], measured_in=precision)
        found[precision] = text.run(job, DataRegistry(None, folder), folder / precision).details
    for one, other in zip(found["32"]["looks"], found["bf16"]["looks"], strict=True):
        assert one != other
        for name in set(one) - {"step"}:
            assert other[name] == pytest.approx(one[name], abs=0.02)


def test_a_dev_score_that_is_no_number_is_never_the_best() -> None:
    rows = [{"step": step, "dev": dev} for step, dev in enumerate([1.0, math.nan, 3.0, math.nan])]
    found = text._metrics(rows)
    assert found["best_step"] == 2
    assert found["dev last"] == 3.0
    assert text._metrics([{"step": 0, "dev": math.nan}]) == {"steps": 0}


def test_held_out_texts_are_those_that_follow(folder: Path) -> None:
    places = DataRegistry(None, folder)
    trained = set(places.texts("docs:96").read_text().splitlines())
    held = text._held_out_texts(places, "docs:96", 32, "next")
    assert len(held) == 32
    assert not trained & set(held)


def test_texts_that_were_trained_on_are_the_last_of_these(folder: Path) -> None:
    places = DataRegistry(None, folder)
    trained = places.texts("docs:96").read_text().splitlines()
    assert text._held_out_texts(places, "docs:96", 32, "trained") == trained[-32:]


def test_only_line_ends_end_a_held_out_text(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("one\ntwo\u2028half\nthree\x85\n", encoding="utf-8")
    found = text._held_out_texts(DataRegistry(tmp_path, tmp_path / "made"), "own.txt", 2, "next")
    assert found == ["two\u2028half", "three\x85"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"objective.temprature": 0.1}, "temprature"),
        ({"objective": "infonec"}, "did you mean 'infonce'"),
        ({"learning_rte": 0.1}, "learning_rte: unknown setting"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_what_could_run_nowhere_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    job = smoke()
    wrong = replace(job, settings={**job.settings, **more})
    with pytest.raises(InputError, match=said):
        text.check(wrong, DataRegistry(None, tmp_path))


def test_what_is_missing_here_is_listed(tmp_path: Path) -> None:
    assert text.check(smoke(), DataRegistry(None, tmp_path)) == []
    (job,) = text_jobs("paper", "infonce", seeds=[0])
    lacking = text.check(job, DataRegistry(tmp_path, tmp_path))
    assert [line.split(":")[0] for line in lacking] == [
        "wiki1m_for_simcse.txt",
        "sts",
        "transfer",
        "bert-base-uncased",
    ]


@pytest.mark.slow
def test_ends_are_scored_with_their_own_weights(measured: Result, folder: Path) -> None:
    """Also where the last step is scored after another: one encoder takes all weights in turn."""
    other = smoke(ends=["last", "first"])
    again = text.run(other, DataRegistry(None, folder), folder / "other")
    for end in ("first", "last"):
        assert again.metrics[f"average {end}"] == measured.metrics[f"average {end}"]


def test_components_and_the_encoder_that_was_begun_with_are_kept(measured: Result) -> None:
    rows = measured.details["components"]
    assert [row["step"] for row in rows] == [0, 3]
    assert all({"loss", "dissipation", "hardest_share", "ratio"} <= set(row) for row in rows)
    assert len(measured.details["encoder"]) == 16


@pytest.mark.slow
def test_whitened_embeddings_are_scored_beside_the_others(folder: Path) -> None:
    job = smoke(ends=["first"], whitened=8)
    found = text.run(job, DataRegistry(None, folder), folder / "whitened").metrics
    assert isinstance(found["average whitened first"], float)
    assert found["average whitened first"] != found["average first"]
    assert isinstance(found["dev whitened first"], float)
