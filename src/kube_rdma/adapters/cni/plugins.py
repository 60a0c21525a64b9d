"""Calls CNI plugins of others: ADD and CHECK along a list, DEL back along it, STATUS of one.

    plugins = Plugins(HostPlugins(Path("/host"), PurePosixPath("/opt/cni/bin"), …))
    result = plugins.add(call, sandbox)

attach/rules/foreign_plugins makes the CallPlugin steps, attach/executor journals them. What libcni
does for a container runtime is done here for one interface. Plugins see the host's root, and the
pod's namespace at the path that the runtime named. They compare the path between calls, and hand it
to daemons. The functions block; a program calls them in a thread. The fake host is
kube_rdma_testing/cni/plugins.py.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from time import monotonic

import msgspec

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen
from kube_rdma.adapters.cni import protocol
from kube_rdma.model.attach.attachment import PluginResult, Sandbox
from kube_rdma.model.attach.cni import Code, Verb
from kube_rdma.model.attach.steps import CallPlugin, PluginConf
from kube_rdma.model.ipam import InterfaceName

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
MOST = 1 << 20  # bytes of output
PATIENCE = 60.0  # seconds
CHROOT_FAILED, CANNOT_RUN, NOT_FOUND = 125, 126, 127  # of chroot(1); 126 and 127 of shells too

_PIECE = 1 << 16

# Codes of the specification 1.1.0 ("Error") that the caller caused; others may end by themselves.
_CALLER = {
    Code.VERSION: "the plugin does not speak this cniVersion",
    2: "the plugin does not know a field of it",
    Code.ENVIRONMENT: "the plugin does not accept what it got about the pod",
    Code.DECODE: "the plugin cannot read it",
    Code.CONFIGURATION: "the plugin does not accept it",
}
_NOT_STARTED: Mapping[int, str] = {
    CHROOT_FAILED: "Give the agent the capability SYS_CHROOT, and mount the host's root, or "
    "folders of it, at {root}",
    CANNOT_RUN: "Make the file a program for this machine that may be executed",
    NOT_FOUND: "Mount what it needs below {root} too: its loader and libraries, or its interpreter",
}
_SHOWN = 300  # characters of what a plugin says without a form
_KEEPS_RESULTS = (0, 4, 0)  # the first cniVersion whose CHECK and DEL get the result of ADD


# One run of a binary: bytes in, bytes out, within bounds of time and size.


class ProcessOutcome(Frozen):
    """Exit code and output of a finished program; a `code` below 0 is the signal that ended it."""

    code: int
    out: bytes = b""
    errors: bytes = b""


def command(root: Path, program: Path) -> tuple[str, ...]:
    """Return the command line that runs `program` in the host's root.

    Raise Unavailable where that needs chroot, and there is none.
    """
    if root == Path("/"):
        return (str(program),)
    chroot = shutil.which("chroot", path=PATH)
    if chroot is None:
        raise Unavailable(f"There is no chroot in {PATH}, which CNI plugins below {root} need.")
    return (chroot, str(root), str(program))


def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    text: bytes,
    *,
    patience: float = PATIENCE,
    most: int = MOST,
) -> ProcessOutcome:
    """Run a program to its end with `text` as input; return its outcome.

    The program gets this environment and no more. After `patience` seconds, or with more than
    `most` bytes of output or of errors, its process group is killed. Raise Unavailable then,
    OSError when it cannot be started.
    """
    with open(os.memfd_create("cni"), "w+b") as given:  # noqa: PTH123  never full, as a pipe is
        given.write(text)
        given.flush()
        given.seek(0)
        with subprocess.Popen(
            words,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        ) as process:
            try:
                return _read(process, patience, most)
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)


def late(seconds: float) -> Unavailable:
    """Return the error of a program that was killed because it ran for longer than `seconds`."""
    return Unavailable(f"it did not end within {seconds:g} s and was killed")


def flood(most: int) -> Unavailable:
    """Return the error of a program that was killed because it wrote more than `most` bytes."""
    return Unavailable(f"it wrote more than {most} bytes and was killed")


def _read(process: subprocess.Popen[bytes], patience: float, most: int) -> ProcessOutcome:
    """Return outcome and output once the process itself ends, even if children hold its pipes."""
    assert process.stdout is not None
    assert process.stderr is not None
    buffers: dict[int, bytearray] = {}
    end = monotonic() + patience
    # A descriptor that can be read once the process has ended (pidfd_open(2), Linux 5.3).
    with (
        selectors.DefaultSelector() as selector,
        open(os.pidfd_open(process.pid), "rb", buffering=0) as ended,  # noqa: PTH123
    ):
        for pipe in (process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
            buffers[pipe.fileno()] = bytearray()
            selector.register(pipe.fileno(), selectors.EVENT_READ)
        selector.register(ended.fileno(), selectors.EVENT_READ)
        over = False
        while not over:
            ready = [key.fd for key, _ in selector.select(max(0.0, end - monotonic()))]
            if not ready:
                raise late(patience)
            over = ended.fileno() in ready
            for fd in tuple(buffers) if over else [fd for fd in ready if fd in buffers]:
                if _take(fd, buffers[fd], most) and not over:
                    selector.unregister(fd)
    out, errors = buffers.values()
    return ProcessOutcome(process.wait(), bytes(out), bytes(errors))


def _take(pipe: int, into: bytearray, most: int) -> bool:
    """Read all available bytes of a pipe; return whether the pipe has ended."""
    with suppress(BlockingIOError):
        while piece := os.read(pipe, _PIECE):
            into += piece
            if len(into) > most:
                raise flood(most)
        return True
    return False


# The call and the answer of a CNI plugin, in the words of the specification 1.1.0.


class _Error(msgspec.Struct):
    code: int
    msg: str = ""
    details: str = ""


def environment(
    verb: Verb, sandbox: Sandbox, interface: InterfaceName, netns: str, folder: str
) -> dict[str, str]:
    """Return the CNI variables of a call; `netns` is empty when the namespace is gone."""
    pod = sandbox.pod
    arguments = {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": pod.namespace,
        "K8S_POD_NAME": pod.name,
        "K8S_POD_INFRA_CONTAINER_ID": sandbox.container,
        "K8S_POD_UID": sandbox.uid,
    }
    return {
        "CNI_COMMAND": str(verb),
        "CNI_CONTAINERID": sandbox.container,
        "CNI_NETNS": netns,
        "CNI_IFNAME": interface,
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in arguments.items()),
        "CNI_PATH": folder,
        "PATH": PATH,
    }


def asking(folder: str, verb: str = "VERSION") -> dict[str, str]:
    """Return the CNI variables of a call about no pod: VERSION or STATUS."""
    return {"CNI_COMMAND": verb, "CNI_PATH": folder, "PATH": PATH}


def config(plugin: PluginConf, previous: bytes | None) -> bytes:
    """Return a plugin's configuration with `previous` as prevResult; unchanged without one."""
    if previous is None:
        return plugin.config
    return json.dumps(decoded(plugin.config) | {"prevResult": decoded(previous)}).encode()


