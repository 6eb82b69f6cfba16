import subprocess
import sys

import numpy as np
import pytest
import torch

from isotrope.core.errors import InputError
from isotrope.encoders.sentence import SentenceEncoder

from .conftest import TEXTS


def test_the_same_texts_and_seed_give_the_same_encoder(tiny):
    again = SentenceEncoder.scratch(iter(TEXTS), max_length=32)
    np.testing.assert_array_equal(again.encode(TEXTS), tiny.encode(TEXTS))
    other = SentenceEncoder.scratch(TEXTS, max_length=32, seed=1)
    assert np.abs(other.encode(TEXTS) - tiny.encode(TEXTS)).max() > 0.01
    assert other.tokenizer.get_vocab() == tiny.tokenizer.get_vocab()


@pytest.mark.slow
def test_another_process_learns_the_same_vocabulary(tiny):
    code = (
        f"from isotrope.encoders.sentence import SentenceEncoder as S;"
        f"e = S.scratch({TEXTS!r}, max_length=32);"
        f"print(sorted(e.tokenizer.get_vocab().items()), e.encode(['bread'])[0][:3].tolist())"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    first = tiny.encode(["bread"])[0][:3].tolist()
    assert out.stdout.strip() == f"{sorted(tiny.tokenizer.get_vocab().items())} {first}"


def test_it_has_the_shape_that_was_asked_for():
    encoder = SentenceEncoder.scratch(
        TEXTS, vocabulary=120, layers=1, width=24, heads=3, max_length=16
    )
    config = encoder.model[0].config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (1, 24, 3)
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1
    assert len(encoder.tokenizer) <= 120
    assert (encoder.dimension, encoder.max_length, encoder.pooling) == (24, 16, "mean")
    assert encoder.name == "scratch"
    assert not encoder.normalizes
    assert not encoder.training


def test_it_lower_cases_and_takes_words_it_has_never_seen(tiny):
    rows, _ = tiny.tokenize(["BREAD", "bread", "ξ"], 8)
    assert rows[0] == rows[1]
    assert tiny.tokenizer.convert_ids_to_tokens(rows[2]) == ["[CLS]", "[UNK]", "[SEP]"]


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    SentenceEncoder.scratch(TEXTS)
    assert before.equal(torch.get_rng_state())


@pytest.mark.parametrize("texts", [[], ["", "  "]])
def test_no_text_no_vocabulary(texts):
    with pytest.raises(InputError, match="from which a vocabulary is learnt; found no word"):
        SentenceEncoder.scratch(texts)


def test_something_that_is_not_a_text():
    with pytest.raises(InputError, match=r"give only texts: texts\[1\] is None \(NoneType\)"):
        SentenceEncoder.scratch(["a", None])
