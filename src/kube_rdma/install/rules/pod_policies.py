"""Makes the admission policies for pods that ask for shares: admission/rules/findings in CEL.

CEL sees the pod alone: no NodePolicies, networks, claims or pools, and no JSON inside of an
annotation. Blocks in an annotation are counted by a pattern that never counts too few. So policies
find a part of what those rules find, and nothing else. Policies also look at the templates of
workloads: if a controller makes the pods, nobody sees a warning about a pod.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kube_base.frozen import Frozen
from kube_rdma.attach.rules.requests import (
    ANNOTATION,
    DEFAULT_NETWORK,
    POD_NETWORKS,
    POD_NETWORKS_DEFINITION,
    RESOURCE,
)
from kube_rdma.lib.phrases import listed
from kube_rdma.model.admission import COMPLETE, MOST_BLOCKS, SHM_VOLUME, USUAL, VKE_LABEL
from kube_rdma.model.install import (
    NAMESPACE,
    OWN_NAMES,
    Blueprint,
    Hole,
    Joined,
    Json,
    Node,
    joined,
)
from kube_rdma.model.pools import Mode
from kube_rdma.pools.rules.labels import MODE

# The common parts of all policies for pods.

API = "admissionregistration.k8s.io/v1"

LIMITS = "c.?resources.?limits.orValue({})"
# In pods a quantity is a text; in kinds of other projects it may be a number, as it was written.
CARDS = f"quantity(string(c.?resources.?limits[?'{RESOURCE}'].orValue(dyn('0')))).asInteger()"
_SIDECAR = "c.?restartPolicy.orValue('') == 'Always'"
PODS: Json = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def _values(path: str) -> Joined:
    """Return the CEL list of the entries of a value, which has commas between them."""
    return joined("'", Hole(f"admission.pods.{path}"), "'.split(',')")


def _among(resources: str) -> str:
    """Return the CEL condition that a variable's list has `key` or its domain, such as rdma/*."""
    return f"(key in variables.{resources} || key.split('/')[0] + '/*' in variables.{resources})"


SHARED = _among("shares")


def _held(pod: str, count: str) -> str:
    """Return the CEL expression for the amount that a pod holds, given that of a container `c`.

    A pod holds the sum of all containers that run together; if that is 0, the most of any init
    container.
    """
    init = f"{pod}.spec.?initContainers.orValue([])"
    beside = f"({pod}.spec.containers + {init}.filter(c, {_SIDECAR})).map(c, {count}).sum()"
    most = f"([0] + {init}.filter(c, !({_SIDECAR})).map(c, {count})).max()"
    return f"([{beside}, {most}].filter(count, count > 0) + [0])[0]"


def _of_pod(pod: str) -> dict[str, str]:
    """Return the CEL expressions for facts about a pod or pod template, by variable name."""
    init = f"{pod}.spec.?initContainers.orValue([])"
    every = f"({pod}.spec.containers + {init})"
    annotations = f"{pod}.?metadata.?annotations.orValue({{}})"
    return {
        "containers": every,
        "annotations": annotations,
        "rdma": f"{every}.exists(c, {LIMITS}.exists(key, {SHARED}))",
        "cards": _held(pod, CARDS),
        "text": f"{annotations}[?'{POD_NETWORKS}'].orValue('')",
    }


SHARES: dict[str, Node] = {"shares": _values("shareResources")}
"""The first variable, which all other expressions may use."""


def _policy(
    kind: str, name: str, variables: dict[str, Node], rules: Sequence[Node] = (), **spec: Node
) -> Json:
    """Return an admission policy for new pods, and for what `rules` match besides.

    It admits what it cannot judge.
    """
    elsewhere = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", NAMESPACE],
    }
    return {
        "apiVersion": API,
        "kind": f"{kind}AdmissionPolicy",
        "metadata": {"name": joined(OWN_NAMES, name)},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [elsewhere]},
                "resourceRules": [{**PODS, "operations": ["CREATE"]}, *rules],
            },
            "variables": [{"name": key, "expression": text} for key, text in variables.items()],
            **spec,
        },
    }


def _binding(kind: str, name: str, policy_name: str = "", **spec: Node) -> Json:
    """Return the binding of an admission policy, which has the binding's name or `policy_name`."""
    return {
        "apiVersion": API,
        "kind": f"{kind}AdmissionPolicyBinding",
        "metadata": {"name": joined(OWN_NAMES, name)},
        "spec": {"policyName": joined(OWN_NAMES, policy_name or name), **spec},
    }


REFUSED, WARNED = "pods-refused.kube-rdma.io", "pods-warned.kube-rdma.io"

WORKLOADS = "workloads-warned.kube-rdma.io"