def result(kind: str, answer: bytes) -> bytes:
    """Return the result of an ADD if it is an object; raise Unavailable for anything else."""
    try:
        document = decoded(answer)
    except Undecodable:
        document = None
    if not isinstance(document, dict):
        raise Unavailable(
            f"The CNI plugin {kind} answered ADD with something that is not a result: "
            f"{_words(answer)}."
        )
    return answer


def addresses(kind: str, answer: bytes, interface: InterfaceName, netns: str) -> bytes:
    """Return an IPAM plugin's answer as a result with this interface, which has the addresses.

    CHECK and DEL get this as prevResult, as from any plugin that calls an IPAM plugin. Raise
    Unavailable for an answer that cannot be read or has no address.
    """
    try:
        is_given = bool(protocol.decoded_result(answer).addresses)
    except ValueError as error:
        raise Unavailable(
            f"The IPAM plugin {kind} answered ADD with something that cannot be read: {error}."
        ) from error
    if not is_given:
        raise Unavailable(f"The IPAM plugin {kind} answered ADD without an address.")
    document = decoded(answer)
    place = {"interfaces": [{"name": interface, "sandbox": netns}]}
    ips = [{**ip, "interface": 0} for ip in document["ips"]]
    return json.dumps(document | place | {"ips": ips}).encode()


