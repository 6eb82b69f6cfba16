"""Small trainings in other people's trainers, each healthy or with one planted fault.

`benchmarks/hosts.py` runs this file with the interpreter of a host; every cell is one JSON line.

    [HOSTS_SEED=N] python benchmarks/hosts_trainings.py HOST FOLDER CELL [CELL ...]

Texts are docstrings of Python's own library, and the encoder is all-MiniLM-L6-v2 cut to its first
two layers. Images and views are drawn at random around 64 prototypes, and are trained from scratch.
A training runs twice from the same seed, without the doctor and with it, and the weights are
compared.
"""

import contextlib
import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import logging
import os
import random
import sys
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import isotrope

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

FOLDER = Path("hosts-work")
TOKENS, TEXTS = 16, 400
SHIFT = 137  # of shuffled positives: no pair comes a second time with its sides exchanged
SEED = int(os.environ.get("HOSTS_SEED", 0))
_BEYOND = 1_000_000  # seeds that one training draws from
RANK, PROCESSES = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@dataclass(frozen=True)
class Plan:
    """A training.

    Attributes:
        temperature: multiple of the host's own; None sets it to 1.
        rate: multiple of the host's own learning rate.
        batch: rows of a batch; None for the host's own.
        data: ``pairs``, ``duplicates`` (every batch has four different pairs) or ``shuffled``.
        attract: whether the loss only pulls.
    """

    temperature: float | None = 1.0
    rate: float = 1.0
    batch: int | None = None
    data: str = "pairs"
    attract: bool = False

    def tau(self, usual: float) -> float:
        """Return the temperature, where the host's own is ``usual``."""
        return 1.0 if self.temperature is None else usual * self.temperature


CELLS = {
    "healthy": Plan(),
    "temperature-too-high": Plan(temperature=None),
    "temperature-too-low": Plan(temperature=0.02),
    "learning-rate-100x": Plan(rate=100.0),
    "one-row": Plan(batch=1),
    "duplicates": Plan(data="duplicates"),
    "shuffled-positives": Plan(data="shuffled"),
    "attraction-only": Plan(attract=True),
}
"""The faults."""

Train = Callable[[Plan, Any], nn.Module]
HOSTS: dict[str, Train] = {}


def host(train: Train) -> Train:
    """Add the training of a host, by the name of its function."""
    HOSTS[train.__name__.replace("_", "-")] = train
    return train


# --- texts -------------------------------------------------------------------------------------


@functools.cache
def corpus() -> list[tuple[str, str]]:
    """Return pairs of a function's first sentence and the beginning of the rest, shuffled."""
    from corpus import STANDARD_LIBRARY, collect

    pairs = [(p.query, " ".join(p.target.split()[:20])) for p in collect([STANDARD_LIBRARY])]
    random.Random(SEED).shuffle(pairs)
    return pairs[:TEXTS]


