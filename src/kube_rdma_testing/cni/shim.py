"""A shim in Python: sends, decides and prints what shim/ does, for tests without a compiler.

It decides as shim/main.c does: tests/unit/shim runs the same calls on both.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube_rdma.adapters.cni import protocol
from kube_rdma.adapters.cni.shim_files import ASKING, CLAIMED, MISSED
from kube_rdma.adapters.cni.socket import SOCKET
from kube_rdma.model.attach.cni import ANNOTATIONS, CHAINED, PLUGIN

_ASKING = {
    "k8s.v1.cni.cncf.io/networks",
    "k8s.volcengine.com/pod-networks",
    "k8s.volcengine.com/pod-networks-definition",
    "v1.multus-cni.io/default-network",
}
_VERSIONS = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]
_PLAIN = r"[A-Za-z0-9{}][A-Za-z0-9.{}]*"


@dataclass(frozen=True, slots=True)
class ShimOutcome:
    """The exit code, stdout and stderr of one run of the shim."""

    code: int
    out: bytes = b""
    err: bytes = b""

    @property
    def document(self) -> Any:
        """Return the shim's stdout, parsed as JSON."""
        return json.loads(self.out)


class FakeShim:
    """A fake of the CNI shim on a host where kube-rdma's paths lie under `root`.

    It waits `seconds` for an answer, or `add_seconds` for an answer to ADD.
    """

    def __init__(self, root: Path, seconds: float = 100.0, add_seconds: float = 230.0) -> None:
        self._root = root
        self._seconds, self._add_seconds = seconds, add_seconds

    async def run(self, environment: Mapping[str, str], config: bytes, *argv: str) -> ShimOutcome:
        """Run the shim once, with `config` on stdin."""
        if argv == ("hook", "memlock"):
            return _hook_memlock(config)
        verb = environment.get("CNI_COMMAND")
        if argv or verb is None:
            return _error(b"", 4, "CNI_COMMAND is not set")
        if not self._may_have_claim(environment) and (here := _answered_here(verb, config)):
            return here
        entries = b"".join(
            f"{key}={value}\0".encode()
            for key, value in environment.items()
            if key.startswith("CNI_")
        )
        if max(len(config) - protocol.MAX_INPUT, len(entries) - protocol.MAX_ENVIRONMENT) > 0:
            code = 6 if len(config) > protocol.MAX_INPUT else 4
            return _error(config, code, "the configuration or the CNI_ variables are too large")
        netns = environment.get("CNI_NETNS", "")
        seconds = self._add_seconds if verb == "ADD" else self._seconds
        sent, answer = await self._ask(protocol.request(entries, config), netns, seconds)
        if answer is None:
            return self._without_agent(verb, environment, config, sent=sent)
        return ShimOutcome(*answer)

    async def _ask(
        self, request: bytes, netns: str, seconds: float
    ) -> tuple[bool, tuple[int, bytes] | None]:
        """Send a request to the agent; return whether all of it was sent, and any answer."""
        loop = asyncio.get_running_loop()
        sent = False
        descriptors = []
        with suppress(OSError):
            if netns:
                descriptors = [os.open(netns, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)]
        try:
            async with asyncio.timeout(seconds):
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.setblocking(False)
                    await loop.sock_connect(connection, str(_under(self._root, SOCKET)))
                    first = socket.send_fds(connection, [request], descriptors)
                    await loop.sock_sendall(connection, request[first:])
                    sent = True
                    head = protocol.answer_head(await _exactly(connection, protocol.ANSWER_HEADER))
                    if head is None:
                        return sent, None
                    return sent, (head[0], await _exactly(connection, head[1]))
        except (OSError, TimeoutError, EOFError):
            return sent, None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _without_agent(
        self, verb: str, environment: Mapping[str, str], config: bytes, *, sent: bool
    ) -> ShimOutcome:
        why = "took the call and gave no answer" if sent else f"does not answer on {SOCKET}"
        message = f"kube-rdma's agent {why}"
        if verb == "DEL":
            self._remember(environment)
        if verb in {"DEL", "GC"}:
            return ShimOutcome(0)
        asks = self._may_have_claim(environment) or self._asks(
            config, environment.get("CNI_ARGS", "")
        )
        if verb == "ADD" and not sent and not asks:
            document = _document(config)
            previous = document.get("prevResult")
            if isinstance(previous, dict) and document.get("type") in (None, PLUGIN):
                return ShimOutcome(0, json.dumps(previous).encode())
        return _error(config, 50 if verb == "STATUS" else 11, message)

    def _may_have_claim(self, environment: Mapping[str, str]) -> bool:
        namespace = _cni_args(environment.get("CNI_ARGS", "")).get("K8S_POD_NAMESPACE", "")
        is_add = environment.get("CNI_COMMAND") == "ADD"
        path = _under(self._root, CLAIMED) / namespace
        return is_add and _is_part(namespace, 63, "-") and path.exists()

    def _asks(self, config: bytes, args: str) -> bool:
        annotations = _annotations(_document(config))
        if annotations is not None:
            return not _asks_for_nothing(annotations)
        values = _cni_args(args)
        namespace = values.get("K8S_POD_NAMESPACE", "")
        name = values.get("K8S_POD_NAME", "")
        if not (_is_part(namespace, 63, "-") and _is_part(name, 253, "-")):
            return False
        return (_under(self._root, ASKING) / namespace / name).exists()

    def _remember(self, environment: Mapping[str, str]) -> None:
        container = environment.get("CNI_CONTAINERID", "")
        interface = environment.get("CNI_IFNAME", "")
        if _is_part(container, 128, "_-") and _is_part(interface, 15, "_@-"):
            with suppress(OSError):
                (_under(self._root, MISSED) / f"{container}@{interface}").touch(mode=0o600)


