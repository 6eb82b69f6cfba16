"""`--recipe auto`: what it chooses, that it can be overridden and repeated, and its safeguards."""

import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers import AutoTokenizer, T5Config, T5EncoderModel

from isotrope.core.errors import InputError, NotUsed
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.data.records import Record
from isotrope.data.text.tokens import StoreReport
from isotrope.data.text.views import FEWEST, Former, held_out_together
from isotrope.encoders.names import resolve
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.measures.judgement import DevEvaluation, DevHistory
from isotrope.training import recipe_facts
from isotrope.training.auto_recipe import _estimated, with_recipe
from isotrope.training.changes import general_sentences, kept, next_step, similarities
from isotrope.training.early_checks import as_begun
from isotrope.training.recipe_facts import PairFacts
from isotrope.training.refit import refitted
from isotrope.training.run import Outcome
from isotrope.training.settings import CHOSEN, TrainSettings
from isotrope.training.text import summary, train
from isotrope.training.text_data import batches_of, records_of
from isotrope.training.text_encoder import encoder_of

WORDS = ("red", "green", "blue", "loud", "quiet", "fast", "slow", "warm", "cold", "bright", "dark")
THINGS = ("apple", "pear", "drum", "flute", "car", "cart", "lamp", "stone", "river", "cloud")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder for the words of this file; it reads as many tokens as MiniLM."""
    folder = tmp_path_factory.mktemp("small") / "encoder"
    texts = [text for pair in pairs(110) for text in pair]
    texts += [f"ask question answer wrong {i}" for i in range(300)]
    SentenceEncoder.scratch(texts, width=32, layers=1, max_length=256).save(folder)
    return folder


@pytest.fixture
def minilm() -> None:
    """Ask for the real weights of the default encoder."""


@pytest.fixture(autouse=True)
def _small_by_default(
    request: pytest.FixtureRequest, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the default encoder be the small one, unless a test asks for ``minilm``.

    A choice of the recipe takes a second of the real one, and a training of it half a minute.
    """
    if "minilm" not in request.fixturenames:
        default = TrainSettings.model_fields["encoder"].get_default()
        monkeypatch.setattr(
            "isotrope.encoders.sentence.resolve",
            lambda name, **how: small if name == default else resolve(name, **how),
        )


def pairs(count: int) -> list[tuple[str, str]]:
    all_ = [(f"a {w} {t}", f"find me the {t} that is {w}") for t in THINGS for w in WORDS]
    return all_[:count]


def file_of(rows: list[tuple[str, ...]], folder: Path) -> Path:
    path = folder / "pairs.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def chosen(path: Path, output: Path, **given: Any) -> TrainSettings:
    settings = TrainSettings.read({"files": [str(path)], "output": str(output), **given})
    return with_recipe(settings, resume=False)[0]


@pytest.mark.usefixtures("minilm")
def test_pairs_are_trained_without_a_head_at_the_encoders_own_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of(pairs(100), tmp_path)
    quiet = TrainSettings.read({"files": [str(path)], "output": "run", "progress": False})
    with_recipe(quiet, resume=False, lines=False)
    assert capsys.readouterr().err == ""
    found = chosen(path, tmp_path / "run")
    assert (found.head, found.max_length, found.batch_size) == ("none", 256, 64)
    assert found.between < 1
    said = capsys.readouterr().err
    assert "100 pairs" in said
    assert "--head none" in said
    assert len(said.splitlines()) <= 10


def test_the_recipe_counts_the_records_that_the_run_trains_on_or_holds_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pairs(100)
    rows += [(rows[0][0].upper(), rows[0][1]), rows[1]]  # near-identical, and equal
    found = chosen(file_of(rows, tmp_path), tmp_path / "run")
    assert "for 101 different pairs" in capsys.readouterr().err
    report = batches_of(found, encoder_of(found), tmp_path / "tokens").report
    assert (report.kept + report.held_out, report.duplicates_dropped) == (101, 1)
    chosen(file_of(rows[:-1], tmp_path), tmp_path / "run")
    assert "for 101 pairs" in capsys.readouterr().err


def test_the_objective_of_the_recipe_can_be_named(tmp_path: Path) -> None:
    path = file_of(pairs(100), tmp_path)
    with_name = chosen(path, tmp_path / "run", objective="ntxent")
    assert with_name == chosen(path, tmp_path / "run")
    assert chosen(path, tmp_path / "run", objective="infonce").head == "mlp"  # of SimCSE


def test_a_recipe_that_holds_nothing_out_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen(file_of(pairs(20), tmp_path), tmp_path / "run").dev is None
    assert "too few records to hold some out" in capsys.readouterr().err


def test_a_dev_set_that_is_given_as_auto_is_that_of_the_recipe(tmp_path: Path) -> None:
    path = file_of(pairs(110), tmp_path)
    own = {"output": tmp_path / "run", "holdout": 0.4}
    assert chosen(path, **own, dev="auto") == chosen(path, **own)
    assert chosen(path, **own).refit
    assert not chosen(path, **own, dev=str(path)).refit
    assert not chosen(path, **own, dev=None).refit


