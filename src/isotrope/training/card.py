"""Writes the model card (README.md) of a saved model, with the settings and scores of its run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from isotrope.core.files import write_text
from isotrope.core.hyper import bibtex
from isotrope.core.result import Result
from isotrope.core.run_folder import IN_MEMORY
from isotrope.data.text.tokens import StoreReport
from isotrope.encoders.lora import lora_facts
from isotrope.encoders.names import hub_name
from isotrope.measures.judgement import DevHistory, Judgement
from isotrope.paradigm.registry import find
from isotrope.training.images.settings import ImageSettings
from isotrope.training.settings import TrainSettings
from isotrope.training.text_module import TextModule

# names of tasks in model cards, as sentence-transformers writes them
_TASK_TYPES = {"retrieval": "information-retrieval", "sts": "semantic-similarity"}
_SCORES = "\n## Scores\n"  # heading of the table that add_scores writes
_TRAINED = {"none": "all weights", "embeddings": "all weights but the embeddings"}  # by --freeze

_CARD = """\
---
{metadata}
---

# {title}

{introduction}

## Training

| | |
|---|---|
{rows}

## Evaluation

{evaluation}

## Citation

```bibtex
{citation}
```
"""

_TEXT_METADATA = """\
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- sentence-similarity
- feature-extraction
- isotrope"""

_IMAGE_METADATA = """\
pipeline_tag: image-feature-extraction
tags:
- image-feature-extraction
- self-supervised-learning
- isotrope"""

_TEXT_USAGE = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
queries = model.encode_query(["a query"])
documents = model.encode_document(["a text to find", "another one"])
print(model.similarity(queries, documents))
```"""


def text_card(
    settings: TrainSettings,
    module: TextModule,
    report: StoreReport,
    history: DevHistory,
    step: int,
    judgement: Judgement | None = None,
) -> str:
    """Return the card of the text encoder after ``step`` updates.

    ``judgement`` is the result of the training. It is None before the training has ended.
    """
    if settings.loss is None:
        objectives = list(module.objectives.values())
        papers = list(dict.fromkeys(objective.paper for objective in objectives))
        loss, source = settings.objective.replace(",", ", "), "; ".join(p.reference for p in papers)
        citation = "\n\n".join(map(bibtex, papers))
        parameters = [objective.hyperparameters() for objective in objectives]
    else:
        loss, source = settings.loss, "of sentence-transformers"
        citation = f"% see {loss} of sentence-transformers"
        parameters = [settings.loss_settings]
    names = "".join(f"{Path(file).name}, " for file in settings.files if IN_MEMORY not in file)
    rows = {
        "objective": f"{loss} ({source})",
        "settings": "; ".join(map(_listed, parameters)),
        "data": f"{names}{report.kept:,} records, views by {report.views}, fingerprint "
        f"`{report.fingerprint}`",
        "steps": f"{step} of {module.steps}, batch {settings.batch_size}",
        "learning rate": _rate(settings),
        "max length in training": f"{report.max_length} tokens",
        "trained": _trained(settings, module),
        "Matryoshka": _matryoshka(module.prefixes),
        "head in training": f"{settings.head} (not part of this model)",
        "prompts": _prompts(settings),
        "seed": settings.seed,
    }
    # the run saves the model before training if no later one is better
    rejected = judgement is not None and bool(history.scores) and step == min(history.scores)
    base = _base_name(settings.encoder)
    what = f"A sentence embedding model: isotrope trained {base} with {loss}."
    if rejected:
        what = f"The unchanged embedding model {base}: training with {loss} made it no better."
    elif step == 0 and judgement is None:
        what = f"The unchanged embedding model {base}: a training with {loss} has not ended yet."
    return _CARD.format(
        metadata=_TEXT_METADATA + _base_metadata(settings.encoder),
        title=Path(settings.output).absolute().name,
        introduction=f"{what}\n\n{_TEXT_USAGE}",
        rows=_table(rows),
        evaluation=_dev_scores(history, step, judgement, rejected=rejected),
        citation=citation,
    )


