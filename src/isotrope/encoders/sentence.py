"""The sentence encoder: maps texts to embeddings with a sentence-transformers model.

The sentence encoder has three uses:

- training calls :meth:`SentenceEncoder.forward` on token ids. The embeddings are *not* normalised,
  because training logs the norms, and an objective normalises the embeddings itself;
- evaluation and users call :meth:`SentenceEncoder.encode` on texts. The embeddings are those of
  ``encode`` of sentence-transformers, up to rounding;
- :meth:`SentenceEncoder.save` writes a folder that sentence-transformers loads without isotrope.
"""

import copy
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from isotrope.core.autograd import modes_kept, seeded
from isotrope.core.errors import InputError, SettingError
from isotrope.core.progress import bar
from isotrope.encoders import modules
from isotrope.encoders.device import find_device
from isotrope.encoders.lora import merged_weights, save_adapter
from isotrope.encoders.model_folder import is_image, is_static
from isotrope.encoders.names import resolve
from isotrope.encoders.quiet import model_written

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from transformers import PreTrainedModel

DOCUMENTS = ("document", "passage", "corpus")
"""Names of prompts for documents. The first prompt that is not empty counts."""

_SWITCH = threading.Lock()  # held while the mode of an encoder is changed
_PIECE = 64  # texts of one forward pass of in_pieces
_SAME = 1 - 1e-4  # least cosine of the embeddings of one text without and with padding
_NEAR = 0.75  # least length of a text in a batch of encode, as a share of the longest: less padding

_CHUNK = 10_000
"""Number of texts that ``encode`` tokenizes at once, to bound the memory of their token lists."""


