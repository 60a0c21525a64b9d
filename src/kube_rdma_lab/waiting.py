"""Waits for something in a running lab, for as long as anything moves there.

No wait has a deadline of its own. It ends when its condition holds, when it is hopeless (signs.py),
or when nothing new was seen for longer than this machine needs (patience.py).
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kube_base.errors import Unavailable
from kube_rdma_lab import signs
from kube_rdma_lab.api_client import ApiClient
from kube_rdma_lab.patience import Patience

if TYPE_CHECKING:
    from kube_rdma_lab.lab import Lab

STILL = "nothing moved"  # is in the error of a wait that is given up
LOOK_SECONDS = 2.0  # between two looks at the whole cluster
ASK_SECONDS = 0.3  # between two questions whether the condition holds

Result = TypeVar("Result")


class Vigil:
    """A watcher of a lab during a wait, which raises Unavailable once waiting is hopeless."""

    def __init__(self, lab: Lab, purpose: str, concerns: Collection[str] = ()) -> None:
        """Start waiting; with `concerns` the wait also ends as `signs.hopeless` says."""
        self._lab = lab
        self._purpose = purpose
        self._concerns = concerns
        self._patience = Patience(lab.state.pace)
        self._since = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._next = time.monotonic() + LOOK_SECONDS

    def check(self) -> None:
        """Look at the cluster if it is time to; raise Unavailable, with the reason, if hopeless."""
        if time.monotonic() < self._next:
            return
        documents = self._look()
        if self._concerns:
            reason = signs.hopeless(documents, self._concerns, self._since)
            if reason:
                raise Unavailable(f"{self._purpose} waits in vain. {reason}")
        consoles = ((log.name, log.stat().st_size) for log in self._lab.consoles())
        if self._patience.lost([*signs.facts(documents), *consoles]):
            raise Unavailable(
                f"{self._purpose}: {STILL} for {self._patience.seconds:.0f} s\n"
                + signs.summary(documents)
            )
        self._next = time.monotonic() + LOOK_SECONDS

    def _look(self) -> dict[str, Sequence[signs.Object]]:
        """Return the cluster's objects by kind; none while the API server does not answer."""
        try:
            return {kind: self._client.items(path) for kind, path in signs.PATHS.items()}
        except Unavailable:
            return {}

    @functools.cached_property
    def _client(self) -> ApiClient:
        """Return the lab's API client, made at first use, since most commands never need it."""
        return ApiClient(self._lab.home / "pki", self._lab.api)


def _environment(argv: Sequence[str]) -> dict[str, str] | None:
    """Return variables that make Go collect garbage rarely in kubectl; None for other programs."""
    if Path(argv[0]).name != "kubectl":
        return None
    return {**os.environ, "GOGC": "off", "GOMEMLIMIT": "256MiB"}


def run(lab: Lab, argv: Sequence[str], *, stdin: str = "", concerns: Collection[str] = ()) -> str:
    """Run a command line to its end and return its output.

    Raise Unavailable when it fails, when nothing changes in the lab for too long, or when its
    `concerns` are hopeless (signs.py). The input is a file, for communicate may lose the rest of
    its input when called again after a timeout.
    """
    shown = shlex.join(argv)
    vigil = Vigil(lab, f"`{shown}`", concerns)
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile("w+") as given:
        given.write(stdin)
        given.seek(0)
        with subprocess.Popen(
            argv, stdin=given, stdout=pipe, stderr=pipe, text=True, env=_environment(argv)
        ) as process:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, errors = process.communicate(timeout=LOOK_SECONDS)
                    break
                try:
                    vigil.check()
                except BaseException:
                    process.kill()
                    raise
    if process.returncode:
        why = errors.strip() or f"it ended with {process.returncode} and said nothing"
        raise Unavailable(f"`{shown}` failed: {why}")
    return output


def until(lab: Lab, purpose: str, condition: Callable[[], Result]) -> Result:
    """Call the condition repeatedly until it returns something true, and return that.

    `purpose` names in an error what was waited for: "the event NetworksAttachedLate". A condition
    that raises Unavailable does not hold yet. Raise Unavailable when nothing changes for too long.
    """
    vigil = Vigil(lab, purpose)
    while True:
        last: Unavailable | None = None
        try:
            if result := condition():
                return result
        except Unavailable as error:
            last = error
        try:
            vigil.check()
        except Unavailable as error:
            raise error from last
        time.sleep(ASK_SECONDS)
