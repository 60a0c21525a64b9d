"""The admission policy that completes pods: what CEL can say of admission/rules/completions.

It needs Kubernetes 1.36. Patches are JSONPatch, for a list of capabilities may be added to, and not
be applied to. Pod Security of level baseline refuses the capability, so it is not added where the
pod's namespace has such a level.
"""

from __future__ import annotations

import json

from kube_rdma.admission.rules.completions import ANNOTATION as COMPLETE
from kube_rdma.admission.rules.completions import MOST_BLOCKS, VOLUME
from kube_rdma.admission.rules.pod_cel import LIMITS, SHARED, SHARES, binding, of_pod, policy
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION
from kube_rdma.model.admission.facts import USUAL
from kube_rdma.model.install.blueprint import Blueprint, Hole, Node, joined

COMPLETED = "pods-completed.kube-rdma.io"

_BLOCK = {"cniConf": {"name": USUAL.block}}
_WISHING = f"{LIMITS}.exists(key, {SHARED})"
_LEVEL = "namespaceObject.metadata.?labels[?'pod-security.kubernetes.io/enforce'].orValue('')"
_PLAIN = r'^\s*\[\s*\{\s*"cniConf"\s*:\s*\{[^{}]*\}\s*\}\s*\]\s*$'  # a list of one plain block
_CHOSEN: dict[str, Node] = {
    "wanted": (
        f"variables.annotations[?'{COMPLETE}'].orValue('ipc-lock').split(',')"
        ".map(word, word.trim())"
    ),
    "sizes": (
        "variables.wanted.filter(word, word.matches('^shm=[1-9][0-9]{0,11}([kMGTP]|[KMGTP]i)?$'))"
    ),
    "size": joined(
        "variables.sizes.size() > 0 ? variables.sizes[variables.sizes.size() - 1].substring(4) : '",
        Hole("admission.pods.shmSize"),
        "'",
    ),
    "lock": f"'ipc-lock' in variables.wanted && !({_LEVEL} in ['baseline', 'restricted'])",
    "shm": "variables.sizes.size() > 0 || 'shm' in variables.wanted",
    "networks": (
        "'pod-networks' in variables.wanted && 0 < variables.cards && "
        f"variables.cards <= {MOST_BLOCKS} && !object.spec.?hostNetwork.orValue(false) && "
        f"!('{POD_NETWORKS_DEFINITION}' in variables.annotations)"
    ),
    # The block to copy; empty where the pod has networks of its own.
    "block": (
        f"'{POD_NETWORKS}' in variables.annotations ? "
        f"(variables.text.matches(r'{_PLAIN}') ? variables.text.find(r'\\{{.*\\}}') : '') : "
        f"'{ANNOTATION}' in variables.annotations ? '' : '{json.dumps(_BLOCK)}'"
    ),
}


def completing_policy() -> tuple[Blueprint, ...]:
    """The policy and what puts it into force, where the installation wants it."""
    complete = ("admission.pods.complete", "platform.mutatingPolicies")
    mutations = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
        for expression in (
            _lock("containers"),
            _lock("initContainers"),
            _VOLUME,
            _mount("containers"),
            _mount("initContainers"),
            _NETWORKS,
        )
    ]
    body = policy(
        "Mutating",
        COMPLETED,
        SHARES | of_pod("object") | _CHOSEN,
        reinvocationPolicy="Never",
        mutations=mutations,
    )
    return Blueprint(body, complete), Blueprint(binding("Mutating", COMPLETED), complete)


def _add(path: str, value: str) -> str:
    """A patch that adds; both are expressions."""
    return f"JSONPatch{{op: 'add', path: {path}, value: {value}}}"


def _for_each(field: str, chosen: str, which: str, patch: str) -> str:
    """A patch for each container `c` of a list, at place `i`, that `which` holds of."""
    containers = f"object.spec.{field}"
    return (
        f"{chosen} && has({containers}) ? {containers}.transformList(i, c, {which}, {patch}) : []"
    )


