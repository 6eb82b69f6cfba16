"""Every loss that sentence-transformers exports, each in a small healthy training of its own kind.

Looking on raises nothing, changes no weight to the last bit, and finds nothing wrong. A loss that
is new there fails the first test until it is given its data here.
"""

import importlib
import logging
import pkgutil
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

pytest.importorskip("accelerate")
import sentence_transformers as st
from datasets import Dataset
from sentence_transformers.cross_encoder import losses as cross
from sentence_transformers.multi_vector_encoder import losses as several
from sentence_transformers.sentence_transformer import losses as dense
from sentence_transformers.sparse_encoder import losses as sparse
from torch import Tensor, nn
from transformers import BertForMaskedLM

from isotrope import Doctor
from isotrope.diagnostics.findings import HEALTHY
from tests.adapters.trainers import scratch

FAMILIES = {
    "sentence_transformer": (
        st.SentenceTransformer,
        st.SentenceTransformerTrainer,
        st.SentenceTransformerTrainingArguments,
    ),
    "sparse_encoder": (
        st.SparseEncoder,
        st.SparseEncoderTrainer,
        st.SparseEncoderTrainingArguments,
    ),
    "cross_encoder": (st.CrossEncoder, st.CrossEncoderTrainer, st.CrossEncoderTrainingArguments),
    "multi_vector_encoder": (
        st.MultiVectorEncoder,
        st.MultiVectorEncoderTrainer,
        st.MultiVectorEncoderTrainingArguments,
    ),
}
NO_LOSS = {
    "TripletDistanceMetric",
    "SiameseDistanceMetric",
    "ContrastiveTensionDataLoader",
    "BatchHardTripletLossDistanceFunction",
    "PListMLELambdaWeight",
    "NoWeightingScheme",
    "NDCGLoss1Scheme",
    "NDCGLoss2Scheme",
    "LambdaRankScheme",
    "NDCGLoss2PPScheme",
}
"""What they export beside losses: settings of losses, and a loader."""

ROWS, BATCH, STEPS, WIDTH = 32, 8, 6, 32
STEMS = ("blue", "cold", "fast", "grey", "high", "kind", "late", "mild")
VOCABULARY = [stem + vowel for stem in STEMS for vowel in "aeiou"]

SAID: list[str] = []

FAMILY = {
    ("sentence_transformer", "MultipleNegativesRankingLoss"): "softmax",
    ("sentence_transformer", "CachedMultipleNegativesRankingLoss"): "softmax",
    ("sentence_transformer", "MatryoshkaLoss"): "softmax",
    ("sentence_transformer", "CoSENTLoss"): "pairs",
    ("sentence_transformer", "CosineSimilarityLoss"): "pairs",
    ("sentence_transformer", "ContrastiveLoss"): "pairs",
    ("sentence_transformer", "MultipleNegativesSymmetricRankingLoss"): "softmax",
    ("sentence_transformer", "TripletLoss"): "other",
    ("sentence_transformer", "BatchAllTripletLoss"): "other",
    ("sentence_transformer", "MarginMSELoss"): "scores",
    ("sparse_encoder", "SpladeLoss"): "softmax",
    ("sparse_encoder", "CachedSpladeLoss"): "softmax",
    ("sparse_encoder", "SparseTripletLoss"): "other",
    ("cross_encoder", "MultipleNegativesRankingLoss"): "softmax",
    ("multi_vector_encoder", "MultiVectorMultipleNegativesRankingLoss"): "softmax",
    ("multi_vector_encoder", "CachedMultiVectorMultipleNegativesRankingLoss"): "softmax",
}
"""What is recognised, of losses of which it is known."""

