"""Losses of held-out records: they need no dev score, and leave the training as it is."""

import csv
import functools
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import isotrope
from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics.metrics import measured_in
from isotrope.encoders.heads import MLPHead
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.dev_score import LEAST
from isotrope.measures.judgement import DevHistory
from isotrope.training import text_data
from isotrope.training.held_out_losses import TokenRows, held_out_curves, held_out_losses
from isotrope.training.settings import TrainSettings
from tests.training.conftest import sentences
from tests.training.interrupted import power_cut

HELD_OUT = measured_in("training/held_out_losses.py")
TEXTS = ["a stone in the river", "a lantern on the bridge", "rain over the desert at night"]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder.scratch(TEXTS * 4, vocabulary=100, layers=1, width=16)


def rows_of(encoder: SentenceEncoder, anchors: list, positives: list) -> TokenRows:
    """Records that have no group in common."""
    tokens = [encoder.tokenize(texts, 16)[0] for texts in (anchors, positives)]
    return TokenRows(*tokens, np.arange(len(anchors), dtype=np.uint64))


def losses(encoder: SentenceEncoder, head: nn.Module, records: list) -> dict[str, float]:
    """Held out are the records, trained on are the texts, in reverse."""
    held_out, trained = (
        rows_of(encoder, *sides)
        for sides in (zip(*records, strict=True), (TEXTS[::-1], TEXTS[::-1]))
    )
    return held_out_losses(encoder, head, held_out, trained, seed=0)


def test_two_texts_are_further_apart_than_two_masks(encoder: SentenceEncoder) -> None:
    single = losses(encoder, nn.Identity(), [(text, text) for text in TEXTS])
    pairs = losses(encoder, nn.Identity(), list(zip(TEXTS, TEXTS[::-1], strict=True)))
    assert tuple(single) == HELD_OUT
    assert single["trained_contrastive"] == pairs["trained_contrastive"]
    assert 0 < single["held_out_alignment"] < pairs["held_out_alignment"]
    assert single["held_out_contrastive"] < pairs["held_out_contrastive"]
    assert single["held_out_uniformity"] < 0


def test_the_same_records_have_the_same_loss_on_either_side(encoder: SentenceEncoder) -> None:
    found = losses(encoder, nn.Identity(), [(text, text) for text in TEXTS[::-1]])
    assert found["trained_contrastive"] == found["held_out_contrastive"]


def test_chance_and_modes_are_left_alone(encoder: SentenceEncoder) -> None:
    encoder.eval()
    head = MLPHead(16).train()
    state = torch.get_rng_state()
    records = [(text, text) for text in TEXTS]
    assert losses(encoder, head, records) == losses(encoder, head, records)
    assert torch.equal(torch.get_rng_state(), state)
    assert head.training
    assert not encoder.training