@pytest.mark.parametrize(("given", "warned"), [("auto", True), ("papers", False)])
def test_a_recipe_that_chooses_nothing_says_so(
    given: str, warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen(file_of(pairs(30), tmp_path), tmp_path / "run", recipe=given, objective="met")
    assert bool(capsys.readouterr().err) is warned


def test_what_is_given_stays(tmp_path: Path) -> None:
    path = file_of(pairs(30), tmp_path)
    given = {"head": "linear", "learning_rate": 1e-5, "batch_size": 4, "between": 1.0}
    found = chosen(path, tmp_path / "run", **given)
    assert {name: getattr(found, name) for name in given} == given
    assert found.max_length == 256


@pytest.mark.parametrize(
    "given", [{"recipe": "papers"}, {"encoder": "scratch"}, {"objective": "met"}, {"lora": 4}]
)
def test_nothing_is_chosen_for(given: dict[str, Any], tmp_path: Path) -> None:
    path = file_of(pairs(30), tmp_path)
    settings = TrainSettings.read({"files": [str(path)], "output": str(tmp_path / "run"), **given})
    assert with_recipe(settings, resume=False) == (settings, None)


def test_every_choice_is_known_to_a_run_that_resumes(tmp_path: Path) -> None:
    path, output = file_of(pairs(16), tmp_path), tmp_path / "run"
    given = {"files": [str(path)], "output": str(output), "epochs": 1, "logger": []}
    outcome = train(TrainSettings.read(given))
    again = train(TrainSettings.read(given), resume=True)
    assert again.result.metrics["steps"] == outcome.result.metrics["steps"]
    before = chosen(path, tmp_path / "other", epochs=1)
    changed = {
        name
        for name, field in TrainSettings.model_fields.items()
        if getattr(before, name) != field.get_default()
    }
    assert changed - {"files", "output", "objective_settings"} <= CHOSEN


def test_the_saved_weights_lie_between_those_before_and_after(tmp_path: Path) -> None:
    path = file_of(pairs(16), tmp_path)
    states = []
    for share in (0.25, 1.0):
        given = {"files": [str(path)], "output": str(tmp_path / str(share)), "logger": []}
        outcome = train(TrainSettings.read({**given, "epochs": 1, "between": share}))
        states.append(outcome.encoder.state_dict())
    start = encoder_of(TrainSettings.read(given)).state_dict()
    for name, value in states[1].items():
        if value.is_floating_point():
            torch.testing.assert_close(states[0][name], start[name].lerp(value, 0.25))
    assert any(not torch.equal(start[name], states[1][name]) for name in start)


def test_the_saved_model_is_the_mean_of_two_trainings(tmp_path: Path) -> None:
    path, output = file_of(pairs(56), tmp_path), tmp_path / "run"
    given = {"files": [str(path)], "output": str(output), "logger": [], "epochs": 1, "seed": 1}
    held = {"dev": "auto", "holdout": 0.45, "prefer": "trained", "batch_size": 16, "between": 1.0}
    held |= {"refit": False}
    alone = train(TrainSettings.read({**given, **held, "output": str(tmp_path / "alone")}))
    outcome = train(TrainSettings.read({**given, **held, "refit": True}))
    assert outcome.result.details["refit"]["records"] == 56
    first, second, mean = (
        SentenceEncoder.load(folder / "model", device="cpu").state_dict()
        for folder in (tmp_path / "alone", output / "refit", output)
    )
    for name, value in first.items():
        if value.is_floating_point():
            torch.testing.assert_close(mean[name], value.lerp(second[name], 0.5))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    again = train(TrainSettings.read({**given, **held, "refit": True}), resume=True)
    without = train(TrainSettings.read({**given, **held}), resume=True)  # --no-refit may be added
    assert without.result.details["refit"] == again.result.details["refit"]
    assert again.result.details["model"] == outcome.result.details["model"]
    assert outcome.result.details["model"] != alone.result.details["model"]
    before = similarities(encoder_of(TrainSettings.read(given)))
    saved = SentenceEncoder.load(output, device="cpu")
    assert outcome.result.details["kept"] == kept(before, saved, DevHistory("dev"))
    assert "mean of two trainings" in (output / "model" / "README.md").read_text()
    late = TrainSettings.read({**given, **held, "refit": True}).model_copy(update={"minutes": 1e-6})
    del outcome.result.details["refit"]
    assert refitted(late, outcome, lambda _: pytest.fail("there is no time")) is outcome
    later = late.model_copy(update={"minutes": None})  # what was decided stays
    assert refitted(later, outcome, lambda _: pytest.fail("there was no time")) is outcome
    assert Result.load(output / "result.json").details["refit"] is None


def test_the_mean_of_weights_that_layers_share(small: Path, tmp_path: Path) -> None:
    tied, output = tmp_path / "t5", tmp_path / "run"
    tokenizer = AutoTokenizer.from_pretrained(small)
    size = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    T5EncoderModel(T5Config(vocab_size=len(tokenizer), **size)).save_pretrained(tied)
    tokenizer.save_pretrained(tied)
    encoder = SentenceEncoder.load(tied, device="cpu")
    encoder.save(output / "model", card="## Citation")
    first = {name: value.detach().clone() for name, value in encoder.named_parameters()}
    assert len(first) < len(encoder.state_dict())  # the embeddings of tokens have two names
    details = {"data": {"records": 9}, "model": {"fingerprint": encoder.fingerprint()}}
    result = Result("train", "run", {"dev_best_step": 1, "seconds": 1.0}, details)
    settings = TrainSettings.read(
        {"files": ["-"], "output": str(output), "encoder": str(tied), "device": "cpu"}
    ).model_copy(update={"refit": True})

    def second(again: TrainSettings) -> Outcome:
        with torch.no_grad():
            for value in encoder.parameters():
                value.add_(1.0)
        encoder.save(Path(again.output) / "model")
        return Outcome(result, Path(again.output))

    refitted(settings, Outcome(result, output), second)
    mean = dict(SentenceEncoder.load(output / "model", device="cpu").named_parameters())
    for name, value in first.items():
        torch.testing.assert_close(mean[name].detach(), value + 0.5)


def test_a_model_that_training_makes_worse_is_kept_apart(tmp_path: Path) -> None:
    path, output = file_of(pairs(120), tmp_path), tmp_path / "run"
    given = {"files": [str(path)], "output": str(output), "logger": [], "dev": "auto"}
    rate = {"learning_rate": 0.5, "max_steps": 3, "holdout": 0.4, "batch_size": 16}
    outcome = train(TrainSettings.read({**given, **rate, "encoder": "all-MiniLM-L6-v2"}))
    assert outcome.result.details["judgement"]["outcome"] == "worse"
    assert outcome.result.details["kept"] is None
    original = SentenceEncoder.load("all-MiniLM-L6-v2", device="cpu").fingerprint()
    rejected = SentenceEncoder.load(RunFolder(output).rejected, device="cpu")
    saved = SentenceEncoder.load(RunFolder(output).model, device="cpu")
    assert saved.fingerprint() == original != rejected.fingerprint()
    assert f"{RunFolder(output).model} (the original" in summary(outcome)
    for printed in (summary(outcome), str(outcome)):
        assert str(RunFolder(output).rejected) in printed
    card = (output / "model" / "README.md").read_text()
    assert "The unchanged embedding model" in card
    assert "the rejected model (step 3)" in card
    assert "this model (step 3)" in (output / "rejected" / "README.md").read_text()


@pytest.mark.parametrize(
    ("count", "held"), [(300, 45), (1_000, 100), (5_000, 100), (20_000, 400), (200_000, 1_000)]
)
def test_a_hundred_pairs_or_a_fiftieth_are_held_out(count: int, held: int) -> None:
    assert round(count * recipe_facts._share(count, PairFacts())) == held


@pytest.mark.parametrize(("count", "held"), [(200, 80), (300, 100), (1_000, 100)])
def test_more_is_held_out_at_chance_level(count: int, held: int) -> None:
    assert round(count * recipe_facts._share(count, PairFacts(chance=True))) == held


def test_hard_negatives_do_not_lower_the_share_that_is_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(f"question {i}", f"answer {i}", f"wrong {k}") for i in range(300) for k in range(20)]
    assert chosen(file_of(rows, tmp_path), tmp_path / "run").holdout == 0.15
    assert "6,000 pairs with hard negatives:" in capsys.readouterr().err  # none shares a text
    assert chosen(file_of(rows[:4000], tmp_path), tmp_path / "run").dev is None  # of 200 pairs