NOT_EXAMINED = {
    ("sentence_transformer", "AnglELoss"),
    ("sentence_transformer", "DistillKLDivLoss"),
    ("sentence_transformer", "DenoisingAutoEncoderLoss"),
    ("sentence_transformer", "EmbedDistillLoss"),
    ("sentence_transformer", "MSELoss"),
    ("sentence_transformer", "MegaBatchMarginLoss"),
    ("sentence_transformer", "MarginMSELoss"),
    ("sentence_transformer", "OnlineContrastiveLoss"),
    ("sentence_transformer", "SoftmaxLoss"),
    ("sparse_encoder", "SparseAnglELoss"),
    ("sparse_encoder", "SparseDistillKLDivLoss"),
    ("sparse_encoder", "SparseMSELoss"),
    ("sparse_encoder", "SparseMarginMSELoss"),
    ("cross_encoder", "CachedMultipleNegativesRankingLoss"),
    ("multi_vector_encoder", "MultiVectorDistillKLDivLoss"),
    ("multi_vector_encoder", "MultiVectorMarginMSELoss"),
    *(("cross_encoder", name) for name in cross.__all__ if "Ranking" not in name),
}
"""Losses that compare no pairs, or in a way that is not read, or whose labels show nothing in eight
rows while they do not fall, or whose margin hides the positives; nothing
is said of their health."""

TAU = {
    "sparse_encoder": 1.0,
    "multi_vector_encoder": 1.0,
    "cross_encoder": 0.1,
}
"""Temperatures, 1 over ``scale``, that are not 1/20."""


class Training(NamedTuple):
    loss: Callable[[Any], nn.Module]
    data: Dataset
    model: Callable[[str], Any] | None = None


def _texts() -> dict[str, list[str]]:
    rng = random.Random(0)
    anchors = [rng.sample(VOCABULARY, 7) for _ in range(ROWS)]
    positives = [words[:5] + rng.sample(VOCABULARY, 2) for words in anchors]
    others = [rng.sample(VOCABULARY, 7) for _ in range(ROWS)]
    columns = {"anchor": anchors, "positive": positives, "negative": others}
    return {name: [" ".join(words) for words in rows] for name, rows in columns.items()}


TEXTS = _texts()
HALF = [float(i % 2) for i in range(ROWS)]
PAIRS = Dataset.from_dict({k: TEXTS[k] for k in ("anchor", "positive")})
TRIPLETS = Dataset.from_dict(TEXTS)
MIXED = [TEXTS["positive" if one else "negative"][i] for i, one in enumerate(HALF)]
SCORED = Dataset.from_dict({"a": TEXTS["anchor"], "b": MIXED, "score": HALF})
SAME = Dataset.from_dict(
    {
        "a": TEXTS["anchor"],
        "b": [TEXTS["negative" if i % 4 else "anchor"][i] for i in range(ROWS)],
    }
)
LABELLED = Dataset.from_dict(
    {"a": TEXTS["anchor"], "b": MIXED, "label": [int(one) for one in HALF]}
)
OF_CLASS = [" ".join(VOCABULARY[6 * (i % 3) : 6 * (i % 3) + 6]) for i in range(ROWS)]
SINGLE = Dataset.from_dict(
    {
        "text": [f"{c} {t}" for c, t in zip(OF_CLASS, TEXTS["anchor"], strict=True)],
        "label": [i % 3 for i in range(ROWS)],
    }
)
TEXT = Dataset.from_dict({"text": TEXTS["anchor"]})
TAUGHT = TRIPLETS.add_column("score", [0.4 + 0.1 * (i % 3) for i in range(ROWS)])
TWO = TRIPLETS.add_column("label", [[0.9 - 0.1 * (i % 3), 0.2] for i in range(ROWS)])
EMBEDDED, CODED = (
    TEXT.add_column(
        "label", torch.randn(ROWS, d, generator=torch.Generator().manual_seed(0)).tolist()
    )
    for d in (WIDTH, 2 * WIDTH)
)
LISTED = Dataset.from_dict(
    {
        "query": TEXTS["anchor"],
        "docs": [list(pair) for pair in zip(TEXTS["positive"], TEXTS["negative"], strict=True)],
        "labels": [[1.0, 0.0]] * ROWS,
    }
)


def _mnrl(model: Any) -> nn.Module:
    return dense.MultipleNegativesRankingLoss(model)


def _csr(folder: str) -> Any:
    from sentence_transformers.sentence_transformer.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

    parts = st.SentenceTransformer(folder, device="cpu")
    assert isinstance(parts[0], Transformer)
    code = SparseAutoEncoder(input_dim=WIDTH, hidden_dim=2 * WIDTH, k=16, k_aux=16)
    return st.SparseEncoder(modules=[*parts, code], device="cpu")