def failure(kind: str, verb: Verb, outcome: ProcessOutcome, root: str) -> KubeError:
    """Return the error of a plugin that failed: Refused if a person must act, else Unavailable."""
    try:
        error = decoded(outcome.out, _Error)
    except Undecodable:
        # It ended without a word in the form of the specification, or was never started.
        if refusal := not_started(kind, outcome, root):
            return refusal
        words, code = _words(outcome.errors or outcome.out), outcome.code
        by = f"was ended by signal {-code}" if code < 0 else f"ended {code}"
        return Unavailable(f"The CNI plugin {kind} {by} at {verb} and said: {words}.")
    reason = ": ".join(filter(None, (_line(error.msg), _line(error.details)))) or "no reason"
    act = f"CNI plugin {kind} refuses {verb} with code {error.code}: {reason}"
    if error.code in _CALLER:
        remedy = f"Change the configuration of the network: {_CALLER[error.code]}"
        return Refused(f"the {act}", remedy=remedy)
    return Unavailable(f"The {act}.")


def not_started(kind: str, outcome: ProcessOutcome, root: str) -> Refused | None:
    """Return the refusal if chroot, or starting the binary below it, failed; else None."""
    if root == "/" or outcome.out or outcome.code not in _NOT_STARTED:
        return None
    problem = f"the CNI plugin {kind} cannot be run below {root}: {_words(outcome.errors)}"
    return Refused(problem, remedy=_NOT_STARTED[outcome.code].format(root=root))


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _words(text: bytes) -> str:
    """Return the last characters that a plugin wrote, on one line."""
    return _line(text.decode(errors="replace"))[-_SHOWN:] or "nothing"


class Plugins:
    """A caller of CNI plugins for the interfaces of pods.

    Its users have to make the calls for one sandbox one after the other; this class does not order
    them.
    """

    def __init__(self, binaries: HostPlugins) -> None:
        self._binaries = binaries

    @property
    def folder(self) -> str:
        """Return the host's path of the folder of CNI plugins."""
        return self._binaries.folder

    def installed(self) -> tuple[str, ...]:
        """Return the plugins that can be called; raise Unavailable for an unreadable folder."""
        return self._binaries.names()

    def ready(self, call: CallPlugin) -> None:
        """Raise Refused or Unavailable for plugins that this machine cannot run.

        They are asked for their VERSION, which changes nothing. A plugin that cannot be run at ADD
        could not be run at DEL either, and would hold the pod forever.
        """
        for plugin in call.plugins:
            outcome = self._run(plugin.type, asking(self.folder), b"{}")
            if outcome.code and (error := not_started(plugin.type, outcome, self._binaries.root)):
                raise error

    def add(self, call: CallPlugin, sandbox: Sandbox) -> PluginResult:
        """Call the plugins with ADD; return the result of the last one.

        Whatever it raises, delete() has to follow: Refused when the caller must change something,
        Unavailable when a plugin fails.
        """
        netns = self._netns_path(sandbox)
        variables = environment(Verb.ADD, sandbox, call.name, netns, self.folder)
        previous = None
        for plugin in call.plugins:
            previous = result(plugin.type, self._call(plugin, variables, previous))
        assert previous is not None  # no list is empty
        if call.addresses:
            previous = addresses(call.plugins[0].type, previous, call.name, netns)
        return PluginResult(call.name, previous, protocol.dns_of(previous))

    def check(self, call: CallPlugin, sandbox: Sandbox, result: PluginResult | None) -> None:
        """Call each plugin with CHECK; raise as `add` does where one finds a fault.

        Do nothing where the configuration forbids CHECK, or its version is below 0.4.0.
        """
        if not call.check or not _keeps_results(call):
            return
        variables = environment(
            Verb.CHECK, sandbox, call.name, self._netns_path(sandbox), self.folder
        )
        for plugin in call.plugins:
            self._call(plugin, variables, result.document if result else None)

    def status(self, plugin: PluginConf) -> None:
        """Call a plugin with STATUS; raise as `add` does where it could not serve an ADD."""
        self._call(plugin, asking(self.folder, Verb.STATUS), None)

    def delete(self, call: CallPlugin, sandbox: Sandbox, result: PluginResult | None) -> None:
        """Call the plugins with DEL, in opposite order; the pod's namespace may be gone.

        Raise as `add` does. It may be called again, and without an ADD.
        """
        visible = self._binaries.inode(sandbox.netns_path) == sandbox.netns_inode
        netns = sandbox.netns_path if visible else ""
        variables = environment(Verb.DEL, sandbox, call.name, netns, self.folder)
        previous = result.document if result and _keeps_results(call) else None
        for plugin in reversed(call.plugins):
            self._call(plugin, variables, previous)

    def _netns_path(self, sandbox: Sandbox) -> str:
        """Return a sandbox's namespace path, if plugins find that namespace there.

        Raise Refused where they do not see its folder, Unavailable where the namespace is gone.
        """
        path, root = sandbox.netns_path, self._binaries.root
        if self._binaries.inode(path) == sandbox.netns_inode:
            return path
        if root == "/":
            raise Unavailable(f"The network namespace {path} is gone.")
        folder = PurePosixPath(path).parent
        if self._binaries.inode(str(folder)) is None:
            raise Refused(
                f"CNI plugins do not see the pod's namespace {path}",
                remedy=f"Mount the host's {folder} at {root}{folder} in the agent's pod, with "
                "mountPropagation: HostToContainer",
            )
        raise Unavailable(
            f"CNI plugins do not see the pod's namespace {path}: it is gone, or the mount at "
            f"{root}{folder} lacks mountPropagation: HostToContainer."
        )

    def _call(
        self, plugin: PluginConf, variables: Mapping[str, str], previous: bytes | None
    ) -> bytes:
        """Run a plugin and return its output; raise its error when it fails."""
        outcome = self._run(plugin.type, variables, config(plugin, previous))
        if outcome.code:
            verb = Verb(variables["CNI_COMMAND"])
            raise failure(plugin.type, verb, outcome, self._binaries.root)
        return outcome.out

    def _run(self, name: str, variables: Mapping[str, str], text: bytes) -> ProcessOutcome:
        try:
            return self._binaries.run(name, variables, text)
        except Unavailable as error:
            raise Unavailable(f"The CNI plugin {name} gives no answer: {error}.") from error