def texts(plan: Plan) -> list[tuple[str, str]]:
    """Return the pairs of a training."""
    pairs = corpus()
    if plan.data == "duplicates":
        return pairs[:4] * (TEXTS // 4)
    if plan.data == "shuffled":
        return [(a, pairs[(i + SHIFT) % len(pairs)][1]) for i, (a, _) in enumerate(pairs)]
    return pairs


def encoder() -> str:
    """Return the folder of the first two layers of all-MiniLM-L6-v2, in transformers' format."""
    from transformers import AutoModel, AutoTokenizer

    from isotrope.encoders.names import resolve

    path = FOLDER / "encoder"
    if not path.is_dir():
        source = str(resolve("all-MiniLM-L6-v2"))
        model = AutoModel.from_pretrained(source)
        model.encoder.layer = model.encoder.layer[:2]
        model.config.num_hidden_layers = 2
        part = path.with_suffix(f".{os.getpid()}")
        model.save_pretrained(part)
        AutoTokenizer.from_pretrained(source).save_pretrained(part)
        with contextlib.suppress(OSError):
            part.rename(path)
    return str(path)


def sentence_transformer() -> Any:
    """Return the encoder as sentence-transformers has it."""
    from sentence_transformers import SentenceTransformer, models

    text = models.Transformer(encoder(), max_seq_length=TOKENS)
    return SentenceTransformer(modules=[text, models.Pooling(384, "mean")], device="cpu").float()


class Mean(nn.Module):
    """The encoder with the mean of its tokens, as a user writes it."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import AutoModel

        self.model = AutoModel.from_pretrained(encoder())

    def forward(self, tokens: dict[str, Tensor]) -> Tensor:
        """Return unit rows."""
        states = self.model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None].float()
        return F.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


@functools.cache
def tokenizer() -> Any:
    """Return the encoder's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(encoder())


def tokens(some: list[str]) -> dict[str, Tensor]:
    """Return the tokens of some texts."""
    given = tokenizer()(some, padding=True, truncation=True, max_length=TOKENS, return_tensors="pt")
    return dict(given)


def arguments(kind: Any, plan: Plan, *, batch: int = 16, rate: float = 5e-5, **more: Any) -> Any:
    """Return the arguments of a trainer that is made from transformers'."""
    return kind(
        str(FOLDER / "out"),
        max_steps=12,
        per_device_train_batch_size=plan.batch or batch,
        learning_rate=rate * plan.rate,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        seed=1 + SEED,
        logging_steps=4,
        **more,
    )


def with_sentence_transformers(plan: Plan, doctor: Any, *, gather: bool = False) -> nn.Module:
    """Train with sentence-transformers' own trainer."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss

    model, pairs = sentence_transformer(), texts(plan)
    columns: dict[str, Any] = {"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs]}
    if plan.attract:
        columns["label"] = [1.0] * len(pairs)
        loss: Any = CosineSimilarityLoss(model)
    else:
        options = {"gather_across_devices": True} if gather else {}
        loss = MultipleNegativesRankingLoss(model, scale=1 / plan.tau(0.05), **options)
    more = {"ddp_backend": "gloo"} if PROCESSES > 1 else {}
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(Arguments, plan, **more),
        train_dataset=Dataset.from_dict(columns),
        loss=loss,
        callbacks=[doctor] if doctor else [],
    )
    trainer.train()
    return model


@host
def sentence_transformers(plan: Plan, doctor: Any) -> nn.Module:
    """Train as most do."""
    return with_sentence_transformers(plan, doctor)


@host
def torchrun(plan: Plan, doctor: Any) -> nn.Module:
    """Train in two processes that gather each other's negatives."""
    return with_sentence_transformers(plan, doctor, gather=True)


class BiEncoder(nn.Module):
    """A bi-encoder for transformers' Trainer."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.encoder, self.tau, self.attract = Mean(), plan.tau(0.05), plan.attract

    def forward(self, query: Any, passage: Any) -> dict[str, Tensor]:
        """Return the loss of a batch."""
        q, p = self.encoder(query), self.encoder(passage)
        if self.attract:
            return {"loss": 1 - F.cosine_similarity(q, p).mean()}
        return {"loss": F.cross_entropy(q @ p.T / self.tau, torch.arange(len(q)))}


def collated(batch: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the tokens of a batch of pairs."""
    return {"query": tokens([a for a, _ in batch]), "passage": tokens([b for _, b in batch])}


@host
def transformers(plan: Plan, doctor: Any) -> nn.Module:
    """Train a bi-encoder of one's own in transformers' Trainer, with its default batch of 8."""
    from transformers import Trainer, TrainingArguments

    model = BiEncoder(plan)
    settings = arguments(TrainingArguments, plan, batch=8, remove_unused_columns=False)
    trainer = Trainer(model, settings, data_collator=collated, train_dataset=texts(plan))
    if doctor:
        trainer.add_callback(doctor)
    trainer.train()
    return model


def grouped(pairs: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Return pairs with two further passages each, that belong to others."""
    known = corpus()
    return [
        (a, [b, known[(i * 7 + 13) % TEXTS][1], known[(i * 11 + 29) % TEXTS][1]])
        for i, (a, b) in enumerate(pairs)
    ]


@host
def FlagEmbedding(plan: Plan, doctor: Any) -> nn.Module:  # noqa: N802 - by the host's name
    """Train with FlagEmbedding's model and trainer: groups of a positive and two negatives."""
    from FlagEmbedding.abc.finetune.embedder import AbsEmbedderTrainingArguments
    from FlagEmbedding.finetune.embedder.encoder_only.base.modeling import (
        BiEncoderOnlyEmbedderModel,
    )
    from FlagEmbedding.finetune.embedder.encoder_only.base.trainer import (
        EncoderOnlyEmbedderTrainer,
    )
    from transformers import AutoModel

    # one row has no negatives of its own
    rows = [(a, p[:1] if plan.batch == 1 else p) for a, p in grouped(texts(plan))]

    def collate(batch: list[Any]) -> dict[str, Any]:
        passages = [p for _, some in batch for p in some]
        return {
            "queries": tokens([q for q, _ in batch]),
            "passages": tokens(passages),
            "teacher_scores": None,
            "no_in_batch_neg_flag": False,
        }

    tau = plan.tau(0.02)
    model = BiEncoderOnlyEmbedderModel(
        AutoModel.from_pretrained(encoder()),
        tokenizer=tokenizer(),
        temperature=tau,
        normalize_embeddings=True,
        sentence_pooling_method="mean",
    )
    settings = arguments(
        AbsEmbedderTrainingArguments, plan, batch=8, remove_unused_columns=False, temperature=tau
    )
    EncoderOnlyEmbedderTrainer(
        model=model,
        args=settings,
        train_dataset=rows,
        data_collator=collate,
        processing_class=tokenizer(),
        callbacks=[doctor] if doctor else [],
    ).train()
    return model


@host
def pylate(plan: Plan, doctor: Any) -> nn.Module:
    """Train a late-interaction model with PyLate's loss; its scores are sums over 16 tokens."""
    from datasets import Dataset
    from pylate import losses, models, utils
    from sentence_transformers import SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

    model = models.ColBERT(
        model_name_or_path=encoder(), device="cpu", query_length=16, document_length=24
    )
    pairs = texts(plan)
    columns = {"query": [a for a, _ in pairs], "positive": [b for _, b in pairs]}
    tau = 16.0 if plan.temperature is None else plan.tau(1.0)
    SentenceTransformerTrainer(
        model=model,
        args=arguments(Arguments, plan, batch=8),
        train_dataset=Dataset.from_dict(columns),
        loss=losses.Contrastive(model, temperature=tau),
        data_collator=utils.ColBERTCollator(model.tokenize),
        callbacks=[doctor] if doctor else [],
    ).train()
    return model


class Interleaved(nn.Module):
    """What ms-swift makes of a model: rows of anchor and positive in turn, one vector each."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Mean()

    def forward(self, tokens: Any, labels: Any = None) -> dict[str, Tensor]:
        """Return the vectors under the name that ms-swift's losses read."""
        return {"last_hidden_state": self.encoder(tokens)}


@host
def ms_swift(plan: Plan, doctor: Any) -> nn.Module:
    """Train with ms-swift's own losses; its trainer, which wants a model of its hub, is rebuilt."""
    from swift.loss.embedding import CosineSimilarityLoss, InfonceLoss
    from transformers import Trainer, TrainingArguments

    os.environ["INFONCE_TEMPERATURE"] = str(plan.tau(0.1))

    class EmbeddingTrainer(Trainer):  # type: ignore[misc]
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any
        ) -> Any:
            kind = CosineSimilarityLoss if plan.attract else InfonceLoss
            labels = inputs.pop("labels")
            return kind(self.args, self)(model(**inputs), labels)

    EmbeddingTrainer.__module__ = "swift.trainers.embedding_trainer"  # by which its words are known

    def collate(batch: list[tuple[str, str]]) -> dict[str, Any]:
        some = [x for pair in batch for x in pair]
        return {"tokens": tokens(some), "labels": torch.ones(len(batch))}

    model = Interleaved()
    EmbeddingTrainer(
        model=model,
        args=arguments(TrainingArguments, plan, batch=8, remove_unused_columns=False),
        train_dataset=texts(plan),
        data_collator=collate,
        callbacks=[doctor] if doctor else [],
    ).train()
    return model


class DenseModel(nn.Module):
    """What Tevatron's encoder model does: query and passage dictionaries, a loss of the scores."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.encoder, self.temperature = Mean(), plan.tau(0.02)
        self.cross_entropy = nn.CrossEntropyLoss(reduction="mean")

    def forward(self, query: Any = None, passage: Any = None) -> Any:
        """Return the loss of a batch, with its scores."""
        from transformers.modeling_outputs import SequenceClassifierOutput

        q, p = self.encoder(query), self.encoder(passage)
        scores = torch.matmul(q, p.transpose(0, 1)).view(len(q), -1)
        target = torch.arange(len(q), dtype=torch.long) * (len(p) // len(q))
        loss = self.cross_entropy(scores / self.temperature, target)
        return SequenceClassifierOutput(loss=loss, logits=scores)


@host
def tevatron(plan: Plan, doctor: Any) -> nn.Module:
    """Train as Tevatron's TevatronTrainer does today; the registry has that of 2022 only."""
    from transformers import Trainer, TrainingArguments

    class TevatronTrainer(Trainer):  # type: ignore[misc]
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any
        ) -> Any:
            query, passage = inputs
            return model(query=query, passage=passage).loss

        def training_step(self, *given: Any) -> Tensor:
            return super().training_step(*given) / 1

    TevatronTrainer.__module__ = "tevatron.retriever.trainer"  # by which its words are known
    rows = [(a, p[:1] if plan.batch == 1 else p) for a, p in grouped(texts(plan))]

    def collate(batch: list[Any]) -> tuple[Any, Any]:
        passages = [p for _, some in batch for p in some]
        return tokens([q for q, _ in batch]), tokens(passages)

    model = DenseModel(plan)
    TevatronTrainer(
        model=model,
        args=arguments(TrainingArguments, plan, batch=8, remove_unused_columns=False),
        train_dataset=rows,
        data_collator=collate,
        callbacks=[doctor] if doctor else [],
    ).train()
    return model