def test_a_group_may_be_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("anchor", "positive", "of")]
    rows += [(f"ask {i}", f"answer {i}", f"g{i % 5}" if i % 3 else "") for i in range(60)]
    chosen(file_of(rows, tmp_path), tmp_path / "run", groups="of")
    assert "60 pairs, 67% of which share a text" in capsys.readouterr().err


def test_a_share_to_hold_out_is_scored_only_if_the_score_can_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"output": tmp_path / "run", "holdout": 0.3}
    assert chosen(file_of(pairs(110), tmp_path), **own).dev == "auto"
    capsys.readouterr()
    texts = tmp_path / "short.txt"
    texts.write_text("".join(f"a text number {i}\n" for i in range(400)))  # too short to be cut
    equal = tmp_path / "equal.tsv"
    equal.write_text("".join(f"a text number {i}\ta text number {i}\n" for i in range(400)))
    for path, why in (
        (texts, "too few records (0 of 400) are texts of at least 8 words to hold some out"),
        (equal, "too few records (0 of 400) are pairs of two different texts to hold some out"),
        (file_of(pairs(40), tmp_path), "too few records to hold some out for a score"),
    ):
        found = chosen(path, **own)
        assert (found.dev, found.holdout, found.eval_every) == (None, 0.3, 0)
        assert why in capsys.readouterr().err
    chosen(path, **own, dev=None)
    said = capsys.readouterr().err
    assert "is saved if" not in said
    assert "too few" not in said


@pytest.mark.parametrize("labels", [0, 10])
def test_a_batch_fits_into_what_is_not_held_out(labels: int, tmp_path: Path) -> None:
    rows: list[tuple[str, ...]] = [(a, b) for a, b in pairs(60)]
    if labels:
        rows = [("text", "label"), *((f"text {i}", f"l{i % labels}") for i in range(40))]
    found = chosen(file_of(rows, tmp_path), tmp_path / "run", holdout=0.4)
    batches = batches_of(found, encoder_of(found), tmp_path / "tokens")
    assert found.batch_size <= sum(map(len, batches.stores.values()))


def test_linked_pairs_are_held_out_together() -> None:
    rows = [(f"question {i}", f"answer {i // 2}") for i in range(400)]  # two questions an answer
    records = [Record(row, Path("p.tsv"), i, False) for i, row in enumerate(rows)]
    former = Former("pairs", 0.2, 0, held_out_together(records, 0.2, seed=0).texts)
    assert former.held is not None
    held = np.array([formed.held for formed in former.form(records)])
    np.testing.assert_array_equal(held[::2], held[1::2])
    assert 40 < held.sum() < 130
    one = [Record((f"question {i}", "yes"), Path("p.tsv"), i, False) for i in range(400)]
    assert held_out_together(one, 0.2, seed=0).texts is None  # one group: each by itself


def held_out_of(sizes: list[int], seed: int = 0) -> frozenset[int] | None:
    answers = [f"answer {k}" for k, size in enumerate(sizes) for _ in range(size)]
    rows = [(f"question {i}", answer) for i, answer in enumerate(answers)]
    records = [Record(row, Path("p.tsv"), i, False) for i, row in enumerate(rows)]
    return held_out_together(records, 0.15, seed).texts