# ── IPC_LOCK, for containers that run as root and say nothing else of it ──────────────────────────

_USER = (
    "c.?securityContext.?runAsUser.or(object.spec.?securityContext.?runAsUser).orValue(0) == 0 && "
    "!c.?securityContext.?runAsNonRoot.or(object.spec.?securityContext.?runAsNonRoot)"
    ".orValue(false)"
)
_GIVEN = "c.?securityContext.?capabilities"
_HAS = "['IPC_LOCK', 'CAP_IPC_LOCK', 'ALL']"
_UNLOCKED = (
    f"{_WISHING} && {_USER} && !c.?securityContext.?privileged.orValue(false) && "
    f"!{_GIVEN}.?add.orValue([]).exists(one, one in {_HAS}) && "
    f"!{_GIVEN}.?drop.orValue([]).exists(one, one in {_HAS})"
)
_CONTEXT = "Object.spec.containers.securityContext"
_LOCK = f"{_CONTEXT}.capabilities{{add: ['IPC_LOCK']}}"


def _lock(field: str) -> str:
    """The capability for each container of a list, in the deepest object that it has."""

    def place(below: str) -> str:
        return f"'/spec/{field}/' + string(i) + '/securityContext{below}'"

    patch = (
        f"!has(c.securityContext) ? {_add(place(''), f'{_CONTEXT}{{capabilities: {_LOCK}}}')} : "
        f"!has(c.securityContext.capabilities) ? {_add(place('/capabilities'), _LOCK)} : "
        "!has(c.securityContext.capabilities.add) ? "
        f"{_add(place('/capabilities/add'), _NAMES)} : "
        f"{_add(place('/capabilities/add/-'), _NAME)}"
    )
    return _for_each(field, "variables.lock", _UNLOCKED, patch)


_NAME, _NAMES = "'IPC_LOCK'", "['IPC_LOCK']"

# ── Memory at /dev/shm ────────────────────────────────────────────────────────────────────────────

_MOUNTLESS = (
    f"{_WISHING} && !c.?volumeMounts.orValue([]).exists(one, one.mountPath in "
    "['/dev/shm', '/dev/shm/'])"
)
_MEMORY = (
    f"Object.spec.volumes{{name: '{VOLUME}', emptyDir: "
    "Object.spec.volumes.emptyDir{medium: 'Memory', sizeLimit: variables.size}}"
)
_MOUNT = f"Object.spec.containers.volumeMounts{{name: '{VOLUME}', mountPath: '/dev/shm'}}"
_APPENDED, _FIRST = "'/spec/volumes/-'", "'/spec/volumes'"
_VOLUME = (
    f"variables.shm && variables.containers.exists(c, {_MOUNTLESS}) && "
    f"!object.spec.?volumes.orValue([]).exists(one, one.name == '{VOLUME}') ? "
    f"[has(object.spec.volumes) ? {_add(_APPENDED, _MEMORY)} : {_add(_FIRST, f'[{_MEMORY}]')}] "
    ": []"
)


def _mount(field: str) -> str:
    """The mount for each container of a list that has nothing there."""
    path = f"'/spec/{field}/' + string(i) + '/volumeMounts"
    appended, first = f"{path}/-'", f"{path}'"
    patch = f"has(c.volumeMounts) ? {_add(appended, _MOUNT)} : {_add(first, f'[{_MOUNT}]')}"
    return _for_each(field, "variables.shm", _MOUNTLESS, patch)


# ── A block for each card ─────────────────────────────────────────────────────────────────────────

_ANNOTATION = f"'/metadata/annotations/' + jsonpatch.escapeKey('{POD_NETWORKS}')"
_COPIES = "'[' + lists.range(variables.cards).map(n, variables.block).join(', ') + ']'"
_NETWORKS = f"variables.networks && variables.block != '' ? [{_add(_ANNOTATION, _COPIES)}] : []"
