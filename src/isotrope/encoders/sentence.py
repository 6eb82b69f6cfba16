"""The sentence encoder: maps texts to embeddings by a sentence-transformers model.

Three jobs, each with its own path through the same modules:

- training calls :meth:`SentenceEncoder.forward` on token ids that were prepared once, and gets the
  embeddings *before* any Normalize module, because objectives normalise by themselves and the
  norms are worth watching;
- evaluation and users call :meth:`SentenceEncoder.encode`, which gives what sentence-transformers'
  ``encode`` gives, to rounding;
- :meth:`SentenceEncoder.save` writes a folder that plain sentence-transformers loads.

Attention is torch's scaled-dot-product where the model supports it: on two cores neither it nor the
explicit form was faster throughout (docs/LOG.md), and it never stores the weights on a GPU.
"""

import copy
import itertools
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from isotrope.core.errors import InputError, SettingError, nearest
from isotrope.core.files import atomic_replace
from isotrope.core.fingerprint import fingerprint
from isotrope.core.progress import bar
from isotrope.encoders.device import find_device
from isotrope.encoders.lora import merged_weights, save_adapter
from isotrope.encoders.names import is_image, is_static, resolve
from isotrope.encoders.quiet import quiet_loading
from isotrope.encoders.static import PaddedStatic, static_tokenizer

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from tokenizers import Tokenizer
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

# names of prompts: of queries, and of documents, of which the first that a model has is used
_PROMPTS = ("query", "document", "passage", "corpus")

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
"""Names of poolings (of SimCSE and sentence-transformers), and their meaning."""

_NO_PART = ("architectures", "dtype", "transformers_version", "use_cache")
"""Entries of a configuration, beside its private ones, that say nothing that the modules and their
weights do not say; saving a model changes some of them."""

_UNLIMITED = 2**31 - 1  # tokens of a model without positions
_SWITCH = threading.Lock()  # of the modes of all encoders, for a moment
_SAME = 1 - 1e-4  # cosine of one text alone and beside a longer one

_CHUNK = 10_000
"""Texts tokenized at once by ``encode``: bounds the memory of their token lists."""