def test_new_questions_of_known_answers_are_held_out() -> None:
    assert held_out_of([3] * 200) is None
    assert held_out_of([2] * 300) is not None
    assert held_out_of([3] * 199 + [2]) is not None


def test_new_questions_are_ranked_among_all_known_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(f"how is the {w} {t}", f"about {t}") for t in THINGS for w in WORDS]
    given = {"files": [str(file_of(rows, tmp_path))], "output": str(tmp_path / "run")}
    outcome = train(TrainSettings.read({**given, "epochs": 1, "dev": "auto", "holdout": 0.2}))
    assert f"among {len(THINGS)} texts" in outcome.result.details["dev"]["name"]
    assert "score, all answers are ranked" in capsys.readouterr().err


@pytest.mark.parametrize(("questions", "wrong"), [(2, 1), (3, 1), (1, 4)])
def test_the_answers_of_all_pairs_decide_whether_they_are_known(
    questions: int, wrong: int, tmp_path: Path
) -> None:
    """A pair with four negatives is one pair, and held-out pairs count as well."""
    names = [f"answer {k}" for k in range(60)]
    rows = [
        (f"question {i} {name}", name, *([f"wrong {k}"] if wrong > 1 else []))
        for name in names
        for i in range(questions)
        for k in range(wrong)
    ]
    given = {"files": [str(file_of(rows, tmp_path))], "output": str(tmp_path / "run")}
    settings = TrainSettings.read({**given, "holdout": 0.15, "dev": "auto"})
    store = batches_of(settings, encoder_of(settings), tmp_path).stores[""]
    assert store.report.held_out > 0
    assert store.report.kept < 3 * 60 or wrong > 1
    assert sorted(store.answers()) == (sorted(names) if questions == 3 else [])


def test_sets_that_leave_too_few_are_not_held_out_together() -> None:
    sizes = [1] * 160 + [2] * 100 + [40] * 6  # the six are too large
    held = [held_out_of(sizes, seed) for seed in range(20)]
    assert any(each is None for each in held)
    # a set of hashes has as many questions as pairs, and at least half as many answers
    assert all(each is None or len(each) >= 1.5 * FEWEST for each in held)


def test_the_model_before_training_keeps_all() -> None:
    minilm = SentenceEncoder.load("all-MiniLM-L6-v2", device="cpu")
    before = similarities(minilm)
    assert len(general_sentences()) == 300
    assert kept(before, minilm, DevHistory("dev")) == 100
    worse = DevHistory("dev")
    for step, value in ((0, 60.0), (8, 50.0)):
        worse.add(step, DevEvaluation(value, np.full(4, value / 100)))
    assert kept(before, minilm, worse) is None  # the start is what was saved
    assert kept(None, minilm, worse) is None


@pytest.mark.parametrize(
    ("loss", "layers", "rate"),
    [
        *[(0.1, 6, 3e-5), (0.2, 6, 1e-4), (0.4, 6, 3e-4), (2.0, 7, 3e-4), (2.0, 5, 4e-4)],
        *[(2.0, 3, 6e-4), (2.0, 1, 6e-4), (0.1, 3, 6e-5)],
    ],
)
def test_the_rate_falls_with_what_there_is_to_learn_and_with_layers(
    loss: float, layers: int, rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isotrope.training.recipe_facts._contrast", lambda *_: PairFacts(loss=loss))
    encoder = tmp_path / "encoder"
    SentenceEncoder.scratch(["a b"], width=32, layers=layers, max_length=256).save(encoder)
    path = file_of(pairs(110), tmp_path)
    assert chosen(path, tmp_path / "run", encoder=str(encoder)).learning_rate == rate


def test_the_loss_is_measured_with_the_prompts_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def measured(anchors: list[str], positives: list[str], *_: object) -> PairFacts:
        seen.extend(zip(anchors, positives, strict=True))
        return PairFacts()

    monkeypatch.setattr("isotrope.training.recipe_facts._contrast", measured)
    chosen(file_of(pairs(9), tmp_path), tmp_path / "run", query_prompt="ask: ")
    assert all(query.startswith("ask: a ") and text[:4] == "find" for query, text in seen)
    assert len(seen) == 9


def test_a_larger_budget_trains_longer_and_then_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        (f"{a} {b}", f"the {b} that is {a}, number {i}") for i in range(4) for a, b in pairs(75)
    ]
    path = file_of(rows, tmp_path)
    found = [chosen(path, tmp_path / "run", minutes=m) for m in (1e-4, 1e-3, 1e4)]
    epochs = [each.epochs for each in found]
    assert epochs == sorted(epochs)
    assert epochs[0] < epochs[2]
    assert all(each.refit for each in found)  # if there is time after the first
    own = chosen(path, tmp_path / "run", minutes=1e-4, epochs=2.0)
    assert own.epochs < 2.0
    said = capsys.readouterr().err
    assert f"--minutes 0.0001 has time for {own.epochs:g} of 2 epochs (steps: about 1)" in said
    assert "a second training, about as long" in said
    assert "if --minutes has time for it" in said
    given = {"files": [str(path)], "output": str(tmp_path / "run")}
    begun = TrainSettings.read({**given, "minutes": 1e-4})
    Path(begun.output).mkdir()
    (Path(begun.output) / "config.yaml").write_text(begun.to_yaml())
    capsys.readouterr()
    assert with_recipe(begun, resume=True) == (begun, None)  # a resumed run keeps what it chose
    assert capsys.readouterr().err == ""
    Path(begun.output, "config.yaml").unlink()
    assert (own.log_every, chosen(path, tmp_path / "run", epochs=80.0).log_every) == (1, 10)
    with pytest.raises(InputError, match="recipe"):
        chosen(path, tmp_path / "run", minutes=5, recipe="papers")


