"""A headless Chromium driven through its debugging pipe: no driver and no port is needed."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import MINUTES

NAMES = ("chromium", "chromium-browser", "google-chrome")


def installed() -> str | None:
    """Return the browser's path."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page of a browser, and what its console said."""

    def __init__(self, to: int, out: int) -> None:
        self.console: list[str] = []
        self.asked: list[str] = []
        self._to, self._out, self._number, self._rest = to, out, 0, b""
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Do one command; return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._out, 1 << 16)
            assert read, "the browser is gone"
            self._rest += read
        raw, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(raw)
        told = json.dumps(message.get("params", {}))
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(told)
        if message.get("method") in ("Runtime.consoleAPICalled", "Page.javascriptDialogOpening"):
            self.console.append(told)
        if message.get("method") == "Network.requestWillBeSent":
            self.asked.append(message["params"]["request"]["url"])
        return message

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of this size, in one of the two colour schemes."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=page.as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def point(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode={"Tab": 9, "ArrowLeft": 37, "Escape": 27}[key],
            )  # fmt: skip

    def shoot(self, picture: Path, *, whole: bool = True) -> None:
        """Write a screenshot, of the whole page or of what the window shows."""
        image = self.send(
            "Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole)
        )
        picture.write_bytes(base64.b64decode(image["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, **{k: size[k] for k in ("width", "height")}, "scale": 1}}


@contextmanager
def chromium(path: str, home: Path) -> Iterator[Tab]:
    """Run a browser with a profile of its own, and yield its one page."""
    (read, to), (out, write) = os.pipe(), os.pipe()

    def three_and_four() -> None:  # where the browser expects its pipe
        os.dup2(os.dup2(read, 103), 3)
        os.dup2(os.dup2(write, 104), 4)

    process = subprocess.Popen(
        [
            path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--remote-debugging-pipe", f"--user-data-dir={home / 'profile'}", "about:blank",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=three_and_four,
        close_fds=False, cwd=home, env={**os.environ, "HOME": str(home)},
    )  # fmt: skip
    os.close(read)
    os.close(write)
    try:
        yield Tab(to, out)
    finally:
        process.terminate()
        process.wait(timeout=MINUTES)
        os.close(to)
        os.close(out)