class SentenceEncoder(nn.Module):
    """Text in, embeddings out; wraps a ``sentence_transformers.SentenceTransformer``.

    Use :meth:`load` or :meth:`scratch`; the constructor takes a model that is already there.

    Args:
        model: a transformer over plain text, a pooling, and any modules after it.
        name: Name that the user gave.

    Attributes:
        name: Name that the user gave.
        model: the wrapped model; its modules are this module's parameters.
        tokenizer: the model's own.
        dimension: d, of the embeddings.
        max_length: tokens, special ones included, at which the model truncates by itself.
        positions: The most tokens, special ones included, that the model has positions for.
        pooling: one of :data:`POOLINGS`; several joined by ``+``; ``none`` where the transformer
            gives one vector itself.
        normalizes: whether the model ends in a Normalize module.
        prompt: Prompt that the model puts before every text, by its own configuration.

    Raises:
        InputError: a model that does not map plain text to one vector of fixed size.
    """

    def __init__(self, model: "SentenceTransformer", name: str) -> None:
        super().__init__()
        from sentence_transformers.base.modules import Normalize, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        modules = list(model.children())
        first: Any = modules[0]
        static = is_static(first)
        if not static and (not isinstance(first, Transformer) or first.tokenizer is None):
            raise InputError(
                f"{name} does not start with a transformer and its tokenizer (found "
                f"{type(first).__name__}); only such sentence encoders can be trained here"
            )
        if not static and list(first.modality_config) != ["text"]:
            raise InputError(
                f"{name} reads {', '.join(map(str, first.modality_config))}, not just plain text; "
                "only encoders of plain text can be used"
            )
        if model.truncate_dim is not None:
            raise InputError(
                f"{name} cuts its embeddings to {model.truncate_dim} dimensions; remove "
                "truncate_dim from its config_sentence_transformers.json"
            )
        poolings = [module for module in modules if isinstance(module, Pooling)]
        if not (static or poolings or first.module_output_name == "sentence_embedding"):
            raise InputError(f"{name} has no pooling: it gives one vector per token, not per text")
        self.prompt = model.prompts.get(model.default_prompt_name or "") or ""
        self._pools_prompts = all(pooling.include_prompt for pooling in poolings)
        self.name = name
        self.model = model
        self.check_prompts(self.prompt)
        self.tokenizer = cast(
            "PreTrainedTokenizerFast", static_tokenizer(first) if static else first.tokenizer
        )
        _ensure_pad_token(self.tokenizer)
        # a copy that nothing changes any more, so that threads can share it: every call of the
        # model's own tokenizer sets how it cuts and pads
        self._words = copy.deepcopy(self.tokenizer.backend_tokenizer)
        self._as_loaded = (self._words.truncation, self._words.padding)
        self._words.no_truncation()
        self._words.no_padding()
        rows = first if static else first.model.get_input_embeddings()
        _check_tokenizer(self.tokenizer, int(rows.num_embeddings), name)
        self.dimension = int(model.get_embedding_dimension() or 0)
        self.positions = _UNLIMITED if static else _positions(first.config, first.model)
        own = (self._as_loaded[0] or {}).get("max_length") if static else model.max_seq_length
        self.extend(min(own or self.positions, self.positions))
        self.pooling = "+".join(_modes(pooling) for pooling in poolings) or "none"
        _freeze_pooler(model)
        body = [PaddedStatic(first), *modules[1:]] if static else list(modules)
        while len(body) > 1 and _normalizes(body[-1], Normalize):
            body.pop()
        self.normalizes = len(body) < len(modules)
        # a plain list: the modules are registered once, below ``model``
        self._body: list[nn.Module] = body
        self._encoding = 0  # calls of encode at this moment
        self._modes: list[tuple[nn.Module, bool]] = []
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
        """Load an encoder, in evaluation mode and, unless ``model_kwargs`` says otherwise, float32.

        Args:
            name: a sentence-transformers folder; a transformers folder (then with mean pooling,
                or the last token of a causal model); a run folder of ours; ``all-MiniLM-L6-v2``,
                the installed weights; or an id of the Hugging Face hub.
            pooling: one of :data:`POOLINGS`; None keeps the model's own.
            device: ``auto`` (CUDA, MPS or the CPU, the first there is) or a device of torch.
            trust_remote_code: run code that comes with the model.
            model_kwargs: Keywords for ``from_pretrained`` of transformers, as those of
                ``SentenceTransformer``: ``dtype``, ``attn_implementation``,
                ``quantization_config``.

        Raises:
            InputError: no such model, a broken one, or a pooling or device that does not exist.
        """
        where = find_device(device)
        mode = None if pooling is None else _pooling(pooling)
        folder = resolve(name)
        if is_image(folder):
            raise InputError(f"{name} takes images, not text: load it with isotrope.load")
        model = _open(folder, where, trust_remote_code, model_kwargs or {})
        if mode is not None:
            _repool(model, mode, str(name))
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
        dropout: float = 0.1,
    ) -> "SentenceEncoder":
        """Build a small untrained BERT with a WordPiece vocabulary of ``texts``, mean pooling.

        The same texts and seed give the same encoder.

        Args:
            texts: Texts to learn the vocabulary from; the first 200,000 are used.
            seed: the seed of the initial weights.
            vocabulary: the most word pieces.
            layers: the number of layers of the transformer.
            width: d, of tokens and embeddings; a multiple of ``heads``.
            heads: the number of heads of the attention.
            max_length: tokens the model can take, special ones included.
            dropout: probability, of hidden states and attention.

        Raises:
            InputError: no text, or sizes that do not fit each other.
        """
        from isotrope.encoders.scratch import scratch_model

        model = scratch_model(
            texts,
            seed=seed,
            vocabulary=vocabulary,
            layers=layers,
            width=width,
            heads=heads,
            max_length=max_length,
            dropout=dropout,
        )
        return cls(model, "scratch").eval()

    @property
    def body(self) -> list[nn.Module]:
        """The trained modules: those of the model before any Normalize module."""
        return list(self._body)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def transformer(self, setting: str) -> "PreTrainedModel":
        """Return the transformer, which a setting is about.

        Raises:
            InputError: this encoder has none.
        """
        if is_static(self.model[0]):
            raise SettingError(
                f"{self.name} has static embeddings and no layers",
                setting=setting,
                remedy="leave it out",
            )
        return cast("Transformer", self.model[0]).model

    def freeze_embeddings(self) -> None:
        """Freeze everything below the first layer.

        That is the module ``embeddings`` of the transformer, vectors of words, positions and types
        and the norm on them; of a transformer without one, the table of word vectors.
        """
        transformer = self.transformer("freeze")
        table = transformer.get_input_embeddings()
        embeddings = getattr(transformer, "embeddings", None)
        if isinstance(embeddings, nn.Module) and any(
            part is table for part in embeddings.modules()
        ):
            table = embeddings
        table.requires_grad_(False)

    def checkpoint_activations(self) -> None:
        """Let the transformer keep only the inputs of its layers for the backward pass.

        Raises:
            InputError: this architecture cannot.
        """
        transformer = self.transformer("gradient_checkpointing")
        old = transformer.gradient_checkpointing_enable  # renamed in transformers 5
        enable = getattr(transformer, "activation_checkpointing_enable", old)
        try:
            enable({"use_reentrant": False})
        except ValueError as error:
            raise SettingError(
                f"{self.name} ({type(transformer).__name__}) does not support it",
                setting="gradient_checkpointing",
                remedy="leave it out, and use `--micro-batch` to need less memory",
            ) from error

    def tokenize(self, texts: Sequence[str], max_length: int) -> tuple[list[list[int]], int]:
        """Turn texts into token ids, the model's special tokens included.

        Args:
            texts: n texts; no prompt is added.
            max_length: longer rows are cut so that they hold so many tokens, special ones included.

        Returns:
            n rows of ids, and how many of them were cut.

        Raises:
            InputError: something that is not a text, or a length the model cannot take.
        """
        texts = _checked(texts)
        special = self.tokenizer.num_special_tokens_to_add()
        if not special < max_length <= self.positions:
            raise InputError(
                f"the maximum length of {self.name} must lie between {special + 1} and "
                f"{self.positions} tokens; found {max_length}"
            )
        try:
            rows = [row.ids for row in self._words.encode_batch_fast(texts)]
            long = [i for i, row in enumerate(rows) if len(row) > max_length]
            for i in long:
                row = self._words.encode(texts[i], add_special_tokens=False)
                row.truncate(max_length - special, direction=self.tokenizer.truncation_side)
                rows[i] = self._words.post_process(row).ids
        except (TypeError, UnicodeEncodeError) as error:
            raise _unwritable(texts) or error from error
        return rows, len(long)

    def extend(self, max_length: int) -> None:
        """Set the tokens after which the model cuts a text, in memory and in its saved copy."""
        self.max_length = max_length
        if max_length < _UNLIMITED and not is_static(self.model[0]):
            self.model.max_seq_length = max_length

    @torch.inference_mode()
    def _counts_from_the_text(self) -> bool:
        """Return whether padding before a text leaves its embedding as it is."""
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        row = self.tokenize(["a text"], min(8, self.max_length))[0][0]
        alone, beside = (
            {k: v.to(self.device) for k, v in self.pad(rows).items()}
            for rows in (
                [row],
                [row, row + row],
            )
        )
        same = torch.nn.functional.cosine_similarity(self(**alone)[0], self(**beside)[0], dim=0)
        for module, mode in modes:
            module.training = mode
        return bool(same > _SAME)

    def pad(self, rows: Sequence[Sequence[int] | np.ndarray]) -> dict[str, Tensor]:
        """Stack rows of token ids, padded to the longest, on the side the tokenizer pads.

        Returns:
            ``input_ids`` and ``attention_mask``, n x longest, int64, on the CPU.
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
        """Return the embeddings before any Normalize module.

        Args:
            input_ids: n x length, on the model's device.
            attention_mask: n x length, 1 for tokens and 0 for padding.

        Returns:
            n x d.
        """
        features: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        for module in self._body:
            features = module(features)
        return cast("Tensor", features["sentence_embedding"])

    def encode(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 128,
        max_length: int | None = None,
        progress: bool = False,
        normalize: bool = False,
    ) -> np.ndarray:
        """Embed texts as ``SentenceTransformer.encode`` does, to rounding.

        Each distinct text is embedded once, the longest first, so that a batch holds texts of
        about one length. Afterwards every module has its former mode.

        Args:
            texts: n texts.
            batch_size: texts a batch.
            max_length: tokens a text; None is :attr:`max_length`, the model's own.
            progress: show a bar on stderr.
            normalize: give unit vectors even if the model does not normalise.

        Returns:
            n x d, float32.

        Raises:
            InputError: something that is not a text, or a batch size below 1.
        """
        if batch_size < 1:
            raise InputError(f"the batch size must be at least 1; found {batch_size}")
        texts = _checked(texts)
        places: dict[str, int] = {}
        where = np.fromiter(
            (places.setdefault(text, len(places)) for text in texts), np.int64, len(texts)
        )
        out = np.empty((len(places), self.dimension), dtype=np.float32)
        limit = self.max_length if max_length is None else max_length
        ids, starts = self._flat(list(places), limit)
        lengths = np.diff(starts)
        order = np.argsort(-lengths, kind="stable")
        show = bar(len(order), "encode", "texts", show=progress)
        with torch.inference_mode(), self._evaluating(), show as done:
            for first in range(0, len(order), batch_size):
                batch = order[first : first + batch_size]
                padded = self.pad([ids[starts[i] : starts[i + 1]] for i in batch])
                h = self(**{key: value.to(self.device) for key, value in padded.items()}).float()
                if self.normalizes or normalize:
                    h = nn.functional.normalize(h, dim=-1)
                out[batch] = h.cpu().numpy()
                if not np.isfinite(out[batch]).all():
                    raise InputError(
                        f"{self.name} gives embeddings that are not finite (NaN or infinite): "
                        "its weights are broken; train it again with a lower `--learning-rate`"
                    )
                done(len(batch))
        return out if len(places) == len(texts) else out[where]

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Put all modules into evaluation mode until the last of several threads is done."""
        with _SWITCH:
            self._encoding += 1
            if self._encoding == 1:
                self._modes = [(module, module.training) for module in self.modules()]
                self.eval()
        try:
            yield
        finally:
            with _SWITCH:
                self._encoding -= 1
                if not self._encoding:
                    for module, mode in self._modes:
                        module.training = mode

    def _flat(self, texts: list[str], max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokenize with the model's prompt: all ids in one array, and n + 1 offsets into it."""
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
        """Return 16 hexadecimal digits of all that decides the embeddings.

        These are the weights, the configuration, the tokenizer, the modules with the pooling, the
        prompt and the maximal length; the name and the place of the model are not.
        """
        first: Any = self.model[0]
        config = {} if is_static(first) else first.config.to_dict()
        settings = {
            key: repr(value)
            for key, value in config.items()
            if not key.startswith("_") and key not in _NO_PART
        }
        tokenizer = json.loads(self.tokenizer.backend_tokenizer.to_str())
        for state in ("truncation", "padding"):  # of the last call
            del tokenizer[state]
        weights = {
            name: (str(tensor.dtype), tensor.reshape(-1).view(torch.uint8).cpu().numpy())
            for name, tensor in self.model.state_dict().items()
        }
        modules = [repr(self.model), self.pooling, self.normalizes, self.prompt, self.max_length]
        return fingerprint(settings, json.dumps(tokenizer, sort_keys=True), weights, modules)

    def check_prompts(self, *prompts: str) -> None:
        """Refuse prompts where the model leaves their tokens out of the pooling.

        Here a prompt is a part of its text, as it is where a model pools all tokens.

        Raises:
            InputError: such a model, and a prompt that is not empty.
        """
        if any(prompts) and not self._pools_prompts:
            raise InputError(
                f"{self.name} leaves its prompts out of the pooling (include_prompt), which is not "
                "supported: leave them out, or set include_prompt to true in its pooling"
            )

    def save(self, folder: Path, card: str | None = None) -> None:
        """Write a folder that plain sentence-transformers loads, whole or not at all.

        Matrices of LoRA are merged into the weights; ``adapter/`` in it has them by themselves.

        Args:
            folder: replaced if it exists.
            card: the model card (README.md); None writes a minimal one.

        Raises:
            InputError: the folder cannot be written.
        """
        from safetensors import SafetensorError

        with atomic_replace(folder) as temporary, quiet_loading():
            try:
                _restore(self.tokenizer.backend_tokenizer, *self._as_loaded)
                with merged_weights(self):
                    self.model.save_pretrained(str(temporary), create_model_card=False)
                save_adapter(self, temporary / "adapter")
            except SafetensorError as error:  # how its writer reports a full disk
                raise OSError(str(error)) from error
            for weights in temporary.rglob("*.safetensors"):
                weights.chmod(0o644)  # its writer makes them readable for their owner only
            text = self._card() if card is None else card
            (temporary / "README.md").write_text(text, encoding="utf-8")

    def _card(self) -> str:
        return (
            "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n"
            "tags:\n- sentence-transformers\n- isotrope\n---\n\n"
            f"# Sentence encoder\n\nMaps a text to {self.dimension} numbers "
            f"(pooling: {self.pooling}; at most {self.max_length} tokens; "
            f"{'unit vectors' if self.normalizes else 'not normalised'}). "
            "Compare texts by the cosine of their embeddings.\n\n"
            "```python\nfrom sentence_transformers import SentenceTransformer\n\n"
            'model = SentenceTransformer("path/to/this/folder")\n'
            'embeddings = model.encode(["a text", "another text"])\n```\n'
        )


def _checked(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list."""
    if isinstance(texts, str):
        raise InputError(f"expected a list of texts; found the single text {texts[:40]!r}")
    from isotrope.encoders.scratch import checked

    return list(checked(texts))


def _unwritable(texts: list[str]) -> InputError | None:
    """Return the message on texts that are not UTF-8: one of them has half of a surrogate pair."""
    for index, text in enumerate(texts):
        if text.encode("utf-8", "ignore").decode("utf-8") != text:
            return InputError(
                f"texts[{index}] cannot be written as UTF-8 (half of a surrogate pair): found "
                f"{text!r:.60}; remove the character"
            )
    return None


def _check_tokenizer(tokenizer: "PreTrainedTokenizerFast", rows: int, name: str) -> None:
    """Refuse a tokenizer that does not belong to a model, or gives several types of tokens."""
    if len(tokenizer) > rows:
        raise InputError(
            f"the tokenizer of {name} knows {len(tokenizer)} tokens but the model only "
            f"{rows}: they do not belong together"
        )
    types = tokenizer("a").get("token_type_ids", [])
    if any(types):
        raise InputError(
            f"the tokenizer of {name} gives the tokens of one text several types "
            f"(token_type_ids {types}, as XLNet's); only models whose token_type_ids are all 0 can "
            "be used"
        )


def _ensure_pad_token(tokenizer: "PreTrainedTokenizerFast") -> None:
    """Give a tokenizer without a token for padding one, which the attention mask hides."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = (
            tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
        )


def _restore(
    words: "Tokenizer", truncation: dict[str, Any] | None, padding: dict[str, Any] | None
) -> None:
    """Undo how the last call of a tokenizer cut and padded: the tokenizer is saved with it."""
    words.enable_truncation(**truncation) if truncation else words.no_truncation()
    words.enable_padding(**padding) if padding else words.no_padding()


def _pooling(name: str) -> str:
    """Return the name sentence-transformers gives to a pooling."""
    if name not in POOLINGS:
        raise InputError(
            f"there is no pooling {name!r}{nearest(name, POOLINGS)}; "
            f"choose one of {', '.join(POOLINGS)}"
        )
    return POOLINGS[name]


def _open(
    folder: Path,
    device: torch.device,
    trust_remote_code: bool,
    model_kwargs: Mapping[str, Any],
) -> "SentenceTransformer":
    """Load a folder with sentence-transformers, and refuse weights that are not all there."""
    with quiet_loading() as report:
        from sentence_transformers import SentenceTransformer

        try:
            model = SentenceTransformer(
                str(folder),
                device=str(device),
                trust_remote_code=trust_remote_code,
                local_files_only=True,
                model_kwargs={"dtype": torch.float32, **model_kwargs, "use_safetensors": True},
            )
        # tokenizers and safetensors raise nothing narrower than Exception
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            what = lines[0][:300] if lines else type(error).__name__
            raise InputError(f"{folder} is not a model that can be loaded: {what}") from error
    report.check(folder)
    return model


def _freeze_pooler(model: "SentenceTransformer") -> None:
    """Leave BERT's pooler, which pooled embeddings never pass through, out of the training.

    It stays in the model, so that a saved folder loads elsewhere without a complaint; distributed
    training would wait for its gradient.
    """
    first = model[0]
    pooler = getattr(getattr(first, "model", None), "pooler", None)
    if isinstance(pooler, nn.Module) and first.module_output_name == "token_embeddings":
        pooler.requires_grad_(False)


def _repool(model: "SentenceTransformer", mode: str, name: str) -> None:
    """Replace the pooling of a model."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    for key, module in model.named_children():
        if isinstance(module, Pooling):
            pooling = Pooling(module.embedding_dimension, mode, module.include_prompt)
            if pooling.pooling_output_dimension != module.pooling_output_dimension:
                raise InputError(
                    f"{name} joins several poolings; {mode!r} alone does not fit what follows it"
                )
            setattr(model, key, pooling)
            return
    raise InputError(f"{name} has no pooling that could be changed to {mode!r}")


def _modes(pooling: "Pooling") -> str:
    mode = pooling.pooling_mode
    return mode if isinstance(mode, str) else "+".join(mode)


def _normalizes(module: nn.Module, kind: type) -> bool:
    return isinstance(module, kind) and (
        getattr(module, "module_output_name", None) == "sentence_embedding"
    )


def _positions(config: "PretrainedConfig", model: nn.Module) -> int:
    """Return how many tokens have a position; a very large number for relative positions."""
    positions = getattr(config, "max_position_embeddings", None) or -1
    if positions < 1:
        return _UNLIMITED
    # the RoBERTa family counts its positions from padding_idx + 1
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        offset = getattr(module, "padding_idx", None)
        if isinstance(table, nn.Embedding) and isinstance(offset, int):
            return int(positions) - offset - 1
    return int(positions)


def saved_prompts(model: Any) -> tuple[str, str]:  # noqa: ANN401 - a SentenceTransformer, or not
    """Return what a model was saved with to be put before queries and before documents.

    Both are empty where ``encode`` puts a prompt before every text.
    """
    if not (hasattr(model, "encode_query") and hasattr(model, "encode_document")):
        return "", ""
    if model.prompts.get(model.default_prompt_name or ""):
        return "", ""
    query, *documents = (model.prompts.get(name) for name in _PROMPTS)
    return query or "", next((text for text in documents if text is not None), "")
