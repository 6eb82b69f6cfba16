"""The model card of an image encoder: the README.md of a saved model, with its run's numbers."""

from isotrope.core.result import Result
from isotrope.paradigm.citation import bibtex
from isotrope.paradigm.registry import find
from isotrope.training.images.settings import ImageSettings

_TEMPLATE = """\
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
    """Return the card of the model that a run ended with."""
    details, metrics = result.details, result.metrics
    scores = {"kNN (k = 200, t = 0.1)": metrics["knn_final"], "linear probe": metrics["linear"]}
    rows = [f"| {name} | {value:.2f} |" for name, value in scores.items() if value is not None]
    table = "\n".join(["| test part | accuracy |", "|---|---|", *rows])
    return _TEMPLATE.format(
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
        else "There were no labels to test with.",
        citation=bibtex(find(details["objective"]["name"]).paper),
    )


def _listed(values: dict[str, object]) -> str:
    return f"({', '.join(f'{k} {v}' for k, v in values.items())})" if values else ""
