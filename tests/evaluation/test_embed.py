import numpy as np
import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.core.progress import showing
from isotrope.evaluation.embed import CachedEncoder, Encoder, Truncated, embed, encoder_name, stored

from .conftest import Table


def test_distinct_texts_are_asked_for_once_and_options_passed_on():
    table = Table({"a": [1, 0], "b": [0, 1]})
    with showing(show=True):
        out = embed(table, ["b", "a", "b"], batch_size=7)
    assert out.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert out.dtype == np.float32
    assert table.calls == [(["b", "a"], 7, True)]


def test_a_cached_encoder_gets_each_text_once_in_all_calls():
    table = Table({"a": [1, 0], "b": [0, 1], "c": [1, 1]})
    cached = CachedEncoder(table, batch_size=7)
    assert embed(cached, ["b", "a", "b"]).tolist() == [[0, 1], [1, 0], [0, 1]]
    assert embed(cached, ["c", "a", "c"]).tolist() == [[1, 1], [1, 0], [1, 1]]
    assert [texts for texts, *_ in table.calls] == [["b", "a"], ["c"]]


def test_an_encoder_of_sentence_transformers_will_do(tiny, capsys):
    texts = ["the river", "a boat", "the river"]
    np.testing.assert_allclose(embed(tiny.model, texts), embed(tiny, texts), atol=1e-6)
    assert capsys.readouterr().err == ""
    with showing(show=True):
        embed(tiny.model, texts)
    assert "Batches" in capsys.readouterr().err


def test_an_encoder_without_options_that_returns_lists_will_do():
    class Plain:
        def encode(self, texts):
            return [[float(len(text)), 1.0] for text in texts]

    assert isinstance(Plain(), Encoder)
    assert embed(Plain(), ["a", "bcd"]).tolist() == [[1, 1], [3, 1]]
    assert encoder_name(Plain()) == "Plain"


def test_something_that_is_no_encoder():
    with pytest.raises(InputError, match="with a method encode: dict has none"):
        embed({}, ["a"])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (torch.ones(2, 3, requires_grad=True), "the Tensor that it returned .*detach"),
        ([[1.0], [1.0, 2.0]], "the list that it returned .*inhomogeneous"),
        ("ab", "the str that it returned .*convert"),
        (np.full((2, 3), 1e300), "returned numbers that are not finite"),
    ],
)
def test_an_encoder_that_returns_no_array_of_numbers(found, message):
    class Wrong:
        name = "wrong"

        def encode(self, texts):
            return found

    with pytest.raises(InputError, match=rf"wrong.*{message}"):
        embed(Wrong(), ["a", "b"])


@pytest.mark.parametrize("shape", [(2,), (1, 3)])
def test_an_encoder_that_returns_something_else(shape):
    class Wrong:
        name = "wrong"

        def encode(self, texts):
            return np.zeros(shape)

    with pytest.raises(InputError, match=r"wrong\.encode must return one vector for each of 2"):
        embed(Wrong(), ["a", "b"])


def test_truncated_embeddings_are_those_of_sentence_transformers(tiny, tmp_path):
    from sentence_transformers import SentenceTransformer

    texts = ["the river", "a boat", "the river"]
    tiny.save(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu", truncate_dim=5)
    ours = Truncated(tiny, 5)
    np.testing.assert_allclose(embed(ours, texts), theirs.encode(texts), atol=1e-6)
    assert encoder_name(ours) == f"{tiny.name}, 5 x float32 (20 bytes)"
    assert ours.fingerprint() not in (tiny.fingerprint(), Truncated(tiny, 6).fingerprint())
    assert Truncated(Table({"a": [1, 0]}), 1).fingerprint() is None
    assert Truncated(CachedEncoder(Table({"a": [1, 0]})), 1).fingerprint() is None


def test_a_vector_in_fewer_bits_is_what_sentence_transformers_stores(tiny):
    quantization = pytest.importorskip("sentence_transformers.util.quantization")
    texts = ["the river", "a boat", "the bank of the river", "nothing"]
    full = tiny.encode(texts)
    ours = Truncated(tiny, tiny.dimension, "int8").encode(texts)
    theirs = quantization.quantize_embeddings(full, "int8").astype(np.float32)
    low, step = full.min(axis=0), (full.max(axis=0) - full.min(axis=0)) / 255
    np.testing.assert_allclose(ours, low + (theirs + 128.5) * step, atol=2e-6)
    assert np.abs(ours - full).max() <= 0.51 * step.max() + 1e-6
    constant = Table({"a": [1.0, 0.25], "b": [-1.0, 0.25]})
    assert (embed(Truncated(constant, 2, "int8"), ["a", "b"])[:, 1] == 0.25).all()
    signs = Truncated(tiny, tiny.dimension, "binary").encode(texts)
    packed = quantization.quantize_embeddings(full, "ubinary")
    np.testing.assert_array_equal(np.packbits(signs > 0, axis=-1), packed)


def test_every_stored_form_is_compared_and_texts_are_embedded_once():
    table = Table({f"text {i}": [1.0, i, -i] for i in range(4)} | {"one text": [0.0, 0, 0]})
    forms = stored(table, [3, 2], ["float32", "binary"])
    assert [encoder_name(form).split(", ")[1] for form in forms] == [
        "3 x float32 (12 bytes)",
        "2 x float32 (8 bytes)",
        "3 x binary (1 bytes)",
        "2 x binary (1 bytes)",
    ]
    texts = [f"text {i}" for i in range(4)]
    assert [form.encode(texts).shape[1] for form in forms] == [3, 2, 3, 2]
    assert len(table.calls) == 2  # the size, then all texts, for the four forms together
    with pytest.raises(InputError, match=r"keep at most 3 coordinates, .* found 4"):
        stored(table, [4])


def test_shorter_vectors_are_embedded_in_batches_of_the_given_size(tiny, monkeypatch):
    sizes, of_tokens = [], type(tiny).of_tokens

    def note(self, rows):
        sizes.append(len(rows))
        return of_tokens(self, rows)

    monkeypatch.setattr(type(tiny), "of_tokens", note)
    for form in stored(tiny, [3], ["int8"], batch_size=2):
        form.encode([f"text {i}" for i in range(7)])
    assert max(sizes) == 2


def test_what_cannot_be_truncated():
    with pytest.raises(InputError, match="keep at least 1 coordinate; found 0"):
        Truncated(Table({"a": [1, 0]}), 0)
    with pytest.raises(InputError, match=r"keep at most 2 coordinates, .* found 3"):
        Truncated(Table({"a": [1, 0]}), 3).encode(["a"])
