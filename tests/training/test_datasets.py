"""Trainings on several data sets, with one objective or one of each."""

import csv
from pathlib import Path
from typing import Any

import pytest

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.diagnostics.doctor import together
from isotrope.diagnostics.findings import Diagnosis, Evidence, Finding
from isotrope.objectives import MET, InfoNCE
from isotrope.training.fit_text import fit
from tests.training.conftest import sentences
from tests.training.interrupted import power_cut

QA = [*zip(sentences(90), sentences(90, seed=1), strict=True)]
NLI = sentences(60, seed=2)


@pytest.fixture
def options(quick: dict[str, Any]) -> dict[str, Any]:
    own = {k: v for k, v in quick.items() if k != "files"}
    return {**own, "head": "none", "max_steps": 4, "log_every": 1, "dev": "auto", "holdout": 0.4}


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def test_each_data_set_has_its_objective(options: dict[str, Any]) -> None:
    outcome = fit(
        {"qa": QA, "nli": NLI},
        objective={"qa": InfoNCE(temperature=0.1), "nli": MET(margin=0.3)},
        sampling="round-robin",
        **options,
    )
    measured = [row for row in rows(outcome.output) if row["loss"]]
    assert [bool(row["loss_qa"]) for row in measured] == [True, False] * 2
    assert [bool(row["loss_nli"]) for row in measured] == [False, True] * 2
    for row in measured:
        assert row["loss"] == row["loss_qa"] or row["loss"] == row["loss_nli"]
    # MET looks at the nearest negative alone
    assert all(float(row["hardest_share"]) > 0.99 for row in measured[1::2])
    assert all(float(row["hardest_share"]) < 0.99 for row in measured[0::2])
    details = outcome.result.details
    assert details["objective"] == {
        "name": "qa=infonce,nli=met",
        "parameters": {
            "qa.temperature": 0.1,
            "qa.in_batch": True,
            "nli.margin": 0.3,
            "nli.variant": "paper",
        },
    }
    own = details["data"]["datasets"]
    assert (own["qa"]["views"], own["nli"]["views"]) == ("pairs", "dropout")
    assert details["data"]["records"] == own["qa"]["records"] + own["nli"]["records"]
    card = (outcome.output / "model" / "README.md").read_text()
    assert "qa=infonce, nli=met" in card
    assert card.count("```bibtex") == 1
    diagnosis = outcome.diagnose()
    assert "2 logged steps of data set qa" in diagnosis.notes
    assert "2 logged steps of data set nli" in diagnosis.notes
    assert all(
        finding.detail.startswith("Data set ") or finding.verdict == "overfitting"
        for finding in diagnosis.findings
    )


@pytest.mark.parametrize("own", [{"recipe": "auto"}, {"streaming": 40}])
def test_a_single_data_set_may_have_a_name(options: dict[str, Any], own: dict[str, Any]) -> None:
    given = {**options, "dev": None, "holdout": 0.0, "max_steps": 1, **own}
    outcome = fit({"qa": QA} if "recipe" in own else [f"qa={_file(options)}"], **given)
    (measured,) = [row for row in rows(outcome.output) if row["loss"]]
    assert measured["loss"] == measured["loss_qa"]


def _file(options: dict[str, Any]) -> Path:
    path = Path(options["output"]).parent / "qa.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in QA))
    return path


@pytest.mark.slow
def test_interrupted_and_resumed_it_is_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "qa.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in QA))
    (tmp_path / "nli.txt").write_text("\n".join(NLI))
    files = [f"qa={tmp_path / 'qa.tsv'}", f"nli={tmp_path / 'nli.txt'}"]
    whole = fit(files, **options)
    parts = {**options, "output": str(tmp_path / "parts")}
    with power_cut(3):
        fit(files, **parts)
    again = fit(files, **parts, resume=True)
    assert again.result.metrics["loss"] == whole.result.metrics["loss"]
    weights = [r.details["model"]["fingerprint"] for r in (whole.result, again.result)]
    assert weights[0] == weights[1]
    drop = "samples_per_second"
    first, second = ([{**r, drop: ""} for r in rows(o.output)] for o in (whole, again))
    assert first == second
    assert Result.load(again.output / "result.json").details["objective"]["name"] == "infonce"


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (
            {"anchor": ["a"], "positive": ["b"]},
            {},
            "must name data sets, but .* is the name of a column",
        ),
        ({"my data": NLI}, {}, "begin the name of a data set .*; found 'my data'"),
        (
            {"qa": QA, "nli": NLI[:12]},
            {},
            r"data set nli: (use a batch size of at most|.*held-out)",
        ),
        ({"qa": QA, "nli": "no.txt"}, {}, "data set nli: no.txt: check the path"),
        ({"qa": QA, "nli": NLI}, {"objective": {"qa": "met"}}, "nli is not a data set with an obj"),
        ({"qa": QA, "nli": NLI}, {"views": "pairs"}, "data set nli: .*a record needs two"),
        ({"qa": QA, "nli": "a.csv"}, {"columns": "q"}, "some data sets are in memory"),
        (
            {"qa": [(*pair, "no") for pair in QA], "nli": NLI},
            {"objective": {"qa": "barlowtwins", "nli": "met"}},
            "data set qa: .*barlowtwins takes no hard negatives",
        ),
    ],
)
def test_what_is_refused_names_the_data_set_and_leaves_nothing(
    data: Any, changes: dict[str, Any], message: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=message):
        fit(data, **{**options, "dev": None, **changes})
    assert not Path(options["output"]).exists()


def test_what_is_found_of_one_data_set_names_it_and_what_is_found_of_all_is_said_once() -> None:
    def finding(verdict: str, change: str) -> Finding:
        return Finding(verdict, (), "", change, "Some reason.")

    shared = finding("overfitting", "--learning-rate 1e-05")
    own = finding("negatives-not-hard", "--objective.temperature 0.05")
    whole = together({"qa": Diagnosis((own, shared)), "nli": Diagnosis((shared, own))})
    assert whole.findings.count(shared) == 1
    one = together({"qa": Diagnosis((own, shared)), "nli": Diagnosis((shared,))})
    assert one.verdict == ("negatives-not-hard", "overfitting")
    assert one.findings[0].detail == "Data set qa: Some reason."
    assert one.findings[0].change == "--objective.qa.temperature 0.05"
    number = Evidence("dead_early", 0.1)
    healthy = together({name: Diagnosis((), numbers=(number,)) for name in ("qa", "nli")})
    assert [str(n) for n in healthy.numbers] == ["qa, dead early: 0.1", "nli, dead early: 0.1"]
