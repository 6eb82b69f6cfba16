"""One page for each method on images, written from its class: nothing on it is kept by hand.

A page holds the card (terms of the loss, heads, momenta, recipe, what is ours, reference), the
command that trains it, its options with their ranges, its recipe and its crops.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.generate.objective_pages import escaped, grid, paragraph, settings
from isotrope.core.files import atomic_replace

_SIDES = (32, 224)  # for which the crops are shown: small images and large ones
_RULES = {"sgd": "SGD", "lars": "LARS", "adamw": "AdamW"}


def write_method_pages(methods: Iterable[type[Any]], directory: Path) -> list[Path]:
    """Write ``README.md`` and, for each method, ``NAME.md``.

    Args:
        methods: classes with ``name``, ``paper``, ``recipe``, ``options_class`` and
            ``augments_of``, as those of isotrope.training are.
        directory: made if it is not there; other files in it stay.

    Returns:
        What was written.
    """
    listed = list(methods)
    texts = {"README.md": method_index(listed)}
    texts |= {f"{cls.name}.md": method_page(cls) for cls in listed}
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        with atomic_replace(directory / file) as partial:
            partial.write_text(text, encoding="utf-8")
    return [directory / file for file in texts]


def method_index(methods: Sequence[type[Any]]) -> str:
    """Return the list of methods with a line on each, in Markdown."""
    header = ["method", "objective", "optimiser", "learning rate", "weight decay", "paper"]
    lines = [
        [
            f"[{_title(cls)}]({cls.name}.md)",
            f"[`{recipe.objective}`](../objectives/{recipe.objective}.md)",
            _RULES[recipe.optimizer],
            _rate(recipe),
            _decay(recipe),
            cls.paper.reference,
        ]
        for cls in methods
        for recipe in [cls.recipe]
    ]
    return (
        "# Methods on images\n\n"
        "Choose one with `isotrope train-images IMAGES --method NAME`. Its recipe sets whatever "
        "you do not set: objective and temperature, optimiser, learning rate, weight decay, "
        "warm-up and crops. A method makes views from random crops of a batch; any objective that "
        "compares such views can be its loss.\n\n" + grid(header, lines)
    )


def _title(cls: type[Any]) -> str:
    """Return the name of a method; its class has a suffix where an objective is a namesake."""
    return cls.__name__.removesuffix("Method")


def method_page(cls: type[Any]) -> str:
    """Return the page of one method in Markdown."""
    sentence, *paragraphs = (inspect.getdoc(cls) or "").split("\n\n")
    blocks = [f"# {_title(cls)}", escaped(sentence)]
    blocks += [paragraph(text) for text in paragraphs]
    blocks += ["## Train", _command(cls)]
    blocks += ["## Options", settings(cls.options_class, "--method.")]
    blocks += ["## Recipe", _recipe(cls.recipe), "## Crops", _crops(cls), "## Source"]
    blocks += [f"{cls.paper.title}. {cls.paper.reference}; {cls.paper.equation}."]
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


def _command(cls: type[Any]) -> str:
    return (
        "```bash\n"
        f"isotrope train-images IMAGES --method {cls.name} --output runs/{cls.name}\n"
        f"isotrope evaluate runs/{cls.name} --knn --linear\n"
        "```"
    )


def _rate(recipe: Any) -> str:  # noqa: ANN401 - a Recipe, of the floor above
    at = f" at a batch of {recipe.batch_size}, in proportion to the batch" if recipe.scaled else ""
    return f"{recipe.learning_rate:g}{at}"


def _decay(recipe: Any) -> str:  # noqa: ANN401
    last = recipe.last_weight_decay
    rising = "" if last is None else f" to {last:g} along a cosine"
    return (
        f"{recipe.weight_decay:g}{rising}{'' if recipe.decay_all else ', not on biases and norms'}"
    )


def _recipe(recipe: Any) -> str:  # noqa: ANN401
    """Return what the method is trained with unless its user says otherwise."""
    momentum = f", momentum {recipe.momentum:g}" if recipe.optimizer != "adamw" else ""
    lines = [
        ["objective", f"[`{recipe.objective}`](../objectives/{recipe.objective}.md)"],
        *(
            [f"settings of `{name}`", _listed(values)]
            for name, values in recipe.objective_settings.items()
        ),
        ["optimiser", f"{_RULES[recipe.optimizer]}{momentum}"],
        ["learning rate", f"{_rate(recipe)}; to {recipe.last_learning_rate:g} along a cosine"],
        ["weight decay", _decay(recipe)],
        ["epochs", f"{recipe.epochs}, with {recipe.warmup_epochs:g} of warm-up"],
        ["gradients", "not clipped" if recipe.clip is None else f"clipped at {recipe.clip:g}"],
        ["crops", f"`{recipe.augment}`"],
        ["from", recipe.source],
    ]
    return grid(["what", "value"], lines)


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )


def _crops(cls: type[Any]) -> str:
    """Return the crops of small and of large images, equal ones in one line."""
    lines = []
    for side in _SIDES:
        crops = cls.augments_of(side, cls.options_class())
        for crop in dict.fromkeys(crops):
            lines.append([f"{side} x {side}", str(crops.count(crop)), *_changes(crop)])
    header = [
        "images",
        "crops",
        "side",
        "share of the area",
        "brightness, contrast, saturation, hue",
    ]
    chances = ["colours", "grey", "blur", "solarize"]
    text = "The last four columns are probabilities."
    return f"{text}\n\n{grid([*header, *chances], lines)}"


def _changes(crop: Any) -> list[str]:  # noqa: ANN401 - an Augment; this room knows no data
    strengths = ", ".join(f"{strength:g}" for strength in crop.jitter)
    how = "together" if crop.jitter_together else "each by itself"
    return [
        str(crop.size),
        f"{crop.scale[0]:g} to {crop.scale[1]:g}",
        f"{strengths}; {how}",
        f"{crop.jitter_probability:g}",
        f"{crop.grey:g}",
        f"{crop.blur:g}",
        f"{crop.solarize:g}",
    ]
