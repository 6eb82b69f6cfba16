"""Static embeddings (``StaticEmbedding`` of sentence-transformers, model2vec) among transformers.

They have a table of word vectors and no layers, no positions, no special tokens and no padding.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from transformers import PreTrainedTokenizerFast


def static_tokenizer(module: "StaticEmbedding") -> "PreTrainedTokenizerFast":
    """Return the tokenizer as transformers have one; it adds no special tokens."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=module.tokenizer)
    tokenizer.backend_tokenizer.post_processor = None
    return tokenizer


class PaddedStatic(nn.Module):
    """Static embeddings of rows of tokens that are padded, as transformers take them."""

    def __init__(self, module: "StaticEmbedding") -> None:
        super().__init__()
        self.module = module

    def forward(self, features: dict[str, Tensor]) -> dict[str, Any]:
        """Return the features with the mean of the vectors of each row."""
        mask = features["attention_mask"].bool()
        lengths = mask.sum(dim=1)
        flat = {"input_ids": features["input_ids"][mask], "offsets": lengths.cumsum(0) - lengths}
        return {**features, "sentence_embedding": self.module(flat)["sentence_embedding"]}