def _cni_args(args: str) -> dict[str, str]:
    return dict(entry.partition("=")[::2] for entry in reversed(args.split(";")))


def _hook_memlock(state: bytes) -> ShimOutcome:
    """Lift RLIMIT_MEMLOCK of a container's process, as the shim does when run as an OCI hook.

    The shim lifts that of containerd-shim too, which starts what `kubectl exec` runs; a test has no
    such process.
    """
    pid = _document(state).get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return ShimOutcome(1, err=b"kube-rdma: stdin is no OCI state with a pid.\n")
    limit = resource.RLIMIT_MEMLOCK
    try:
        try:
            resource.prlimit(pid, limit, (resource.RLIM_INFINITY,) * 2)
        except PermissionError:
            _, hard = resource.prlimit(pid, limit)
            resource.prlimit(pid, limit, (hard, hard))
            raise
    except OSError as error:
        text = f"kube-rdma: RLIMIT_MEMLOCK keeps its hard limit ({error}).\n"
        return ShimOutcome(0, err=text.encode())
    return ShimOutcome(0)


def _answered_here(verb: str, config: bytes) -> ShimOutcome | None:
    """Return the shim's answer if it needs no agent, else None."""
    if verb == "VERSION":
        version = {"cniVersion": _version(config, "1.1.0"), "supportedVersions": _VERSIONS}
        return ShimOutcome(0, json.dumps(version).encode())
    document = _document(config)
    if document.get(CHAINED) is not True or document.get("type") not in (None, PLUGIN):
        return None
    if verb == "STATUS":
        return ShimOutcome(0)
    annotations, previous = _annotations(document), document.get("prevResult")
    plain = annotations is not None and _asks_for_nothing(annotations)
    if verb == "ADD" and plain and isinstance(previous, dict):
        return ShimOutcome(0, json.dumps(previous).encode())
    return None


def _annotations(document: dict[str, Any]) -> object:
    """Return the pod's annotations where the runtime passes them to kube-rdma, else None."""
    runtime = document.get("runtimeConfig")
    if document.get(CHAINED) is True and isinstance(runtime, dict) and ANNOTATIONS in runtime:
        return {} if runtime[ANNOTATIONS] is None else runtime[ANNOTATIONS]
    return None


def _asks_for_nothing(annotations: object) -> bool:
    return isinstance(annotations, dict) and not _ASKING & annotations.keys()


async def _exactly(connection: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        piece = await asyncio.get_running_loop().sock_recv(connection, count - len(content))
        if not piece:
            raise EOFError
        content += piece
    return content


def _under(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _is_part(text: str, longest: int, signs: str) -> bool:
    return len(text) <= longest and bool(re.fullmatch(_PLAIN.format(signs, signs), text))


def _document(config: bytes) -> dict[str, Any]:
    """Return a configuration as a document, an empty one if the text is no JSON object."""
    with suppress(ValueError, RecursionError):  # the shim goes through it as text
        document = json.loads(config)
        return document if isinstance(document, dict) else {}
    return {}


def _version(config: bytes, otherwise: str) -> str:
    version = _document(config).get("cniVersion")
    is_one = isinstance(version, str) and re.fullmatch(r"[0-9.]{1,15}", version)
    return str(version) if is_one else otherwise


def _error(config: bytes, code: int, message: str) -> ShimOutcome:
    document = {"cniVersion": _version(config, "1.0.0"), "code": code, "msg": message}
    return ShimOutcome(1, json.dumps(document).encode())