def _splade(
    inner: Callable[[Any], nn.Module],
    outer: type[nn.Module] = sparse.SpladeLoss,
    **more: Any,
) -> Callable[[Any], nn.Module]:
    """Their sparse losses are refused alone: something has to keep the embeddings sparse."""
    weights = {"document_regularizer_weight": 1e-4, "query_regularizer_weight": 1e-4}
    return lambda m: outer(m, inner(m), **weights, **more)


class Regularised(nn.Module):
    """A contrastive loss and their regulariser, as the documentation of the latter has it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.first = _mnrl(model)
        self.second = dense.GlobalOrthogonalRegularizationLoss(model)

    def forward(self, features: Any, labels: Tensor | None = None) -> dict[str, Tensor]:
        found = [self.model(column)["sentence_embedding"] for column in features]
        return {
            "first": self.first.compute_loss_from_embeddings(found, labels),
            **self.second.compute_loss_from_embeddings(found, labels),
        }


class Guide:
    """The guide of GIST: a model like the one that is trained."""

    folder = ""

    def __new__(cls) -> Any:
        return st.SentenceTransformer(cls.folder, device="cpu").eval()


TRAININGS: dict[str, dict[str, Training]] = {
    "sentence_transformer": {
        "AdaptiveLayerLoss": Training(lambda m: dense.AdaptiveLayerLoss(m, _mnrl(m)), PAIRS),
        "AnglELoss": Training(dense.AnglELoss, SCORED),
        "BatchAllTripletLoss": Training(dense.BatchAllTripletLoss, SINGLE),
        "BatchHardSoftMarginTripletLoss": Training(dense.BatchHardSoftMarginTripletLoss, SINGLE),
        "BatchHardTripletLoss": Training(dense.BatchHardTripletLoss, SINGLE),
        "BatchSemiHardTripletLoss": Training(dense.BatchSemiHardTripletLoss, SINGLE),
        "CachedGISTEmbedLoss": Training(
            lambda m: dense.CachedGISTEmbedLoss(m, Guide(), mini_batch_size=4), PAIRS
        ),
        "CachedMultipleNegativesRankingLoss": Training(
            lambda m: dense.CachedMultipleNegativesRankingLoss(m, mini_batch_size=3), TRIPLETS
        ),
        "CachedMultipleNegativesSymmetricRankingLoss": Training(
            lambda m: dense.CachedMultipleNegativesSymmetricRankingLoss(m, mini_batch_size=4),
            PAIRS,
        ),
        "CoSENTLoss": Training(dense.CoSENTLoss, SCORED),
        "ContrastiveLoss": Training(dense.ContrastiveLoss, LABELLED),
        "ContrastiveTensionLoss": Training(dense.ContrastiveTensionLoss, SAME),
        "ContrastiveTensionLossInBatchNegatives": Training(
            dense.ContrastiveTensionLossInBatchNegatives, PAIRS
        ),
        "CosineSimilarityLoss": Training(dense.CosineSimilarityLoss, SCORED),
        "DenoisingAutoEncoderLoss": Training(dense.DenoisingAutoEncoderLoss, PAIRS),
        "DistillKLDivLoss": Training(dense.DistillKLDivLoss, TWO),
        "EmbedDistillLoss": Training(dense.EmbedDistillLoss, EMBEDDED),
        "GISTEmbedLoss": Training(lambda m: dense.GISTEmbedLoss(m, Guide()), PAIRS),
        "GlobalOrthogonalRegularizationLoss": Training(Regularised, PAIRS),
        "MSELoss": Training(dense.MSELoss, EMBEDDED),
        "MarginMSELoss": Training(dense.MarginMSELoss, TAUGHT),
        "Matryoshka2dLoss": Training(
            lambda m: dense.Matryoshka2dLoss(m, _mnrl(m), [WIDTH, 16]), PAIRS
        ),
        "MatryoshkaLoss": Training(
            lambda m: dense.MatryoshkaLoss(m, _mnrl(m), [WIDTH, 24, 16]), PAIRS
        ),
        "MegaBatchMarginLoss": Training(
            lambda m: dense.MegaBatchMarginLoss(m, mini_batch_size=4), PAIRS
        ),
        "MultipleNegativesRankingLoss": Training(_mnrl, PAIRS),
        "MultipleNegativesSymmetricRankingLoss": Training(
            dense.MultipleNegativesSymmetricRankingLoss, PAIRS
        ),
        "OnlineContrastiveLoss": Training(dense.OnlineContrastiveLoss, LABELLED),
        "SoftmaxLoss": Training(lambda m: dense.SoftmaxLoss(m, WIDTH, 2), LABELLED),
        "TripletLoss": Training(dense.TripletLoss, TRIPLETS),
    },
    "sparse_encoder": {
        "CSRLoss": Training(sparse.CSRLoss, TRIPLETS, _csr),
        "CSRReconstructionLoss": Training(lambda m: sparse.CSRLoss(m, gamma=0.1), PAIRS, _csr),
        "CachedSpladeLoss": Training(
            _splade(
                sparse.SparseMultipleNegativesRankingLoss,
                sparse.CachedSpladeLoss,
                mini_batch_size=4,
            ),
            PAIRS,
        ),
        "FlopsLoss": Training(
            lambda m: sparse.SpladeLoss(
                m,
                sparse.SparseMultipleNegativesRankingLoss(m),
                document_regularizer_weight=1e-4,
                document_regularizer=sparse.FlopsLoss(m),
            ),
            PAIRS,
        ),
        "SparseAnglELoss": Training(_splade(sparse.SparseAnglELoss), SCORED),
        "SparseCoSENTLoss": Training(_splade(sparse.SparseCoSENTLoss), SCORED),
        "SparseCosineSimilarityLoss": Training(_splade(sparse.SparseCosineSimilarityLoss), SCORED),
        "SparseDistillKLDivLoss": Training(_splade(sparse.SparseDistillKLDivLoss), TWO),
        "SparseMSELoss": Training(sparse.SparseMSELoss, CODED, _csr),
        "SparseMarginMSELoss": Training(_splade(sparse.SparseMarginMSELoss), TAUGHT),
        "SparseMultipleNegativesRankingLoss": Training(
            _splade(sparse.SparseMultipleNegativesRankingLoss), PAIRS
        ),
        "SparseTripletLoss": Training(_splade(sparse.SparseTripletLoss), TRIPLETS),
        "SpladeLoss": Training(_splade(sparse.SparseMultipleNegativesRankingLoss), TRIPLETS),
    },
    "cross_encoder": {
        "ADRMSELoss": Training(cross.ADRMSELoss, LISTED),
        "BinaryCrossEntropyLoss": Training(cross.BinaryCrossEntropyLoss, SCORED),
        "CachedMultipleNegativesRankingLoss": Training(
            lambda m: cross.CachedMultipleNegativesRankingLoss(m, mini_batch_size=4), PAIRS
        ),
        "CrossEntropyLoss": Training(
            cross.CrossEntropyLoss,
            LABELLED,
            lambda folder: st.CrossEncoder(folder, num_labels=2, device="cpu"),
        ),
        "LambdaLoss": Training(cross.LambdaLoss, LISTED),
        "ListMLELoss": Training(cross.ListMLELoss, LISTED),
        "ListNetLoss": Training(cross.ListNetLoss, LISTED),
        "MSELoss": Training(cross.MSELoss, SCORED),
        "MarginMSELoss": Training(cross.MarginMSELoss, TAUGHT),
        "MultipleNegativesRankingLoss": Training(cross.MultipleNegativesRankingLoss, PAIRS),
        "PListMLELoss": Training(cross.PListMLELoss, LISTED),
        "RankNetLoss": Training(cross.RankNetLoss, LISTED),
    },
    "multi_vector_encoder": {
        "CachedMultiVectorMultipleNegativesRankingLoss": Training(
            lambda m: several.CachedMultiVectorMultipleNegativesRankingLoss(m, mini_batch_size=4),
            PAIRS,
        ),
        "MultiVectorDistillKLDivLoss": Training(several.MultiVectorDistillKLDivLoss, TWO),
        "MultiVectorMarginMSELoss": Training(several.MultiVectorMarginMSELoss, TAUGHT),
        "MultiVectorMultipleNegativesRankingLoss": Training(
            several.MultiVectorMultipleNegativesRankingLoss, TRIPLETS
        ),
    },
}
EVERY = [(family, name) for family, trainings in TRAININGS.items() for name in trainings]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder with one layer of BERT, whose words are the texts'."""
    folder = tmp_path_factory.mktemp("bert")
    small = scratch(texts=VOCABULARY, width=WIDTH, layers=1, heads=2, vocabulary=200, max_length=24)
    torch.manual_seed(0)
    BertForMaskedLM(small[0].auto_model.config).save_pretrained(folder)
    small.tokenizer.save_pretrained(folder)
    Guide.folder = str(folder)
    return str(folder)