def image_card(settings: ImageSettings, result: Result, usage: str) -> str:
    """Return the card of the image encoder at the end of a run; ``usage`` says how to load it."""
    details, metrics = result.details, result.metrics
    encoder, method, objective = details["encoder"], details["method"], details["objective"]
    options = f"({_listed(method['options'])})" if method["options"] else ""
    parameters = f"({_listed(objective['parameters'])})" if objective["parameters"] else ""
    data, plan = details["data"], details["plan"]
    cut = "none" if settings.cut == 1 else f"{settings.cut_what} divided by {settings.cut:g}"
    rows = {
        "method": f"{method['name']} {options}",
        "objective": f"{objective['name']} {parameters}",
        "data": f"{data['images']:,} images of {data['side']} x {data['side']}, "
        f"fingerprint `{result.provenance.get('data')}`",
        "steps": f"{metrics['steps']}, batch {details['batch_size']}",
        "optimiser": f"{plan['optimizer']}, learning rate {plan['learning_rate']:g}, "
        f"weight decay {plan['weight_decay']:g}",
        "cut-initialization": cut,
        "seed": settings.seed,
    }
    nearest = "kNN (200 neighbours, temperature 0.1)"
    scores = {nearest: metrics["knn_final"], "linear probe": metrics["linear"]}
    accuracies = {name: f"{value:.2f}" for name, value in scores.items() if value is not None}
    evaluation = "Nothing was scored, because the data had no test part with labels."
    if accuracies:
        heading = "| test part | accuracy |\n|---|---|"
        evaluation = f"{heading}\n{_table(accuracies)}\n\nTraining: {details['verdict']}."
    return _CARD.format(
        metadata=_IMAGE_METADATA,
        title=result.name,
        introduction=f"An image encoder ({encoder['name']}, {encoder['dimension']} features), "
        f"trained without labels by isotrope: {method['name']}\nwith {objective['name']}.\n\n"
        f"{usage}",
        rows=_table(rows),
        evaluation=evaluation,
        citation=bibtex(find(objective["name"]).paper),
    )


def card_of_mean(card: str, second_records: int, second_seed: int) -> str:
    """Return the card of a mean of two trainings, from the card of the first and two facts."""
    note = (
        "The weights of this model are the mean of two trainings. The scores are from the first "
        f"training; the second used {second_records:,} records and seed {second_seed}.\n\n"
    )
    card = card.replace("| this model (step", "| the first training (step")
    in_second = f" records ({second_records:,} in the second training), views"
    card = card.replace(" records, views", in_second)
    return card.replace("## Citation", f"{note}## Citation", 1)


def add_scores(card: Path, own: Result, data: str, scores: str) -> None:
    """Write scores into a card's metadata and as a table, which replaces an earlier table.

    Args:
        card: Path of the model card, a README.md.
        own: Scores of the model to which the card belongs, for the metadata.
        data: Names of the scored data.
        scores: Text of the table, with the scores of this model or of several models.
    """
    if (searched := own.details.get("retrieval_set")) is not None:
        data = f"{data}: {searched['queries']:,} queries among {searched['corpus']:,} documents"
    table = f"{_SCORES}\nBy `isotrope evaluate` ({data}):\n\n```text\n{scores}\n```\n"
    text = _without_scores(card.read_text(encoding="utf-8"))
    before, heading, after = text.partition("\n## Training\n")
    written = ModelCard(f"{before.rstrip()}\n{table}{heading}{after}", ignore_metadata_errors=True)
    metadata = written.data
    assert isinstance(metadata, ModelCardData)
    metadata.model_name = metadata.model_name or Path(own.name).name
    others = [other for other in metadata.eval_results or [] if other.dataset_name != data]
    task = _TASK_TYPES.get(own.kind, own.kind)
    metadata.eval_results = others + [
        EvalResult(task, "unknown", data, name, value)
        for name, value in own.metrics.items()
        if value is not None
    ]
    write_text(card, str(written))


