"""Rows that share a group of the data's own (``--groups``) are not pushed apart, exactly."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from isotrope.adapters.sentence_transformers import losses
from isotrope.core.distributed import GlobalBatch, all_gather_views
from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.data.sources import read
from isotrope.data.text.batches import Batches
from isotrope.evaluation.dev_score import dev_metric_held_out
from isotrope.paradigm import registry
from isotrope.training.early_checks import check_early
from isotrope.training.fit_text import fit
from isotrope.training.settings import TrainSettings
from isotrope.training.text_data import records_of, store_of
from isotrope.training.text_encoder import encoder_of
from tests.training.conftest import sentences
from tests.training.interrupted import power_cut

ANCHORS, POSITIVES = sentences(32), sentences(32, seed=1)
GROUPS = [i // 4 for i in range(32)]


def written(file: Path, groups: list[Any] | None = None, name: str = "label") -> str:
    rows = [{"anchor": a, "positive": p} for a, p in zip(ANCHORS, POSITIVES, strict=True)]
    if groups is not None:
        rows = [{**row, name: group} for row, group in zip(rows, groups, strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


@pytest.fixture
def given(quick: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    file = written(tmp_path / "pairs.jsonl", GROUPS)
    return {**quick, "files": [file], "groups": "label", "max_steps": 4, "checkpoint_every": 1}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Views]:
    """What training steps hand to their objective."""
    views: list[Views] = []

    def seen(own: Views) -> GlobalBatch:
        views.append(own)
        return all_gather_views(own)

    monkeypatch.setattr(losses, "all_gather_views", seen)
    return views


def groups_of(views: Views) -> list[int]:
    """The groups of a whole epoch in a batch, in the order of the file's lines."""
    assert views.groups is not None
    order = torch.from_numpy(Batches(range(32), 32, seed=7).at(0))
    return list(views.groups[order.argsort()].tolist())