_KINDS = {
    ("", "v1"): "podtemplates replicationcontrollers",
    ("apps", "v1"): "daemonsets deployments replicasets statefulsets",
    ("batch", "v1"): "cronjobs jobs",
    ("batch.volcano.sh", "*"): "jobs",
    ("jobset.x-k8s.io", "*"): "jobsets",
    ("kubeflow.org", "*"): "mpijobs paddlejobs pytorchjobs tfjobs xgboostjobs",
    ("leaderworkerset.x-k8s.io", "*"): "leaderworkersets",
    ("ray.io", "*"): "rayclusters rayjobs rayservices",
}
_RULES: tuple[Json, ...] = tuple(
    {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": kinds.split(),
        "operations": ["CREATE", "UPDATE"],
    }
    for (group, version), kinds in _KINDS.items()
)
_IS_POD = "request.resource.group == '' && request.resource.resource == 'pods'"
# Only workloads that somebody writes count, no object of a controller, and no new status.
_WRITTEN = (
    f"({_IS_POD}) || (!object.metadata.?ownerReferences.orValue([]).exists(owner, "
    "owner.?controller.orValue(false)) && (request.operation == 'CREATE' || dyn(object).?spec != "
    "dyn(oldObject).?spec || dyn(object).?template != dyn(oldObject).?template))"
)
_TEMPLATES: dict[str, Node] = {
    "spec": "dyn(object).?spec.orValue({})",
    "ray": (
        "variables.spec.?rayClusterSpec.or(variables.spec.?rayClusterConfig)"
        ".orValue(variables.spec)"
    ),
    "roles": "".join(
        f"{before}variables.spec.?{framework}ReplicaSpecs{after}"
        for framework, before, after in (
            ("mpi", "", ""),
            *((name, ".or(", ")") for name in ("paddle", "pytorch", "tf", "xgb")),
        )
    )
    + ".orValue({})",
    "templates": (
        f"{_IS_POD} ? [dyn(object)] : ([?dyn(object).?template, ?variables.spec.?template, "
        "?variables.spec.?jobTemplate.?spec.?template, "
        "?variables.spec.?leaderWorkerTemplate.?leaderTemplate, "
        "?variables.spec.?leaderWorkerTemplate.?workerTemplate, "
        "?variables.ray.?headGroupSpec.?template] + "
        "variables.ray.?workerGroupSpecs.orValue([]).map(group, group.template) + "
        "variables.spec.?replicatedJobs.orValue([]).map(job, job.template.spec.template) + "
        "variables.spec.?tasks.orValue([]).map(task, task.template) + "
        "variables.roles.map(role, variables.roles[role].template))"
        ".filter(template, has(template.spec) && has(template.spec.containers))"
    ),
    "pods": "variables.templates.map(template, {{'spec': dyn(template.spec), {}}})".format(
        ", ".join(f"'{name}': dyn({text})" for name, text in _of_pod("template").items())
    ),
}
_TERMS = (
    "pod.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
    ".?nodeSelectorTerms.orValue([])"
)


def _fixed(label: str, modes: Sequence[Mode]) -> str:
    """Return the CEL condition that the pod's node selector or affinity demands one of these modes.

    `label` is the label whose value on a node is its mode.
    """
    among = [str(mode) for mode in modes]
    holds = (
        f"term.?matchExpressions.orValue([]).exists(one, one.key == '{label}' && "
        f"one.operator == 'In' && one.values.all(value, value in {among}))"
    )
    return (
        f"pod.spec.?nodeSelector[?'{label}'].orValue('') in {among} || "
        f"({_TERMS}.size() > 0 && {_TERMS}.all(term, {holds}))"
    )


def _only(modes: Sequence[Mode]) -> str:
    """Return the CEL condition that a share of the pod can only come from pools of these modes."""
    return (
        f"((pod.cards > 0 && ({_fixed(VKE_LABEL, modes)})) || "
        f"(pod.rdma && ({_fixed(MODE, modes)})))"
    )


def _without(resources: str) -> str:
    """Return the CEL condition that no container of the pod asks for a resource of the list."""
    return f"pod.containers.all(c, {LIMITS}.all(key, !{_among(resources)}))"


