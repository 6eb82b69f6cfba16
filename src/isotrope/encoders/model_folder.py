"""Checks the folder of a model: its files are complete, lead nowhere else, and run no code.

``names`` finds the folder. It may be a model of sentence-transformers or transformers, or the run
folder of a training. Nothing is loaded here: ``sentence`` and ``image`` load the model.
"""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from isotrope.core.documents import check_file, read_json, read_text
from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.core.spelling import brief

_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
_KERNELS = ('_implementation"', "\\u00")  # the latter begins an escaped letter or "_"


def checked(path: Path) -> Path:
    """Return the model folder at ``path``: the folder itself, or its subfolder ``model/``.

    No file of the folder may lead out of it or run code, and no part of the model may be missing.
    """
    if not path.is_dir():
        raise InputError(f"give a folder with config.json and weights: {path} is a file")
    path = _in_run(path)
    if not is_model(path):
        raise InputError(
            f"give a folder with modules.json (sentence-transformers) or config.json "
            f"(transformers): {path} holds no model"
        )
    _check_files(path)
    parts = _parts(path)
    for part in dict.fromkeys([path, *parts]):
        if (part / "adapter_config.json").exists():
            base = settings_of(part / "adapter_config.json").get("base_model_name_or_path")
            raise InputError(
                f"merge adapter and model with peft's merge_and_unload, and save the result: "
                f"{part} holds only an adapter of {brief(base)}"
            )
    first = _first(path, parts)
    if not (first / "config.json").exists() and not (
        (path / "modules.json").is_file() and is_static(read_json(path / "modules.json")[0]["type"])
    ):
        raise InputError(f"give the folder of a transformers model: {first} has no config.json")
    for part in parts:
        _check_weights(part, needed=part == first)
    if not _has_tokenizer(first) and not is_image(path):
        raise InputError(
            "save the tokenizer beside the weights with tokenizer.save_pretrained; pass a network "
            f"for pictures (timm, CLIP) to ImageEncoder.wrap: {first} has no tokenizer "
            f"({', '.join(_TOKENIZERS)})"
        )
    return path


def _in_run(path: Path) -> Path:
    """Return the model folder of a run; for any other folder, the folder itself."""
    run = RunFolder(path)
    if is_model(path) or not (run.is_begun or is_model(run.model)):
        return path
    if not is_model(run.model):
        raise InputError(
            f"finish the training with `isotrope train --resume`: {path} is a run folder "
            f"without a model in {run.model}"
        )
    if not run.is_begun:
        warn_once(f"{path}: using the model in {run.model}")
    elif not run.result.exists():
        warn_once(
            f"the training in {path} has not ended, and its model may still be the original one. "
            "To finish the training, repeat the training command with --resume"
        )
    return run.model


def is_model(path: Path) -> bool:
    """Return whether a folder itself is a model; a run has its model in ``model/``."""
    files = ("modules.json", "config.json", "adapter_config.json")
    return any((path / file).is_file() for file in files)


def is_image(folder: Path) -> bool:
    """Return whether a folder holds an image encoder."""
    if (folder / "modules.json").is_file() or _has_tokenizer(folder):
        return False
    try:
        config = read_json(folder / "config.json")
    except InputError:
        return False
    return (folder / "preprocessor_config.json").is_file() or (
        isinstance(config, dict)
        and ("num_channels" in config or str(config.get("model_type")).startswith("isotrope-"))
    )


def is_static(module: object) -> bool:
    """Return whether ``module``, a module or the name of its class, is a ``StaticEmbedding``."""
    name = module if isinstance(module, str) else type(module).__name__
    return name.rpartition(".")[2] == "StaticEmbedding"


def settings_of(file: Path) -> dict[str, Any]:
    """Return the settings in a JSON file; an empty dictionary if there is no such file."""
    settings = read_json(file) if file.is_file() else {}
    if not isinstance(settings, dict):
        raise InputError(
            f"replace {file} by a JSON object of settings; the file holds {brief(settings)}"
        )
    return settings


@cache
def warn_once(text: str) -> None:
    """Print a warning once, however often its model is opened."""
    print(f"warning: {text}", file=sys.stderr)