class HostPlugins:
    """A runner of the CNI plugins in a folder of the host.

    `root` is the host's root as the agent sees it. `folder` is as on the host; it may be set later,
    and again. `inside` returns where the agent reaches a path of the host, with its links followed
    as the host would.
    """

    def __init__(
        self,
        root: Path,
        folder: PurePosixPath | None,
        inside: Callable[[PurePosixPath], Path],
        patience: float = PATIENCE,
    ) -> None:
        self.root, self.folder = str(root), str(folder or "")
        self._inside = inside
        self._patience = patience

    def names(self) -> tuple[str, ...]:
        """Return the plugins that can be run, sorted; none if the folder is missing.

        Raise Unavailable for an unreadable folder.
        """
        try:
            file_names = sorted(
                path.name for path in self._inside(PurePosixPath(self.folder)).iterdir()
            )
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Unavailable(f"{self.folder} cannot be read ({error.strerror}).") from error
        return tuple(name for name in file_names if self._can_run(name))

    def inode(self, path: str) -> int | None:
        """Return the inode of a file on the host; None when there is none."""
        try:
            return self._inside(PurePosixPath(path)).stat().st_ino
        except OSError:
            return None

    def run(self, name: str, environment: Mapping[str, str], text: bytes) -> ProcessOutcome:
        """Run a plugin to its end and return its outcome.

        Raise Refused when it is missing, Unavailable when it does not start, end in time or keep
        within the bounds of output.
        """
        if not self._can_run(name):
            raise not_there(name, self.folder)
        words = command(Path(self.root), Path(self.folder, name))
        try:
            return run(words, environment, text, patience=self._patience)
        except OSError as error:
            raise Unavailable(f"it cannot be started ({error.strerror})") from error

    def _can_run(self, name: str) -> bool:
        path = self._inside(PurePosixPath(self.folder, name))
        return path.is_file() and os.access(path, os.X_OK)


def not_there(name: str, folder: str) -> Refused:
    """Return the refusal for a plugin that the host does not have, or no longer has."""
    return Refused(
        f"the host has no CNI plugin {name} that can be run",
        remedy=f"Install {name} in {folder} again: only it can take back what it made",
        where=folder,
    )


def _keeps_results(call: CallPlugin) -> bool:
    parts = call.version.split(".")
    return tuple(int(part) for part in parts if part.isdecimal()) >= _KEEPS_RESULTS
