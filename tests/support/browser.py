"""A real headless Chromium, driven over the DevTools protocol through a pair of pipes: no library, no port.

with Browser() as browser:
    tab = browser.open("http://127.0.0.1:8700/")
    tab.run("document.title")
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server import die_with_parent
from support.waiting import wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ANSWER_SECONDS = 100.0
LEFT = ("target navigated or closed", "context was destroyed", "Cannot find context", "Cannot find default execution",
        "Promise was collected")  # fmt: skip
"""What the browser says of a page that was left while a script ran in it."""
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--mute-audio",
    "--disable-sync", "--force-color-profile=srgb", "--font-render-hinting=none",
    "--host-resolver-rules=MAP rebound.test 127.0.0.1",
)  # fmt: skip


def require_chromium() -> str:
    """The browser's path; without one, skip on a laptop and fail in CI."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    reason = f"expected one of {', '.join(NAMES)} on the PATH; .ci/chromium installs Debian's"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class BrowserError(AssertionError):
    """The browser refused a command, or a script in the page failed."""


class LeftError(BrowserError):
    """The page in which a script should run was left at that moment."""


class Browser:
    """One browser process with a profile of its own, gone afterwards."""

    def __init__(self) -> None:
        binary = require_chromium()
        self._profile = tempfile.mkdtemp(prefix="gmtest-chromium-")
        commands_out, self._commands = os.pipe()
        self._answers, answers_in = os.pipe()

        def become_three_and_four() -> None:
            # Chromium reads its commands from 3 and answers on 4; first out of the way of each other.
            out, into = os.dup(commands_out), os.dup(answers_in)
            while out in (3, 4):
                out = os.dup(out)
            while into in (3, 4):
                into = os.dup(into)
            os.dup2(out, 3)
            os.dup2(into, 4)
            die_with_parent()

        self._process = subprocess.Popen(
            [binary, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={self._profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=become_three_and_four, start_new_session=True,
        )  # fmt: skip
        os.close(commands_out)
        os.close(answers_in)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._tabs: dict[str, Tab] = {}
        self.version = str(self.command("Browser.getVersion")["product"])

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove its profile."""
        with contextlib.suppress(BrowserError, OSError):
            self.command("Browser.close")
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        wait_until(self._profile_is_gone, "the browser's profile can be removed")

    def _profile_is_gone(self) -> bool:
        shutil.rmtree(self._profile, ignore_errors=True)
        return not Path(self._profile).exists()

    def command(self, method: str, parameters: dict[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """Send one command and wait for its answer; events that come meanwhile go to their tabs."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            for answer in list(self._messages(deadline)):  # all of them: events behind the answer count too
                if answer.get("id") == number:
                    if "error" in answer:
                        said = answer["error"]["message"]
                        kind = LeftError if any(words in said for words in LEFT) else BrowserError
                        raise kind(f"{method}: {said}")
                    found: dict[str, Any] = answer["result"]
                    return found
            if time.monotonic() > deadline:
                raise BrowserError(f"{method}: no answer within {ANSWER_SECONDS:.0f} s")

    def _messages(self, deadline: float) -> Iterator[dict[str, Any]]:
        """What has come; events are handed to their tabs, answers are yielded."""
        if select.select([self._answers], [], [], max(0.0, min(1.0, deadline - time.monotonic())))[0]:
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise BrowserError(f"the browser has ended with code {self._process.poll()}")
            self._buffer += data
        *whole, self._buffer = self._buffer.split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                yield message
            elif message.get("sessionId") in self._tabs:
                self._tabs[message["sessionId"]].events.append(message)

    def open(self, address: str = "about:blank", *, beside: Tab | None = None, wait: bool = True, **view: Any) -> Tab:
        """A new tab in front, at that address; `view` as of `Tab.view`.

        It shares cookies with none but the tab `beside` which it stands.
        """
        context = beside.context if beside else self.command("Target.createBrowserContext")["browserContextId"]
        target = self.command("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.command("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = self._tabs[session] = Tab(self, target, session, context)
        tab.begin()
        if view:
            tab.view(**view)
        if address != "about:blank":
            tab.go(address, wait=wait)
        return tab

    def forget(self, session: str) -> None:
        """The tab is closed."""
        self._tabs.pop(session, None)


class Tab:
    """One page in the browser."""

    def __init__(self, browser: Browser, target: str, session: str, context: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session
        self.context = context
        self.events: deque[dict[str, Any]] = deque()

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol."""
        return self._browser.command(method, parameters, self._session)

    def begin(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def go(self, address: str, *, wait: bool = True) -> None:
        """Go there and wait until the page is loaded."""
        former = self._document()
        self.events.clear()
        failed = self.command("Page.navigate", url=address).get("errorText")
        if failed:
            raise BrowserError(f"{address}: {failed}")
        if wait:
            # The answer may come while the former page, which is complete, still stands there.
            wait_until(lambda: self._document() not in ("", former), f"{address} has taken the former one's place")
            self.wait("document.readyState === 'complete'", f"{address} is loaded")

    def _document(self) -> str:
        """Which document is shown: each that is loaded has a name of its own; empty while one takes another's place."""
        try:
            return str(self.command("Page.getFrameTree")["frameTree"]["frame"]["loaderId"])
        except LeftError:
            return ""

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def wait(self, script: str, what: str, timeout: float = 60.0) -> Any:
        """Wait until the expression is true, be it in another page to which this one leads."""

        def found() -> Any:
            try:
                return self.run(script)
            except LeftError:
                return None

        return wait_until(found, what, timeout)

    def view(
        self, *, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True, scale: float = 1
    ) -> None:
        """Size, theme, and whether scripts run."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Emulation.setScriptExecutionDisabled", value=not script)
        self.wait(f"innerWidth === {width} && innerHeight === {height}", "the page has its size")
        self.wait(f"matchMedia('(prefers-color-scheme: dark)').matches === {str(dark).lower()}", "it has its theme")

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save what is shown as a PNG; `whole` also what lies below the window."""
        answer = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def press(self, key: str, *, shift: bool = False) -> None:
        """One key, down and up."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
        event = {
            "key": key,
            "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())),
            "modifiers": 8 if shift else 0,
        }
        self.command("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        self.command("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        for letter in text:
            self.press(letter)

    def complaints(self) -> list[str]:
        """What the console says went wrong since the page was opened: errors, exceptions, policy violations."""
        self.run("1")  # what came before has been read by then
        found = []
        for event in self.events:
            details = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(details["exceptionDetails"].get("exception", {}).get("description")))
            elif event["method"] == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(details["entry"]["text"] + " " + details["entry"].get("url", ""))
            elif event["method"] == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
                found.append(str([argument.get("value") for argument in details["args"]]))
        return found

    def requests(self, part: str) -> int:
        """How many requests with that in their address were sent since the page was opened."""
        self.run("1")
        return sum(
            event["method"] == "Network.requestWillBeSent" and part in event["params"]["request"]["url"]
            for event in self.events
        )

    def to_front(self) -> None:
        """Show this tab; the others are hidden then."""
        self.command("Page.bringToFront")

    def close(self) -> None:
        self._browser.command("Target.closeTarget", {"targetId": self._target})
        self._browser.forget(self._session)
