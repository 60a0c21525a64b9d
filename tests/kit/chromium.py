"""Debian's chromium without a window and without a network, to look at pages as a reader does.

The browser is a tree of packages beside the parts of the lab. It runs in namespaces that have no
network, so a page that asks anybody for a font or a script shows as a failed request. Words and
answers of its DevTools protocol go through two pipes, one JSON text behind another.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

from kube_rdma_lab.build import debian, resolution
from kube_rdma_lab.build.parts import open_store

TREE = debian.DebianTree("bookworm", "minbase", ("chromium", "fonts-dejavu-core"))
SITE = "mnt"  # where the folder that is looked at lies in the tree
LOAD = "Page.loadEventFired"
END = b"\0"
PATIENCE = 120.0  # seconds for what certainly happens
# The store's tree stays as it is: what the browser writes goes to memory of its own namespace.
INSIDE = """
set -e
cd "$1"
for place in tmp run root dev; do mount -t tmpfs browser "$place"; done
for name in null zero random urandom; do : >"dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
mkdir dev/shm && mount -t proc proc proc && mount --bind "$2" "$3"
exec chroot . /usr/lib/chromium/chromium --headless=new --no-sandbox --disable-gpu \\
    --remote-debugging-pipe --user-data-dir=/tmp/profile --no-first-run --hide-scrollbars \\
    --allow-file-access-from-files about:blank 3<&"$4" 4>&"$5"
"""
ENTER = (
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--"),
)


def build(store):
    """The folder that holds the browser's tree."""

    def make(folder, shell):
        debian.unpack(TREE, folder / "tree", shell)

    inputs = {**TREE.inputs(), "stamp": resolution.stamp(update=False)}
    return store.get("chromium", inputs, make) / "tree"


class NotAnswered(Exception):
    """The browser says why it does not do what it was asked for."""


class Browser:
    """A browser with one page."""

    def __init__(self, words, answers):
        self._words, self._answers = words, answers
        self._last, self._session = 0, None
        self.troubles = []  # errors of the console and requests that failed, since the last `open`
        (target,) = self._page_targets()
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")

    def _page_targets(self):
        targets = self._ask("Target.getTargets")["targetInfos"]
        return [each["targetId"] for each in targets if each["type"] == "page"]

    def _next(self):
        """The next message; troubles are noted on the way."""
        text = bytearray()
        while not text.endswith(END):
            byte = self._answers.read(1)
            assert byte, "the browser ended"
            text += byte
        message = json.loads(text[:-1])
        if trouble := trouble_of(message):
            self.troubles.append(trouble)
        return message

    def _ask(self, method, **params):
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._words.write(json.dumps(message).encode() + END)
        self._words.flush()
        while (answer := self._next()).get("id") != self._last:
            pass
        if "error" in answer:
            raise NotAnswered(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path, width):
        """Load a file of the site in a window of this width."""
        self.troubles.clear()
        self.resize(width)
        self._ask("Page.navigate", url=f"file:///{SITE}/{path}")
        while self._next().get("method") != LOAD:
            pass

    def resize(self, width):
        """Make the window this wide; below 600 pixels it is a phone's."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def dark(self, wanted):
        """Be a machine whose owner likes dark windows, or light ones."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression):
        """What an expression of JavaScript comes to."""
        answer = self._ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true; the page may be leaving for another one meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while not self._is_true(expression):
            assert time.monotonic() < deadline, f"not true in {PATIENCE} s: {expression}"
            time.sleep(0.1)

    def _is_true(self, expression):
        try:
            return self.evaluate(expression)
        except NotAnswered as error:
            if "navigated" in str(error):
                return False  # asked of a page that was just left
            raise

    def reach(self):
        """How wide the document is: more than the window means that it can be scrolled sideways."""
        return self.evaluate("document.documentElement.scrollWidth")

    def screenshot(self, path, *, whole=False):
        """Write what the window shows, or the whole page, as PNG."""
        shot = self._ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


def trouble_of(message):
    """What a message tells of a console error or a failed request, else an empty text."""
    params = message.get("params", {})
    match message.get("method"):
        case "Network.loadingFailed":
            return f"request failed: {params['errorText']}"
        case "Network.responseReceived" if params["response"]["status"] >= 400:
            return f"{params['response']['status']}: {params['response']['url']}"
        case "Runtime.exceptionThrown":
            return params["exceptionDetails"]["text"]
        case "Runtime.consoleAPICalled" if params["type"] == "error":
            return f"console: {params['args']}"
        case "Log.entryAdded" if params["entry"]["level"] == "error":
            return f"{params['entry']['text']} {params['entry'].get('url', '')}"
    return ""


@contextlib.contextmanager
def browser(site: Path, log: Path):
    """A browser for the files of a folder; it ends with the scope, and its words are in `log`."""
    with open_store() as store, contextlib.ExitStack() as ends:
        tree = build(store)
        (their_words, words), (answers, their_answers) = os.pipe(), os.pipe()
        places = (tree, site, SITE, str(their_words), str(their_answers))
        process = subprocess.Popen(
            [*ENTER, "bash", "-c", INSIDE, "browser", *places],
            pass_fds=(their_words, their_answers),
            stdout=subprocess.DEVNULL,
            stderr=ends.enter_context(log.open("w")),
        )
        ends.callback(process.wait)
        ends.callback(process.kill)
        os.close(their_words)
        os.close(their_answers)
        written = ends.enter_context(os.fdopen(words, "wb"))
        yield Browser(written, ends.enter_context(os.fdopen(answers, "rb")))
