"""A saved folder is a model of sentence-transformers; threads and neighbours change nothing."""

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
)

from isotrope.core.errors import InputError
from isotrope.encoders.lora import add_lora, lora_facts
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.training.fit_text import fit

TEXTS = ["a boat", "the mill by the river has a wheel", "rain"]
LONG = "the river boat and the mill " * 60
END = "<|endoftext|>"


def tokenizer(**options: str) -> PreTrainedTokenizerFast:
    """Return byte pairs of a few words; without a limit, and without padding unless it is given."""
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = bytes_
    pairs.train_from_iterator(
        [*TEXTS, LONG],
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=[END],
            initial_alphabet=bytes_.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=pairs, eos_token=END, unk_token=END, **options)


def gpt() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    config = GPT2Config(vocab_size=400, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    return GPT2Model(config), tokenizer()


def roberta() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = RobertaConfig(
        vocab_size=400, max_position_embeddings=66, num_attention_heads=2, pad_token_id=1, **sizes
    )
    return RobertaModel(config), tokenizer(pad_token=END)


def qwen() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    config = Qwen3Config(
        vocab_size=400,
        max_position_embeddings=64,
        num_attention_heads=2,
        num_key_value_heads=1,
        **sizes,
    )
    words = tokenizer(pad_token=END, padding_side="left")
    words.chat_template = "{% for m in messages %}<|{{ m.role }}|> {{ m.content }}\n{% endfor %}"
    return Qwen3Model(config), words


def bert() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = BertConfig(vocab_size=400, max_position_embeddings=64, num_attention_heads=2, **sizes)
    return BertModel(config), tokenizer(pad_token=END, padding_side="left")


Make = Callable[[], tuple[PreTrainedModel, PreTrainedTokenizerFast]]
MAKE: list[Make] = [gpt, roberta, qwen, bert]


@pytest.fixture(params=MAKE, ids=lambda make: make.__name__)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model, words = request.param()
    model.save_pretrained(tmp_path / "plain")
    words.save_pretrained(tmp_path / "plain")
    return tmp_path / "plain"


def test_a_saved_folder_is_loaded_by_sentence_transformers(folder: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(folder)
    encoder.encode([LONG, *TEXTS])
    encoder.save(tmp_path / "saved")
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert plain.max_seq_length == encoder.max_length == 64
    assert plain.dtype == torch.float32
    for texts in ([LONG], TEXTS, [*TEXTS, LONG]):
        expected = encoder.encode(texts)
        assert np.allclose(plain.encode(texts), expected, atol=1e-5)
    again = SentenceEncoder.load(tmp_path / "saved")
    assert np.array_equal(again.encode(TEXTS), encoder.encode(TEXTS))


def test_a_chat_template_that_a_saved_model_uses(tmp_path: Path) -> None:
    for part in qwen():
        part.save_pretrained(tmp_path / "plain")
    SentenceTransformer(str(tmp_path / "plain"), device="cpu").save(str(tmp_path / "chat"))
    with pytest.raises(InputError, match=r"sentence_bert_config\.json"):
        SentenceEncoder.load(tmp_path / "chat")
    of_transformers = SentenceTransformer(str(tmp_path / "plain"), device="cpu")
    for name in ("this model", str(tmp_path / "plain")):  # neither has that file
        with pytest.raises(InputError, match="of plain text") as refused:
            SentenceEncoder(of_transformers, name)
        assert "sentence_bert_config.json" not in str(refused.value)
    settings = tmp_path / "chat" / "sentence_bert_config.json"
    values = json.loads(settings.read_text())
    del values["modality_config"]["message"]
    settings.write_text(json.dumps(values))
    plain = SentenceTransformer(str(tmp_path / "chat"), device="cpu").encode(TEXTS)
    assert np.allclose(SentenceEncoder.load(tmp_path / "chat").encode(TEXTS), plain, atol=1e-5)


def test_a_text_has_one_embedding(folder: Path) -> None:
    encoder = SentenceEncoder.load(folder)
    together = encoder.encode([*TEXTS, LONG])
    for text, row in zip(TEXTS, together, strict=False):
        assert np.allclose(encoder.encode([text])[0], row, atol=1e-5)


def test_a_trained_model_is_loaded_by_sentence_transformers(folder: Path, tmp_path: Path) -> None:
    run, pairs = tmp_path / "run", [(f"question {i}", f"answer {i}") for i in range(8)]
    options = {"max_steps": 1, "max_length": 16, "batch_size": 4, "dev": None, "progress": False}
    fit(pairs, encoder=str(folder), output=run, **options)  # type: ignore[arg-type]
    plain = SentenceTransformer(str(run / "model"), device="cpu")
    expected = SentenceEncoder.load(run / "model").encode([*TEXTS, LONG])
    assert np.allclose(plain.encode([*TEXTS, LONG]), expected, atol=1e-5)


def test_a_longer_limit_is_saved(tmp_path: Path, folder: Path) -> None:
    encoder = SentenceEncoder.load(folder)
    encoder.extend(32)
    encoder.save(tmp_path / "short")
    short = SentenceEncoder.load(tmp_path / "short")
    assert (short.max_length, short.positions) == (32, 64)
    assert [*map(int, re.findall(r"\d+", short.limit_clause))] == [32, 64]
    short.extend(64)
    assert [*map(int, re.findall(r"\d+", short.limit_clause))] == [64]
    short.extend(48)
    short.save(tmp_path / "longer")
    assert SentenceTransformer(str(tmp_path / "longer"), device="cpu").max_seq_length == 48


def test_threads_share_an_encoder(folder: Path) -> None:
    encoder = SentenceEncoder.load(folder).train()
    texts = [f"{LONG} {i}" for i in range(4)]
    expected = {
        (i, most): encoder.encode([texts[i], TEXTS[0]], max_length=most)
        for i in range(4)
        for most in (8, 16, 64)
    }
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(20):
            key = ((number + turn) % 4, (8, 16, 64)[(number * 7 + turn) % 3])
            try:
                found = encoder.encode([texts[key[0]], TEXTS[0]], max_length=key[1])
                if not np.allclose(found, expected[key], atol=1e-5):
                    wrong.append(key)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert encoder.training, "the mode of before"


def test_lora_finds_the_layers_of_gpt(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    model, words = gpt()
    model.save_pretrained(tmp_path / "plain")
    words.save_pretrained(tmp_path / "plain")
    encoder = SentenceEncoder.load(tmp_path / "plain")
    add_lora(encoder, 2)
    facts = lora_facts(encoder)
    assert facts is not None
    assert facts["targets"] == ["c_attn"]
    with pytest.raises(InputError, match="use some of c_attn, c_fc, c_proj, or all-linear for all"):
        add_lora(SentenceEncoder.load(tmp_path / "plain"), 2, targets=["query"])