# --- images and views --------------------------------------------------------------------------


@functools.cache
def prototypes() -> tuple[Tensor, Tensor]:
    """Return 512 images, and the words of their captions."""
    random = torch.Generator().manual_seed(_BEYOND * SEED + 1)
    images = torch.randn(512, 3, 16, 16, generator=random)
    return images, torch.randint(1, 90, (512, 7), generator=random)


def places(plan: Plan, step: int, rows: int) -> Tensor:
    """Return the prototypes of a batch."""
    random = torch.Generator().manual_seed(_BEYOND * SEED + 1000 * step + RANK)
    some = torch.randperm(512, generator=random)[:rows]
    return some[torch.arange(rows) % 4] if plan.data == "duplicates" else some


def views(plan: Plan, step: int, rows: int, noise: float = 0.5) -> tuple[Tensor, Tensor]:
    """Return two views of the images of a batch."""
    at = places(plan, step, rows)
    other = (at + SHIFT) % 512 if plan.data == "shuffled" else at
    random, images = torch.Generator().manual_seed(_BEYOND * SEED + 7000 + step), prototypes()[0]
    a, b = (images[i] + noise * torch.randn(images[i].shape, generator=random) for i in (at, other))
    return a, b


def network(width: int = 32) -> nn.Module:
    """Return a small network for the images."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, width),
    )


def looped(
    plan: Plan,
    doctor: Any,
    model: nn.Module,
    loss: Callable[[int, int], Tensor],
    *,
    backward: Callable[[Tensor], object] = Tensor.backward,
) -> nn.Module:
    """Train in a loop of one's own."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 * plan.rate)
    for step in range(60):
        value = loss(step, plan.batch or 32)
        if doctor:
            doctor.observe(value)
        optimizer.zero_grad()
        backward(value)
        optimizer.step()
    return model


