"""Opens, checks and adjusts the modules of a sentence-transformers model for training.

Static embeddings (``StaticEmbedding`` of sentence-transformers, model2vec) are a table of word
vectors, without layers, positions, special tokens and padding.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from isotrope.core.documents import read_json
from isotrope.core.errors import InputError, first_line, unknown
from isotrope.core.fingerprint import fingerprint
from isotrope.encoders.model_folder import is_static
from isotrope.encoders.quiet import quiet_loading

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
    from transformers import PreTrainedTokenizerFast

POOLINGS = {
    "mean": "mean",
    "avg": "mean",
    "cls": "cls",
    "cls_before_pooler": "cls",
    "max": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean",
    "lasttoken": "lasttoken",
    "last": "lasttoken",
}
"""Names of poolings in sentence-transformers. The keys are the names there or in SimCSE."""

_NO_PART = ("architectures", "dtype", "transformers_version", "use_cache")
"""Entries of a configuration that do not affect embeddings; saving a model changes some of them."""

UNLIMITED = 2**31 - 1  # largest number of tokens for a model without positions


def check_model(model: "SentenceTransformer", name: str) -> "list[Pooling]":
    """Return a model's Pooling modules; raise an error if isotrope cannot use the model."""
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    check_one_way(model, name)
    first: Any = model[0]
    static = is_static(first)
    if not static and (not isinstance(first, Transformer) or first.tokenizer is None):
        raise InputError(
            "give an encoder whose first module is a transformer with a tokenizer: the first "
            f"module of {name} is {type(first).__name__}"
        )
    if not static and not first.tokenizer.is_fast:
        raise InputError(
            f"give an encoder with a fast tokenizer (tokenizer.json): the tokenizer of {name} is "
            f"{type(first.tokenizer).__name__}, which runs in Python"
        )
    if not static and (takes := [*map(str, first.modality_config)]) != ["text"]:
        chat = {*takes} == {"text", "message"} and Path(name, "sentence_bert_config.json").is_file()
        remedy = ", or remove message from modality_config in its sentence_bert_config.json"
        raise InputError(
            f"give an encoder of plain text{remedy * chat}: {name} takes {', '.join(takes)}"
        )
    unread = ("processing_kwargs", "query_length", "document_length", "query_expansion")
    if named := [setting for setting in unread if getattr(first, setting, None)]:
        raise InputError(
            f"remove {named[0]} from sentence_bert_config.json of {name}, because isotrope "
            "tokenizes all texts in the same way, and does not read this setting"
        )
    if model.truncate_dim is not None:
        raise InputError(
            f"remove truncate_dim from config_sentence_transformers.json of {name}, because "
            f"this setting cuts the embeddings to {model.truncate_dim} values"
        )
    poolings = [module for module in model.children() if isinstance(module, Pooling)]
    if not (static or poolings or first.module_output_name == "sentence_embedding"):
        raise InputError(f"add a pooling module to {name}, which gives a vector for each token")
    return poolings


def check_one_way(model: nn.Module, name: str) -> None:
    """Raise an error if a model embeds queries and documents in different ways."""
    for module in model.modules():
        if len(routes := getattr(module, "sub_modules", ())) > 1:
            raise InputError(
                f"give a model without a Router: {name} embeds {' and '.join(routes)} in different "
                "ways, but isotrope embeds all texts in the same way"
            )


def tokenizer_of(model: "SentenceTransformer") -> "PreTrainedTokenizerFast":
    """Return the tokenizer of a model. A tokenizer without a padding token gets one.

    The tokenizer of static embeddings adds no special tokens.
    """
    from transformers import PreTrainedTokenizerFast

    first: Any = model[0]
    tokenizer: PreTrainedTokenizerFast = first.tokenizer
    if is_static(first):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=first.tokenizer)
        tokenizer.backend_tokenizer.post_processor = None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = (
            tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
        )
    return tokenizer