class SentenceEncoder(nn.Module):
    """Maps texts to embeddings with a ``sentence_transformers.SentenceTransformer``.

    Make an encoder with :meth:`load` or :meth:`scratch`, or with ``SentenceEncoder(model, name)``.

    Attributes:
        name: Name or path that the user gave.
        model: The SentenceTransformer, which holds all parameters of the encoder.
        body: List of the model's modules, without the Normalize modules at the end.
        tokenizer: Tokenizer of the model.
        dimension: Number d of values in an embedding.
        max_length: Number of tokens, including special tokens, to which longer texts are cut.
        positions: Largest number of tokens, including special tokens, that the model can take.
        pooling: Name of the pooling, such as ``mean``. Names of several poolings are joined by
            ``+``. If the transformer itself returns one vector for a text, the name is ``none``.
        normalizes: Whether the model ends in a Normalize module.
        prompt: Prompt that ``model.encode`` puts before every text; empty if there is none.
    """

    def __init__(self, model: "SentenceTransformer", name: str) -> None:
        super().__init__()
        poolings = modules.check_model(model, name)
        self.prompt = model.prompts.get(model.default_prompt_name or "") or ""
        self.name = name
        self.model = model
        check_prompts(self, self.prompt)
        self.tokenizer = modules.tokenizer_of(model)
        # threads share this copy, which does not change; a call of the model's own tokenizer
        # changes its settings of truncation and padding
        self._words = copy.deepcopy(self.tokenizer.backend_tokenizer)
        self._as_loaded = (self._words.truncation, self._words.padding)
        self._words.no_truncation()
        self._words.no_padding()
        modules.check_tokenizer(self.tokenizer, model, name)
        self.dimension = int(model.get_embedding_dimension() or 0)
        self.positions = modules.positions_of(model)
        cuts = self._as_loaded[0] or {}
        own = cuts.get("max_length") if is_static(model[0]) else model.max_seq_length
        self.extend(min(own or self.positions, self.positions))
        self.pooling = modules.pooling_names(poolings)
        modules.freeze_pooler(model)
        # a plain list: the modules are registered once, below ``model``
        self.body: list[nn.Module] = modules.body_of(model)
        self.normalizes = len(self.body) < len(list(model.children()))
        self._encoding = 0  # number of calls of encode that are running
        self._modes = ExitStack()
        if self.tokenizer.padding_side == "left" and not self._counts_from_the_text():
            self.tokenizer.padding_side = "right"

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        pooling: str | None = None,
        device: str = "auto",
        trust_remote_code: bool = False,
        model_kwargs: Mapping[str, Any] | None = None,
    ) -> "SentenceEncoder":
        """Load an encoder in evaluation mode, in float32 unless ``model_kwargs`` has a ``dtype``.

        Args:
            name: Folder of sentence-transformers, folder of transformers, run folder of isotrope,
                ``all-MiniLM-L6-v2``, or id of the Hugging Face hub. A folder of transformers gets
                mean pooling, or for a causal model the last token, and no chat template.
            pooling: Key of ``isotrope.encoders.modules.POOLINGS``; None keeps the model's pooling.
            device: ``auto`` (the first available of CUDA, MPS and CPU) or a device of torch.
            trust_remote_code: Whether to run code that comes with the model.
            model_kwargs: Keywords for ``from_pretrained`` of transformers, such as ``dtype``,
                ``attn_implementation`` and ``quantization_config``.
        """
        where = find_device(device)
        mode = None if pooling is None else modules.pooling_name(pooling)
        folder = resolve(name, code=trust_remote_code)
        if is_image(folder):
            raise InputError(f"load {name} with isotrope.load; this model takes images, not text")
        model = modules.open_folder(folder, where, trust_remote_code, model_kwargs or {})
        if mode is not None:
            modules.repool(model, mode, str(name))
        return cls(model, str(name)).eval()

    @classmethod
    def scratch(
        cls,
        texts: Iterable[str],
        *,
        seed: int = 0,
        vocabulary: int = 8000,
        layers: int = 2,
        width: int = 128,
        heads: int = 2,
        max_length: int = 128,
    ) -> "SentenceEncoder":
        """Build a small untrained BERT with mean pooling, and learn a WordPiece vocabulary.

        The same texts and the same seed give the same encoder.

        Args:
            texts: Texts from which the vocabulary is learnt. Only the first 200,000 are used.
            seed: Seed of the initial weights.
            vocabulary: Largest number of word pieces in the vocabulary.
            layers: Number of layers of the transformer.
            width: Dimension d of tokens and embeddings, a multiple of ``heads``.
            heads: Number of attention heads in each layer.
            max_length: Largest number of tokens in a text, including special tokens.
        """
        from isotrope.encoders.scratch import scratch_model

        sizes = {"layers": layers, "width": width, "heads": heads, "max_length": max_length}
        model = scratch_model(texts, seed=seed, vocabulary=vocabulary, **sizes)
        return cls(model, "scratch").eval()

    @property
    def limit_clause(self) -> str:
        """A clause for messages: how many tokens the encoder reads, and how many are possible."""
        own = f"{self.max_length:,}" if self.max_length < modules.UNLIMITED else "any number of"
        more = self.max_length < self.positions < modules.UNLIMITED
        most = f" (up to {self.positions:,} are possible)" * more
        return f"the encoder reads {own} tokens{most}"

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def transformer(self, setting: str) -> "PreTrainedModel":
        """Return the transformer. If there is none, raise an error about the given setting."""
        if is_static(self.model[0]):
            raise SettingError(
                f"the static embeddings of {self.name} have no layers",
                setting=setting,
                remedy="leave the setting out",
            )
        return cast("Transformer", self.model[0]).model

    def freeze_embeddings(self) -> None:
        """Freeze the transformer's module ``embeddings``: words, positions, types and their norm.

        If there is no such module, only the table of word embeddings is frozen.
        """
        transformer = self.transformer("freeze")
        table = transformer.get_input_embeddings()
        embeddings = getattr(transformer, "embeddings", None)
        if isinstance(embeddings, nn.Module) and any(x is table for x in embeddings.modules()):
            table = embeddings
        table.requires_grad_(False)

    def checkpoint_activations(self) -> None:
        """Switch on gradient checkpointing: a forward pass stores only the input of each layer."""
        transformer = self.transformer("gradient_checkpointing")
        old = transformer.gradient_checkpointing_enable  # renamed in transformers 5
        enable = getattr(transformer, "activation_checkpointing_enable", old)
        try:
            enable({"use_reentrant": False})
        except ValueError as error:
            raise SettingError(
                f"{self.name} ({type(transformer).__name__}) does not support gradient "
                "checkpointing",
                setting="gradient_checkpointing",
                remedy="leave the setting out; `--micro-batch` also saves memory",
            ) from error

    def tokenize(self, texts: Sequence[str], max_length: int) -> tuple[list[list[int]], int]:
        """Turn texts into token ids, including the special tokens of the model.

        Args:
            texts: The n texts. No prompt is added to them.
            max_length: Number of tokens, including special tokens, to which longer texts are cut.

        Returns: A list of n lists of token ids, and the number of texts that were cut.
        """
        texts = modules.as_list(texts)
        special = self.tokenizer.num_special_tokens_to_add()
        if not special < max_length <= self.positions:
            raise InputError(
                f"give a maximum length between {special + 1} and {self.positions} tokens, the "
                f"limits of {self.name}; found {max_length}"
            )
        try:
            rows = [row.ids for row in self._words.encode_batch_fast(texts)]
            long = [i for i, row in enumerate(rows) if len(row) > max_length]
            for i in long:
                row = self._words.encode(texts[i], add_special_tokens=False)
                row.truncate(max_length - special, direction=self.tokenizer.truncation_side)
                rows[i] = self._words.post_process(row).ids
        except (TypeError, UnicodeEncodeError) as error:
            raise modules.unwritable(texts) or error from error
        return rows, len(long)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each uncut text, including special tokens, as a list."""
        texts = modules.as_list(texts)
        try:
            return [len(row.ids) for row in self._words.encode_batch_fast(texts)]
        except (TypeError, UnicodeEncodeError) as error:
            raise modules.unwritable(texts) or error from error

    def extend(self, max_length: int) -> None:
        """Set the maximum length of texts in tokens. :meth:`save` saves this length."""
        self.max_length = max_length
        first: Any = self.model[0]
        if max_length < modules.UNLIMITED and is_static(first):
            first.tokenizer.enable_truncation(max_length, direction=self.tokenizer.truncation_side)
        elif max_length < modules.UNLIMITED:
            self.model.max_seq_length = max_length

    @torch.inference_mode()
    def _counts_from_the_text(self) -> bool:
        """Return whether padding before a text does not change its embedding."""
        row = self.tokenize(["a text"], min(8, self.max_length))[0][0]
        with modes_kept(self):
            self.eval()
            alone, beside = (self.of_tokens(rows)[0] for rows in ([row], [row, row + row]))
        return bool(nn.functional.cosine_similarity(alone, beside, dim=0) > _SAME)

    def pad(self, rows: Sequence[Sequence[int] | np.ndarray]) -> dict[str, Tensor]:
        """Pad n rows of token ids to the length of the longest, on the side where the model pads.

        Returns:
            Dict of ``input_ids`` and ``attention_mask``: tensors n x longest, int64, on the CPU.
        """
        lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        longest = int(lengths.max(initial=0))
        mask = np.arange(longest) < lengths[:, None]
        if self.tokenizer.padding_side == "left":
            mask = mask[:, ::-1]
        ids = np.full(mask.shape, self.tokenizer.pad_token_id or 0, dtype=np.int64)
        if mask.any():
            ids[mask] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
        }

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the embeddings of token ids, not normalised by a Normalize module at the end.

        Args:
            input_ids: Token ids, n x length, on the model's device.
            attention_mask: 1 for tokens and 0 for padding, n x length.

        Returns:
            Embeddings, n x d.
        """
        features: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        for module in self.body:
            features = module(features)
        return cast("Tensor", features["sentence_embedding"])

    def of_tokens(self, rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
        """Return the embeddings (n x d) of n rows of token ids with any lengths."""
        embeddings: Tensor = self(**{k: v.to(self.device) for k, v in self.pad(rows).items()})
        return embeddings

    def in_pieces(self, rows: Sequence[Sequence[int] | np.ndarray], what: str) -> Tensor:
        """Return the embeddings of token ids (n x d, float32); a bar called ``what`` is shown."""
        pieces = list[Tensor]()
        with bar(len(rows), what, "texts") as advance:
            for start in range(0, len(rows), _PIECE):
                pieces.append(self.of_tokens(rows[start : start + _PIECE]).float())
                advance(len(pieces[-1]))
        return torch.cat(pieces)

    @torch.no_grad()
    def with_dropout(
        self, rows: Sequence[Sequence[int]], seed: int, batch_size: int
    ) -> list[Tensor]:
        """Return a list of two tensors (n x d, float32): embeddings of two passes in training mode.

        Afterwards, the modes of all modules and torch's random states are restored.
        """
        order = np.argsort([-len(row) for row in rows], kind="stable")
        views = [torch.empty(len(rows), self.dimension) for _ in range(2)]
        show = bar(len(order), "", "texts")
        with modes_kept(self), seeded(seed, self.device), show as done:
            self.train()
            for first in range(0, len(rows), batch_size):
                batch = order[first : first + batch_size]
                longest = [rows[i] for i in batch]
                for view in views:
                    view[torch.from_numpy(batch)] = self.of_tokens(longest).float().cpu()
                done(len(batch))
        return views

    def encode(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 128,
        max_length: int | None = None,
        progress: bool = False,
        normalize: bool = False,
    ) -> np.ndarray:
        """Embed texts as ``SentenceTransformer.encode`` does, up to rounding.

        Each distinct text is embedded once. Afterwards, the modes of all modules are restored.

        Args:
            texts: The n texts.
            batch_size: Largest number of texts in a batch, whose lengths are similar.
            max_length: Number of tokens to which longer texts are cut. None: :attr:`max_length`.
            progress: Whether to show a progress bar on stderr.
            normalize: Whether to return unit vectors even if the model does not normalise.

        Returns:
            Embeddings, n x d, float32.
        """
        if batch_size < 1:
            raise InputError(f"give a batch size of at least 1; found {batch_size}")
        texts = modules.as_list(texts)
        places: dict[str, int] = {}
        where = np.fromiter(
            (places.setdefault(text, len(places)) for text in texts), np.int64, len(texts)
        )
        out = np.empty((len(places), self.dimension), dtype=np.float32)
        limit = self.max_length if max_length is None else max_length
        ids, starts = self._flat(list(places), limit)
        lengths = np.diff(starts)
        order = np.argsort(-lengths, kind="stable")
        # texts differ in time as in tokens, and the longest come first
        show = bar(int(lengths.sum()), "", "tokens", show=progress or None)
        with torch.inference_mode(), self._evaluating(), show as done:
            while len(order):
                batch = order[:batch_size]
                batch = batch[lengths[batch] >= _NEAR * lengths[batch[0]]]
                order = order[len(batch) :]
                h = self.of_tokens([ids[starts[i] : starts[i + 1]] for i in batch]).float()
                if self.normalizes or normalize:
                    h = nn.functional.normalize(h, dim=-1)
                out[batch] = h.cpu().numpy()
                if not np.isfinite(out[batch]).all():
                    raise InputError(
                        f"train {self.name} again with a lower `--learning-rate`, because some "
                        "embeddings of this encoder are NaN or infinite"
                    )
                done(int(lengths[batch].sum()))
        return out if len(places) == len(texts) else out[where]

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Keep all modules in evaluation mode while any thread encodes."""
        with _SWITCH:
            self._encoding += 1
            if self._encoding == 1:
                self._modes.enter_context(modes_kept(self))
                self.eval()
        try:
            yield
        finally:
            with _SWITCH:
                self._encoding -= 1
                if not self._encoding:
                    self._modes.close()

    def _flat(self, texts: list[str], max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokenize with the model's prompt; return all ids in one array, and n + 1 offsets."""
        pieces, lengths = [np.empty(0, np.int32)], [0]
        for first in range(0, len(texts), _CHUNK):
            chunk = texts[first : first + _CHUNK]
            if self.prompt:
                chunk = [self.prompt + text for text in chunk]
            rows, _ = self.tokenize(chunk, max_length)
            lengths += [len(row) for row in rows]
            pieces.append(np.fromiter(itertools.chain.from_iterable(rows), np.int32))
        return np.concatenate(pieces), np.cumsum(lengths)

    def fingerprint(self) -> str:
        """Return a hash (16 hexadecimal digits) of everything that affects the embeddings."""
        how = (self.pooling, self.normalizes, self.prompt, self.max_length)
        return modules.fingerprint_of(self.model, self.tokenizer, *how)

    def save(self, folder: Path, card: str | None = None) -> None:
        """Write a folder for sentence-transformers. A failed save changes no existing folder.

        The matrices of LoRA are merged into the weights, and also saved in ``adapter/``.

        Args:
            folder: Folder to write. An existing folder is replaced.
            card: Text of the model card (README.md). If None, a short card is written.
        """
        with model_written(folder) as temporary:
            words, (truncation, padding) = self.tokenizer.backend_tokenizer, self._as_loaded
            words.enable_truncation(**truncation) if truncation else words.no_truncation()
            words.enable_padding(**padding) if padding else words.no_padding()
            with merged_weights(self):
                self.model.save_pretrained(str(temporary), create_model_card=False)
            save_adapter(self, temporary / "adapter")
            text = card or modules.minimal_card(
                self.dimension, self.pooling, self.max_length, normalizes=self.normalizes
            )
            (temporary / "README.md").write_text(text, encoding="utf-8")


def check_prompts(encoder: object, *prompts: str) -> None:
    """Raise an error if there is a prompt, but the encoder's pooling ignores its tokens."""
    parts = encoder.modules() if isinstance(encoder, nn.Module) else ()
    if any(prompts) and not all(getattr(part, "include_prompt", True) for part in parts):
        raise InputError(
            "leave out the prompts, also those that are saved with the model, or set "
            f"include_prompt to true in the pooling of {getattr(encoder, 'name', 'the model')}: "
            "isotrope pools the tokens of prompts too"
        )


def saved_prompts(model: Any) -> tuple[str, str]:  # noqa: ANN401 - a SentenceTransformer, or not
    """Return the two prompts that are saved with a model: for queries, and for documents.

    Both are empty if the model has a prompt that ``encode`` puts before every text.
    """
    if not (hasattr(model, "encode_query") and hasattr(model, "encode_document")):
        return "", ""
    if isinstance(model, nn.Module):
        modules.check_one_way(model, "this model")
    if model.prompts.get(model.default_prompt_name or ""):
        return "", ""
    query, *documents = (model.prompts.get(name) for name in ("query", *DOCUMENTS))
    return query or "", next(filter(None, documents), "")
