"""Model folders that hold no model, half a model, another one, or code."""

import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.inputs.case import Bench, Case
from tests.inputs.text import content

Spoil = Callable[[Path], object]


def changed(name: str, **values: Any) -> Spoil:
    """Change keys of a JSON file; None takes a key away."""

    def spoil(folder: Path) -> None:
        found = json.loads((folder / name).read_text())
        found = {k: v for k, v in {**found, **values}.items() if v is not None}
        content(folder / name, json.dumps(found))

    return spoil


def modules(change: Callable[[list[dict[str, Any]]], object]) -> Spoil:
    """Change modules.json."""

    def spoil(folder: Path) -> None:
        found = json.loads((folder / "modules.json").read_text())
        change(found)
        content(folder / "modules.json", json.dumps(found))

    return spoil


def put(name: str, data: bytes | str) -> Spoil:
    """Write a file."""
    return lambda folder: content(folder / name, data)


def gone(*names: str) -> Spoil:
    """Take files away."""

    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def piped(name: str) -> Spoil:
    """Put a pipe in the place of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return spoil


def linked(name: str, to: str) -> Spoil:
    """Put a link in the place of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(to)

    return spoil


def _weights(change: Callable[[dict[str, Any], bytes], tuple[object, bytes]]) -> Spoil:
    """Write the weights anew with another header or other bytes."""

    def spoil(folder: Path) -> None:
        data = (folder / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header, rest = change(json.loads(data[8 : 8 + length]), data[8 + length :])
        told = header if isinstance(header, bytes) else json.dumps(header).encode()
        content(folder / "model.safetensors", struct.pack("<Q", len(told)) + told + rest)

    return spoil


def _first(header: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(v for k, v in header.items() if k != "__metadata__")
    return found


def _beyond(header: dict[str, Any], rest: bytes) -> tuple[object, bytes]:
    _first(header)["data_offsets"] = [0, 10**15]
    return header, rest


def _shape(header: dict[str, Any], rest: bytes) -> tuple[object, bytes]:
    _first(header)["shape"] = [10**12, 10**12]
    return header, rest


def _renamed(header: dict[str, Any], rest: bytes) -> tuple[object, bytes]:
    return {k if k == "__metadata__" else f"other.{k}": v for k, v in header.items()}, rest


def _length(value: int) -> Spoil:
    def spoil(folder: Path) -> None:
        data = (folder / "model.safetensors").read_bytes()
        content(folder / "model.safetensors", struct.pack("<Q", value) + data[8:])

    return spoil


def _cut(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    content(folder / "model.safetensors", data[: len(data) // 2])


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    content(folder / "pytorch_model.bin", pickle.dumps(_Touch()))


class _Touch:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch opened",))


CODE = "from pathlib import Path\nPath('opened').touch()\nclass Model: pass\nclass Config: pass\n"


def _auto_map(where: str, **more: Any) -> Spoil:
    def spoil(folder: Path) -> None:
        content(folder / "modeling.py", CODE)
        names = {"AutoConfig": "modeling.Config", "AutoModel": "modeling.Model"}
        changed(where, auto_map={**names, "AutoTokenizer": ["modeling.Model", None]}, **more)(
            folder
        )

    return spoil


def _module_of_code(folder: Path) -> None:
    content(folder / "mine.py", CODE.replace("class Model: pass", "class Mine: pass"))
    modules(lambda found: found[0].update(type="mine.Mine"))(folder)


def _dense(activation: str, weights: bytes | None = None) -> Spoil:
    def spoil(folder: Path) -> None:
        told = {
            "in_features": 8,
            "out_features": 8,
            "bias": True,
            "activation_function": activation,
        }
        content(folder / "2_Dense/config.json", json.dumps(told))
        if weights is not None:
            content(folder / "2_Dense/pytorch_model.bin", weights)
        one = {"idx": 2, "name": "2", "path": "2_Dense"}
        one["type"] = "sentence_transformers.models.Dense"
        modules(lambda found: found.append(one))(folder)

    return spoil


def _above(path: str) -> Spoil:
    def spoil(folder: Path) -> None:
        shutil.copytree(folder, folder.parent / "elsewhere")
        modules(lambda found: found[0].update(path=path))(folder)

    return spoil


def _huge(name: str) -> Spoil:
    def spoil(folder: Path) -> None:
        with (folder / name).open("r+b") as handle:
            handle.truncate(1 << 34)

    return spoil


# what is spoilt, how, and what is said
TEXT: dict[str, tuple[Spoil, str]] = {
    "no config": (gone("config.json"), "no config.json"),
    "no weights": (gone("model.safetensors"), "has no model.safetensors"),
    "no tokenizer": (gone("tokenizer.json"), "has no tokenizer"),
    "weights only as a pickle": (_pickled, "a pickle, which can run code"),
    "weights cut short": (_cut, "again: this file cannot be read"),
    "no bytes of weights": (put("model.safetensors", b""), "again: this file cannot be read"),
    "weights of words": (put("model.safetensors", "hello" * 20), "cannot be read"),
    "a header longer than the file": (_length(1 << 40), "cannot be read"),
    "a header of 2^64 bytes": (_length(2**64 - 1), "cannot be read"),
    "a header of nothing": (_length(0), "cannot be read"),
    "a header of words": (_weights(lambda header, rest: (b"hello", rest)), "cannot be read"),
    "a header of lists": (_weights(lambda header, rest: ([1], rest)), "cannot be read"),
    "a header nested without end": (
        _weights(lambda header, rest: (b"[" * 100_000, rest)),
        "cannot be read",
    ),
    "offsets beyond the end": (_weights(_beyond), "cannot be read"),
    "a shape that lies": (_weights(_shape), "cannot be read"),
    "names of another model": (_weights(_renamed), "lacks weights that its config"),
    "weights from a pipe": (piped("model.safetensors"), "model.safetensors"),
    "weights from a device": (linked("model.safetensors", "/dev/zero"), "model.safetensors"),
    "weights that link to themselves": (
        linked("model.safetensors", "model.safetensors"),
        "model.safetensors",
    ),
    "other shapes": (changed("config.json", hidden_size=16), "not a model that can be"),
    "other heads": (
        changed("config.json", num_attention_heads=3),
        "not a model that can be",
    ),
    "more layers": (changed("config.json", num_hidden_layers=9), "lacks weights that its config"),
    "a small vocabulary": (changed("config.json", vocab_size=9), "not a model that can be"),
    "sizes of words": (
        changed("config.json", hidden_size="many"),
        "not a model that can be",
    ),
    "negative sizes": (changed("config.json", hidden_size=-8), "not a model that can be"),
    "sizes of NaN": (changed("config.json", hidden_size=float("nan")), "not a model that can be"),
    "sizes of a thousand million": (
        changed("config.json", hidden_size=10**9, num_attention_heads=1),
        "not a model that can be",
    ),
    "layers of a thousand million": (
        changed("config.json", num_hidden_layers=10**9),
        "copy the model again from its source",
    ),
    "an unknown architecture": (
        changed("config.json", model_type="nonsense"),
        "not a model that can be",
    ),
    "no architecture": (changed("config.json", model_type=None), ""),
    "another architecture": (changed("config.json", model_type="gpt2"), ""),
    "a pipeline of pictures": (changed("config.json", model_type="vit"), ""),
    "kernels from the hub": (
        changed("config.json", attn_implementation="someone/kernels"),
        "someone/kernels",
    ),
    "weights in another quantisation": (
        changed("config.json", quantization_config={"quant_method": "gptq", "bits": 4}),
        "not a model that can be",
    ),
    "a config of lists": (put("config.json", "[]"), "by a JSON object of settings"),
    "a config of words": (put("config.json", "hello"), "is not valid JSON"),
    "a config of bytes": (put("config.json", b"\xff\xfe\0"), "is not UTF-8 text"),
    "a config without end": (put("config.json", "[" * 100_000), "config.json"),
    "a config of 5,000 digits": (put("config.json", f'{{"a": {"9" * 5000}}}'), "config.json"),
    "a config of gigabytes": (_huge("config.json"), "config.json"),
    "a config from a pipe": (piped("config.json"), ""),
    "a file of settings from a pipe": (piped("other.json"), "other.json"),
    "a config that links to itself": (linked("config.json", "config.json"), ""),
    "a tokenizer of words": (put("tokenizer.json", "hello"), "is not valid JSON"),
    "a tokenizer of nothing": (put("tokenizer.json", "{}"), "not a model that can be"),
    "a tokenizer of lists": (put("tokenizer.json", "[1, 2]"), "not a model that can be"),
    "a tokenizer from a pipe": (piped("tokenizer.json"), "tokenizer.json"),
    "modules of words": (put("modules.json", "hello"), "is not valid JSON"),
    "modules that are a mapping": (put("modules.json", '{"a": 1}'), "is not a list of modules"),
    "modules that are numbers": (put("modules.json", "[1, 2]"), "is not a list of modules"),
    "no modules": (put("modules.json", "[]"), ""),
    "modules without paths": (put("modules.json", '[{"idx": 0}]'), "is not a list of modules"),
    "modules without types": (
        put("modules.json", '[{"idx": 0, "name": "0", "path": ""}]'),
        "is not a list of modules",
    ),
    "paths of numbers": (
        modules(lambda found: found[0].update(path=5)),
        "is not a list of modules",
    ),
    "modules above": (_above("../elsewhere"), "leads out of the model's folder"),
    "modules above, in between": (_above("a/../../elsewhere"), "leads out of the model's folder"),
    "modules at the root": (_above("/etc"), "leads out of the model's folder"),
    "modules at a name with a NUL": (_above("a\0b"), "modules.json"),
    "an unknown module": (
        modules(lambda found: found[1].update(type="sentence_transformers.models.Nonsense")),
        "Nonsense",
    ),
    "a module of another package": (
        modules(lambda found: found[1].update(type="os.abort")),
        "os.abort",
    ),
    "a module that is a function": (
        modules(lambda found: found[1].update(type="sentence_transformers.util.cos_sim")),
        "not a model that can be",
    ),
    "a module of its own code": (_module_of_code, "mine.Mine"),
    "types of numbers": (modules(lambda found: found[1].update(type=5)), "modules.json"),
    "no transformer first": (modules(lambda found: found.pop(0)), ""),
    "no pooling": (modules(lambda found: found.pop(1)), ""),
    "poolings first": (modules(lambda found: found.reverse()), ""),
    "a pooling without config": (gone("1_Pooling/config.json"), ""),
    "a pooling of words": (put("1_Pooling/config.json", "hello"), "is not valid JSON"),
    "a pooling of lists": (put("1_Pooling/config.json", "[]"), ""),
    "an unknown pooling": (put("1_Pooling/config.json", '{"pooling_mode": "x"}'), ""),
    "a layer of code": (_dense("os.abort", b""), "a pickle, which can run code"),
    "a layer with a pickle": (
        _dense("torch.nn.Tanh", pickle.dumps(_Touch())),
        "a pickle, which can run code",
    ),
    "a layer without weights": (_dense("torch.nn.Tanh"), ""),
    "code in its config": (_auto_map("config.json", model_type="mine"), "code"),
    "code by a flag in its settings": (
        lambda folder: (
            content(
                folder / "sentence_bert_config.json",
                json.dumps({"model_args": {"trust_remote_code": True}}),
            ),
            _auto_map("config.json", model_type="mine")(folder),
        ),
        "code",
    ),
    "cut embeddings": (
        lambda folder: content(
            folder / "config_sentence_transformers.json", json.dumps({"truncate_dim": 4})
        ),
        "truncate_dim",
    ),
    "prompts that are a list": (
        put("config_sentence_transformers.json", '{"prompts": [1]}'),
        "not a model that can be",
    ),
    "a default prompt that is not there": (
        put("config_sentence_transformers.json", '{"default_prompt_name": "x"}'),
        "not a model that can be",
    ),
}


def _other(name: str, data: bytes | str) -> Spoil:
    def spoil(folder: Path) -> None:
        for file in folder.iterdir():
            if file.name not in ("config.json", "model.safetensors"):
                file.unlink()
        content(folder / name, data)

    return spoil


IMAGES: dict[str, tuple[Spoil, str]] = {
    "no config": (gone("config.json"), ""),
    "no weights": (gone("model.safetensors"), "has no model.safetensors"),
    "weights cut short": (_cut, "again: this file cannot be read"),
    "weights only as a pickle": (_pickled, "a pickle, which can run code"),
    "names of another model": (_weights(_renamed), "not a model that can be"),
    "other shapes": (changed("config.json", hidden_sizes=[9, 9, 9, 9]), "not a model that can be"),
    "no shapes": (changed("config.json", hidden_sizes=[]), ""),
    "shapes of words": (changed("config.json", hidden_sizes="many"), "not a model that can be"),
    "an unknown architecture": (changed("config.json", model_type="nonsense"), "of the type"),
    "an architecture of lists": (changed("config.json", model_type=["vit"]), "of the type"),
    "a module of one's own": (
        changed("config.json", model_type="isotrope-module"),
        "ImageEncoder.wrap",
    ),
    "code": (_auto_map("config.json", model_type="mine"), "of the type 'mine'"),
    "no size": (put("preprocessor_config.json", '{"size": "large"}'), "set the size in"),
    "a negative size": (put("preprocessor_config.json", '{"size": -5}'), "set the size in"),
    "a size that is true": (put("preprocessor_config.json", '{"size": true}'), "set the size in"),
    "a size of a thousand million": (
        put("preprocessor_config.json", '{"size": 1000000000}'),
        "set the size in",
    ),
    "two colours": (put("preprocessor_config.json", '{"image_mean": [0, 1]}'), "3 finite numbers"),
    "colours of words": (put("preprocessor_config.json", '{"image_mean": "abc"}'), "3 finite"),
    "no deviation": (put("preprocessor_config.json", '{"image_std": [0, 0, 0]}'), "above 0"),
    "a deviation of NaN": (
        put("preprocessor_config.json", '{"image_std": [NaN, 1, 1]}'),
        "3 finite numbers",
    ),
    "a preparation of lists": (put("preprocessor_config.json", "[" * 100_000), "preprocessor"),
}


def _named() -> Iterator[Case]:
    names: dict[str, tuple[str, Callable[[Path], object], str]] = {
        "nothing there": ("./nowhere", lambda room: None, "there is no folder './nowhere'"),
        "an id while the hub is off": ("some/model", lambda room: None, "the hub is switched off"),
        "an id that the hub cannot have": (
            "0.",
            lambda room: None,
            "give a folder or an id of the hub",
        ),
        "an id that is none": ("a b c", lambda room: None, "there is no folder 'a b c'"),
        "an address": ("https://example.invalid/x", lambda room: None, "there is no folder"),
        "an id above": ("../../x", lambda room: None, "there is no folder"),
        "no name": ("", lambda room: None, ""),
        "a name of no UTF-8": ("\udcff", lambda room: None, "there is no folder"),
        "a name of two lines": ("a\nb", lambda room: None, "there is no folder"),
        "a name with a NUL": ("a\0b", lambda room: None, "there is no folder"),
        "a name too long": ("n" * 5000, lambda room: None, ""),
        "a file": ("m", lambda room: content(room / "m", "x"), "m is a file"),
        "a pipe": ("m", lambda room: os.mkfifo(room / "m"), "m is a file"),
        "a device": ("/dev/zero", lambda room: None, "/dev/zero is a file"),
        "an empty folder": ("m", lambda room: (room / "m").mkdir(), "m holds no model"),
        "a link to itself": ("./m", lambda room: (room / "m").symlink_to("m"), "m"),
        "a run without a model": (
            "m",
            lambda room: content(room / "m/config.yaml", "files: [a]\n# made here: x\n"),
            "is a run folder without a model",
        ),
        "a folder of words": ("m", lambda room: content(room / "m/a.txt", "x"), "holds no model"),
        "only a config": (
            "m",
            lambda room: content(room / "m/config.json", "{}"),
            "has no model.safetensors",
        ),
        "an archive": ("m.zip", lambda room: content(room / "m.zip", b"PK\3\4"), "is a file"),
    }
    for what, (name, prepare, says) in names.items():
        for verb in ("encode", "diagnose"):

            def made(
                room: Path,
                bench: Bench,
                name: str = name,
                prepare: Callable[[Path], object] = prepare,
                verb: str = verb,
            ) -> Sequence[object]:
                prepare(room)
                if verb == "diagnose":
                    return ["diagnose", name, "--data", bench.sentences]
                return ["encode", name, bench.sentences, "-o", "out.npy"]

            yield Case(f"models/{verb} {what}", made, says)


def cases() -> Iterator[Case]:
    """Yield them."""
    for what, (spoil, says) in TEXT.items():

        def made(room: Path, bench: Bench, spoil: Spoil = spoil) -> Sequence[object]:
            spoil(shutil.copytree(bench.text, room / "model"))
            return ["encode", "model", bench.sentences, "-o", "out.npy"]

        yield Case(f"models/{what}", made, says)
    for what, (spoil, says) in IMAGES.items():

        def pictured(room: Path, bench: Bench, spoil: Spoil = spoil) -> Sequence[object]:
            from tests.data.pictures import folders

            spoil(shutil.copytree(bench.image, room / "model"))
            return ["encode", "./model", folders(room / "pictures"), "-o", "out.npy"]

        yield Case(f"models/of images, {what}", pictured, says)
    yield from _named()
