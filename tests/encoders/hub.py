"""A hub of models on this machine, for the real code of huggingface_hub to talk to."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from huggingface_hub import constants

COMMIT = "a" * 40


class LocalHub:
    """Serves the folder ``root / OWNER / NAME`` as the model ``OWNER/NAME``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []  # paths of the files that were downloaded
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def _answer(self, *, with_body: bool) -> None:
                path = self.path.partition("?")[0].strip("/").split("/")
                content = hub.api(path[2:]) if path[:2] == ["api", "models"] else hub.file(path)
                if content is None:
                    self.send_response(404)
                    missing = "EntryNotFound" if "resolve" in path else "RepoNotFound"
                    self.send_header("X-Error-Code", missing)
                else:
                    self.send_response(200)
                    self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                if with_body and content is not None:
                    if "resolve" in path:
                        hub.asked.append("/".join(path[4:]))
                    self.wfile.write(content)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def api(self, path: list[str]) -> bytes | None:
        model = self.root / path[0] / path[1] if len(path) > 1 else self.root / "none"
        if not model.is_dir():
            return None
        files = sorted(file for file in model.rglob("*") if file.is_file())
        named = [file.relative_to(model).as_posix() for file in files]
        if "tree" in path:
            about = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": name}
                for name, file in zip(named, files, strict=True)
            ]
            return json.dumps(about).encode()
        name = "/".join(path[:2])
        siblings = [{"rfilename": file} for file in named]
        return json.dumps({"id": name, "_id": name, "sha": COMMIT, "siblings": siblings}).encode()

    def file(self, path: list[str]) -> bytes | None:
        file = self.root.joinpath(*path[:2], *path[4:])
        return file.read_bytes() if file.is_file() else None

    def forget(self) -> None:
        self.asked.clear()


@contextmanager
def local_hub(root: Path, monkeypatch: object) -> Iterator[LocalHub]:
    """Let huggingface_hub ask a :class:`LocalHub` instead of the real hub."""
    hub = LocalHub(root)
    Thread(target=hub.server.serve_forever, daemon=True).start()
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    try:
        yield hub
    finally:
        hub.server.shutdown()
        hub.server.server_close()
