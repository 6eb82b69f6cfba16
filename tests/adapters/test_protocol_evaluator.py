"""Our protocols inside of sentence-transformers' trainer."""

import csv
from pathlib import Path

import pytest

pytest.importorskip("accelerate")
import isotrope
from isotrope.adapters.sentence_transformers import ObjectiveLoss, ProtocolEvaluator
from isotrope.core.errors import InputError
from tests.adapters.trainers import columns, scratch, texts, trainer


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Scored pairs, the more words in common the higher."""
    file = tmp_path / "dev.tsv"
    rows = [
        (a, " ".join([*a.split()[:k], *b.split()[k:]]), k)
        for k in range(6)
        for a, b in zip(texts(5, k), texts(5, k + 50), strict=True)
    ]
    file.write_text("".join(f"{score}\t{a}\t{b}\n" for a, b, score in rows))
    return file


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    """Pairs of a query and its document."""
    file = tmp_path / "searched.tsv"
    rows = zip(texts(20, 1), texts(20, 2), strict=True)
    file.write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    return file


def test_scores_are_those_of_evaluate_and_choose_the_best_step(
    pairs: Path, searched: Path, tmp_path: Path
) -> None:
    model = scratch()
    evaluator = ProtocolEvaluator(sts=pairs, retrieval=searched, name="ours", progress=True)
    expected = isotrope.evaluate(model, sts=pairs, retrieval=searched, results=None).metrics
    theirs = trainer(
        model,
        ObjectiveLoss(model, "infonce"),
        columns("text"),
        tmp_path / "run",
        evaluator=evaluator,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_ours_dev.tsv",
    )
    first = evaluator(model)
    assert first == {f"ours_{k}": v for k, v in expected.items() if v is not None}
    theirs.train()
    with (tmp_path / "run" / "eval" / "protocols_ours_results.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["steps"] for row in rows] == ["2", "4"]
    assert all(0 < float(row["mrr@10"]) <= 1 for row in rows)
    assert theirs.state.best_metric == max(float(row["dev.tsv"]) for row in rows)


def test_rows_of_other_metrics_have_a_file_of_their_own(
    pairs: Path, searched: Path, tmp_path: Path
) -> None:
    model, folder = scratch(), tmp_path / "eval"
    narrow = ProtocolEvaluator(sts=pairs)
    wide = ProtocolEvaluator(sts=pairs, retrieval=searched)
    for step, evaluator in enumerate((narrow, wide, narrow, wide)):
        evaluator(model, str(folder), steps=step)
    steps = {}
    for file in folder.iterdir():
        with file.open(newline="") as handle:
            header, *rows = csv.reader(handle)
        assert {len(row) for row in rows} == {len(header)}
        steps[file.name] = [row[1] for row in rows]
    assert steps == {"protocols_results.csv": ["0", "2"], "protocols_results-2.csv": ["1", "3"]}


@pytest.mark.parametrize("name", ["dev", "dev/sts"])
def test_any_name_is_a_prefix_and_part_of_a_file_name(
    pairs: Path, tmp_path: Path, name: str
) -> None:
    evaluator = ProtocolEvaluator(sts=pairs.rename(tmp_path / "dev_a.tsv"), name=name)
    metrics = evaluator(scratch(), str(tmp_path / "eval"))
    assert evaluator.primary_metric == f"{name}_dev_a.tsv"
    assert evaluator.primary_metric in metrics
    (file,) = (tmp_path / "eval").iterdir()
    assert file.name == f"protocols_{name.replace('/', '-')}_results.csv"


def test_what_cannot_be_scored_is_said(pairs: Path) -> None:
    model = scratch()
    with pytest.raises(InputError, match="give data to evaluate on"):
        ProtocolEvaluator()(model)
    with pytest.raises(InputError, match=r"set primary to one of .*; found 'sts'"):
        ProtocolEvaluator(sts=pairs, primary="sts")(model)
