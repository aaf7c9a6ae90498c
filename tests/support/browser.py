"""A real browser for tests: headless Chromium, driven through its DevTools protocol over a pipe.

The protocol is JSON between two file descriptors, so nothing is needed but the browser itself. (Selenium would need a
urllib3 that the pinned requirements of torchattacks forbid.)
"""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 180.0  # seconds; a busy machine starts Chromium slowly, and draws 2,000 rows slowly


def executable() -> str | None:
    """The browser: $CHROMIUM, or the first of the usual names on the path."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab. `requests` has every address that it asked for, `errors` what its scripts complained about."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer
        self.buffer = b""
        self.numbers = itertools.count(1)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are noted."""
        number = next(self.numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            answer = self._next(end, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(self, address: str) -> None:
        """Go to an address and wait until its scripts have run."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression: str) -> Any:
        """The JSON-able value of a JavaScript expression; what it throws is raised."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", expression))
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"the page never reached: {expression}")
            time.sleep(0.02)

    def key(self, key: str, text: str = "") -> None:
        """Press and release a key, as a person would."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39}
        text = text or {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            code = codes.get(key, 0)
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "",
                      windowsVirtualKeyCode=code, nativeVirtualKeyCode=code)  # fmt: skip

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def prefer(self, scheme: str) -> None:
        """What the system prefers: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))

    def _next(self, end: float, method: str) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reader], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.reader, 1 << 16) if ready else b""
            if not data:
                raise TimeoutError(f"Chromium gave no answer to {method}")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        details = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(details["exceptionDetails"])[:2000])
        elif event.get("method") == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.errors.append(details["entry"]["text"])


@contextlib.contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """A browser with a profile folder of its own; ended, with its helpers, at the end."""
    ours, theirs = os.pipe(), os.pipe()  # to Chromium, from Chromium
    command = [executable() or "chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    # The protocol speaks on descriptors 3 and 4; only bash can be told to put a descriptor of two digits there.
    place = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
    process = subprocess.Popen(
        ["bash", "-c", place, "bash", *command],
        pass_fds=(ours[0], theirs[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(ours[0])
    os.close(theirs[1])
    try:
        yield Browser(theirs[0], ours[1])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own process group
        process.wait()
        os.close(ours[1])
        os.close(theirs[0])