def trained(
    bert: str, family: str, name: str, folder: Path, *, recorded: bool
) -> tuple[dict[str, Tensor], Doctor | None]:
    """The weights of model and loss after a small training, and what was recorded."""
    kind, trainer, arguments = FAMILIES[family]
    training = TRAININGS[family][name]
    torch.manual_seed(0)
    random.seed(0)
    model = kind(bert, device="cpu") if training.model is None else training.model(bert)
    loss = training.loss(model)
    theirs = trainer(
        model=model,
        args=arguments(
            str(folder),
            per_device_train_batch_size=BATCH,
            max_steps=STEPS,
            learning_rate=1e-3,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            logging_steps=100,
            disable_tqdm=True,
            seed=1,
        ),
        train_dataset=training.data,
        loss=loss,
    )
    SAID.clear()
    doctor = Doctor(every=1, say=SAID.append) if recorded else None
    if doctor is not None:
        theirs.add_callback(doctor)  # type: ignore[arg-type]
    theirs.train()
    return {k: v.detach().clone() for k, v in loss.state_dict().items()}, doctor


def test_every_loss_they_export_has_its_training() -> None:
    found = {}
    for family in (module.name for module in pkgutil.iter_modules(st.__path__) if module.ispkg):
        name = f"sentence_transformers.{family}.losses"
        if importlib.util.find_spec(name):
            exported = getattr(importlib.import_module(name), "__all__", [])
            found[family] = sorted(set(exported) - NO_LOSS)
    found.pop("base", None)  # what losses are made of
    assert found == {family: sorted(trainings) for family, trainings in TRAININGS.items()}
    assert set(EVERY) >= OFTEN