def test_texts_are_shortened_before_an_epoch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("isotrope.training.recipe_facts._seconds", lambda *_: 1.0)  # a record
    monkeypatch.setattr("isotrope.training.recipe_facts.time.monotonic", lambda: 0.0)  # no load
    rows = [(f"{a} {i}", f"{i} {b} {'word ' * 300}") for i in range(3) for a, b in pairs(100)]
    long = file_of(rows, tmp_path)
    found = [chosen(long, tmp_path / "run", minutes=m) for m in (0.5, 2, 4, 60)]
    assert [each.max_length for each in found] == [64, 64, 128, 256]
    assert found[0].epochs < 1 <= min(each.epochs for each in found[1:])
    assert [each.prefer for each in found] == ["best", "best", "best", "trained"]
    told = capsys.readouterr().err
    assert "--max-length 128: --minutes 4 has no time for an epoch with longer texts" in told
    assert "the original model is saved if the trained one is not better" in told
    single = tmp_path / "texts.txt"
    single.write_text("".join(f"{b}\n" for _, b in rows))
    chosen(single, tmp_path / "run", minutes=2)
    assert "--max-length 64: --minutes 2 has no time for" in capsys.readouterr().err
    given = chosen(long, tmp_path / "run", minutes=1, max_length=256)
    assert (given.max_length, given.epochs < 1) == (256, True)


def test_texts_are_not_shortened_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isotrope.training.recipe_facts._seconds", lambda *_: 1.0)  # a record
    short = file_of([(f"{a} {i}", f"{i} {b}") for i in range(3) for a, b in pairs(100)], tmp_path)
    assert chosen(short, tmp_path / "run", minutes=0.5).max_length == 256
    rows = [(f"{a} {i}", f"{i} {b} {'word ' * 90}") for i in range(3) for a, b in pairs(100)]
    middle = file_of(rows, tmp_path)  # 128 tokens cut none of them
    assert chosen(middle, tmp_path / "run", minutes=0.5).max_length == 64