@host
def open_clip(plan: Plan, doctor: Any) -> nn.Module:
    """Train a tiny CLIP from scratch with open_clip's loss."""
    from open_clip.loss import ClipLoss
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    model = CLIP(
        embed_dim=32,
        vision_cfg=CLIPVisionCfg(layers=2, width=48, head_width=16, patch_size=8, image_size=16),
        text_cfg=CLIPTextCfg(context_length=8, vocab_size=100, width=48, heads=4, layers=2),
        init_logit_scale=float(np.log(1 / plan.tau(0.07))),
    )
    clip = ClipLoss()

    def loss(step: int, rows: int) -> Tensor:
        images, _ = views(plan, step, rows, 0.1)
        at = places(plan, step, rows)
        # captions of other images, anew in each step: a fixed one is as good as its own
        at = (at + 17 * step + 5) % 512 if plan.data == "shuffled" else at
        captions = torch.cat([prototypes()[1][at], torch.full((rows, 1), 99)], 1)
        i, t, scale = model(images, captions)[:3]
        return clip(i, t, scale)

    return looped(plan, doctor, model, loss)


@host
def pytorch_metric_learning(plan: Plan, doctor: Any) -> nn.Module:
    """Train with losses of pytorch-metric-learning: two views of an image have one label."""
    from pytorch_metric_learning import losses

    model = network()
    contrastive = losses.ContrastiveLoss(pos_margin=0, neg_margin=1)
    info = losses.NTXentLoss(temperature=plan.tau(0.1))

    def loss(step: int, rows: int) -> Tensor:
        a, b = (model(x) for x in views(plan, step, rows))
        labels = torch.arange(rows)
        labels = torch.zeros_like(labels) if plan.attract else labels
        value: Tensor = (contrastive if plan.attract else info)(
            torch.cat([a, b]), torch.cat([labels, labels])
        )
        return value

    return looped(plan, doctor, model, loss)