# What VKE's CNI plugin (Cello) completes, and blocks for the cluster's own network ("master"), are
# not counted here: the agent judges them.
_COUNTED = (
    f"'{POD_NETWORKS}' in pod.annotations && !('{POD_NETWORKS_DEFINITION}' in pod.annotations) && "
    "!pod.text.lowerAscii().contains('master')"
)
_BLOCKS = "pod.text.findAll(r'(?i)\"?cniConf\"?\\s*:').size()"
_NAMED = (
    'pod.text.findAll(r\'(?i)"?cniConf"?\\s*:\\s*\\{\\s*"?name"?\\s*:\\s*"'
    f"{USUAL.block}\"\\s*[,}}]').size()"
)
_OTHERS = f"pod.containers.exists(c, {LIMITS}.exists(key, key != '{RESOURCE}' && {SHARED}))"
# Names with commas between them, or JSON, as Multus tells them apart (parsePodNetworkAnnotation in
# pkg/k8sclient). Of JSON the keys `name` are counted, in any case as Go reads them: never too few.
_LISTED = f"pod.annotations[?'{ANNOTATION}'].orValue('')"
_ENTRIES = (
    f"({_LISTED}.matches(r'[\\[{{\"]') ? {_LISTED}.findAll(r'(?i)name\"?\\s*:').size() : "
    f"{_LISTED}.split(',').filter(name, name.trim() != '').size())"
)
_ON_HOST = "pod.spec.?hostNetwork.orValue(false)"
_NETWORKED = (
    f"{LIMITS}.filter(key, {_among('networked')})"
    f".map(key, quantity(string({LIMITS}[key])).asInteger()).sum()"
)
_LACKING = (
    f"variables.pods.filter(pod, !{_ON_HOST} && !has(pod.spec.resourceClaims) && "
    f"!{[POD_NETWORKS, DEFAULT_NETWORK]}.exists(key, key in pod.annotations))"
    f".map(pod, {{'shares': {_held('pod', _NETWORKED)}, 'entries': {_ENTRIES}}})"
    ".filter(pod, pod.entries < pod.shares)"
)
_VEPFS = (
    "volume.?csi.?driver.orValue('') in variables.drivers || "
    "volume.?ephemeral.?volumeClaimTemplate.?spec.?storageClassName.orValue('') "
    "in variables.classes.filter(name, name != '')"
)


class _CelRule(Frozen):
    """A CEL condition that each pod must fulfil, and the CEL expression for the message if not."""

    holds: str
    sentence: str


_REFUSALS = (
    _CelRule(
        f"!pod.rdma || {_without('mgpu')}",
        "'spec.containers: RDMA and mGPU cannot be used together. Ask for whole GPUs, or for no "
        "RDMA.'",
    ),
    _CelRule(
        f"!({_COUNTED}) || (pod.cards <= {_BLOCKS} && ({_NAMED} <= pod.cards || {_OTHERS}))",
        f"'metadata.annotations[{POD_NETWORKS}]: the pod has ' + string({_BLOCKS}) + "
        f"' blocks, and its containers ask for ' + string(pod.cards) + ' of {RESOURCE}. "
        "Write a block for each.'",
    ),
    _CelRule(
        f"!{_only(USUAL.without_vepfs)} || pod.spec.?volumes.orValue([]).all(volume, !({_VEPFS}))",
        f"'spec.volumes: vePFS cannot be used in mode {listed(USUAL.without_vepfs)}. Select "
        "nodes of another mode, or remove the volume.'",
    ),
)
_WARNINGS = (
    _CelRule(
        f"['{POD_NETWORKS}', '{ANNOTATION}'].exists(key, key in pod.annotations) || "
        f"pod.cards == 0 || {_ON_HOST}",
        f"'metadata.annotations[{POD_NETWORKS}]: the pod asks for ' + "
        f"string(pod.cards) + ' of {RESOURCE} and for no network, so it gets their "
        "device nodes alone. Write a block for each.'",
    ),
    _CelRule(
        "variables.lacking.size() == 0",
        f"'metadata.annotations[{ANNOTATION}]: the pod asks for ' + "
        "string(variables.lacking[0].shares) + ' of ' + variables.networked.join(', ') + "
        "' and for ' + (variables.lacking[0].entries == 0 ? 'no network' : 'too few networks, ' + "
        "string(variables.lacking[0].entries)) + '. On RoCE a card without one has no GID of its "
        "own and reaches no peer. Write one for each; kube-rdma resources lists them.'",
    ),
    _CelRule(
        f"!{_only(USUAL.without_gpus)} || {_without('gpus')}",
        f"'spec.nodeSelector: mode {listed(USUAL.without_gpus)} is not recommended for pods "
        "with GPUs. Select nodes of another mode.'",
    ),
    _CelRule(
        f"{_ON_HOST} || {_without('host')}",
        "'spec.hostNetwork: the pod asks for a resource of pods on the node\\'s own network. "
        "Add hostNetwork: true.'",
    ),
)