def check_tokenizer(
    tokenizer: "PreTrainedTokenizerFast", model: "SentenceTransformer", name: str
) -> None:
    """Raise an error if a tokenizer has too many tokens, or sets ``token_type_ids`` above 0."""
    first: Any = model[0]
    table = first if is_static(first) else first.model.get_input_embeddings()
    rows = int(table.num_embeddings)
    if len(tokenizer) > rows:
        raise InputError(
            f"save {name} with the tokenizer that belongs to it: this tokenizer has "
            f"{len(tokenizer)} tokens, but the model has embeddings for {rows} tokens"
        )
    types = tokenizer("a").get("token_type_ids", [])
    if any(types):
        raise InputError(
            "use another model: isotrope needs token_type_ids of 0, but the tokenizer "
            f"of {name} sets token_type_ids to {types}"
        )


def pooling_name(name: str) -> str:
    """Return the name in sentence-transformers of a pooling; ``name`` is a key of ``POOLINGS``."""
    if name not in POOLINGS:
        raise InputError(unknown("there is no pooling", name, POOLINGS))
    return POOLINGS[name]


def open_folder(
    folder: Path, device: torch.device, trust_remote_code: bool, model_kwargs: Mapping[str, Any]
) -> "SentenceTransformer":
    """Load a folder with sentence-transformers. Raise an error if weights are missing."""
    with quiet_loading() as report:
        from sentence_transformers import SentenceTransformer

        try:
            model = SentenceTransformer(
                str(folder),
                device=str(device),
                trust_remote_code=trust_remote_code,
                local_files_only=not trust_remote_code,  # a model may name code of another one
                model_kwargs={"dtype": torch.float32, **model_kwargs, "use_safetensors": True},
            )
        # tokenizers and safetensors may raise any Exception
        except Exception as error:
            for file in sorted(folder.rglob("tokenizer.json")):
                read_json(file)  # names the file if it is broken
            why = f"{folder} is not a model that can be loaded: {first_line(error)}"
            raise InputError(f"copy the model again from its source: {why}") from error
    report.check(folder)
    if not (folder / "modules.json").is_file():  # with "message", texts get the chat template
        first: Any = model[0]
        first.modality_config.pop("message", None)
    return model


def freeze_pooler(model: "SentenceTransformer") -> None:
    """Freeze BERT's pooler, a layer that is not used for embeddings.

    The pooler gets no gradient, for which distributed training would wait for ever. The pooler
    stays in the model, so that other programs load a saved folder without a warning.
    """
    first = model[0]
    pooler = getattr(getattr(first, "model", None), "pooler", None)
    if isinstance(pooler, nn.Module) and first.module_output_name == "token_embeddings":
        pooler.requires_grad_(False)


def repool(model: "SentenceTransformer", mode: str, name: str) -> None:
    """Replace the pooling of a model by the pooling ``mode``."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    for key, module in model.named_children():
        if isinstance(module, Pooling):
            pooling = Pooling(module.embedding_dimension, mode, module.include_prompt)
            if pooling.pooling_output_dimension != module.pooling_output_dimension:
                raise InputError(
                    f"leave out the pooling {mode!r}: {name} joins several poolings, and the "
                    "modules after them need all poolings"
                )
            setattr(model, key, pooling)
            return
    raise InputError(f"leave out the pooling {mode!r}: {name} has no pooling to replace")


def pooling_names(poolings: "Sequence[Pooling]") -> str:
    """Return the names of the poolings, joined by ``+``; ``"none"`` if the list is empty."""
    modes = [pooling.pooling_mode for pooling in poolings]
    return "+".join(m if isinstance(m, str) else "+".join(m) for m in modes) or "none"


def body_of(model: "SentenceTransformer") -> list[nn.Module]:
    """Return a model's modules without the Normalize modules at the end."""
    from sentence_transformers.base.modules import Normalize

    first, *others = model.children()
    body = [PaddedStatic(cast("StaticEmbedding", first)) if is_static(first) else first, *others]
    while (
        len(body) > 1
        and isinstance(body[-1], Normalize)
        and getattr(body[-1], "module_output_name", None) == "sentence_embedding"
    ):
        body.pop()
    return body