OFTEN = {
    ("sentence_transformer", "CoSENTLoss"),
    ("sentence_transformer", "CachedMultipleNegativesRankingLoss"),
    ("sentence_transformer", "MatryoshkaLoss"),
    ("sparse_encoder", "SpladeLoss"),
    ("cross_encoder", "MultipleNegativesRankingLoss"),
}
"""Losses of each kind that `make test` trains with; the others are slow."""


@pytest.mark.parametrize(
    ("family", "name"),
    [
        pytest.param(*key, id="-".join(key), marks=() if key in OFTEN else pytest.mark.slow)
        for key in EVERY
    ],
)
@pytest.mark.filterwarnings("ignore:The .*SymmetricRankingLoss is deprecated:DeprecationWarning")
def test_a_look_at_it_is_quiet_harmless_and_no_false_alarm(
    family: str, name: str, bert: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain, _ = trained(bert, family, name, tmp_path, recorded=False)
    with caplog.at_level(logging.WARNING, logger="isotrope"):
        weights, doctor = trained(bert, family, name, tmp_path, recorded=True)
    assert plain.keys() == weights.keys()
    assert all(torch.equal(plain[key], weights[key]) for key in plain)
    assert any(bool(value.any()) for value in weights.values())

    assert doctor is not None
    assert not doctor.off, caplog.text
    assert [row["step"] for row in doctor.rows] == list(range(STEPS))
    assert all(row["loss"] is not None for row in doctor.rows)
    (told,) = doctor.losses.values()
    first, *rest = SAID
    found = doctor.diagnose()
    assert first.startswith(f"isotrope: {told['name']} is ")
    assert len(rest) == 1, SAID
    word = "not-examined" if (family, name) in NOT_EXAMINED else HEALTHY
    assert found.verdict == (word,), f"{found}\n{doctor.rows[-1]}"
    assert rest[0].startswith(f"isotrope: verdict: {word} (")
    assert FAMILY.get((family, name), told["family"]) == told["family"]
    if told["family"] == "softmax":
        assert told["temperature"] == pytest.approx(
            {"GISTEmbedLoss": 0.01, "CachedGISTEmbedLoss": 0.01}.get(name, TAU.get(family, 0.05)),
            rel=0.01,
        )
