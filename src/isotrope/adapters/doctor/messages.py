"""Writes the lines that the Doctor prints: for a new loss, for a new verdict, and at the end.

``HOSTS`` has the names that trainers and loss libraries give to settings. The advice uses these
names if it knows the library, and general words otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from isotrope.diagnostics.anatomy import Anatomy, Row
from isotrope.diagnostics.evidence import Words
from isotrope.diagnostics.findings import HEALTHY, Diagnosis
from isotrope.diagnostics.verdicts import VERDICTS

_KINDS = {
    "known": "an objective of isotrope",
    "softmax": "a softmax over the batch",
    "reversed": "a softmax over the batch with the opposite sign",
    "other": "a loss that pulls and pushes pairs of the batch, but not by a softmax",
    "pairs": "a loss of pairs, without in-batch negatives",
    "targets": "not examined, because it pulls embeddings to constant targets",
    "nothing": "not recognised yet, because its gradient is zero",
    "unseen": "not examined",
    "broken": "not examined, because its embeddings contain NaN or infinity",
    "scores": "a loss that fits similarities to labels",
}

_TRANSFORMERS = Words(rate="learning_rate={}", batch="per_device_train_batch_size={}")
_FLAGS = Words(
    temperature="--temperature {}",
    rate="--learning_rate {}",
    batch="--per_device_train_batch_size {}",
    negatives="more hard negatives: --train_group_size",
)
_LOSS_ARGUMENT = Words(temperature="temperature={}")
_CONTRASTIVE = "MultipleNegativesRankingLoss"
_OF_LOSSES = ("temperature", "inverse", "margin", "contrastive", "contrastive_name", "cached")
HOSTS: dict[str, Words] = {
    "pylate": replace(_TRANSFORMERS, temperature=_LOSS_ARGUMENT.temperature),
    "sentence_transformers": Words(
        temperature="scale={}",
        inverse=True,
        rate=_TRANSFORMERS.rate,
        batch=_TRANSFORMERS.batch,
        cached=f"; if it does not fit, Cached{_CONTRASTIVE}(model, mini_batch_size={{}})",
        harder="harder negatives: mine_hard_negatives(dataset, model, ...)",
        margin="triplet_margin={}",
        contrastive=f"{_CONTRASTIVE}(model)",
        contrastive_name=_CONTRASTIVE,
        without_labels=" without the label column",
        copies="batch_sampler=BatchSamplers.NO_DUPLICATES; for near duplicates, "
        "GISTEmbedLoss(model, guide=...)",
        views="a second column with another text, or a model whose dropout is not 0",
        related="columns in the order (anchor, positive, negative), set by "
        "train_dataset.select_columns([...]); if the order is right, rows whose texts belong "
        "together",
        shorter="Dense(d, d) as the last module, whose tanh bounds the norm, or a lower "
        "learning_rate",
        best='load_best_model_at_end=True with eval_strategy="steps", or fewer num_train_epochs',
    ),
    "FlagEmbedding": _FLAGS,
    "tevatron": _FLAGS,
    "swift": Words(
        temperature="INFONCE_TEMPERATURE={}",
        rate=_FLAGS.rate,
        batch=_FLAGS.batch,
        contrastive="--loss_type infonce (in-batch negatives)",
    ),
    "lightly": _LOSS_ARGUMENT,
    "pytorch_metric_learning": _LOSS_ARGUMENT,
    "stable_pretraining": _LOSS_ARGUMENT,
    "transformers": _TRANSFORMERS,
}
"""Records by package; a package comes before the packages on which it is built."""


def first_look(name: str, kind: str, row: Row, anatomy: Anatomy) -> str:
    """Return the line on a loss after its first measured batch."""
    objective = anatomy.objective if kind == "known" else None
    what = _KINDS[kind] if objective is None else f"the objective {objective.name}"
    parts = [f"{name} is {what}"]
    if kind == "unseen" and anatomy.reason:
        parts[0] += f": {anatomy.reason}"
    tau, count, share = row["temperature"], row["negatives"], row["hardest_share"]
    if tau is not None:
        parts[0] += f", temperature {tau:.3g} (scale={1 / tau:.3g})"
        stated = anatomy.temperature
        if stated is not None and abs(tau / stated - 1) > 0.02:
            parts[0] += (
                f", although its setting is {stated:.3g}: it weights hard negatives like a softmax "
                f"with temperature {tau:.3g}"
            )
    if kind == "pairs":
        return parts[0]
    if count:
        parts.append(f"{count:.0f} negatives for each anchor")
    if row["dead"] is not None:
        nothing = "of the anchors learn almost nothing (gradient dissipation < 0.01)"
        parts.append(f"{row['dead']:.0%} {nothing}")
    if share is not None and count:
        even = f"{1 / count:.0%} if all negatives pushed equally"
        parts.append(f"{share:.0%} of the push is from the hardest negative ({even})")
    return "; ".join(parts)


def changed(step: int, diagnosis: Diagnosis) -> str:
    """Return the line on a changed verdict."""
    verdict = ", ".join(diagnosis.verdict)
    if diagnosis.remarks:
        return f"step {step}: {verdict}: {diagnosis.remarks[0].detail}"
    if diagnosis.healthy:
        return f"step {step}: healthy again"
    first = diagnosis.findings[0]
    return f"step {step}: {verdict} ({first.evidence[0]}); change: {first.change}"


def at_the_end(diagnosis: Diagnosis, folder: Path | None) -> str:
    """Return the final line: the verdict, the change to make, and the folder with the details."""
    verdicts = [f"{v} ({VERDICTS[v].title})" for v in diagnosis.verdict]
    line = f"verdict: {', '.join(verdicts)}"
    if not diagnosis.healthy:
        line += f"; change: {diagnosis.findings[0].change}"
    return line + ("" if folder is None else f"; see {folder}")


def on_the_card(losses: Iterable[Mapping[str, Any]], diagnosis: Diagnosis) -> str:
    """Return the paragraph on a training for the model card."""
    sentences = ["isotrope measured how the gradient of the loss moves the embeddings in training."]
    for loss in losses:
        what = _KINDS.get(loss["family"], f"the objective {loss['family']}").partition(";")[0]
        tau, count = loss.get("temperature"), loss.get("negatives")
        what += f", temperature {tau:.3g} (scale={1 / tau:.3g})" if tau else ""
        what += f", with {count:.0f} negatives for each anchor" if count else ""
        sentences.append(f"{loss['name']} is {what}.")
    verdicts = ", ".join(f"`{word}` ({VERDICTS[word].title})" for word in diagnosis.verdict)
    pages = [f"`docs/diagnoses/{word}.md`" for word in diagnosis.verdict if word != HEALTHY]
    where = ", ".join(pages) or "`docs/diagnosis.md`"
    sentences.append(f"The final verdict is {verdicts}, explained in {where} of isotrope.")
    return " ".join(sentences)


def words_of(modules: Iterable[object], trainer: object | None = None) -> Words:
    """Return the entry of ``HOSTS`` for the library that defines the class of one of the objects.

    Without a trainer, only the words on losses are used. If no object has the attribute
    ``temperature`` or ``scale``, advice on the temperature uses general words.
    """
    known = [trainer, *modules]
    roots = {kind.__module__.partition(".")[0] for x in known for kind in type(x).__mro__}
    words = next((words for name, words in HOSTS.items() if name in roots), Words())
    if trainer is None:
        words = Words(**{name: getattr(words, name) for name in _OF_LOSSES})
    argument = words.temperature.removesuffix("={}")
    if argument not in ("temperature", "scale") or any(hasattr(x, argument) for x in known):
        return words
    named = any(hasattr(x, "temperature") for x in known)
    other = _LOSS_ARGUMENT.temperature if named else Words().temperature
    return replace(words, temperature=other, inverse=False)