def is_tokenized(model: Path) -> bool:
    """Return whether the first module of a model has a tokenizer."""
    return _has_tokenizer(_first(model, _parts(model)))


def _check_files(path: Path) -> None:
    """Refuse links that lead out of a model's folder, devices, and settings that run code."""
    # files in the cache of the hub are links to blobs beside the snapshots
    within = path.resolve().parent.parent if path.resolve().parent.name == "snapshots" else path
    for file in path.rglob("*"):
        if file.exists() and not (file.is_dir() and file.resolve().is_relative_to(path.resolve())):
            check_file(file, within)  # to open a pipe would wait for ever
    for file in sorted([*path.glob("*.json"), *path.glob("*/*.json")]):
        text = read_text(file)  # most files are large, or no part of the model
        if "config" in file.name or any(part in text for part in _KERNELS):
            _check_kernels(file, read_json(file))


def _check_kernels(file: Path, settings: object) -> None:
    """Refuse settings with which transformers would fetch compiled code from the hub and run it."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            if key.endswith("_implementation") and isinstance(value, str) and "/" in value:
                raise InputError(
                    f"remove {key} from {file}: the value {brief(value)} names code on the hub, "
                    "which isotrope does not run"
                )
            _check_kernels(file, value)


def _parts(path: Path) -> list[Path]:
    """Return the folders of a model's modules, the transformer's first."""
    file = path / "modules.json"
    if not file.is_file():
        return [path]
    modules = read_json(file)
    try:
        entries = [(module["type"], module["path"]) for module in modules]
        if not entries or not all(isinstance(word, str) for module in entries for word in module):
            raise TypeError("no texts")
    except (TypeError, KeyError) as error:
        raise InputError(
            f"save the model again with sentence-transformers: {file} is not a list of modules"
        ) from error
    places = [(file, where) for _, where in entries]
    parts: dict[Path, Path] = {}
    for source, where in places:  # the loop appends the modules of a router to this list
        if "\0" in where or Path(where).is_absolute() or ".." in Path(where).parts:
            raise InputError(
                f"correct the path {brief(where)} in {source}: this path leads out of the model's "
                "folder, and isotrope reads only files in this folder"
            )
        if (part := path / where).resolve() in parts:
            continue
        parts[part.resolve()] = part
        for router in (part / "router_config.json", part / "config.json"):
            names = settings_of(router).get("types") or ()
            places += [(router, str(Path(where, name))) for name in names]
    return [*parts.values()]


def _first(path: Path, parts: Sequence[Path]) -> Path:
    """Return the first folder with files; a router has no files but those of its modules."""
    return next((part for part in parts if not (part / "router_config.json").is_file()), path)


def _has_tokenizer(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in _TOKENIZERS)


def _check_weights(folder: Path, *, needed: bool) -> None:
    """Refuse weights that are missing, are pickles, or are safetensors that do not open."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    pickles = sorted([*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.ckpt")])
    if not files and pickles:
        raise InputError(
            f"save the weights as model.safetensors, as SentenceTransformer(...).save_pretrained "
            f"of sentence-transformers does: {folder} has only {pickles[0].name}, a pickle, which "
            "can run code when it is opened"
        )
    if not files and needed:
        raise InputError(f"copy the model again from its source: {folder} has no model.safetensors")
    tensors = 0
    for file in files:
        try:
            # only names are read, for which torch need not be imported
            with safe_open(file, framework="np") as weights:
                tensors += len(weights.keys())
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"copy or download {file} again: this file cannot be read ({error})"
            ) from error
    if needed:
        _check_layers(folder / "config.json", tensors)


def _check_layers(file: Path, tensors: int) -> None:
    """Refuse a config.json with more layers than tensors; to build them could take for ever."""
    config = settings_of(file)
    for name in ("num_hidden_layers", "num_layers", "n_layer", "n_layers"):
        layers = config.get(name)
        if isinstance(layers, int) and layers > tensors:
            raise InputError(
                f"copy the model again from its source: {file} sets {name} to {brief(layers)}, "
                f"but the weights have only {tensors} tensors"
            )