def pod_policies() -> tuple[Blueprint, ...]:
    """Return the admission policies that refuse pods or warn, with their bindings."""
    of_refusals = {
        "mgpu": _values("mgpuResources"),
        "drivers": _values("vepfsDrivers"),
        "classes": _values("vepfsStorageClasses"),
    }
    of_warnings = {
        "gpus": _values("gpuResources"),
        "host": _values("hostNetworkResources"),
        "networked": _values("networkResources"),
        "lacking": _LACKING,
    }
    pods = {"resourceRules": [{**PODS, "operations": ["CREATE"]}]}
    workloads = {"resourceRules": [*_RULES]}
    bodies = (
        _validating(REFUSED, of_refusals, _REFUSALS),
        _binding("Validating", REFUSED, validationActions=["Deny"], matchResources=pods),
        _binding(
            "Validating", WORKLOADS, REFUSED, validationActions=["Warn"], matchResources=workloads
        ),
        _validating(WARNED, of_warnings, _WARNINGS),
        _binding("Validating", WARNED, validationActions=["Warn"]),
    )
    wanted = ("admission.pods.check", "platform.validatingPolicies")
    return tuple(Blueprint(body, wanted) for body in bodies)


def _validating(name: str, variables: dict[str, Node], rules: Sequence[_CelRule]) -> Json:
    validations = [
        {
            "expression": f"variables.pods.all(pod, {one.holds})",
            "messageExpression": f"variables.pods.filter(pod, !({one.holds}))"
            f".map(pod, {one.sentence})[0]",
        }
        for one in rules
    ]
    written = [{"name": "written", "expression": _WRITTEN}]
    return _policy(
        "Validating",
        name,
        SHARES | _TEMPLATES | variables,
        _RULES,
        matchConditions=written,
        validations=validations,
    )


# The admission policy that completes pods: admission/rules/completions, as far as CEL can say it.

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
    """Return the admission policy that completes pods, with its binding."""
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
    body = _policy(
        "Mutating",
        COMPLETED,
        SHARES | _of_pod("object") | _CHOSEN,
        reinvocationPolicy="Never",
        mutations=mutations,
    )
    return Blueprint(body, complete), Blueprint(_binding("Mutating", COMPLETED), complete)


def _add(path: str, value: str) -> str:
    """Return the CEL expression of a JSON patch that adds; `path` and `value` are expressions."""
    return f"JSONPatch{{op: 'add', path: {path}, value: {value}}}"


def _for_each(field: str, chosen: str, which: str, patch: str) -> str:
    """Return CEL that applies `patch` to each container `c` (index `i`) if `chosen` and `which`."""
    containers = f"object.spec.{field}"
    return (
        f"{chosen} && has({containers}) ? {containers}.transformList(i, c, {which}, {patch}) : []"
    )


# IPC_LOCK, for containers that run as root and set nothing else about it.

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
    """Return CEL that adds the capability to each container of a field, where it is missing."""

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

# Memory at /dev/shm.

_MOUNTLESS = (
    f"{_WISHING} && !c.?volumeMounts.orValue([]).exists(one, one.mountPath in "
    "['/dev/shm', '/dev/shm/'])"
)
_MEMORY = (
    f"Object.spec.volumes{{name: '{SHM_VOLUME}', emptyDir: "
    "Object.spec.volumes.emptyDir{medium: 'Memory', sizeLimit: variables.size}}"
)
_MOUNT = f"Object.spec.containers.volumeMounts{{name: '{SHM_VOLUME}', mountPath: '/dev/shm'}}"
_APPENDED, _FIRST = "'/spec/volumes/-'", "'/spec/volumes'"
_VOLUME = (
    f"variables.shm && variables.containers.exists(c, {_MOUNTLESS}) && "
    f"!object.spec.?volumes.orValue([]).exists(one, one.name == '{SHM_VOLUME}') ? "
    f"[has(object.spec.volumes) ? {_add(_APPENDED, _MEMORY)} : {_add(_FIRST, f'[{_MEMORY}]')}] "
    ": []"
)


def _mount(field: str) -> str:
    """Return CEL that adds the /dev/shm mount to each container of a field without such a mount."""
    path = f"'/spec/{field}/' + string(i) + '/volumeMounts"
    appended, first = f"{path}/-'", f"{path}'"
    patch = f"has(c.volumeMounts) ? {_add(appended, _MOUNT)} : {_add(first, f'[{_MOUNT}]')}"
    return _for_each(field, "variables.shm", _MOUNTLESS, patch)


# A block for each card.

_ANNOTATION = f"'/metadata/annotations/' + jsonpatch.escapeKey('{POD_NETWORKS}')"
_COPIES = "'[' + lists.range(variables.cards).map(n, variables.block).join(', ') + ']'"
_NETWORKS = f"variables.networks && variables.block != '' ? [{_add(_ANNOTATION, _COPIES)}] : []"
