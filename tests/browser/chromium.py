"""Headless Chromium over its DevTools pipe, for tests of pages."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from analyzers.common.errors import TracevizError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome-headless-shell")
FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)

# The browser wants its pipes as descriptors 3 and 4.
LAUNCHER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def find() -> str | None:
    """The browser's path: $TRACEVIZ_CHROMIUM, else the first on PATH; None where there is none."""
    asked = os.environ.get("TRACEVIZ_CHROMIUM")
    return asked or next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One page in a headless browser, which keeps its profile in a folder of the caller's; use it in a `with`.

    Raises
    ------
    TracevizError : the browser does not start or does not answer.
    """

    def __init__(
        self, path: str, profile: Path, *, width: int = 1280, height: int = 900, timeout: float = 60.0
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self._timeout, self._path = timeout, path
        command = [path, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        command += ["--remote-debugging-pipe", "about:blank"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium's sandbox refuses to run as root
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        to_browser, from_browser = (_high(descriptor) for descriptor in (to_browser, from_browser))
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", LAUNCHER, str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        os.set_blocking(self._read, False)
        self._buffer, self._number, self._session = b"", 0, ""
        try:
            targets = self.call("Target.getTargets")["targetInfos"]
            page = next(one["targetId"] for one in targets if one["type"] == "page")
            self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a DevTools command and wait for its answer."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        try:
            sent = json.dumps(message).encode() + b"\0"
            while sent:
                sent = sent[os.write(self._write, sent) :]
        except BrokenPipeError as error:
            raise self._broken("ended") from error
        end = time.monotonic() + self._timeout
        while True:
            answer = self._message(end)
            if answer.get("id") == number:
                if "error" in answer:
                    raise TracevizError(f"Chromium refused {method}: {answer['error'].get('message')}")
                return dict(answer["result"])
            self.events.append(answer)

    def _message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            try:
                got = os.read(self._read, 1 << 20)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise self._broken("does not answer") from None
                time.sleep(0.005)
                continue
            if not got:
                raise self._broken("ended")
            self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def _broken(self, how: str) -> TracevizError:
        hint = "Name another browser in $TRACEVIZ_CHROMIUM."
        return TracevizError(f"The browser {self._path} {how}.", hint=hint)

    def open(self, url: str) -> None:
        """Open a page and wait until it has loaded."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + self._timeout
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message(end))

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            reason = details.get("exception", {}).get("description", details.get("text", ""))
            raise TracevizError(f"The page failed: {reason.splitlines()[0] if reason else 'no reason given'}")
        return answer["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        try:
            self._process.wait(5)  # it ends with its pipe
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _high(descriptor: int) -> int:
    """The same pipe as a descriptor that is neither 3 nor 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)
    os.close(descriptor)
    return moved
