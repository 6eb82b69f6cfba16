"""One page for each method on images, written from its class: nothing on it is kept by hand.

A page holds when to use the method, the command that trains it and what that command leaves, the
card (terms of the loss, heads, momenta, recipe, differences from the paper, reference), the options
with their ranges, the recipe and the crops.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.generate.objective_pages import escaped, grid, left, paragraph, settings, source
from isotrope.core.files import write_text

_SIDES = (32, 224)  # for which the crops are shown: small images and large ones
_RULES = {"sgd": "SGD", "lars": "LARS", "adamw": "AdamW"}
_MEASURED = "([measured](../guide/choose.md#images))"
_SHORT = (
    "If a training has to be short, set `--method.predictor_rate` above 1 (the trainings of the "
    "measurement have 10)."
)
USES = {
    "simclr": "Use it first. It needs no second network, and works with every objective that "
    "compares images with each other. Remove near-copies from the data: the negatives are the "
    "other images of the batch, so copies would be pushed apart.",
    "mocov2": "Use it if the memory allows only small batches: a queue of older embeddings "
    "provides the negatives. Ignore the loss of the first steps: the queue is then full of random "
    "vectors.",
    "mocov3": "Use it for vision transformers, for which its authors designed it: add `--encoder "
    "vit-small`. The authors train with batches of 4,096 images. We have not measured MoCo v3 with "
    "smaller batches.",
    "byol": "Use it for long trainings without negatives. Do not use it for short trainings: after "
    "eight epochs, the accuracy of nearest neighbours in the embeddings was no higher than that of "
    f"nearest neighbours in the pixels {_MEASURED}. {_SHORT}",
    "simsiam": "Use it in place of BYOL if the memory does not suffice for a second network. Do "
    "not use it for short trainings: after eight epochs, the accuracy of nearest neighbours in the "
    "embeddings was hardly higher than that of nearest neighbours in the pixels "
    f"{_MEASURED}. {_SHORT}",
    "barlowtwins": "Use it if you want neither negatives nor a second network. In trainings of "
    f"eight epochs, its accuracy was below that of SimCLR and VICReg {_MEASURED}.",
    "vicreg": "Use it if you want neither negatives nor a second network. Do not set "
    "`--objective.cov_coeff` to 0: the embeddings then collapse to a few dimensions "
    "([`dimensional-collapse`](../diagnoses/dimensional-collapse.md)).",
    "dino": "Use it for vision transformers (add `--encoder vit-small`), and for images larger "
    "than 64 x 64: of such images, the student network also gets small crops. We have not "
    "measured DINO.",
}
"""When to use a method, and when not."""

_DECIDED = {
    "together": "*Together* means that a crop gets either all four changes or none.",
    "each by itself": "*Each by itself* means that each of the four changes is drawn separately.",
}

_THETA = (
    "theta stands for the weights that are trained. theta' stands for the weights of a second "
    "network (target network, momentum encoder or teacher). No gradient changes theta': theta' is "
    "a moving average of theta with the decay m."
)

_EVALUATED = (
    "The second command prints the accuracy of nearest neighbours and of a linear classifier on "
    "the embeddings. The second command needs labels: if IMAGES has none, give labelled images "
    "with `--labels`."
)


def write_method_pages(methods: Iterable[type[Any]], directory: Path) -> list[Path]:
    """Write ``README.md`` and, for each method, ``NAME.md``.

    Args:
        methods: Classes with ``name``, ``paper``, ``recipe``, ``options_class`` and
            ``augments_of``, as in isotrope.training.
        directory: Folder to write to. It is created if necessary; other files in it are kept.

    Returns:
        The paths of the files.
    """
    listed = list(methods)
    texts = {"README.md": method_index(listed)}
    texts |= {f"{cls.name}.md": method_page(cls) for cls in listed}
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        write_text(directory / file, text)
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
        "A method, such as SimCLR, is a way to train an image encoder without labels. It makes two "
        "or more views (random crops) of each image, and an objective compares the views of a "
        "batch. Choose a method with `isotrope train-images IMAGES --method NAME`. If you have no "
        "reason to choose another, use SimCLR.\n\nEach method has a recipe: the default objective, "
        "optimiser, learning rate, weight decay, warm-up and crops. The table shows the main parts "
        "of the recipe, and the page of the method shows the whole recipe.\n\n"
        + grid(header, lines)
    )


def _title(cls: type[Any]) -> str:
    """Return the name of a method; its class has a suffix where an objective is a namesake."""
    return cls.__name__.removesuffix("Method")


def method_page(cls: type[Any]) -> str:
    """Return the page of one method in Markdown."""
    sentence, *paragraphs = (inspect.getdoc(cls) or "").split("\n\n")
    blocks = [f"# {_title(cls)}", escaped(sentence)]
    command = f"isotrope train-images IMAGES --method {cls.name} --output runs/{cls.name}"
    evaluate = f"isotrope evaluate runs/{cls.name} --knn --linear"
    blocks += ["## When to use it", USES[cls.name], "## Train with it"]
    written = left(command).replace("The command", "The first command")
    written = written.replace("the command prints", "the first command prints")
    defaults = (
        f"By default, a training has {cls.recipe.epochs:g} epochs; `--epochs` sets another number. "
        "The section [Recipe](#recipe) lists the other defaults of the method."
    )
    blocks += [f"```bash\n{command}\n{evaluate}\n```", written, defaults, _EVALUATED]
    blocks += ["## How it works", *([_THETA] if "theta'" in "".join(paragraphs) else [])]
    blocks += map(paragraph, paragraphs)
    blocks += ["## Options", settings(cls.options_class, "--method.")]
    blocks += ["## Recipe", _recipe(cls), "## Crops", _crops(cls), "## Source"]
    blocks += [source(cls.paper)]
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


def _rate(recipe: Any) -> str:  # noqa: ANN401 - a Recipe, of the floor above
    scaled = f" x batch size / {recipe.batch_size}" if recipe.scaled else ""
    return f"{recipe.learning_rate:g}{scaled}"


def _decay(recipe: Any) -> str:  # noqa: ANN401
    last = recipe.last_weight_decay
    rising = "" if last is None else f", rising to {last:g} along a cosine"
    where = "on all parameters" if recipe.decay_all else "not on biases and normalisation layers"
    return f"{recipe.weight_decay:g}{rising}; {where}"


def _recipe(cls: type[Any]) -> str:
    """Return the defaults of a training with the method."""
    recipe, options = cls.recipe, cls.options_class()
    momentum = f", momentum {recipe.momentum:g}" if recipe.optimizer != "adamw" else ""
    lines = [
        ["objective", f"[`{recipe.objective}`](../objectives/{recipe.objective}.md)"],
        *(
            [
                f"settings of `{name}`"
                if name == recipe.objective
                else f"settings with `--objective {name}`",
                _listed(cls.settings_of(name, options)),
            ]
            for name in recipe.objective_settings
        ),
        ["optimiser", f"{_RULES[recipe.optimizer]}{momentum}"],
        [
            "learning rate",
            f"{_rate(recipe)}; it falls to {recipe.last_learning_rate:g} along a cosine",
        ],
        ["weight decay", _decay(recipe)],
        ["epochs", f"{recipe.epochs}, {_warmup(recipe.warmup_epochs)}"],
        ["gradients", "not clipped" if recipe.clip is None else f"clipped at norm {recipe.clip:g}"],
        ["crops (`--augment`)", f"`{recipe.augment}`"],
        ["source of the recipe", recipe.source],
    ]
    return grid(["what", "default"], lines)


def _warmup(epochs: float) -> str:
    return f"of which the first {epochs:g} are the warm-up" if epochs else "no warm-up"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"`{name}={value:g}`" if isinstance(value, float) else f"`{name}={value}`"
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
        "size of the images",
        "crops per image",
        "side in pixels",
        "share of the area",
        *("brightness", "contrast", "saturation", "hue"),
        "changes drawn",
    ]
    chances = ["P(colours)", "P(grey)", "P(blur)", "P(solarisation)"]
    shown = " ".join(cell for line in lines for cell in line)
    meanings = " ".join(text for word, text in _DECIDED.items() if word in shown)
    text = (
        "Each row is one kind of crop. *Share of the area* is the part of the image that a crop "
        "covers before the crop is resized. *Brightness*, *contrast*, *saturation* and *hue* are "
        f"the largest changes. {meanings} P(colours) is the probability that a crop gets these "
        "changes. P(grey), P(blur) and P(solarisation) are the probabilities that a crop "
        "becomes grey, is blurred or is solarised. Rows with 32 x 32 are for images of up to 64 x "
        "64, and rows with 224 x 224 are for larger images."
    )
    return f"{text}\n\n{grid([*header, *chances], lines)}"


def _changes(crop: Any) -> list[str]:  # noqa: ANN401 - an Augment; this room knows no data
    how = "together" if crop.jitter_together else "each by itself"
    return [
        str(crop.size),
        f"{crop.scale[0]:g} to {crop.scale[1]:g}",
        *(f"{strength:g}" for strength in crop.jitter),
        how,
        f"{crop.jitter_probability:g}",
        f"{crop.grey:g}",
        f"{crop.blur:g}",
        f"{crop.solarize:g}",
    ]
