"""What a CNI plugin is told and what it answers, as the specification 1.1.0 writes it.

Bytes to values and nothing else; plugins.py calls. Results stay JSON: only the next plugin, CHECK
and DEL read them, and each version of the specification has a form of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.adapters.cni import results
from kube_rdma.adapters.cni.exec.process import (
    CANNOT_RUN,
    CHROOT_FAILED,
    NOT_FOUND,
    PATH,
    ProcessOutcome,
)
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.attach.cni import Code, Verb
from kube_rdma.model.attach.steps import PluginConf
from kube_rdma.model.ipam import InterfaceName

# Codes of the specification that the asker caused ("Error"); all others may pass.
_CALLER = {
    Code.VERSION: "the plugin does not speak this cniVersion",
    2: "the plugin does not know a field of it",
    Code.ENVIRONMENT: "the plugin does not accept what it got about the pod",
    Code.DECODE: "the plugin cannot read it",
    Code.CONFIGURATION: "the plugin does not accept it",
}
_SHOWN = 300  # characters of what a plugin says without a form


class _Error(msgspec.Struct):
    code: int
    msg: str = ""
    details: str = ""


def environment(
    verb: Verb, sandbox: Sandbox, interface: InterfaceName, netns: str, folder: str
) -> dict[str, str]:
    """All variables of a call; `netns` is empty when the namespace is gone."""
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
    """The variables of a question about no pod: which versions a plugin speaks, or STATUS."""
    return {"CNI_COMMAND": verb, "CNI_PATH": folder, "PATH": PATH}


def config(plugin: PluginConf, previous: bytes | None) -> bytes:
    """The configuration with the result of the plugins before."""
    if previous is None:
        return plugin.config
    return json.dumps(decoded(plugin.config) | {"prevResult": decoded(previous)}).encode()


def result(kind: str, answer: bytes) -> bytes:
    """The result of an ADD, checked to be an object; raise Unavailable for anything else."""
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
    """An IPAM plugin's result as that of the interface which has its addresses.

    CHECK and DEL get this, as from any plugin that calls one. Raise Unavailable for an answer
    without an address.
    """
    try:
        is_given = bool(results.decoded(answer).addresses)
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
    """What a plugin that did not end with 0 says, and who has to act."""
    try:
        error = decoded(outcome.out, _Error)
    except Undecodable:
        return _unformed(kind, verb, outcome, root)
    reason = ": ".join(filter(None, (_line(error.msg), _line(error.details)))) or "no reason"
    act = f"CNI plugin {kind} refuses {verb} with code {error.code}: {reason}"
    if error.code in _CALLER:
        remedy = f"Change the configuration of the network: {_CALLER[error.code]}"
        return Refused(f"the {act}", remedy=remedy)
    return Unavailable(f"The {act}.")


def not_started(kind: str, outcome: ProcessOutcome, root: str) -> Refused | None:
    """The refusal where chroot itself, or the way to the plugin's binary, has failed."""
    if root == "/" or outcome.out or outcome.code not in _NOT_STARTED:
        return None
    problem = f"the CNI plugin {kind} cannot be run below {root}: {_words(outcome.errors)}"
    return Refused(problem, remedy=_NOT_STARTED[outcome.code].format(root=root))


def _unformed(kind: str, verb: Verb, outcome: ProcessOutcome, root: str) -> KubeError:
    """It ended without a word in the form of the specification, or was never started."""
    if error := not_started(kind, outcome, root):
        return error
    words = _words(outcome.errors or outcome.out)
    by = f"was ended by signal {-outcome.code}" if outcome.code < 0 else f"ended {outcome.code}"
    return Unavailable(f"The CNI plugin {kind} {by} at {verb} and said: {words}.")


_NOT_STARTED: Mapping[int, str] = {
    CHROOT_FAILED: "Give the agent the capability SYS_CHROOT, and mount the host's root, or "
    "folders of it, at {root}",
    CANNOT_RUN: "Make the file a program for this machine that may be executed",
    NOT_FOUND: "Mount what it needs below {root} too: its loader and libraries, or its interpreter",
}


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _words(text: bytes) -> str:
    """The end of what a plugin wrote, on one line."""
    return _line(text.decode(errors="replace"))[-_SHOWN:] or "nothing"
