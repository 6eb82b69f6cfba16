"""Public questions about trainings, rebuilt small: what the doctor says, and whether it helps.

Each question is a setting that somebody described in public, rebuilt with all-MiniLM-L6-v2 (or with
a masked language model) on docstrings of Python's library, in sentence-transformers' own trainer
with `isotrope.Doctor(every=1)`. Which verdict is right was written down before it was run. Then the
change that the verdict asks for is made, and the training runs again from the start. A row is right
if the expected verdict comes first, and no longer comes after the change.

    OMP_NUM_THREADS=1 python benchmarks/questions.py [--csv docs/results/questions.csv] [--only ID]

A training has 12 steps and updates the last two layers; a question takes half a minute of one core.
Rows that are in the CSV are kept: delete one to run it again. The masked language model, made from
all-MiniLM-L6-v2, is looked for in ../shared/data/standin-mlm (--raw).
"""

import argparse
import functools
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers import SentenceTransformerTrainer as Trainer
from sentence_transformers.multi_vector_encoder import losses as several
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.training_args import (
    BatchSamplers,
)
from sentence_transformers.sentence_transformer.training_args import (
    SentenceTransformerTrainingArguments as Arguments,
)
from sentence_transformers.util import dot_score

import isotrope
import ledger
from corpus import STANDARD_LIBRARY, collect
from isotrope.encoders.names import resolve

COLUMNS = (
    *("id", "url", "asks", "setting", "expected", "verdict", "change", "changed", "verdict_after"),
    *("mrr_start", "mrr_before", "mrr_after", "right", "also", "judges", "seconds"),
)
STEPS, HELD, TOKENS = 12, 100, 16
GITHUB = "https://github.com/"


@dataclass(frozen=True)
class Setting:
    """A training.

    Attributes:
        data: makes the columns.
        loss: of a model.
        batch: rows of a batch.
        rate: peak learning rate.
        raw: begin with the masked language model.
        vectors: train a model of several vectors a text.
        dropout: False switches it off.
        sampler: of batches.
        accumulated: batches whose gradients make one step.
        after: the training that the model had before this one, if any.
    """

    data: Callable[[], dict[str, list[Any]]]
    loss: Callable[[Any], torch.nn.Module] = losses.MultipleNegativesRankingLoss
    batch: int = 32
    rate: float = 1e-4
    raw: bool = False
    vectors: bool = False
    dropout: bool = True
    sampler: BatchSamplers = BatchSamplers.BATCH_SAMPLER
    accumulated: int = 1
    after: "Setting | None" = None


@dataclass(frozen=True)
class Question:
    """A question, and what answers it.

    Attributes:
        id: repository and number.
        path: on GitHub.
        asks: what was asked, in our words.
        told: the setting, in words.
        expected: verdicts of which one must come first.
        setting: the training.
        changed: what was changed, in words; empty where nothing is wrong.
        fields: of the setting, changed.
        also: paths of further questions about the same situation.
        seen: why the answer does not judge the doctor; empty if it does.
    """

    id: str
    path: str
    asks: str
    told: str
    expected: tuple[str, ...]
    setting: Setting
    changed: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    seen: str = ""


_CORPUS: list[tuple[str, str]] = []


def corpus() -> list[tuple[str, str]]:
    """Return pairs of a function's first sentence and the beginning of the rest, shuffled."""
    if not _CORPUS:
        _CORPUS.extend(
            (item.query, " ".join(item.target.split()[:20])) for item in collect([STANDARD_LIBRARY])
        )
        random.Random(0).shuffle(_CORPUS)
    return _CORPUS


def trained() -> list[tuple[str, str]]:
    """Return the pairs that are not held out."""
    return corpus()[HELD : HELD + 400]


def pairs() -> dict[str, list[Any]]:
    """Return sentences, and what they are about."""
    first, second = zip(*trained(), strict=True)
    return {"anchor": list(first), "positive": list(second)}


def easy() -> dict[str, list[Any]]:
    """Return texts, and the same with the first word left out: anything finds them."""
    texts = pairs()["positive"]
    return {"anchor": texts, "positive": [text.split(" ", 1)[-1] for text in texts]}