@pytest.mark.parametrize(("most", "seed"), [(12, 0), (512, 6)])
def test_the_records_are_spread_over_all_data_sets(
    most: int, seed: int, quick: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isotrope.training.held_out_losses.MOST_HELD_OUT", most)
    files = []
    for name in "ab":
        path = tmp_path / f"{name}.txt"
        path.write_text("\n".join(sentences(20, seed=ord(name))), encoding="utf-8")
        files.append(f"{name}={path}")
    own = {"files": files, "holdout": 0.5, "batch_size": 4, "seed": seed}
    settings = TrainSettings.read({**quick, **own})
    encoder = SentenceEncoder.scratch(sentences(100), vocabulary=200, layers=1, width=16)
    stores = text_data.batches_of(settings, encoder, tmp_path / "tokens").stores
    texts = [text for store in stores.values() for (text,) in store.held_out()]
    trained = sum(map(len, stores.values()))
    assert len(texts) > min(most, trained)  # so that some are left out
    module = SimpleNamespace(encoder=encoder, head=nn.Identity())
    curves = held_out_curves(settings, module, stores)
    assert isinstance(curves, functools.partial)
    anchors = curves.args[2].anchors
    tokens, _ = encoder.tokenize(texts, settings.max_length)
    places = [tokens.index(row) for row in anchors]
    assert len(places) == min(most, trained)
    assert places[0] == 0
    assert max(np.diff([*places, len(texts)])) <= 2
    assert min(np.diff(places)) > 0


def test_a_run_logs_them_without_a_dev_score(quick: dict, tmp_path: Path) -> None:
    options = {**quick, "eval_every": 3, "log_every": 1, "holdout": 0.1}
    outcome = isotrope.fit(**{**options, "output": str(tmp_path / "run")})
    with (outcome.output / "metrics.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    for name in HELD_OUT:
        assert [int(row["step"]) for row in rows if row[name]] == [0, 3, 6]
    assert not any(row["dev"] for row in rows)


@pytest.mark.parametrize(("count", "seed", "given"), [(100, 0, 0.1), (100, 1, 0.01), (130, 2, 0.0)])
def test_the_proposed_share_is_large_enough(
    count: int, seed: int, given: float, quick: dict, tmp_path: Path
) -> None:
    file, texts = tmp_path / "pairs.tsv", sentences(2 * count)
    rows = zip(texts[:count], texts[count:], strict=True)
    file.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    options = {**quick, "files": [str(file)], "dev": "auto", "max_steps": 1, "seed": seed}
    with pytest.raises(InputError) as error:
        isotrope.fit(**{**options, "holdout": given})
    share = float(re.findall(r"holdout=(0\.\d+)", str(error.value))[0])
    outcome = isotrope.fit(**{**options, "holdout": share})
    assert outcome.result.details["data"]["holdout"] >= LEAST


def test_texts_of_scored_pairs_are_not_taken_for_positives(quick: dict, tmp_path: Path) -> None:
    file, texts = tmp_path / "scored.csv", sentences(120)
    lines = (f"{a},{b},{i % 5}\n" for i, (a, b) in enumerate(pairwise(texts)))
    file.write_text("sentence1,sentence2,score\n" + "".join(lines))
    own = {"files": [str(file)], "loss": "CoSENTLoss", "holdout": 0.2, "max_steps": 2}
    outcome = isotrope.fit(**{**quick, **own})
    assert outcome.result.details["data"]["holdout"] > 2
    with (outcome.output / "metrics.csv").open(newline="") as handle:
        assert not any(row[name] for row in csv.DictReader(handle) for name in HELD_OUT)


def test_records_with_a_common_text_or_group_are_not_negatives(encoder: SentenceEncoder) -> None:
    one, two, three = TEXTS
    apart = losses(encoder, nn.Identity(), [(one, two), (three, three)])
    linked = losses(encoder, nn.Identity(), [(one, two), (three, two)])
    assert apart["held_out_contrastive"] > 0
    assert linked["held_out_contrastive"] == 0
    rows = rows_of(encoder, [one, two], [one, three])
    grouped = rows._replace(marks=np.zeros(2, np.uint64))
    found = held_out_losses(encoder, nn.Identity(), grouped, rows, seed=0)
    assert found["held_out_contrastive"] == 0


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_one_of_several_data_sets_has_labels(quick: dict, tmp_path: Path, order: tuple) -> None:
    labelled = [f"{text},{place % 5}" for place, text in enumerate(sentences(60))]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *labelled]) + "\n")
    pairs = zip(sentences(60, seed=1), sentences(60, seed=2), strict=True)
    (tmp_path / "b.tsv").write_text("".join(f"{one}\t{two}\n" for one, two in pairs))
    files = {"a": f"a={tmp_path}/a.csv", "b": f"b={tmp_path}/b.tsv"}
    given = {**quick, "files": [files[name] for name in order], "holdout": 0.3, "max_steps": 1}
    last = isotrope.fit(**{**given, "output": str(tmp_path / "run")}).history.iloc[-1]
    assert 0 < last["trained_contrastive"] < 10


def test_labels_of_a_run_are_its_groups(tmp_path: Path, quick: dict) -> None:
    table = tmp_path / "labelled.csv"
    rows = [f"{text},{'ab'[place % 2]}" for place, text in enumerate(sentences(40))]
    table.write_text("\n".join(["text,label", *rows]) + "\n")
    found = []
    for name, groups in (("with", {"groups": "label"}), ("without", {})):
        options = {**quick, "files": [str(table)], "columns": ["text"], **groups}
        outcome = isotrope.fit(**{**options, "holdout": 0.3, "output": str(tmp_path / name)})
        with (outcome.output / "metrics.csv").open(newline="") as handle:
            found.append(next(csv.DictReader(handle)))
    for column in HELD_OUT[:2]:
        assert 0 < float(found[0][column]) < float(found[1][column])


def test_labelled_texts_are_not_read_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "labelled.csv"
    table.write_text("text,label\n" + "".join(f"w{i},{i % 2}\n" for i in range(40)))
    settings = TrainSettings(files=[str(table)], output=str(tmp_path / "run"), holdout=0.3)
    monkeypatch.delattr(text_data, "held_out_together")
    assert text_data.held_out_of(settings, "").texts is None


@pytest.mark.parametrize(
    ("questions", "grouped"), [(1, False), (2, True), (4, False)], ids=["one", "linked", "known"]
)
def test_questions_held_out_with_their_answer_are_drawn_together(
    questions: int, grouped: bool, quick: dict, tmp_path: Path
) -> None:
    """Questions of known answers are held out alone, and so are pairs that share no text."""
    asked, answers = sentences(200), sentences(200, seed=1)
    rows = [(text, answers[place // questions]) for place, text in enumerate(asked)]
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{question}\t{answer}\n" for question, answer in rows))
    given = {**quick, "files": [str(table)], "holdout": 0.3, "dev": "auto"}
    with power_cut(4):
        isotrope.fit(**given)
    isotrope.fit(**given, resume=True)
    history = DevHistory.load(RunFolder(Path(given["output"])).dev)
    groups = [evaluation.groups for evaluation in history.evaluations.values()]
    if not grouped:
        assert groups == [None] * len(groups)
        assert "groups" not in history.name
    else:
        sizes = np.bincount(groups[0])
        assert set(sizes) == {questions}
        assert all((other == groups[0]).all() for other in groups)
        assert f"of {sizes.sum()} queries in {len(sizes)} groups among" in history.name