@host
def accelerate(plan: Plan, doctor: Any) -> nn.Module:
    """Train in two processes; the candidates are gathered, with their gradient."""
    from accelerate import Accelerator
    from torch.distributed.nn.functional import all_gather

    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(network())

    def loss(step: int, rows: int) -> Tensor:
        a, b = views(plan, step, rows)
        x, y = F.normalize(model(torch.cat([a, b])), dim=-1).chunk(2)
        if plan.attract:
            return (2 - 2 * (x * y).sum(-1)).mean()
        if plan.batch != 1:
            y = torch.cat(list(all_gather(y)))
        own = torch.arange(rows) + rows * RANK * (plan.batch != 1)
        return F.cross_entropy(x @ y.T / plan.tau(0.1), own)

    looped(plan, doctor, model, loss, backward=accelerator.backward)
    unwrapped: nn.Module = accelerator.unwrap_model(model)
    return unwrapped


class Images(torch.utils.data.Dataset[Any]):
    """Two views of each image; four images again and again, or views of different ones."""

    def __init__(self, plan: Plan, wrap: Callable[[Tensor, Tensor, int], Any]) -> None:
        self.plan, self.wrap = plan, wrap

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> Any:
        random = torch.Generator().manual_seed(_BEYOND * SEED + index)
        x = prototypes()[0]
        at = index % 4 if self.plan.data == "duplicates" else index
        other = (index + SHIFT) % 512 if self.plan.data == "shuffled" else at
        a, b = (x[i] + 0.5 * torch.randn(x[i].shape, generator=random) for i in (at, other))
        return self.wrap(a, b, index)


def with_lightning(plan: Plan, doctor: Any, module: nn.Module, wrap: Any) -> nn.Module:
    """Train a module in Lightning."""
    import lightning

    trainer = lightning.Trainer(
        max_epochs=4,
        max_steps=60,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[doctor] if doctor else [],
    )
    data = Images(plan, wrap)
    loader = torch.utils.data.DataLoader(
        data, batch_size=plan.batch or 32, shuffle=True, drop_last=True
    )
    trainer.fit(module, loader)
    return module


@host
def lightly(plan: Plan, doctor: Any) -> nn.Module:
    """Train SimCLR with lightly's loss and head in Lightning."""
    import lightning
    from lightly.loss import NegativeCosineSimilarity, NTXentLoss
    from lightly.models.modules.heads import SimCLRProjectionHead

    class SimCLR(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = network(64)
            # batch normalisation of one row is an error
            self.head = nn.Linear(64, 32) if plan.batch == 1 else SimCLRProjectionHead(64, 64, 32)
            self.loss: Any = NTXentLoss(temperature=plan.tau(0.1))
            if plan.attract:
                self.loss = NegativeCosineSimilarity()

        def training_step(self, batch: Any, _: int) -> Tensor:
            (a, b), _, _ = batch
            value: Tensor = self.loss(self.head(self.backbone(a)), self.head(self.backbone(b)))
            return value

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3 * plan.rate)

    return with_lightning(plan, doctor, SimCLR(), lambda a, b, i: ([a, b], 0, str(i)))


