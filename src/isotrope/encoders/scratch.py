"""Makes an encoder with random weights: a small BERT, and a WordPiece vocabulary learnt from texts.

Use such an encoder offline, in tests, or for a language without a pretrained encoder.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from isotrope.core.errors import InputError
from isotrope.core.files import os_errors_as_input_errors
from isotrope.encoders.quiet import quiet_loading

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedTokenizerFast

LEARNT_FROM = 200_000
"""Largest number of texts from which a vocabulary is learnt, to bound memory and time."""

_INNER = re.compile(r"(?<=\S)\S")  # characters inside words; some punctuation too does no harm
_SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def scratch_model(
    texts: Iterable[str],
    *,
    seed: int,
    vocabulary: int,
    layers: int,
    width: int,
    heads: int,
    max_length: int,
) -> "SentenceTransformer":
    """Return an untrained BERT with mean pooling (arguments as in ``SentenceEncoder.scratch``)."""
    with quiet_loading(seed):
        from safetensors import SafetensorError
        from safetensors.torch import save_file
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling
        from transformers import BertConfig, BertModel

        tokenizer = _tokenizer(texts, vocabulary, max_length)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            max_position_embeddings=max_length,
        )
        bert = BertModel(config)
        # sentence-transformers builds its first module from a folder only
        with tempfile.TemporaryDirectory() as folder, os_errors_as_input_errors(Path(folder)):
            try:
                # bert.save_pretrained would write in the first of several processes only
                bert.config.save_pretrained(folder)
                save_file(bert.state_dict(), f"{folder}/model.safetensors", {"format": "pt"})
            except SafetensorError as error:  # safetensors raises it for a full disk
                raise OSError(str(error)) from error
            tokenizer.save_pretrained(folder)
            transformer = Transformer(folder)
        transformer.model = bert
        transformer.model.config.name_or_path = transformer.tokenizer.name_or_path = "scratch"
        return SentenceTransformer(modules=[transformer, Pooling(width, "mean")], device="cpu")


def _tokenizer(texts: Iterable[str], size: int, max_length: int) -> "PreTrainedTokenizerFast":
    """Learn a lower-casing WordPiece tokenizer with BERT's special tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    normalizer = normalizers.BertNormalizer(lowercase=True)
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    sample = list(islice(checked(texts), LEARNT_FROM))
    inner: set[str] = set()
    for text in sample:
        inner.update(_INNER.findall(normalizer.normalize_str(text)))
    learner = Tokenizer(models.WordPiece(unk_token=_SPECIAL["unk_token"]))
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizer
    # the trainer numbers characters inside words in the order of a hash table and breaks ties by
    # these numbers; if the characters are special tokens, their numbers are fixed
    fixed = [*_SPECIAL.values(), *(f"##{character}" for character in sorted(inner))]
    learner.train_from_iterator(
        sample,
        trainers.WordPieceTrainer(vocab_size=size, special_tokens=fixed, show_progress=False),
    )
    vocabulary = learner.get_vocab()
    if len(vocabulary) <= len(_SPECIAL):
        raise InputError("give texts with words, from which a vocabulary is learnt; found no word")
    # a second tokenizer, because in the first one all characters in ``fixed`` are special tokens
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=_SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        **_SPECIAL,
    )


def checked(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts. Any other object raises an error."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"give only texts: texts[{index}] is {text!r:.60} ({type(text).__name__})"
            )
        yield text
