"""A stand-in for the Hugging Face hub: as much of its HTTP interface as an upload uses."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_known"


class Hub(ThreadingHTTPServer):
    """Repositories in memory: ``repos[name]`` is ``{"private": ..., "files": {path: bytes}}``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self._answered({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        lines = [json.loads(line) for line in body.splitlines() if line]
        self._answered(lines[0] if len(lines) == 1 else lines)

    def _answered(self, body: Any) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            self._send(401, {"error": "Invalid credentials"})
            return
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(\w+)/main)?", path)
        repo, verb = found.groups() if found else ("", path)
        if verb == "/api/whoami-v2":
            self._send(200, {"name": "user", "type": "user", "auth": {}})
        elif verb == "/api/repos/create":
            self._create(body)
        elif verb == "/api/validate-yaml":
            self._send(200, {"errors": [], "warnings": []})
        elif repo not in self.server.repos:
            self._send(404, {"error": "Repository not found"})
        elif verb is None:
            about = {"id": repo, "private": self.server.repos[repo]["private"]}
            self._send(200, {**about, "siblings": [], "tags": [], "downloads": 0, "likes": 0})
        elif verb == "preupload":
            names = [file["path"] for file in body["files"]]
            modes = [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]
            self._send(200, {"files": modes})
        else:
            self._commit(repo, body)

    def _create(self, body: Any) -> None:
        name = f"{body.get('organization', 'user')}/{body['name']}"
        if name.startswith("other/"):
            self._send(403, {"error": "You don't have the rights to create a model under other"})
        elif name in self.server.repos:
            self._send(409, {"error": "exists", "url": f"{self.server.address}/{name}"})
        else:
            private = body.get("private") is True or body.get("visibility") == "private"
            self.server.repos[name] = {"private": private, "files": {}}
            self._send(200, {"url": f"{self.server.address}/{name}"})

    def _commit(self, repo: str, lines: Any) -> None:
        assert lines[0]["key"] == "header"
        for line in lines[1:]:
            value = line["value"]
            self.server.repos[repo]["files"][value["path"]] = base64.b64decode(value["content"])
        url = f"{self.server.address}/{repo}/commit/0"
        self._send(200, {"commitUrl": url, "commitOid": "0" * 40, "success": True})

    def _send(self, code: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def running() -> Iterator[Hub]:
    """Serve while the context is open."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