@host
def stable_pretraining(plan: Plan, doctor: Any) -> nn.Module:
    """Train SimCLR with stable-pretraining's module and loss."""
    import stable_pretraining
    from stable_pretraining.forward import simclr
    from stable_pretraining.losses import NTXEntLoss

    module = stable_pretraining.Module(
        backbone=network(64),
        projector=nn.Linear(64, 32),
        forward=simclr,
        simclr_loss=NTXEntLoss(temperature=plan.tau(0.1)),
        optim={
            "optimizer": {"type": "AdamW", "lr": 1e-3 * plan.rate},
            "scheduler": {"type": "ConstantLR"},
            "interval": "step",
        },
    )

    def wrap(a: Tensor, b: Tensor, i: int) -> Any:
        return {"views": [{"image": x, "label": i, "sample_idx": i} for x in (a, b)]}

    return with_lightning(plan, doctor, module, wrap)


# --- a cell ------------------------------------------------------------------------------------


def seeded() -> None:
    """Seed every generator."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - hosts draw from it
    torch.manual_seed(SEED)


def digest(model: nn.Module) -> str:
    """Return a digest of the weights."""
    sha = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        sha.update(name.encode() + data.numpy().tobytes())
    return sha.hexdigest()


def cell(train: Train, plan: Plan) -> dict[str, Any]:
    """Return what the doctor says of a training, and whether it is the one without a doctor."""
    began = time.time()
    seeded()
    before = digest(train(plan, None))
    heard: list[str] = []
    warned = logging.getLogger("isotrope")
    seen = io.StringIO()
    handler = logging.StreamHandler(seen)
    warned.addHandler(handler)
    doctor = isotrope.Doctor(every=1, say=heard.append)
    seeded()
    try:
        raised, after = "", digest(train(plan, doctor))
    except Exception as error:  # of any kind: it is what is counted
        raised, after = f"{type(error).__name__}: {error}"[:300], ""
    warned.removeHandler(handler)
    found = doctor.diagnose()
    loss = next(iter(doctor.losses.values()), {})
    return {
        "raised": raised or seen.getvalue().strip()[:300],
        "identical": after == before,
        "verdict": " ".join(found.verdict),
        "advice": found.findings[0].change if found.findings else "",
        "loss": loss.get("family"),
        "temperature": loss.get("temperature"),
        "negatives": loss.get("negatives"),
        "evidence": "; ".join(str(e) for e in found.findings[0].evidence) if found.findings else "",
        "said": heard,
        "seconds": round(time.time() - began, 1),
    }


class NoTorchvision(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for torchvision, which has no release for every torch: names with nothing behind.

    Several hosts import it, and none of these trainings calls it.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Find torchvision and what is in it."""
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        """Return a module in which any name is a class or a module."""
        return _Nothing(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing."""


class _Nothing(types.ModuleType):
    __version__ = "0.0"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper():
            return _Names(name, (), {})
        return importlib.import_module(f"{self.__name__}.{name}")

    def __call__(self, *_: object, **__: object) -> None:
        return None


class _Names(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def quiet() -> None:
    """Keep the hosts from speaking."""
    logging.disable(logging.NOTSET)
    for name in ("lightning", "pytorch_lightning", "lightning.pytorch", "sentence_transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with contextlib.suppress(ImportError):
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        transformers.PrinterCallback.on_log = lambda *_, **__: None
    with contextlib.suppress(ImportError):
        import datasets

        datasets.disable_progress_bars()


def main() -> None:
    """Train the cells that are named, and print a JSON line for each."""
    global FOLDER
    name, folder, *cells = sys.argv[1:]
    FOLDER = Path(folder).resolve()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(NoTorchvision())
    quiet()
    for one in cells:
        try:
            found = cell(HOSTS[name], replace(CELLS[one]))
        except Exception as error:  # of the host itself
            import traceback

            traceback.print_exc()
            found = {"raised": f"without the doctor: {type(error).__name__}: {error}"[:300]}
        if RANK == 0:
            print(json.dumps({"host": name, "cell": one, **found}), flush=True)


if __name__ == "__main__":
    main()
