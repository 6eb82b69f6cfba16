"""A loss of sentence-transformers in place of an objective."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer import losses as host_losses

import isotrope
from isotrope.core.documents import read_yaml
from isotrope.core.errors import InputError, SettingError
from isotrope.data.records import Record
from isotrope.data.sources import read
from isotrope.data.text.store_writer import StoreSettings, build
from isotrope.data.text.sts_sets import Subset, load_sts_file
from isotrope.evaluation.dev_score import dev_metric_held_out
from isotrope.evaluation.sts import sts_evaluation
from isotrope.training.early_checks import check_early
from isotrope.training.fit_text import fit
from isotrope.training.settings import OF_SCORES, TrainSettings
from isotrope.training.text_module import OF_PAIRS, OF_TWO_TEXTS, check_loss, check_record
from tests.refused import refused_setting
from tests.training.conftest import WORDS, sentences


def losses(folder: Path) -> list[float]:
    with (folder / "metrics.csv").open(newline="") as handle:
        return [float(row["loss"]) for row in csv.DictReader(handle) if row["loss"]]


def test_their_loss_is_our_objective(quick: dict[str, Any], tmp_path: Path) -> None:
    """MultipleNegativesRankingLoss of scale 20 is InfoNCE at 0.05, step by step."""
    texts = sentences(120, seed=3)
    pairs = zip(texts[::2], texts[1::2], strict=True)
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    own = {**quick, "files": [str(tmp_path / "pairs.tsv")], "head": "none", "dropout": 0.0}
    ours = fit(**{**own, "output": str(tmp_path / "ours"), "objective": "infonce"})
    theirs = fit(
        **{**own, "output": str(tmp_path / "theirs")},
        loss="CachedMultipleNegativesRankingLoss",
        loss_settings={"mini_batch_size": "4", "scale": 20},
    )
    assert losses(theirs.output) == pytest.approx(losses(ours.output), rel=1e-4)
    assert len(losses(ours.output)) == 4
    assert theirs.result.details["objective"] == {
        "name": "CachedMultipleNegativesRankingLoss",
        "parameters": {"mini_batch_size": 4.0, "scale": 20.0},
    }
    card = (theirs.output / "model" / "README.md").read_text()
    assert "| objective | CachedMultipleNegativesRankingLoss (of sentence-transformers) |" in card
    written = TrainSettings.read(
        {"files": "x", "loss.scale": "20", "loss": "MegaBatchMarginLoss", "output": "y"}
    ).to_yaml()
    assert "loss: MegaBatchMarginLoss" in written
    assert "loss.scale: 20.0" in written


def test_a_guide_is_a_model(quick: dict[str, Any]) -> None:
    settings = {**quick, "views": "adjacent", "loss": "GISTEmbedLoss", "max_steps": 1}
    found = fit(**settings, loss_settings={"guide": quick["encoder"], "margin": 0.05})
    assert losses(found.output)[0] > 0


SCORED = ["CoSENTLoss", "AnglELoss", "CosineSimilarityLoss"]
NEGATIVES = ["MarginMSELoss", "DistillKLDivLoss"]


@pytest.mark.parametrize("margins", [False, True])
@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("name", [*SCORED, *NEGATIVES])
def test_scores_reach_the_losses_that_take_them(
    quick: dict[str, Any], tmp_path: Path, name: str, margins: bool, normalizes: bool
) -> None:
    """The first loss is that of sentence-transformers itself, on the rows as they are."""
    if margins and name != "MarginMSELoss":
        pytest.skip("takes no margins")
    if normalizes:
        if name in SCORED:
            pytest.skip("compares cosines")
        modules = [*isotrope.load(quick["encoder"], device="cpu").body, Normalize()]
        quick["encoder"] = str(tmp_path / "normalizes")
        SentenceTransformer(modules=modules, device="cpu").save(quick["encoder"])
    numbers = np.random.default_rng(0).random((12, 3)).round(3).tolist()
    texts = [sentences(60, seed=1)[i::12][:4] for i in range(12)]
    rows: list[dict[str, object]] = []
    for row, scores in zip(texts, numbers, strict=True):
        if name in SCORED:
            rows.append({"sentence1": row[0], "sentence2": row[1], "score": scores[0]})
        elif margins:
            named = {
                "anchor": row[0],
                "positive": row[1],
                "negative_1": row[2],
                "negative_2": row[3],
            }
            rows.append({**named, "scores": scores[1:]})
        else:
            flag = {"query": row[0], "pos": row[1:2], "neg": row[2:]}
            rows.append({**flag, "pos_scores": scores[:1], "neg_scores": scores[1:]})
    file = tmp_path / "scored.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {**quick, "files": [str(file)], "head": "none", "dropout": 0.0, "batch_size": 12}
    found = losses(fit(**{**own, "output": str(tmp_path / "run"), "epochs": 1}, loss=name).output)

    model = isotrope.load(quick["encoder"], device="cpu").model
    width = 2 if name in SCORED else 4
    limit = quick.get("max_length", 32)
    model.max_seq_length = limit
    columns = [model.tokenize([row[i] for row in texts]) for i in range(width)]
    kept = {2: 0, 4: slice(1 if margins else 0, None)}[width]
    label = torch.tensor([scores[kept] for scores in numbers])
    with torch.no_grad():
        theirs = getattr(host_losses, name)(model.eval())(columns, label)
    assert found[0] == pytest.approx(float(theirs), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "scores", "said"),
    [
        ("CosineSimilarityLoss", [0, 5], r"divide the scores by 5, the largest score"),
        (
            "CoSENTLoss",
            [1, 1],
            "give different scores: CoSENTLoss learns the order, but all are equal",
        ),
    ],
)
def test_scores_that_the_loss_cannot_learn_are_refused(
    quick: dict[str, Any], tmp_path: Path, name: str, scores: list[float], said: str
) -> None:
    file = tmp_path / "scored.csv"
    rows = [f"{text},{text} b,{scores[i % 2]}\n" for i, text in enumerate(sentences(20))]
    file.write_text("sentence1,sentence2,score\n" + "".join(rows))
    with pytest.raises(InputError, match=said):
        fit(**{**quick, "files": [str(file)], "batch_size": 4}, loss=name)
    assert not Path(quick["output"]).exists()


def topics(file: Path, pairs: int, seed: int) -> Path:
    """Write pairs of texts without a common word, scored by how many words are of one topic."""
    rng = random.Random(seed)
    halves = [["river", "stone", "cloud", "garden"], ["engine", "mirror", "paper", "rocket"]]
    others = [["ocean", "forest", "island", "meadow"], ["lantern", "kettle", "guitar", "candle"]]
    rows = ["sentence1,sentence2,score\n"]
    for _ in range(pairs):
        topic, same = rng.randrange(2), rng.randrange(5)
        second = rng.sample(others[topic], same) + rng.sample(others[1 - topic], 4 - same)
        first = " ".join(rng.sample(halves[topic], 4) + rng.sample(WORDS, 1))
        rows.append(f"{first},{' '.join(second)} {rng.choice(WORDS)},{same}\n")
    file.write_text("".join(rows))
    return file


@pytest.mark.parametrize(
    "given", [{"loss": "CoSENTLoss"}, {"recipe": "auto"}], ids=["loss", "data"]
)
def test_scored_pairs_raise_the_correlation_on_pairs_that_were_held_out(
    quick: dict[str, Any], tmp_path: Path, given: dict[str, Any]
) -> None:
    train, test = topics(tmp_path / "train.csv", 400, 0), topics(tmp_path / "test.csv", 100, 1)
    encoder, output = quick["encoder"], quick["output"]
    own = {"learning_rate": 1e-3, "max_steps": 60, "head": "none"} if "loss" in given else {}
    found = fit(files=[str(train)], encoder=encoder, output=output, progress=False, **own, **given)
    data = load_sts_file(test)
    before, after = (
        sts_evaluation(isotrope.load(str(model), device="cpu"), data).value
        for model in (encoder, found.output / "model")
    )
    assert after > before + 10
    if "recipe" in given:
        settings = TrainSettings.read(read_yaml(found.output / "config.yaml"))
        assert (settings.loss, settings.dev, settings.refit) == ("CoSENTLoss", "auto", True)
        assert found.result.details["dev"]["name"] == "held-out Spearman of 71 pairs in 57 groups"
        assert found.result.metrics["dev_best"] > found.result.metrics["dev_start"]


def test_held_out_pairs_keep_their_scores(quick: dict[str, Any], tmp_path: Path) -> None:
    train = topics(tmp_path / "train.csv", 80, 0)
    store = build(
        tmp_path / "store",
        read([str(train)], scored=True),
        lambda texts, limit: ([[1, 2] for _ in texts], 0),
        StoreSettings(vocabulary=9, max_length=8, holdout=0.2, scored=True),
    )
    first, second, scores = zip(*store.held_out(), strict=True)
    rows = [line.rsplit(",", 2) for line in train.read_text().splitlines()[1:]]
    assert all([a, b, f"{c:g}"] in rows for a, b, c in zip(first, second, scores, strict=True))
    texts = [[prompt + t for t in side] for prompt, side in (("a: ", first), ("b: ", second))]
    data, encoder = (
        Subset("", "", "dev", np.array(scores), *texts),
        isotrope.load(quick["encoder"], device="cpu"),
    )
    found = dev_metric_held_out({"": store}, prompts=("a: ", "b: "))
    assert found.score(encoder).value == sts_evaluation(encoder, data).value


def test_rows_without_as_many_scores_are_refused(quick: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "scored.jsonl"
    rows = [{"query": t, "pos": [t + " b"], "neg": [t + " c"] * (1 + (i == 5))} for i, t in
            enumerate(sentences(12))]  # fmt: skip
    scored = [{**row, "pos_scores": [1.0], "neg_scores": [0.5] * len(row["neg"])} for row in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in scored))
    with pytest.raises(
        InputError, match="3 texts and 2 scores, like the first; record 6 has 4 texts and 3 scores"
    ):
        fit(**{**quick, "files": [str(file)], "batch_size": 4}, loss="MarginMSELoss")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:5]))
    with pytest.raises(InputError, match="add a column of scores"):
        fit(**{**quick, "files": [str(file)], "batch_size": 4}, loss="MarginMSELoss")


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"loss": "SoftmaxLoss"}, "loss"),  # its labels are classes
        ({"loss": "GISTEmbedLoss"}, "loss.guide"),
        ({"loss": "GISTEmbedLoss", "loss_settings": {"gide": "x"}}, "loss.gide"),
        (
            {"loss": "CoSENTLoss", "loss_settings": {"similarity_fct": "dot_score"}},
            "loss.similarity_fct",
        ),
        ({"loss": "MegaBatchMarginLoss", "objective": "met"}, "objective"),
        ({"loss": "MegaBatchMarginLoss", "micro_batch": 4}, "micro_batch"),
    ],
)
def test_refused(quick: dict[str, Any], given: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        fit(**{**quick, "views": "adjacent"}, **given)
    assert caught.value.setting == setting
    assert not Path(quick["output"]).exists()


@pytest.mark.parametrize("name", [*OF_PAIRS, *OF_SCORES])
def test_each_loss_that_is_named_is_known_by_its_arguments(name: str) -> None:
    """Also a deprecated one, whose class shows no signature."""
    given = {"guide": "MODEL"} if "GIST" in name else {}
    settings = {"files": ["x"], "output": "y", "loss": name, "loss_settings": given}
    check_loss(TrainSettings.read(settings))


@pytest.mark.parametrize("name", OF_TWO_TEXTS)
def test_hard_negatives_that_a_loss_ignores_are_refused(
    quick: dict[str, Any], tmp_path: Path, name: str
) -> None:
    file = tmp_path / "triplets.csv"
    texts = sentences(30)
    rows = zip(texts[::3], texts[1::3], texts[2::3], range(10), strict=True)
    lines = [f"{a},{b},{c},{score / 10}\n" for a, b, c, score in rows]
    file.write_text("anchor,positive,negative,score\n" + "".join(lines))
    columns = {} if name in OF_SCORES else {"columns": ["anchor", "positive", "negative"]}
    with pytest.raises(SettingError) as caught:
        fit(**{**quick, "files": [str(file)]}, loss=name, **columns)
    assert (caught.value.setting, caught.value.value) == ("loss", name)


def triplets(file: Path) -> str:
    texts = sentences(60)
    rows = zip(texts[::3], texts[1::3], texts[2::3], strict=True)
    file.write_text("anchor,positive,negative\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    return str(file)


@pytest.mark.parametrize(
    "given",
    [
        *[{"hardness_mode": "foo", "hardness_strength": 5}, {"scale": "many"}],
        {"mini_batch_size": 0},
    ],
)
def test_settings_with_which_a_loss_fails_are_refused_before_the_encoder_is_loaded(
    quick: dict[str, Any], tmp_path: Path, given: dict[str, Any]
) -> None:
    files, name = [triplets(tmp_path / "triplets.csv")], "CachedMultipleNegativesRankingLoss"
    own = {**quick, "files": files, "encoder": str(tmp_path / "none")}
    with refused_setting("loss", value=name):
        fit(**own, loss=name, loss_settings=given)
    with pytest.raises(InputError, match="none"):  # the encoder is what is wrong
        fit(**own, loss=name)


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("name", OF_PAIRS)
def test_a_loss_is_tried_with_the_columns_of_its_batches(name: str, tmp_path: Path) -> None:
    given = {"guide": "MODEL"} if "GIST" in name else {}
    settings = {"files": ["x"], "output": "y", "loss": name, "loss_settings": given}
    for texts in (("a",), ("a", "b"), ("a", "b", "c", "d")):
        if len(texts) < 3 or name not in OF_TWO_TEXTS:
            check_record(TrainSettings.read(settings), Record(texts, tmp_path, 1, True))


@pytest.mark.parametrize("mode", ["in_batch_negatives", "hard_negatives", "all_negatives"])
def test_harder_negatives_count_more_among_those_of_the_batch(mode: str, tmp_path: Path) -> None:
    """A batch has a hard negative of two rows once; the loss needs as many as there are rows."""
    own = {"hardness_mode": mode, "hardness_strength": 5}
    name = "MultipleNegativesRankingLoss"
    settings = TrainSettings.read(
        {"files": ["x"], "output": "y", "loss": name, "loss_settings": own}
    )
    check_record(settings, Record(("a", "b"), tmp_path, 1, True))
    for texts in (("a", "b", "c"), ("a", "b", "c", "d")):
        with refused_setting("loss", value=name):
            check_record(settings, Record(texts, tmp_path, 1, True))


@pytest.mark.parametrize(
    ("name", "scores", "own"),
    [
        ("CachedMultipleNegativesRankingLoss", (), {"show_progress_bar": "true"}),
        ("MultipleNegativesRankingLoss", (), {"hardness_mode": "in_batch_negatives"}),
        ("DistillKLDivLoss", (0.5, 0.3), {}),
    ],
)
def test_a_trial_prints_nothing(
    name: str,
    scores: tuple[float, ...],
    own: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"files": ["x"], "output": "y", "loss": name, "loss_settings": own}
    record = Record(("a", "b", "c"), tmp_path, 1, True, scores=scores)
    check_record(TrainSettings.read(settings), record)
    assert (*capfd.readouterr(), caplog.text) == ("", "", "")


@pytest.mark.parametrize(
    ("given", "texts", "named"),
    [
        ({}, ("a", "b"), None),  # the loss is chosen later
        ({}, ("a", "b", "c"), "MarginMSELoss"),
        ({"objective": "infonce"}, ("a", "b"), "CoSENTLoss"),
    ],
)
def test_the_loss_that_is_named_for_scores_takes_the_texts(
    given: dict[str, str],
    texts: tuple[str, ...],
    named: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = TrainSettings.read({"files": ["x"], "output": "y", "recipe": "auto", **given})
    record = Record(texts, tmp_path, 1, True, scores=(0.5,))
    check_record(settings, record)
    said = capsys.readouterr().err
    assert f"--loss {named}" in said if named else not said
    if named:
        check_record(settings.model_copy(update={"loss": named}), record)


@pytest.mark.parametrize(
    "given",
    [{"lora": 2}, {"streaming": 40}, {"encoder": "scratch"}],
    ids=lambda given: next(iter(given)),
)
def test_scored_pairs_are_trained_with_a_loss_of_scores(
    quick: dict[str, Any], tmp_path: Path, given: dict[str, Any]
) -> None:
    own = {**quick, "files": [str(topics(tmp_path / "train.csv", 60, 0))], "recipe": "auto"}
    found = fit(**{**own, **given, "max_steps": 2})
    assert found.result.details["objective"]["name"] == "CoSENTLoss"
    assert found.result.metrics["steps"] == 2
    again = fit(**{**own, **given, "max_steps": 2}, resume=True)
    assert again.result.metrics == found.result.metrics


@pytest.mark.parametrize(
    "given",
    [
        {"micro_batch": 4},
        {"micro_batch": 4, "lora": 2},
        {"objective_settings": {"temperature": 0.1}},
        {"devices": 2},
    ],
)
def test_what_the_loss_of_scored_pairs_does_not_take_is_refused_before_the_encoder_is_loaded(
    quick: dict[str, Any], tmp_path: Path, given: dict[str, Any]
) -> None:
    file = topics(tmp_path / "train.csv", 60, 0)
    own = {**quick, "files": [str(file)], "recipe": "auto", "encoder": str(tmp_path / "none")}
    setting = "objective.temperature" if "objective_settings" in given else next(iter(given))
    with refused_setting(setting):
        fit(**{**own, **given})
    settings = TrainSettings.read({**own, **given, "encoder": quick["encoder"]})
    with refused_setting(setting):
        check_early(settings, resume=False)


@pytest.mark.parametrize(("loss", "said"), [(None, True), ("MarginMSELoss", False)])
def test_scores_that_are_not_used_are_named(
    quick: dict[str, Any],
    tmp_path: Path,
    loss: str | None,
    said: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, texts = tmp_path / "scored.jsonl", iter(sentences(60))
    rows = [{"query": a, "pos": [next(texts)], "neg": [next(texts)]} for a in texts]
    scores: dict[str, Any] = {"pos_scores": [0.9], "neg_scores": [0.1]}
    file.write_text("".join(json.dumps({**row, **scores}) + "\n" for row in rows))
    fit(**{**quick, "files": [str(file)], "recipe": "auto", "holdout": 0}, loss=loss)
    assert ("--loss MarginMSELoss" in capsys.readouterr().err) is said


def test_texts_of_one_label_are_not_pushed_apart(quick: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "labelled.csv"
    rows = [f"{text},{i % 3}\n" for i, text in enumerate(sentences(30))]
    file.write_text("text,label\n" + "".join(rows))
    given = {**quick, "files": [str(file)], "max_steps": 1}
    name = "MultipleNegativesRankingLoss"
    with pytest.raises(SettingError, match="leave it out, or choose only columns of texts"):
        fit(**given, loss=name)
    fit(**given, loss=name, columns="text")