@functools.cache
def mined() -> dict[str, list[Any]]:
    """Return pairs with a negative: of the positives of others, the most similar."""
    data = pairs()
    model = encoder(Setting(pairs))
    a, p = (model.encode(data[name], normalize_embeddings=True) for name in ("anchor", "positive"))
    scores = torch.as_tensor(a @ p.T).fill_diagonal_(-2)
    return {**data, "negative": [data["positive"][i] for i in scores.argmax(dim=1)]}


def shuffled() -> dict[str, list[Any]]:
    """Return pairs of which none belongs together."""
    data = pairs()
    return {**data, "positive": data["positive"][7:] + data["positive"][:7]}


def swapped() -> dict[str, list[Any]]:
    """Return triplets whose last two columns are the wrong way round."""
    data = pairs()
    return {**shuffled(), "negative": data["positive"]}


def repeated() -> dict[str, list[Any]]:
    """Return twelve pairs, again and again."""
    data = pairs()
    return {name: [texts[i % 12] for i in range(400)] for name, texts in data.items()}


def many() -> dict[str, list[Any]]:
    """Return pairs without repetition among repeated ones."""
    repeats, data = repeated(), pairs()
    return {name: repeats[name][:40] + data[name][:360] for name in data}


@functools.cache
def parted(anchors: int = 100) -> Callable[[], dict[str, list[Any]]]:
    """Return sentences with four positives each, in rows of their own: a quarter of the text."""

    def made() -> dict[str, list[Any]]:
        first, second = [], []
        for sentence, text in trained()[:anchors]:
            words = text.split()
            for i in range(4):
                first.append(sentence)
                second.append(" ".join(words[i * len(words) // 4 : (i + 1) * len(words) // 4]))
        return {"anchor": first, "positive": second}

    return made


def tagged() -> dict[str, list[Any]]:
    """Return sentences with their first word, if it is one of the eight most frequent ones."""
    sentences = [sentence for sentence, _ in corpus()[HELD:]]
    words = [sentence.split()[0] for sentence in sentences]
    frequent = sorted(set(words), key=words.count)[-8:]
    rows = [(s, w) for s, w in zip(sentences, words, strict=True) if w in frequent][:400]
    return {"anchor": [s for s, _ in rows], "positive": [w for _, w in rows]}


def near_copies() -> dict[str, list[Any]]:
    """Return pairs with a negative that says the same as the positive."""
    data = pairs()
    return {**data, "negative": [f"{text} too" for text in data["positive"]]}


def same() -> dict[str, list[Any]]:
    """Return a text twice."""
    texts = pairs()["anchor"]
    return {"anchor": texts, "positive": list(texts)}


@functools.cache
def labelled(positive: float, negative: float | None) -> Callable[[], dict[str, list[Any]]]:
    """Return pairs with one score, every second one mixed up with another."""

    def made() -> dict[str, list[Any]]:
        right, wrong = pairs(), shuffled()
        odd = [negative is not None and i % 2 == 1 for i in range(len(right["anchor"]))]
        second = [(wrong if mixed else right)["positive"][i] for i, mixed in enumerate(odd)]
        scores = [negative if mixed else positive for mixed in odd]
        return {"a": right["anchor"], "b": second, "score": scores}

    return made


@functools.cache
def scale(value: float, **options: Any) -> Callable[[Any], torch.nn.Module]:
    """Return their usual loss with another scale."""
    return lambda model: losses.MultipleNegativesRankingLoss(model, scale=value, **options)


@functools.cache
def several_scale(value: float) -> Callable[[Any], torch.nn.Module]:
    """Return the same for several vectors a text."""
    return lambda model: several.MultiVectorMultipleNegativesRankingLoss(model, scale=value)


@functools.cache
def triplets(
    margin: float, distance: Any = losses.TripletDistanceMetric.COSINE
) -> Callable[[Any], torch.nn.Module]:
    """Return a triplet loss, by cosine distances or by others."""
    return lambda model: losses.TripletLoss(model, distance_metric=distance, triplet_margin=margin)


HARD = {"data": mined, "loss": scale(20)}
DONE = ("nothing-left-to-learn", "dissipated-early")
SPREADS = Setting(pairs, raw=True, rate=3e-4)

QUESTIONS = (
    Question(
        "sentence-transformers 3469", "huggingface/sentence-transformers/issues/3469",
        "After CosineSimilarityLoss, any two texts have a cosine above 0.99. Why?",
        "CosineSimilarityLoss, half of the pairs labelled 1 and half 0, learning rate 5e-3",
        ("diverging", "collapsed", "dimensional-collapse"),
        Setting(labelled(1.0, 0.0), losses.CosineSimilarityLoss, rate=5e-3),
        "a tenth of the learning rate", {"rate": 5e-4},
        seen="a rule was changed because of it: pairs that are told apart less well than before",
    ),
    Question(
        "sentence-transformers 2365", "huggingface/sentence-transformers/issues/2365",
        "From the second epoch on, all texts have nearly the same embedding. Why?",
        "CosineSimilarityLoss, all pairs labelled 1",
        ("only-pulled", "collapsed"),
        Setting(labelled(1.0, None), losses.CosineSimilarityLoss),
        "MultipleNegativesRankingLoss without labels",
        {"data": pairs, "loss": losses.MultipleNegativesRankingLoss},
    ),
    Question(
        "FlagEmbedding 823", "FlagOpen/FlagEmbedding/issues/823",
        "The loss is 0 from the first step on. What to do?",
        "batch size 1, so one positive and no negatives; temperature 0.02",
        ("no-negatives",),
        Setting(pairs, scale(50), batch=1),
        "batch size 32", {"batch": 32},
        also=("FlagOpen/FlagEmbedding/issues/151",),
    ),
    Question(
        "FlagEmbedding 1094", "FlagOpen/FlagEmbedding/issues/1094",
        "The loss goes to 0. Is that normal?",
        "each positive is its anchor without the first word; batch size 8, temperature 0.02",
        DONE,
        Setting(easy, scale(50), batch=8),
        "pairs of different texts, mined hard negatives, scale=20", HARD,
        also=(
            "TIGER-AI-Lab/VLM2Vec/issues/112", "TIGER-AI-Lab/VLM2Vec/issues/67",
            "FlagOpen/FlagEmbedding/issues/593", "FlagOpen/FlagEmbedding/issues/179",
        ),
    ),
    Question(
        "Qwen3-Embedding 163", "QwenLM/Qwen3-Embedding/issues/163",
        "Similarities of positives and of negatives both fall, the margin rises. Is that right?",
        "a masked language model, pairs, scale=20",
        ("healthy, spreading",),
        SPREADS,
        also=(
            "FlagOpen/FlagEmbedding/issues/747", "FlagOpen/FlagEmbedding/issues/656",
            "FlagOpen/FlagEmbedding/issues/547",
        ),
    ),
    Question(
        "FlagEmbedding 634", "FlagOpen/FlagEmbedding/issues/634",
        "Negatives are less similar after fine-tuning, and so are some positives. Why?",
        "an encoder trained at temperature 0.02, pairs with hard negatives, scale=20",
        ("healthy, spreading",),
        replace(SPREADS, data=mined, after=replace(SPREADS, loss=scale(50))),
        seen="its setting was changed after its first answer: positives had come closer in it",
    ),
    Question(
        "sentence-transformers 2646", "huggingface/sentence-transformers/issues/2646",
        "After fine-tuning with negatives the positives fall behind in the ranking. Why?",
        "triplets in which each negative is the positive plus one word",
        ("false-negatives",),
        Setting(near_copies),
        "without these negatives", {"data": pairs},
        also=("huggingface/sentence-transformers/pull/3819",),
        seen="a rule was changed because of it: copies of the positive among the negatives",
    ),
    Question(
        "sentence-transformers 2756", "huggingface/sentence-transformers/issues/2756",
        "A text occurs several times in a batch. Is it then its own negative?",
        "twelve pairs, repeated many times; batch size 32",
        ("false-negatives",),
        Setting(repeated),
        "BatchSamplers.NO_DUPLICATES, and more than twelve pairs",
        {"data": many, "sampler": BatchSamplers.NO_DUPLICATES},
        also=("huggingface/sentence-transformers/issues/3189",),
        seen="a rule was changed because of it: copies of the positive among the negatives",
    ),
    Question(
        "colpali 372", "illuin-tech/colpali/issues/372",
        "Why does one loss use a temperature of 1, and another loss 0.02?",
        "cosines at a temperature of 1 (scale=1)",
        ("negatives-not-hard",),
        Setting(pairs, scale(1)),
        "scale=20", {"loss": scale(20)},
    ),
    Question(
        "sentence-transformers 2770", "huggingface/sentence-transformers/issues/2770",
        "What changes from scale 20 to 50?",
        "scale=50",
        ("healthy",),
        Setting(pairs, scale(50)),
    ),
    Question(
        "Tevatron 99", "texttron/tevatron/issues/99",
        "The temperature is a sensitive parameter. Why?",
        "temperature 0.004; the encoder is trained already",
        ("temperature-too-low",),
        Setting(pairs, scale(250)),
        "scale=20", {"loss": scale(20)},
    ),
    Question(
        "PyLate 115", "lightonai/pylate/pull/115",
        "Which temperature suits a score that sums similarities of tokens?",
        "MultiVectorMultipleNegativesRankingLoss with scale=20, as for cosines",
        ("temperature-too-low",),
        Setting(pairs, several_scale(20), vectors=True),
        "scale=5", {"loss": several_scale(5)},
    ),
    Question(
        "sentence-transformers 1183", "huggingface/sentence-transformers/issues/1183",
        "With a triplet loss on cosines, all similarities are 0.9999. Why?",
        "TripletLoss with cosine distances and its default margin of 5, learning rate 2e-3",
        ("collapsed", "diverging", "never-dissipating", "dimensional-collapse"),
        Setting(mined, triplets(5.0), rate=2e-3),
        "MultipleNegativesRankingLoss, learning rate 1e-4",
        {"loss": scale(20), "rate": 1e-4},
        seen="a rule was changed because of it: triplets that are told apart less well than before",
    ),
    Question(
        "ms-swift 5298", "modelscope/ms-swift/issues/5298",
        "After fine-tuning, the score is nearly 0. Why?",
        "learning rate 1e-2",
        ("diverging", "collapsed", "dimensional-collapse"),
        Setting(pairs, rate=1e-2),
        "learning rate 1e-4", {"rate": 1e-4},
    ),
    Question(
        "SimCSE 35", "princeton-nlp/SimCSE/issues/35",
        "What can a model learn from pairs of a text and itself, without dropout?",
        "both columns are the same text, dropout off",
        ("dead-views",),
        Setting(same, dropout=False),
        "dropout on", {"dropout": True},
    ),
    Question(
        "VLM2Vec 26", "TIGER-AI-Lab/VLM2Vec/issues/26",
        "With a larger batch the loss stays higher. Does it still converge?",
        "batch size 96, scale=20",
        ("healthy",),
        Setting(pairs, batch=96),
    ),
    Question(
        "sentence-transformers 3179", "huggingface/sentence-transformers/issues/3179",
        "A loss of cosines cannot reach 0. Does that hurt?",
        "scale=10, batch size 32",
        ("healthy",),
        Setting(pairs, scale(10)),
    ),
    Question(
        "sentence-transformers 1891", "huggingface/sentence-transformers/issues/1891",
        "Fine-tuning makes the model worse. Why?",
        "triplets whose positive and negative columns are exchanged",
        ("unrelated-positives",),
        Setting(swapped),
        "columns in the order anchor, positive, negative", {"data": mined},
    ),
    Question(
        "FlagEmbedding 603", "FlagOpen/FlagEmbedding/issues/603",
        "Without normalisation and at temperature 0.01, the model gets worse. Why?",
        "a masked language model, dot products of unnormalised embeddings, temperature 0.01",
        ("temperature-too-low",),
        Setting(pairs, scale(100, similarity_fct=dot_score), raw=True),
        "cosines, scale=20", {"loss": scale(20)},
        also=("FlagOpen/FlagEmbedding/issues/58",),
    ),
    Question(
        "open_clip 821", "mlfoundations/open_clip/issues/821",
        "The captions are made from a few labels, and the loss does not converge. Why?",
        "sentences paired with their first word, which is one of eight words",
        ("false-negatives",),
        Setting(tagged),
        "pairs of different texts", {"data": pairs},
        also=("HITsz-TMG/KaLM-Embedding/issues/8",),
        seen="a rule was changed because of it: texts that are the same by their tokens",
    ),
    Question(
        "sentence-transformers 608", "huggingface/sentence-transformers/issues/608",
        "A query has several positives, each in its own row. Does that hurt?",
        "forty texts with four positives each, batch size 32",
        ("false-negatives",),
        Setting(parted(40)),
        "BatchSamplers.NO_DUPLICATES, and a hundred such texts",
        {"data": parted(), "sampler": BatchSamplers.NO_DUPLICATES},
        also=("huggingface/sentence-transformers/issues/2423",),
        seen="a rule was changed because of it: texts that are the same by their tokens",
    ),
    Question(
        "colpali 148", "illuin-tech/colpali/issues/148",
        "Can a score that sums similarities of tokens do without a temperature?",
        "MultiVectorMultipleNegativesRankingLoss with scale=1",
        ("healthy",),
        Setting(pairs, several_scale(1), vectors=True),
    ),
    Question(
        "sentence-transformers 1822", "huggingface/sentence-transformers/pull/1822",
        "Do accumulated gradients replace a large batch?",
        "batch size 1, gradients of 16 batches accumulated",
        ("no-negatives",),
        Setting(pairs, batch=1, accumulated=16),
        "batch size 16, without accumulation", {"batch": 16, "accumulated": 1},
        also=(
            "huggingface/sentence-transformers/issues/1752",
            "huggingface/sentence-transformers/issues/2916",
        ),
    ),
    Question(
        "sentence-transformers 3041", "huggingface/sentence-transformers/issues/3041",
        "The loss became unstable when negatives were added to the data. What is wrong?",
        "triplets with mined negatives, batch size 16",
        ("healthy",),
        Setting(mined, batch=16),
    ),
    Question(
        "sentence-transformers 1578", "huggingface/sentence-transformers/issues/1578",
        "Is it possible to train ContrastiveLoss with positive pairs only?",
        "ContrastiveLoss, all pairs labelled 1",
        ("only-pulled", "collapsed"),
        Setting(labelled(1.0, None), losses.ContrastiveLoss),
        "MultipleNegativesRankingLoss without labels",
        {"data": pairs, "loss": losses.MultipleNegativesRankingLoss},
    ),
    Question(
        "sentence-transformers 1095", "huggingface/sentence-transformers/issues/1095",
        "May the labels of CosineSimilarityLoss go from 0 to 5?",
        "CosineSimilarityLoss, half of the pairs labelled 5 and half 2",
        ("only-pulled", "collapsed"),
        Setting(labelled(5.0, 2.0), losses.CosineSimilarityLoss),
        "labels from 0 to 1", {"data": labelled(1.0, 0.0)},
        also=("huggingface/sentence-transformers/issues/95",),
    ),
    Question(
        "simclr 141", "google-research/simclr/issues/141",
        "The loss stays around the logarithm of the batch size. What to do?",
        "temperature 0.1, batch size 64, learning rate 2e-2",
        ("diverging", "collapsed", "dimensional-collapse"),
        Setting(pairs, scale(10), batch=64, rate=2e-2),
        "learning rate 2e-4", {"rate": 2e-4},
        also=("mlfoundations/open_clip/issues/17",),
    ),
    Question(
        "tensorflow-triplet-loss 18", "omoindrot/tensorflow-triplet-loss/issues/18",
        "A triplet loss stays at its margin. Why?",
        "TripletLoss with cosine distances, margin 0.5, learning rate 5e-3",
        ("diverging", "collapsed", "dimensional-collapse"),
        Setting(mined, triplets(0.5), rate=5e-3),
        "learning rate 1e-4", {"rate": 1e-4},
        also=("VisualComputingInstitute/triplet-reid/issues/30",),
    ),
    Question(
        "sentence-transformers 3257", "huggingface/sentence-transformers/issues/3257",
        "Should embeddings be normalised for a triplet loss?",
        "TripletLoss with its defaults (Euclidean distances, margin 5), normalised embeddings",
        ("never-dissipating",),
        Setting(mined, triplets(5.0, losses.TripletDistanceMetric.EUCLIDEAN)),
        "triplet_margin=0.3",
        {"loss": triplets(0.3, losses.TripletDistanceMetric.EUCLIDEAN)},
    ),
)  # fmt: skip

RAW = Path("../shared/data/standin-mlm")


def encoder(setting: Setting) -> Any:
    """Return the model to train: only its last two layers learn."""
    torch.manual_seed(0)
    folder = str(RAW if setting.raw else resolve("all-MiniLM-L6-v2"))
    kind = MultiVectorEncoder if setting.vectors else SentenceTransformer
    model = kind(folder, device="cpu")
    model.max_seq_length = TOKENS
    frozen = [model[0].auto_model.embeddings, *model[0].auto_model.encoder.layer[:4]]
    for part in frozen:
        part.requires_grad_(False)
    if not setting.dropout:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    return model.float()


def mrr(model: Any) -> float | None:
    """Return the MRR@10 of the pairs that were held out; None for several vectors a text."""
    if isinstance(model, MultiVectorEncoder):
        return None
    first, second = zip(*corpus()[:HELD], strict=True)
    a, b = (torch.as_tensor(model.encode(list(x))).double() for x in (first, second))
    scores = torch.nn.functional.normalize(a) @ torch.nn.functional.normalize(b).T
    place = (scores > scores.diagonal()[:, None]).sum(dim=1)
    return float((1 / (1.0 + place)).masked_fill(place >= 10, 0).mean())


@functools.cache
def run(setting: Setting) -> tuple[str, str, float | None, float | None]:
    """Train, and return the verdict, its change, and the MRR@10 before and after.

    Several questions get the same answer: a training is made once.
    """
    model = encoder(setting)
    if setting.after is not None:
        _train(model, setting.after)
    start, doctor = mrr(model), isotrope.Doctor(every=1, say=None)
    _train(model, setting, doctor)
    if doctor.off:
        raise SystemExit("the doctor has seen nothing")
    found = doctor.diagnose()
    change = found.findings[0].change if found.findings else "none"
    return ", ".join(found.verdict), change, start, mrr(model)


def _train(model: Any, setting: Setting, *callbacks: Any) -> None:
    trainer, arguments = _trainer(setting)
    with tempfile.TemporaryDirectory() as folder:
        trainer(
            model=model,
            args=arguments(
                folder,
                per_device_train_batch_size=setting.batch,
                max_steps=STEPS,
                gradient_accumulation_steps=setting.accumulated,
                learning_rate=setting.rate,
                batch_sampler=setting.sampler,
                use_cpu=True,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                logging_steps=10 * STEPS,
                seed=1,
            ),
            train_dataset=Dataset.from_dict(setting.data()),
            loss=setting.loss(model),
            callbacks=list(callbacks),
        ).train()


def _trainer(setting: Setting) -> tuple[Any, Any]:
    """Return the trainer of a model, and the class of its arguments."""
    if not setting.vectors:
        return Trainer, Arguments
    from sentence_transformers.multi_vector_encoder import (
        MultiVectorEncoderTrainer,
        MultiVectorEncoderTrainingArguments,
    )

    return MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments


def row(question: Question) -> dict[str, object]:
    """Return what came of a question."""
    began = time.process_time()
    verdict, change, start, before = run(question.setting)
    after, score = "", None
    if question.fields:
        after, _, _, score = run(replace(question.setting, **question.fields))
    named = verdict if verdict.startswith("healthy") else verdict.split(", ")[0]
    right = named in question.expected and named not in after.split(", ")
    return {
        "id": question.id,
        "url": GITHUB + question.path,
        "asks": question.asks,
        "setting": question.told,
        "expected": " | ".join(question.expected),
        "verdict": verdict,
        "change": change,
        "changed": question.changed,
        "verdict_after": after,
        **{
            name: "" if value is None else f"{value:.3f}"
            for name, value in (("mrr_start", start), ("mrr_before", before), ("mrr_after", score))
        },
        "right": "yes" if right else "no",
        "also": " | ".join(GITHUB + path for path in question.also),
        "judges": question.seen or "yes",
        "seconds": f"{time.process_time() - began:.0f}",
    }


def main() -> None:
    """Run what is missing, and write the table after each question."""
    global RAW
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--csv", type=Path, default=Path("docs/results/questions.csv"))
    parser.add_argument("--only", action="append", choices=[q.id for q in QUESTIONS])
    parser.add_argument("--raw", type=Path, default=RAW, help="folder of a masked language model")
    given = parser.parse_args()
    RAW = given.raw
    rows: dict[str, dict[str, object]] = {one["id"]: {**one} for one in ledger.read(given.csv)}
    for question in QUESTIONS:
        if question.id in rows or (given.only and question.id not in given.only):
            continue
        rows[question.id] = row(question)
        print(
            " | ".join(f"{rows[question.id][name]}" for name in COLUMNS[:1] + COLUMNS[5:]),
            flush=True,
        )
        ledger.write(given.csv, COLUMNS, (rows[q.id] for q in QUESTIONS if q.id in rows))


if __name__ == "__main__":
    main()