def _without_scores(text: str) -> str:
    """Return the text of a card without its section of scores."""
    before, _, section = text.partition(_SCORES)
    _, heading, after = section.partition("\n## ")
    return before + heading + after


def lora_line(lora: dict[str, Any]) -> str:
    """Return a line with the rank, the alpha and the trained parameters of ``lora_facts``."""
    return (
        f"LoRA of rank {lora['rank']}, alpha {lora['alpha']}, on {', '.join(lora['targets'])}: "
        f"{lora['trainable']:,} of the encoder's {lora['parameters']:,} parameters "
        f"({lora['share']:.2%}) are trained"
    )


def _base_name(encoder: str) -> str:
    """Return the name of the encoder before training; for a local one, the name of its folder."""
    return encoder if hub_name(encoder) else Path(encoder).name


def _base_metadata(encoder: str) -> str:
    """Return the base model for the metadata; the hub refuses base models that it does not have."""
    name = None if encoder == "scratch" else hub_name(encoder)
    # YAML would read a model called 0.5 as a number
    return f"\nbase_model: {json.dumps(name)}" if name else ""


def _rate(settings: TrainSettings) -> str:
    """Return the learning rate and its schedule."""
    warmup, scheduler = settings.warmup, settings.scheduler
    over = f"{warmup:g} steps" if warmup >= 1 else f"{warmup:.0%} of the steps"
    rise = f", after a warm-up of {over}" if warmup else ""
    fall = scheduler if scheduler == "constant" else f"{scheduler} decay"
    return f"{settings.learning_rate:g}, {fall}{rise}"


def _trained(settings: TrainSettings, module: TextModule) -> str:
    """Return the trained weights, and how far towards them the saved weights are."""
    way, lora = "", lora_facts(module.encoder)
    if settings.between < 1:
        way = f"; saved at {settings.between:.0%} of the way from the original weights"
    if lora is None:
        return f"{_TRAINED[settings.freeze]}{way}"
    merged = "the adapters are merged into the weights, and are in `adapter/`"
    return f"{lora_line(lora)}{way}; {merged}"


def _matryoshka(prefixes: tuple[int, ...]) -> str:
    """Return the lengths of shorter embeddings, and how to use them."""
    if not prefixes:
        return "no"
    return (
        f"the first {', '.join(map(str, prefixes))} coordinates are embeddings, too: "
        f"load the model with `truncate_dim={prefixes[-1]}`"
    )


def _prompts(settings: TrainSettings) -> str:
    """Return the prompts that the model expects before texts."""
    if not (settings.query_prompt or settings.passage_prompt):
        return "none"
    return (
        f"queries `{settings.query_prompt}`, passages `{settings.passage_prompt}`: use "
        "`encode_query` and `encode_document`"
    )


def _dev_scores(
    history: DevHistory, step: int, judgement: Judgement | None, *, rejected: bool
) -> str:
    """Return a table of the dev scores of this model and one other, and the judgement."""
    scores = history.scores
    if not scores:
        return "No dev score was measured during training."
    first, last = min(scores), max(scores)
    rows = {"before training": scores[first], f"this model (step {step})": scores[step]}
    if rejected:
        rows = {"this model": scores[step], f"the rejected model (step {last})": scores[last]}
    table = _table({label: f"{score:.2f}" for label, score in rows.items()})
    result = "" if judgement is None else f"\n\nResult of the training: {judgement.sentence}."
    return f"| | {_cell(history.name)} |\n|---|---|\n{table}{result}"


def _table(rows: Mapping[str, object]) -> str:
    """Return the rows of a Markdown table of two columns, without its heading."""
    return "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items())


def _cell(value: object) -> str:
    """Return a value, such as a prompt, as the text of a cell of a Markdown table."""
    return str(value).replace("\n", "\\n").replace("|", "\\|")


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