def positions_of(model: "SentenceTransformer") -> int:
    """Return the largest number of tokens that a model takes; :data:`UNLIMITED` without a limit."""
    first: Any = model[0]
    if is_static(first):
        return UNLIMITED
    positions = getattr(first.config, "max_position_embeddings", None) or -1
    if positions < 1:
        return UNLIMITED
    # the first position of RoBERTa and its kin is padding_idx + 1
    for module in first.model.modules():
        table = getattr(module, "position_embeddings", None)
        offset = getattr(module, "padding_idx", None)
        if isinstance(table, nn.Embedding) and isinstance(offset, int):
            return int(positions) - offset - 1
    return int(positions)


def as_list(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list. A single text raises an error."""
    if isinstance(texts, str):
        raise InputError(
            f"give a list of texts, even for a single text; found the text {texts[:40]!r}"
        )
    from isotrope.encoders.scratch import checked

    return list(checked(texts))


def unwritable(texts: list[str]) -> InputError | None:
    """Return an error on the first text that UTF-8 cannot encode; None if there is no such text."""
    for index, text in enumerate(texts):
        if text.encode("utf-8", "ignore").decode("utf-8") != text:
            return InputError(
                f"remove characters that UTF-8 cannot encode from texts[{index}], {text!r:.60}"
            )
    return None


def fingerprint_of(
    model: "SentenceTransformer", tokenizer: "PreTrainedTokenizerFast", *how: object
) -> str:
    """Return a hash, 16 hexadecimal digits, of model, tokenizer and the settings ``how``."""
    first: Any = model[0]
    config = {} if is_static(first) else first.config.to_dict()
    settings = {
        key: repr(value)
        for key, value in config.items()
        if not key.startswith("_") and key not in _NO_PART
    }
    words = json.loads(tokenizer.backend_tokenizer.to_str())
    for state in ("truncation", "padding"):  # they belong to the last call
        del words[state]
    weights = {
        name: (str(tensor.dtype), tensor.reshape(-1).view(torch.uint8).cpu().numpy())
        for name, tensor in model.state_dict().items()
    }
    modules = [repr(model), *how, *["left"] * (tokenizer.truncation_side == "left")]
    return fingerprint(settings, json.dumps(words, sort_keys=True), weights, modules)


def minimal_card(dimension: int, pooling: str, max_length: int, *, normalizes: bool) -> str:
    """Return a short model card: properties of the encoder, and an example."""
    return (
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n"
        "tags:\n- sentence-transformers\n- isotrope\n---\n\n"
        f"# Sentence encoder\n\nMaps a text to {dimension} numbers "
        f"(pooling: {pooling}; at most {max_length} tokens; "
        f"{'unit vectors' if normalizes else 'not normalised'}). "
        "Compare texts by the cosine of their embeddings.\n\n"
        "```python\nfrom sentence_transformers import SentenceTransformer\n\n"
        'model = SentenceTransformer("path/to/this/folder")\n'
        'embeddings = model.encode(["a text", "another text"])\n```\n'
    )


class PaddedStatic(nn.Module):
    """A module for static embeddings that takes padded tokens, as a transformer does."""

    def __init__(self, module: "StaticEmbedding") -> None:
        super().__init__()
        self.module = module

    def forward(self, features: dict[str, Tensor]) -> dict[str, Any]:
        """Add the mean of each text's word vectors to ``features`` as ``sentence_embedding``."""
        mask = features["attention_mask"].bool()
        lengths = mask.sum(dim=1)
        flat = {"input_ids": features["input_ids"][mask], "offsets": lengths.cumsum(0) - lengths}
        return {**features, "sentence_embedding": self.module(flat)["sentence_embedding"]}
