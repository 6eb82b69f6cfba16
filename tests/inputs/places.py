"""Places to write that are none, and runs that cannot be gone on with."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.inputs.case import Bench, Case
from tests.inputs.text import content

Prepare = Callable[[Path], object]


def _begun(room: Path, bench: Bench, **changed: str) -> list[object]:
    """Write the folder of a run that was begun, and return what resumes it."""
    from isotrope.core.run_folder import RunFolder
    from isotrope.training.settings import TrainSettings

    settings = TrainSettings.read(
        {"files": bench.sentences, "encoder": bench.text, "output": "run", "progress": False}
    )
    RunFolder(room / "run").write_settings(settings.to_yaml())
    return ["train", "--config", "run/config.yaml", "--resume"]


def _resumed() -> Iterator[Case]:
    files: dict[str, tuple[dict[str, bytes | str], str]] = {
        "settings that are no YAML": ({"config.yaml": "a: [1"}, "is not YAML"),
        "settings of another run": (
            {"config.yaml": "files: [x.txt]\noutput: run\nseed: 3\n"},
            "--seed was 3",
        ),
        "unknown settings": (
            {"config.yaml": "files: [x.txt]\noutput: run\nspeed: 3\n"},
            "speed: unknown setting",
        ),
        "a result that is no JSON": ({"result.json": "{"}, "is not a result of isotrope"),
        "a result that is a list": ({"result.json": "[1]"}, "is not a result of isotrope"),
        "a result of other keys": ({"result.json": '{"a": 1}'}, "is not a result of isotrope"),
        "a result without end": ({"result.json": "[" * 100_000}, "is not a result of isotrope"),
    }
    for what, (made_of, says) in files.items():

        def made(
            room: Path, bench: Bench, made_of: dict[str, bytes | str] = made_of
        ) -> Sequence[object]:
            resume = _begun(room, bench)
            if "config.yaml" in made_of:  # the file that the flags come from lies elsewhere
                content(room / "mine.yaml", (room / "run/config.yaml").read_bytes())
                resume[2] = "mine.yaml"
            for name, data in made_of.items():
                content(room / "run" / name, data)
            return resume

        yield Case(f"resume/{what}", made, says)

    def checkpoint(data: bytes | None) -> Callable[[Path, Bench], Sequence[object]]:
        def made(room: Path, bench: Bench) -> Sequence[object]:
            import torch

            from isotrope.core.documents import read_yaml
            from isotrope.data.sources import read
            from isotrope.training.checkpoints import finish
            from isotrope.training.settings import TrainSettings
            from isotrope.training.text_data import store_of
            from isotrope.training.text_encoder import encoder_of

            resume = _begun(room, bench)
            settings = TrainSettings.read(read_yaml(room / "run/config.yaml"))
            store_of(settings, encoder_of(settings), room / "run/tokens", read(settings.inputs))
            file = content(room / "run/checkpoints/checkpoint-2/model.pt", data or b"")
            if data is None:
                torch.save({"state_dict": {}}, file)
            finish(file.parent)  # as a stranger would
            return resume

        return made

    yield Case("resume/a checkpoint of words", checkpoint(b"hello"), "no checkpoint can be read")
    yield Case("resume/an empty checkpoint", checkpoint(b"\0"), "no checkpoint can be read")
    code = b"\x80\x02cposix\nsystem\nX\x0c\0\0\0touch opened\x85R."
    yield Case("resume/a checkpoint of code", checkpoint(code), "no checkpoint can be read")
    yield Case("resume/half a checkpoint", checkpoint(None), "no checkpoint can be read")


def _outputs() -> Iterator[Case]:
    def text(output: str, *more: object, prepare: Prepare = lambda room: None) -> object:
        def made(room: Path, bench: Bench) -> Sequence[object]:
            prepare(room)
            told = ["--encoder", bench.text, "--max-steps", 1, "--no-progress"]
            return ["train", bench.sentences, "--output", output, *told, *more]

        return made

    def encoded(output: str, prepare: Prepare = lambda room: None) -> object:
        def made(room: Path, bench: Bench) -> Sequence[object]:
            prepare(room)
            return ["encode", bench.text, bench.sentences, "-o", output]

        return made

    def file(room: Path) -> None:
        content(room / "file", "x")

    def full(room: Path) -> None:
        content(room / "full/file", "x")

    def loop(room: Path) -> None:
        (room / "loop").symlink_to("loop")

    places: list[tuple[str, str, Prepare, str]] = [
        ("a file", "file", file, "file is a file"),
        ("below a file", "file/run", file, "file"),
        ("a full folder", "full", full, "has files, but no run"),
        ("a link to itself", "loop", loop, "loop"),
        ("below a link to itself", "loop/run", loop, "loop"),
        ("a device", "/dev/null", lambda room: None, "/dev/null"),
        ("below a device", "/dev/null/run", lambda room: None, "/dev/null"),
        ("a name too long", "n" * 300, lambda room: None, "name too long"),
        ("a path too long", "n/" * 3000, lambda room: None, "name too long"),
        ("no name", "", lambda room: None, "one line of text"),
        ("two lines", "a\nb", lambda room: None, "one line of text"),
        ("no UTF-8", "\udcff", lambda room: None, "UTF-8 without NUL"),
        ("a NUL", "a\0b", lambda room: None, "UTF-8 without NUL"),
        ("the kernel's", "/proc/run", lambda room: None, "/proc/run"),
    ]
    for what, output, prepare, says in places:
        yield Case(f"output/{what}", text(output, prepare=prepare), says)  # type: ignore[arg-type]
    npy: list[tuple[str, str, Prepare, str]] = [
        ("below a file", "file/out.npy", file, "file"),
        ("a folder", "out.npy", lambda room: (room / "out.npy").mkdir(), "is a folder"),
        ("a name too long", "n" * 300 + ".npy", lambda room: None, "name too long"),
        ("below a link to itself", "loop/out.npy", loop, "loop"),
        ("the kernel's", "/proc/out.npy", lambda room: None, "/proc/.out.npy"),
    ]
    for what, output, prepare, says in npy:
        yield Case(f"output/encode to {what}", encoded(output, prepare), says)  # type: ignore[arg-type]
    yield Case(
        "output/resume in a folder without a run",
        text("full", "--resume", prepare=full),  # type: ignore[arg-type]
        "has no config.yaml",
    )
    yield Case(
        "output/a report on a folder",
        lambda room, bench: ["report", bench.run, "-o", room],
        "is a folder",
    )
    yield Case(
        "output/a report below a file",
        lambda room, bench: (file(room), ["report", bench.run, "-o", "file/r.html"])[1],
        "file",
    )
    yield Case(
        "output/pictures of a report in a file",
        lambda room, bench: (file(room), ["report", bench.run, "--pictures", "file"])[1],
        "file",
    )
    yield Case(
        "output/a table on a folder",
        lambda room, bench: (
            content(room / "p.tsv", "a\tb\nc\td\n"),
            ["evaluate", bench.text, "--retrieval", "p.tsv", "--csv", room],
        )[1],
        "is a folder",
    )
    yield Case(
        "output/finished tasks in a file",
        lambda room, bench: (
            file(room),
            content(room / "p.tsv", "a\tb\nc\td\n"),
            ["evaluate", bench.text, "--retrieval", "p.tsv", "--results", "file"],
        )[2],
        "file",
    )


def cases() -> Iterator[Case]:
    """Yield them."""
    yield from _resumed()
    yield from _outputs()
