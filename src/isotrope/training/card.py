"""Writes the model card (README.md) of a saved model, with the settings and scores of its run."""

import json
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

_TASK_TYPES = {"retrieval": "information-retrieval", "sts": "semantic-similarity"}
"""Names of tasks in model cards, as sentence-transformers writes them."""

_TRAINED = {"none": "all weights", "embeddings": "all weights but the embeddings"}
_TEMPLATE = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- sentence-similarity
- feature-extraction
- isotrope
{base_model}---

# {title}

{what}

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
queries = model.encode_query(["a query"])
documents = model.encode_document(["a text to find", "another one"])
print(model.similarity(queries, documents))
```

## Training

| | |
|---|---|
| objective | {objective} ({reference}) |
| settings | {parameters} |
| data | {names}{records:,} records, views by {views}, fingerprint `{fingerprint}` |
| steps | {step} of {steps}, batch {batch} |
| learning rate | {rate} |
| max length in training | {length} tokens |
| trained | {trained} |
| Matryoshka | {matryoshka} |
| head in training | {head} (not part of this model) |
| prompts | {prompts} |
| seed | {seed} |

## Evaluation

{evaluation}

## Citation

```bibtex
{citation}
```
"""


def _prompts(settings: TrainSettings) -> str:
    """Return the line on the prompts that the model expects before texts."""
    if not (settings.query_prompt or settings.passage_prompt):
        return "none"
    return (
        f"queries `{settings.query_prompt}`, passages `{settings.passage_prompt}`: use "
        "`encode_query` and `encode_document`"
    )


def _rate(settings: TrainSettings) -> str:
    """Return the learning rate and its schedule."""
    warmup, scheduler = settings.warmup, settings.scheduler
    over = f"{warmup:g} steps" if warmup >= 1 else f"{warmup:.0%} of the steps"
    rise = f", after a warm-up of {over}" if warmup else ""
    fall = scheduler if scheduler == "constant" else f"{scheduler} decay"
    return f"{settings.learning_rate:g}, {fall}{rise}"


def _base_model(encoder: str) -> tuple[str, str]:
    """Return the base model for the metadata and for the text.

    A local model is not in the metadata, because the hub refuses base models that it does not have.
    """
    name = None if encoder == "scratch" else hub_name(encoder)
    # YAML would read a model called 0.5 as a number
    line = "" if name is None else f"base_model: {json.dumps(name)}\n"
    return line, encoder if name else Path(encoder).name


def add_scores(card: Path, own: Result, data: str, scores: str) -> None:
    """Write scores into a card's metadata and as a table, which replaces an earlier table.

    Args:
        card: Path of the model card, a README.md.
        own: Scores of the model to which the card belongs, for the metadata.
        data: Names of the scored data.
        scores: Text of the table, with the scores of this model or of several models.
    """
    text, title = card.read_text(encoding="utf-8"), "\n## Scores\n"
    start, found, rest = text.partition(title)
    if found:
        text = start + rest[rest.index("\n## ") :] if "\n## " in rest else start
    if (searched := own.details.get("retrieval_set")) is not None:
        data += f": {searched['queries']:,} queries among {searched['corpus']:,} documents"
    block = f"{title}\nBy `isotrope evaluate` ({data}):\n\n```text\n{scores}\n```\n"
    before, heading, after = text.partition("\n## Training\n")
    written = ModelCard(f"{before.rstrip()}\n{block}{heading}{after}", ignore_metadata_errors=True)
    assert isinstance(written.data, ModelCardData)
    written.data.model_name = written.data.model_name or Path(own.name).name
    others = [e for e in written.data.eval_results or [] if e.dataset_name != data]
    written.data.eval_results = others + [
        EvalResult(_TASK_TYPES.get(own.kind, own.kind), "unknown", data, name, value)
        for name, value in own.metrics.items()
        if value is not None
    ]
    write_text(card, str(written))


def lora_line(lora: dict[str, Any]) -> str:
    """Return a line with the rank, the alpha and the trained parameters of a run with LoRA."""
    return (
        f"LoRA of rank {lora['rank']}, alpha {lora['alpha']}, on {', '.join(lora['targets'])}: "
        f"{lora['trainable']:,} of the encoder's {lora['parameters']:,} parameters "
        f"({lora['share']:.2%}) are trained"
    )


def model_card(
    settings: TrainSettings,
    module: TextModule,
    report: StoreReport,
    history: DevHistory,
    step: int,
    judgement: Judgement | None = None,
) -> str:
    """Return the card of the text encoder after ``step`` updates."""
    objectives, dev = list(module.objectives.values()), history.scores
    lora, prefixes = lora_facts(module.encoder), module.prefixes
    listed = [objective.hyperparameters().items() for objective in objectives]
    if settings.loss is not None:
        listed, objectives = [settings.loss_settings.items()], []
    parameters = "; ".join(", ".join(f"{k} {v}" for k, v in items) for items in listed)
    papers = list(dict.fromkeys(objective.paper for objective in objectives))
    rejected = judgement is not None and dev and step == min(dev)
    if dev:
        rows = {"before training": dev[min(dev)], f"this model (step {step})": dev[step]}
        if rejected:
            rows = {"this model": dev[step], f"the rejected model (step {max(dev)})": dev[max(dev)]}
        table = "\n".join(f"| {label} | {value:.2f} |" for label, value in rows.items())
        evaluation = f"| | {history.name} |\n|---|---|\n{table}"
        if judgement is not None:
            evaluation += f"\n\nResult of the training: {judgement.sentence}."
    else:
        evaluation = "No dev score was measured during training."
    base_model, base = _base_model(settings.encoder)
    way = f"; saved at {settings.between:.0%} of the way from the original weights"
    way = way if settings.between < 1 else ""
    name = settings.loss or settings.objective.replace(",", ", ")
    what = f"A sentence embedding model: isotrope trained {base} with {name}."
    if step == 0 and judgement is None:
        what = f"The unchanged embedding model {base}: a training with {name} has not ended yet."
    if rejected:
        what = f"The unchanged embedding model {base}: training with {name} made it no better."
    return _TEMPLATE.format(
        title=settings.output.rstrip("/").rsplit("/", 1)[-1],
        what=what,
        base_model=base_model,
        objective=name,
        reference="; ".join(paper.reference for paper in papers) or "of sentence-transformers",
        parameters=parameters,
        names="".join(f"{Path(f).name}, " for f in settings.files if IN_MEMORY not in f),
        records=report.kept,
        views=report.views,
        fingerprint=report.fingerprint,
        step=step,
        steps=module.steps,
        batch=settings.batch_size,
        rate=_rate(settings),
        length=report.max_length,
        trained=f"{_TRAINED[settings.freeze]}{way}"
        if lora is None
        else f"{lora_line(lora)}{way}; the adapters are merged into the weights, and are in "
        "`adapter/`",
        matryoshka=f"the first {', '.join(map(str, prefixes))} coordinates are embeddings, too: "
        f"load the model with `truncate_dim={prefixes[-1]}`"
        if prefixes
        else "no",
        head=settings.head,
        prompts=_prompts(settings),
        seed=settings.seed,
        evaluation=evaluation,
        citation="\n\n".join(map(bibtex, papers))
        or f"% see {settings.loss} of sentence-transformers",
    )


_OF_IMAGES = """\
---
pipeline_tag: image-feature-extraction
tags:
- image-feature-extraction
- self-supervised-learning
- isotrope
---

# {title}

An image encoder ({encoder}, {dimension} features), trained without labels by isotrope: {method}
with {objective}.

{usage}

## Training

| | |
|---|---|
| method | {method} {options} |
| objective | {objective} {parameters} |
| data | {images:,} images of {side} x {side}, fingerprint `{fingerprint}` |
| steps | {steps}, batch {batch} |
| optimiser | {optimizer}, learning rate {rate:g}, weight decay {decay:g} |
| cut-initialization | {cut} |
| seed | {seed} |

## Evaluation

{evaluation}

## Citation

```bibtex
{citation}
```
"""


def image_card(settings: ImageSettings, result: Result, usage: str) -> str:
    """Return the card of the image encoder at the end of a run."""
    details, metrics = result.details, result.metrics
    nearest = "kNN (200 neighbours, temperature 0.1)"
    scores = {nearest: metrics["knn_final"], "linear probe": metrics["linear"]}
    rows = [f"| {name} | {value:.2f} |" for name, value in scores.items() if value is not None]
    table = "\n".join(["| test part | accuracy |", "|---|---|", *rows])
    return _OF_IMAGES.format(
        title=result.name,
        usage=usage,
        encoder=details["encoder"]["name"],
        dimension=details["encoder"]["dimension"],
        method=details["method"]["name"],
        options=_listed(details["method"]["options"]),
        objective=details["objective"]["name"],
        parameters=_listed(details["objective"]["parameters"]),
        images=details["data"]["images"],
        side=details["data"]["side"],
        fingerprint=result.provenance.get("data"),
        steps=metrics["steps"],
        batch=details["batch_size"],
        optimizer=details["plan"]["optimizer"],
        rate=details["plan"]["learning_rate"],
        decay=details["plan"]["weight_decay"],
        cut="none" if settings.cut == 1 else f"{settings.cut_what} divided by {settings.cut:g}",
        seed=settings.seed,
        evaluation=f"{table}\n\nTraining: {details['verdict']}."
        if rows
        else "Nothing was scored, because the data had no test part with labels.",
        citation=bibtex(find(details["objective"]["name"]).paper),
    )


def _listed(values: dict[str, object]) -> str:
    return f"({', '.join(f'{k} {v}' for k, v in values.items())})" if values else ""