def test_the_recipe_says_how_many_linked_pairs_were_to_be_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sets of eleven pairs are too large for a hundred held-out pairs, but not for 150."""
    answers = [f"answer {i // 11 if i < 440 else i}" for i in range(1000)]
    rows = [
        (f"{i} {a}", b) for i, ((a, _), b) in enumerate(zip(pairs(100) * 10, answers, strict=False))
    ]
    found = chosen(file_of(rows, tmp_path), tmp_path / "run")
    pattern = r"\((\d+) in place of about 100, because .* `--holdout ([\d.]+)` holds out more"
    few = re.search(pattern, capsys.readouterr().err)
    assert few is not None
    assert int(few[1]) < 80 <= 1000 * found.holdout
    share, records = float(few[2]), [Record(r, Path("p"), 1, False) for r in rows]
    former = Former("pairs", share, 0, held_out_together(records, share, seed=0).texts)
    assert sum(formed.held for formed in former.form(records)) > int(few[1])
    chosen(file_of(rows, tmp_path), tmp_path / "run", holdout=0.1)
    assert "in place of" not in capsys.readouterr().err


def test_minutes_lower_the_epochs_and_steps_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("isotrope.training.recipe_facts._seconds", lambda *_: 1.0)  # a record
    path, texts = file_of(pairs(110), tmp_path), tmp_path / "texts.txt"
    texts.write_text("".join(f"{a} and {b}\n" for a, b in pairs(110)))
    for data in (path, texts):
        given = {"files": [str(data)], "output": str(tmp_path / "run"), "minutes": 0.5}
        for limit, unit in (
            ({"epochs": 50.0}, "of 50 epochs"),
            ({"max_steps": 900}, "of 900 steps"),
        ):
            settings = TrainSettings.read({**given, **limit})
            found, plan = with_recipe(settings, resume=False)
            ((name, value),) = limit.items()
            assert 0 < getattr(found, name) < value
            assert plan is not None
            assert plan.whole == {name: value}
            said = capsys.readouterr().err
            assert "--minutes 0.5 has time for " in said
            assert unit in said
            assert not plan.second
            assert "second training" not in said  # nothing is held out
            Path(found.output).mkdir()
            (Path(found.output) / "config.yaml").write_text(found.to_yaml())
            again = as_begun(settings)
            assert getattr(again, name) == getattr(found, name)
            (Path(found.output) / "config.yaml").unlink()
            Path(found.output).rmdir()
    assert chosen(path, tmp_path / "run", minutes=1e4, epochs=50.0).epochs == 50
    with pytest.raises(InputError, match="recipe"):
        chosen(path, tmp_path / "run", minutes=5, recipe="papers", epochs=1.0)


def test_hard_negatives_are_counted_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []
    measured = recipe_facts._seconds

    def seconds(few: Any, *rest: Any) -> float:
        timed.extend(len(record) for record in few)
        return measured(few, *rest)

    monkeypatch.setattr("isotrope.training.recipe_facts._seconds", seconds)
    monkeypatch.setattr("isotrope.training.recipe_facts._contrast", lambda *_: PairFacts(loss=1.0))
    own = pairs(110)
    rows = [(a, b, own[(i + k) % 110][1]) for i, (a, b) in enumerate(own) for k in range(1, 11)]
    path = file_of(rows, tmp_path)
    assert chosen(path, tmp_path / "run", minutes=1e3).epochs == round(5_000 / 1_100)
    assert timed == [3] * 16


def test_the_steps_that_are_given_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = chosen(file_of(pairs(110), tmp_path), tmp_path / "run", max_steps=2, holdout=0.4)
    said = capsys.readouterr().err
    assert (found.max_steps, found.log_every, found.prefer) == (2, 1, "best")
    compared = "if the trained one is not better on held-out pairs (so few steps change little)"
    assert f"{compared}, which share no text with the others\n" in said
    assert "--epochs" not in said
    assert "--dev auto" in said


def test_what_was_not_measured_or_held_out_is_not_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, dev, scored = file_of(pairs(110), tmp_path), tmp_path / "dev.tsv", tmp_path / "s.csv"
    dev.write_text("".join(f"{a}\t{b}\n" for a, b in pairs(30)))
    chosen(path, tmp_path / "run", dev=str(dev))
    assert (
        "the original model is saved if the trained one is worse by more than two standard errors\n"
        in capsys.readouterr().err
    )
    rows = [f"{a},{b},{i % 7}\n" for i, (a, b) in enumerate(pairs(110))]
    scored.write_text("sentence1,sentence2,score\n" + "".join(rows))
    chosen(scored, tmp_path / "run")
    said = capsys.readouterr().err
    assert "no loss was measured before training" in said
    assert "there is much to learn" not in said
    chosen(path, tmp_path / "run", loss="MultipleNegativesRankingLoss")
    assert "length limit (32 tokens)" in capsys.readouterr().err
    chosen(path, tmp_path / "run", loss="MultipleNegativesRankingLoss", learning_rate=1e-4)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("seed", range(20))
def test_chance_does_not_end_the_grouping(seed: int) -> None:
    rows = [(f"question {i}", f"answer {i}") for i in range(400)]
    records = [Record(row, Path("p.tsv"), i, False) for i, row in enumerate(rows)]
    held = held_out_together(records, 0.1, seed).texts  # 40 on average
    assert held is not None
    assert len(held) > FEWEST  # two texts of each pair


def test_queries_of_a_dev_file_that_are_trained_on_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, dev = file_of(pairs(30), tmp_path), tmp_path / "dev.tsv"
    dev.write_text("".join(f"{a.upper()}!\t{b}\n" for a, b in pairs(32)[20:]))
    given = {"files": [str(path)], "output": str(tmp_path / "run"), "logger": [], "max_steps": 1}
    train(TrainSettings.read({**given, "dev": str(dev)}))
    assert "10 of 12 queries" in capsys.readouterr().err


def test_scored_pairs_of_a_dev_file_that_are_trained_on_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scored = [(a, b, str(i % 5)) for i, (a, b) in enumerate(pairs(32))]
    header = ("sentence1", "sentence2", "score")
    path = file_of([header, *scored[:30]], tmp_path)
    (tmp_path / "other").mkdir()
    dev = file_of([header, *scored[20:]], tmp_path / "other")
    given: dict[str, object] = {"files": [str(path)], "output": str(tmp_path / "run")}
    given |= {"logger": [], "max_steps": 1}
    given |= {"loss": "CoSENTLoss", "batch_size": 8, "dev": str(dev)}
    train(TrainSettings.read(given))
    assert "which contain 10 of 12" in capsys.readouterr().err


def test_what_to_try_next(tmp_path: Path) -> None:
    counts = dict.fromkeys([field.name for field in fields(StoreReport)], 0)
    known = {"kept": 100, "columns": 2, "max_length": 32, "truncated_share": 0.5}
    short = StoreReport(**{**counts, **known})  # type: ignore[arg-type]
    file = file_of(pairs(4), tmp_path)
    settings = TrainSettings.read({"files": [str(file)], "output": "run"})
    wide: Any = SimpleNamespace(positions=512, limit_clause="the limits")
    narrow: Any = SimpleNamespace(positions=32, limit_clause="")
    advice = next_step(short, wide, DevHistory("dev"), settings)
    assert "--max-length 64" in advice
    assert wide.limit_clause in advice
    assert "an encoder for longer texts" in next_step(short, narrow, DevHistory("dev"), settings)
    few = replace(short, truncated_share=0.0)
    assert "or add pairs (now 100)" in next_step(few, narrow, DevHistory("dev"), settings)
    assert "; then look for wrong pairs" in next_step(short, wide, DevHistory("dev"), settings)
    for report, encoder in ((few, wide), (short, wide), (short, narrow)):  # they take longer
        advice = next_step(report, encoder, DevHistory("dev"), settings, "train longer: why")
        assert advice.startswith("next, train longer: why; then look for wrong pairs")
    many = replace(few, kept=10_000)
    assert (
        next_step(many, wide, DevHistory("dev"), settings, "train longer") == "next, train longer"
    )
    easy = DevHistory("held-out MRR@10 of 4 queries among 4 texts", "trained")
    for step in (0, 8):
        easy.add(step, DevEvaluation(95.0, np.array([1.0, 0.9, 1.0, 0.9])))
    asked = f"RUN --retrieval NEW --corpus {file}`"
    assert asked in next_step(short, wide, easy, settings)
    assert "add pairs (now 100)" in next_step(short, wide, easy, settings, "train longer")
    worse = DevHistory("dev", scores={0: 60.0, 8: 50.0})
    asked = f"--compare RUN RUN/rejected --retrieval NEW --corpus {file}`"
    for longer in ("", "train longer"):  # diagnose quotes advice to train longer, not itself
        advice = next_step(short, wide, worse, settings, longer)
        assert asked in advice
        assert ("isotrope diagnose RUN" in advice) is (not longer)
    for changed, task in (
        ({"scored": 1}, "with a file NEW of scored pairs .*--sts NEW`"),
        ({"scored": 1, "columns": 3}, "of pairs .*--retrieval NEW --corpus"),
        ({"grouped": True}, "of labelled texts .*--retrieval NEW`"),
    ):
        assert re.search(task, next_step(replace(short, **changed), wide, worse, settings))
    named = settings.model_copy(update={"columns": ["text", "label=a b"]})
    advice = next_step(replace(short, grouped=True), wide, worse, named)
    assert "--retrieval NEW --columns 'text,label=a b'`" in advice


@pytest.mark.usefixtures("minilm")
def test_pairs_at_chance_level_are_saved_only_if_training_clearly_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = pairs(110)
    mixed = [(a, own[(i * 37 + 11) % 110][1]) for i, (a, _) in enumerate(own)]
    found = chosen(file_of([*mixed], tmp_path), tmp_path / "run")
    assert (found.dev, found.holdout, found.prefer) == ("auto", 0.4, "original")
    assert "chance level. Are rows mixed up" in capsys.readouterr().err
    few = file_of([*mixed[:60]], tmp_path)
    with pytest.raises(InputError, match="chance level"):
        chosen(few, tmp_path / "run")
    assert chosen(few, tmp_path / "run", holdout=0.0).dev is None


@pytest.mark.usefixtures("minilm")
def test_scores_without_order_and_labels_without_likeness_are_at_chance_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, path = pairs(110), tmp_path / "data.csv"
    rows = [(a, own[i // 2 * 2][1], int(i % 2 == 0)) for i, (a, _) in enumerate(own)]
    for flip, prefer in ((0, "trained"), (1, "original")):  # 1: high scores mean a distance
        lines = (f"{a},{b},{abs(flip - score)}\n" for a, b, score in rows)
        path.write_text("sentence1,sentence2,score\n" + "".join(lines))
        assert chosen(path, tmp_path / "run", holdout=0.4).prefer == prefer
        assert ("check the scores" in capsys.readouterr().err) == bool(flip)
    lines = (f"{own[37 * i % 110][0]},{i % 2}\n" for i in range(110))
    path.write_text("text,label\n" + "".join(lines))
    found = chosen(path, tmp_path / "run")
    assert (found.dev, found.dev_metric, found.prefer) == ("auto", "ndcg@10", "original")
    said = capsys.readouterr().err
    assert "for 110 labelled texts:" in said
    assert "check the labels" in said


@pytest.mark.usefixtures("minilm")
def test_answers_of_several_pairs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "the pairs have only 52 different second texts"
    rows = [(f"{a} {i}", b) for a, b in pairs(52) for i in "xy"]
    chosen(file_of(rows, tmp_path), tmp_path / "run")
    assert f"{told}. If your search will find other texts" in capsys.readouterr().err
    chosen(file_of(rows, tmp_path), tmp_path / "run", learning_rate=1e-4)
    chosen(file_of([*rows, ("another", "text")][1:], tmp_path), tmp_path / "run")
    assert "different second texts" not in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["auto", "papers"])
def test_a_column_of_labels_is_named_before_the_settings(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(f"{a} {i}", f"about {a.split()[-1]}") for i in range(2) for a, _ in pairs(110)]
    file = tmp_path / "requests.csv"
    file.write_text("".join(f"{a},{b}\n" for a, b in [("request", "topic"), *rows]))
    how: dict[str, Any] = {"recipe": recipe, "columns": ["request", "topic"]}
    chosen(file, tmp_path / "run", **how)
    first, *others = capsys.readouterr().err.splitlines()
    assert "(10 values in 220 rows)" in first
    assert "columns='text=request,label=topic'" in first
    assert not [line for line in others if "different second texts" in line]
    chosen(file, tmp_path / "run", **{**how, "columns": ["text=request", "label=topic"]})
    said = capsys.readouterr().err
    assert "label=topic" not in said
    assert ("220 labelled texts" in said) == (recipe == "auto")


def test_few_first_texts_are_neither_all_held_out_nor_called_few_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    things = THINGS[:3]
    rows = [(f"a {t}", f"{w} {t} {i}") for i in range(10) for t in things for w in WORDS]
    for seed in range(4):
        found = chosen(file_of([*rows], tmp_path), tmp_path / "run", seed=seed)
        assert (found.dev, found.holdout) == (None, 0)
    said = capsys.readouterr().err
    assert "(3 values in 330 rows)" in said
    assert "columns='text=2,label=1'" in said
    assert "the pairs have too few different first texts to hold some out" in said
    one = [("the same", f"answer {i}") for i in range(30)]
    with pytest.raises(InputError, match="all 30 records are in one group"):
        chosen(file_of([*one], tmp_path), tmp_path / "run")


def test_a_txt_file_is_single_texts_for_the_recipe_and_for_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{a} and so on\t{b}\n" for a, b in pairs(110)))
    found = chosen(texts, tmp_path / "run")
    assert "for 110 single texts" in capsys.readouterr().err
    reading = records_of(found, "")
    assert {len(record.texts) for record in reading} == {1}
    assert "if they separate columns, name it .tsv" in str(reading)


def test_rows_of_a_group_are_not_said_to_share_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    lines = (f"{a},{b},{i // 2}\n" for i, (a, b) in enumerate(pairs(30)))
    path.write_text("anchor,positive,label\n" + "".join(lines))
    chosen(path, tmp_path / "run", groups="label")
    assert "100% of which share a text or group with others" in capsys.readouterr().err


def test_nothing_is_measured_if_a_configuration_has_all_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = chosen(file_of(pairs(100), tmp_path), tmp_path / "run")
    capsys.readouterr()
    again = TrainSettings.read(yaml.safe_load(begun.to_yaml()))
    assert with_recipe(again, resume=False) == (again, None)
    assert again == begun
    assert "choosing settings" not in capsys.readouterr().err


@pytest.mark.parametrize(("every", "named"), [(0, True), (5, False)])
def test_patience_without_scores_between_is_named(every: int, named: bool) -> None:
    given = {"files": ["x"], "output": "run", "dev": "auto", "patience": 2, "eval_every": every}
    notes: list[str] = []
    TrainSettings.read(given).check_used(notes.append)
    assert any("patience" in note for note in notes) is named


@pytest.mark.usefixtures("minilm")
@pytest.mark.parametrize("texts", [1, 2])
def test_patience_has_scores_to_count(texts: int, tmp_path: Path) -> None:
    path = file_of([tuple(row[:texts]) for row in pairs(110)], tmp_path)
    given = {"dev": "auto", "holdout": 0.4, "patience": 2, "batch_size": 2}
    few = chosen(path, tmp_path / "run", max_steps=10, **given)
    kept = "original" if texts == 1 else "best"
    assert (few.eval_every, few.prefer, few.refit) == (1, kept, False)
    many = chosen(path, tmp_path / "run", max_steps=1_000, **given)
    assert (many.eval_every, many.prefer) == (50, kept)
    assert chosen(path, tmp_path / "run", max_steps=9_999, **given).eval_every == 125
    assert chosen(path, tmp_path / "run", eval_every=7, **given).eval_every == 7
    # --minutes corrects the number of steps, and with it the steps between scores
    timed = TrainSettings.read({"files": [str(path)], "output": "run", "minutes": 9.0, **given})
    limit = with_recipe(timed, resume=False)[1]
    assert limit is not None
    assert "eval_every" in limit.derived
    assert "prefer" not in limit.derived


@pytest.mark.usefixtures("minilm")
def test_what_the_recipe_says_is_what_the_run_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(pairs(110), tmp_path)
    assert chosen(path, tmp_path / "run", holdout=0.4).refit
    found = chosen(path, tmp_path / "run", holdout=0.4, patience=2, eval_every=5)
    assert not found.refit  # nothing would end a second training
    capsys.readouterr()
    assert chosen(path, tmp_path / "run", holdout=0.4, prefer="best").prefer == "best"
    assert "the original model is saved if the trained one is not better on" in (
        capsys.readouterr().err
    )
    monkeypatch.setattr("isotrope.training.recipe_facts._RECORDS", 105)
    chosen(path, tmp_path / "run")
    assert "for the first 105 pairs" in capsys.readouterr().err
    alone = tmp_path / "alone.txt"
    alone.write_text("".join(f"{b}, and some more words\n" for _, b in pairs(110)))
    found = chosen(alone, tmp_path / "run", holdout=0.4)
    assert found.prefer == "original"
    told = capsys.readouterr().err
    assert "if the trained one is not better by more than two" in told
    assert "they can teach this encoder little" in told
    monkeypatch.setattr("isotrope.training.recipe_facts._loss_of_texts", lambda *_: 1.0)
    assert chosen(alone, tmp_path / "run", holdout=0.4).prefer == "best"
    assert "they can teach this encoder much" in capsys.readouterr().err


def test_a_loss_of_one_process_is_not_split_between_several(tmp_path: Path) -> None:
    settings = TrainSettings(
        files=["a.tsv"], output=str(tmp_path), loss="MultipleNegativesRankingLoss"
    )
    settings.check_used(processes=1)
    with pytest.raises(NotUsed, match="start one process"):
        settings.check_used(processes=2)


def test_what_texts_can_teach_is_not_said_without_dropout_or_a_whole_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{b}, and some more words\n" for _, b in pairs(110)))
    chosen(path, tmp_path / "run", dropout=0.0)
    path.write_text("".join(f"{b}, and some more words\n" for _, b in pairs(50)))
    chosen(path, tmp_path / "run")
    assert "can teach" not in capsys.readouterr().err


@pytest.mark.usefixtures("minilm")
@pytest.mark.parametrize(
    ("own", "printed"),
    [
        ({}, "the steps take about 40 minutes as measured here; `--minutes N` sets a limit"),
        ({"refit": False}, "the steps take about 20 minutes as measured here"),
        ({"max_length": 64}, "the steps take about 20 minutes as measured here"),
        ({"epochs": 80.0}, "the steps take about 13.3 hours as measured here"),
        ({"epochs": 0.1}, None),
        ({"minutes": 5.0}, None),
        ({"devices": 2}, None),
    ],
)
def test_a_long_training_is_announced(own: dict[str, Any], printed: str | None) -> None:
    """1,000 records of 128 tokens, trained on in four epochs, twice, at 0.3 seconds a record."""
    split = recipe_facts.Split(held=0, share=0, apart=True, lacks="")
    facts = recipe_facts.Facts(
        records=1000, columns=2, trained=1000, start=PairFacts(), split=split, seconds=0.3,
        spent=0.0, tokens=np.full(16, 128), kind="pairs", repeated=0,
    )  # fmt: skip
    given = {"epochs": 4.0, "max_length": 128, "refit": True, **own}
    settings = TrainSettings(files=["pairs.tsv"], output="run", **given)
    lines = list(_estimated(facts, settings))
    assert len(lines) == (printed is not None)
    assert not printed or printed in lines[0]
    unread = list(_estimated(replace(facts, more=True), settings))
    assert [line.replace("at least", "about") for line in unread] == lines
    assert all("at least" in line for line in unread)