def test_a_group_that_goes_with_a_duplicate_is_told(
    given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    once = Path(given["files"][0]).read_text(encoding="utf-8").splitlines()
    again = json.dumps({**json.loads(once[0]), "label": 7})
    Path(given["files"][0]).write_text("\n".join([*once, once[1], again]), encoding="utf-8")
    fit(**{**given, "max_steps": 1})
    warning = "in grouped.jsonl. Dropped records: 1, because another label has"
    assert warning in capsys.readouterr().err


def test_rows_of_a_group_have_no_weight_in_the_gradient(
    given: dict[str, Any], handed: list[Views]
) -> None:
    fit(**{**given, "batch_size": 32, "max_steps": 1})
    (views,) = handed
    of_row = torch.tensor(GROUPS)[torch.from_numpy(Batches(range(32), 32, seed=7).at(0))]
    same = of_row[:, None] == of_row
    infonce = registry.build("infonce")
    weight = infonce.terms(views.anchors, views.positives, groups=views.groups).weight
    assert weight[same].eq(0).all()
    assert weight[~same].gt(0).all()
    free = infonce.terms(views.anchors, views.positives).weight
    assert free[same & ~torch.eye(32).bool()].gt(0).all()  # without groups they are pushed


def test_groups_change_the_training_and_are_resumed_exactly(
    given: dict[str, Any], tmp_path: Path
) -> None:
    def own(name: str) -> dict[str, Any]:
        return {**given, "output": str(tmp_path / name)}

    whole = weights(fit(**own("whole")).output)
    with power_cut(2):
        fit(**own("broken"))
    with pytest.raises(InputError, match="groups was 'label' there, and is not set now"):
        fit(**{**own("broken"), "groups": None}, resume=True)
    resumed = weights(fit(**own("broken"), resume=True).output)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    without = weights(fit(**{**own("without"), "groups": None}).output)
    assert any(not torch.equal(whole[name], without[name]) for name in whole)


@pytest.mark.parametrize("dev", ["auto", None])
def test_a_score_that_only_runs_with_groups_have_is_called_so(
    given: dict[str, Any], dev: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = zip(sentences(160), sentences(160, seed=1), strict=True)
    rows = [f"{a}\t{p}\t{i // 4}" for i, (a, p) in enumerate(texts)]
    file = Path(given["files"][0]).with_name("grouped.tsv")
    file.write_text("\n".join(["anchor\tpositive\tlabel", *rows]))
    held = {"files": [str(file)], "dev": dev, "holdout": 0.4 if dev else 0.0}
    fit(**{**given, "max_steps": 1, "progress": True, **held})
    lines = capsys.readouterr().err.splitlines()
    (line,) = [line for line in lines if "duplicates dropped" in line]
    assert ("without --groups" in line) is (dev is not None)


def test_groups_in_pieces_are_groups(given: dict[str, Any], tmp_path: Path) -> None:
    """Without dropout, whose masks depend on the pieces."""
    own = {**given, "dropout": 0.0, "max_steps": 1, "log_every": 1}
    losses = []
    for name, pieces in (("whole", None), ("pieces", 5)):
        outcome = fit(**{**own, "output": str(tmp_path / name), "micro_batch": pieces})
        losses.append(outcome.history["loss"].dropna().iloc[-1])
    whole = fit(**{**own, "output": str(tmp_path / "free"), "groups": None})
    free = whole.history["loss"].dropna().iloc[-1]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[0] < free - 0.01  # fewer negatives in the denominator


def test_the_dev_score_counts_any_row_of_the_group_as_found(
    given: dict[str, Any], tmp_path: Path
) -> None:
    """Of an encoder that embeds the texts of a group alike, and its own answers no nearer."""
    anchors, positives = sentences(120), sentences(120, seed=1)
    topics = [f"t{i // 12}" for i in range(120)]
    rows = [
        {"anchor": f"{topic} {a}", "positive": f"{topic} {p}", "label": topic}
        for topic, a, p in zip(topics, anchors, positives, strict=True)
    ]
    file = tmp_path / "topics.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    class ByTopic:
        def encode(self, texts: list[str], **_: object) -> np.ndarray:
            return np.eye(10)[[int(text.split()[0][1:]) for text in texts]]

    scores = {}
    for groups in ("label", None):
        settings = TrainSettings.read(
            {**given, "files": [str(file)], "groups": groups, "holdout": 0.5}
        )
        records = read([file], groups=groups)
        store = store_of(settings, encoder_of(settings), tmp_path / str(groups), records)
        metric = dev_metric_held_out({"": store}, prompts=("", ""))
        scores[groups] = metric.score(ByTopic()).value  # type: ignore[arg-type]
    assert scores["label"] == 100
    assert scores[None] < 60


@pytest.mark.parametrize("library", ["datasets", "pandas", "polars"])
def test_groups_of_a_table_in_memory(
    library: str, given: dict[str, Any], handed: list[Views]
) -> None:
    columns = {"question": ANCHORS, "answer": POSITIVES, "topic": GROUPS}
    module = pytest.importorskip(library)
    of_set = library == "datasets"
    table = (module.Dataset.from_dict if of_set else module.DataFrame)(columns)
    own = {**given, "columns": ["question", "answer"], "groups": "topic", "max_steps": 1}
    fit(**{**own, "files": table, "batch_size": 32})
    found = groups_of(handed[0])
    assert [found.index(group) // 4 for group in found] == GROUPS


def test_a_row_without_a_group_is_alone(
    given: dict[str, Any], tmp_path: Path, handed: list[Views]
) -> None:
    file = written(tmp_path / "some.jsonl", ["a", "b", *[None] * 28, "a", ""])
    fit(**{**given, "files": [file], "max_steps": 1, "batch_size": 32})
    found = groups_of(handed[0])
    assert found[0] == found[30]
    assert len(set(found)) == 31


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"groups": "labels"}, "no column 'labels' \\(did you mean 'label'\\?\\)"),
        ({"files": sentences(40)}, "the columns have no names"),
        ({"groups": "two\nlines"}, "the name must be one line"),
    ],
)
def test_what_has_no_groups_is_refused(
    changed: dict[str, Any], message: str, given: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=message):
        fit(**{**given, **changed})
    assert not Path(given["output"]).exists()


def test_a_table_whose_groups_are_called_as_text_is(given: dict[str, Any]) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"question": ANCHORS, "answer": POSITIVES, "anchor": GROUPS})
    own = {**given, "columns": ["question", "answer"], "groups": "anchor", "files": table}
    with pytest.raises(InputError, match=r"rename the column of groups: only texts .* 'anchor'"):
        fit(**own)


