"""Static embeddings train, save and load as in sentence-transformers, and have no layers."""

import re
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

import isotrope
from isotrope.core.errors import InputError
from isotrope.encoders.sentence import SentenceEncoder
from tests.training.conftest import sentences

TEXTS = ["a tall ship sails", "", "bread", "doors of a house " * 60 + "bread"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("static")
    encoder = SentenceEncoder.scratch(sentences(60), width=8, layers=1, heads=1, vocabulary=200)
    words = StaticEmbedding(encoder.tokenizer.backend_tokenizer, embedding_dim=12)
    SentenceTransformer(modules=[words], device="cpu").save(str(place / "m"))
    return place / "m"


def same(encoder: SentenceEncoder, model: Path) -> None:
    theirs = SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs, atol=1e-6)


def test_it_is_what_sentence_transformers_has(folder: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(folder)
    assert (encoder.dimension, encoder.tokenize(["", "a"], 8)[0][0]) == (12, [])
    same(encoder, folder)
    encoder.save(tmp_path / "again")
    same(encoder, tmp_path / "again")


@pytest.mark.parametrize(("limit", "side"), [(None, "right"), (8, "left"), (32, "right")])
def test_it_is_saved_with_its_new_length(
    folder: Path, tmp_path: Path, limit: int | None, side: str
) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    if limit is not None:
        model[0].tokenizer.enable_truncation(limit, direction=side)
    encoder = SentenceEncoder(model, "m")
    before = encoder.encode(TEXTS)
    assert [*map(int, re.findall(r"\d+", encoder.limit_clause))] == ([limit] if limit else [])
    encoder.extend(16)
    encoder.save(tmp_path / "again")
    same(encoder, tmp_path / "again")
    assert SentenceEncoder.load(tmp_path / "again").max_length == 16
    assert np.abs(encoder.encode(TEXTS) - before).max() > 1e-3


def test_it_trains(folder: Path, tmp_path: Path) -> None:
    pairs = [(text, f"{text} and more") for text in sentences(40)]
    options = {"encoder": str(folder), "batch_size": 8, "max_steps": 2, "progress": False}
    outcome = isotrope.fit(
        pairs, output=tmp_path / "run", learning_rate=0.01, head="none", **options
    )
    trained = isotrope.load(outcome.output)
    assert isinstance(trained, SentenceEncoder)
    same(trained, outcome.output / "model")
    assert np.abs(trained.encode(TEXTS) - SentenceEncoder.load(folder).encode(TEXTS)).max() > 1e-3
    for setting in ({"lora": 4}, {"gradient_checkpointing": True}):
        with pytest.raises(InputError, match=r"the static embeddings of .* have no layers"):
            isotrope.fit(pairs, output=tmp_path / "other", head="none", **options, **setting)
