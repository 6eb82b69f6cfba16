"""The records of hosts, and that the diagnosis itself knows none of them."""

import re
from pathlib import Path

import isotrope.diagnostics
from isotrope.adapters.doctor.messages import HOSTS, words_of
from isotrope.diagnostics.evidence import Words

NAMES = re.compile(
    r"sentence.?transformers|hugging.?face|\blightning|\blightly|open_?clip|FlagEmbedding|tevatron"
    r"|pylate|\bswift|metric.learning|stable.pretraining|MultipleNegatives",
    re.IGNORECASE,
)


def test_no_name_of_a_host_occurs_in_the_diagnosis() -> None:
    """The audit writes losses for a trainer, and is no part of the diagnosis."""
    folder = Path(isotrope.diagnostics.__file__).parent
    named = {
        f"{file.name}: {found.group()}"
        for file in folder.rglob("*.py")
        if "audit" not in file.parts
        for found in NAMES.finditer(file.read_text(encoding="utf-8"))
    }
    assert not named


def test_a_trainer_made_from_another_has_its_own_words() -> None:
    trainer = type("Trainer", (), {"__module__": "transformers.trainer"})
    flag = type("EncoderOnlyEmbedderTrainer", (trainer,), {"__module__": "FlagEmbedding.finetune"})
    assert words_of([], trainer()) == HOSTS["transformers"]
    assert words_of([], flag()).of_temperature(0.05, 1.0) == "--temperature 0.05 (now 1)"
    assert words_of([], object()) == Words()


def test_a_model_does_not_name_the_flags_of_a_script_that_does_not_train_it() -> None:
    model = type("CLIP", (), {"__module__": "open_clip.model"})
    module = type("LightningModule", (), {"__module__": "lightning.pytorch.core.module"})
    assert words_of([module(), model()]) == Words()


def test_a_module_does_not_name_the_arguments_of_a_trainer_that_does_not_train_it() -> None:
    """A LightningModule may hold a model of transformers and a loss of sentence-transformers."""
    model = type("BertModel", (), {"__module__": "transformers.models.bert"})
    assert words_of([model()]) == Words()
    theirs = {"__module__": "sentence_transformers.losses", "scale": 20}
    words = words_of([model(), type("Loss", (), theirs)()])
    assert words.of_temperature(0.05, 1.0) == "scale=20 (now 1)"
    assert (words.rate, words.batch, words.copies) == (Words().rate, Words().batch, Words().copies)


def test_a_scale_is_one_over_the_temperature() -> None:
    words = HOSTS["sentence_transformers"]
    assert words.of_temperature(0.05, 0.001) == "scale=20 (now 1e+03)"
    plain = "similarities divided by a temperature of 0.05"
    assert Words().of_temperature(0.05, None) == plain


def test_only_an_argument_that_a_loss_has_is_named() -> None:
    library = {"__module__": "sentence_transformers.losses"}
    scaled, other = (type("Loss", (), {**library, **more}) for more in ({"scale": 20}, {}))
    trainer = type("Trainer", (), {"__module__": "sentence_transformers.trainer"})()
    assert words_of([other(), scaled()], trainer) == HOSTS["sentence_transformers"]
    words = words_of([other()], trainer)
    assert words.of_temperature(0.05, 1.0).endswith("a temperature of 0.05 (now 1)")
    assert words.margin == HOSTS["sentence_transformers"].margin
    # GISTEmbedLoss has a temperature, and no scale
    gist = type("Loss", (), {**library, "temperature": 0.01})()
    words = words_of([other(), gist], trainer)
    assert words.of_temperature(0.05, 0.01) == "temperature=0.05 (now 0.01)"