def test_a_wrong_column_is_an_error_before_torch_is_imported(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no column 'kind'"):
        check_early(TrainSettings.read({**given, "groups": "kind"}), resume=False)


def test_one_group_for_all_rows_is_refused(given: dict[str, Any], tmp_path: Path) -> None:
    file = written(tmp_path / "noise.jsonl", [-1] * 32)
    with pytest.raises(InputError, match="all 32 records are in one group"):
        fit(**{**given, "files": [file]})


def test_one_group_is_refused_before_a_recipe_is_told(
    given: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "noise.jsonl", [-1] * 32)
    names = ("encoder", "files", "groups", "output", "device", "logger")
    chosen = {name: given[name] for name in names if name in given}
    with pytest.raises(InputError, match="all 32 records are in one group"):
        fit(**{**chosen, "files": [file]})
    assert "recipe auto" not in capsys.readouterr().err


def test_labelled_texts_are_trained_as_pairs_of_their_label(
    given: dict[str, Any], tmp_path: Path, handed: list[Views]
) -> None:
    file = tmp_path / "labelled.jsonl"
    rows = [{"text": text, "label": i % 4} for i, text in enumerate(ANCHORS)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {k: v for k, v in given.items() if k != "groups"}
    fit(**{**own, "files": [file], "max_steps": 1, "batch_size": len(rows)})
    assert len(set(groups_of(handed[0]))) == 4


@pytest.mark.parametrize("sizes", [[40] * 10, [2] * 200, [3] * 130, [1, 2, 3, 300], [200, 200]])
@pytest.mark.parametrize("labelled", [True, False])
def test_no_held_out_record_of_a_group_shares_a_text_with_training(
    given: dict[str, Any], tmp_path: Path, sizes: list[int], *, labelled: bool
) -> None:
    """Labelled texts, or pairs with groups, of which two share an answer."""
    labels = [f"k{k}" for k, size in enumerate(sizes) for _ in range(size)]
    rows = [
        {"text": f"text {i} of {label}", "label": label}
        if labelled
        else {"anchor": f"text {i}", "positive": f"answer {i // 2}", "label": label}
        for i, label in enumerate(labels)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    groups = None if labelled else "label"
    settings = TrainSettings.read(
        {**given, "files": [str(file)], "groups": groups, "holdout": 0.2, "seed": 0}
    )
    store = store_of(settings, encoder_of(settings), tmp_path / "s", records_of(settings, ""))
    held = [*store.held_out()]
    assert len(held) > 0.05 * len(rows)
    assert not store.trained_on(held).any()
    assert len(held) + len(store) > 0.8 * len(rows)


def test_answers_of_the_training_data_are_ranked_and_right_for_their_group(
    given: dict[str, Any], tmp_path: Path
) -> None:
    """Each answer has a near-copy in its group, and each question has one of the two."""
    topics = range(10)
    rows = [
        {
            "anchor": f"t{t} question {i}",
            "positive": f"t{t} see {'so' * (i % 2)}",
            "label": f"t{t}" if i else "",  # the first row of an answer may lack the group
        }
        for t in topics
        for i in range(12)
    ]
    file = tmp_path / "faq.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    class OneWording:
        def encode(self, texts: list[str], **_: object) -> np.ndarray:
            words = [text.split() for text in texts]
            topic = np.eye(10)[[int(first[1:]) for first, *_ in words]]
            return np.column_stack([topic, ["so" in each for each in words]])

    scores = {}
    for groups in ("label", None):
        settings = TrainSettings.read(
            {**given, "files": [str(file)], "groups": groups, "holdout": 0.3}
        )
        records = read([file], groups=groups)
        store = store_of(settings, encoder_of(settings), tmp_path / str(groups), records)
        metric = dev_metric_held_out({"": store}, prompts=("", ""))
        assert "among 20 texts" in metric.name
        assert len({*store.answers().values()}) == (10 if groups else 1)
        scores[groups] = metric.score(OneWording()).value  # type: ignore[arg-type]
    assert scores["label"] == 100
    assert scores[None] is not None
    assert 50 < scores[None] < 90
