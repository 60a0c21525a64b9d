"""Admission policies for pods that ask for shares: what CEL can say of admission/rules/findings.

CEL sees the pod alone: no NodePolicies, networks, claims or pools, and no JSON inside of an
annotation, whose blocks are counted by a pattern that never counts too few. So a part of what the
rules find is found, and nothing else. The same rules look at the templates of workloads, where
people see a warning: a pod that a controller makes has nobody to warn.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.admission.rules.placement import VKE_LABEL
from kube_rdma.admission.rules.pod_cel import (
    CARDS,
    LIMITS,
    PODS,
    SHARED,
    SHARES,
    binding,
    of_pod,
    policy,
    values,
)
from kube_rdma.attach.rules.requests import (
    ANNOTATION,
    POD_NETWORKS,
    POD_NETWORKS_DEFINITION,
    RESOURCE,
)
from kube_rdma.lib.phrases import listed
from kube_rdma.model.admission.facts import USUAL
from kube_rdma.model.install.blueprint import Blueprint, Json, Node
from kube_rdma.model.pools.pool import Mode
from kube_rdma.pools.rules.labels.table import MODE

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
# Of workloads what somebody writes counts, not what a controller makes, nor a new status.
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
        ", ".join(f"'{name}': dyn({text})" for name, text in of_pod("template").items())
    ),
}
_TERMS = (
    "pod.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
    ".?nodeSelectorTerms.orValue([])"
)


def _fixed(label: str, modes: Sequence[Mode]) -> str:
    """Whether selector or affinity fix a label of the pod's node to one of these modes."""
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
    """Whether a share of the pod can have these modes alone."""
    return (
        f"((pod.cards > 0 && ({_fixed(VKE_LABEL, modes)})) || "
        f"(pod.rdma && ({_fixed(MODE, modes)})))"
    )


def _without(resources: str) -> str:
    """Whether no container of the pod asks for one of a list of resources."""
    return f"pod.containers.all(c, {LIMITS}.all(key, !(key in variables.{resources})))"


# What Cello is still to complete, and the cluster's own network, are left to the agent.
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
_ON_HOST = "pod.spec.?hostNetwork.orValue(false)"
_VEPFS = (
    "volume.?csi.?driver.orValue('') in variables.drivers || "
    "volume.?ephemeral.?volumeClaimTemplate.?spec.?storageClassName.orValue('') "
    "in variables.classes.filter(name, name != '')"
)

# What has to hold of each `pod`, and an expression that makes the sentence for what does not.
_REFUSALS = (
    (
        f"!pod.rdma || {_without('mgpu')}",
        (
            "'spec.containers: RDMA and mGPU cannot be used together. Ask for whole GPUs, or for "
            "no RDMA.'"
        ),
    ),
    (
        (f"!({_COUNTED}) || (pod.cards <= {_BLOCKS} && ({_NAMED} <= pod.cards || {_OTHERS}))"),
        (
            f"'metadata.annotations[{POD_NETWORKS}]: the pod has ' + string({_BLOCKS}) + "
            f"' blocks, and its containers ask for ' + string(pod.cards) + ' of {RESOURCE}. "
            "Write a block for each.'"
        ),
    ),
    (
        (
            f"!{_only(USUAL.without_vepfs)} || "
            f"pod.spec.?volumes.orValue([]).all(volume, !({_VEPFS}))"
        ),
        (
            f"'spec.volumes: vePFS cannot be used in mode {listed(USUAL.without_vepfs)}. Select "
            "nodes of another mode, or remove the volume.'"
        ),
    ),
)
_WARNINGS = (
    (
        (
            f"['{POD_NETWORKS}', '{ANNOTATION}'].exists(key, key in pod.annotations) || "
            f"pod.cards == 0 || {_ON_HOST}"
        ),
        (
            f"'metadata.annotations[{POD_NETWORKS}]: the pod asks for ' + "
            f"string(pod.cards) + ' of {RESOURCE} and for no network, so it gets their "
            "device nodes alone. Write a block for each.'"
        ),
    ),
    (
        f"pod.containers.all(c, {CARDS} in {[0, *USUAL.advised]})",
        (
            f"'spec.containers: a container asks for another number of {RESOURCE} than the "
            f"recommended {' or '.join(map(str, USUAL.advised))}.'"
        ),
    ),
    (
        f"!{_only(USUAL.without_gpus)} || {_without('gpus')}",
        (
            f"'spec.nodeSelector: mode {listed(USUAL.without_gpus)} is not recommended for pods "
            "with GPUs. Select nodes of another mode.'"
        ),
    ),
    (
        f"{_ON_HOST} || {_without('host')}",
        (
            "'spec.hostNetwork: the pod asks for a resource of pods on the node\\'s own network. "
            "Add hostNetwork: true.'"
        ),
    ),
)


def pod_policies() -> tuple[Blueprint, ...]:
    """The policies, each with what puts it into force, where the installation wants them."""
    of_refusals = {
        "mgpu": values("mgpuResources"),
        "drivers": values("vepfsDrivers"),
        "classes": values("vepfsStorageClasses"),
    }
    of_warnings = {"gpus": values("gpuResources"), "host": values("hostNetworkResources")}
    pods = {"resourceRules": [{**PODS, "operations": ["CREATE"]}]}
    bodies = (
        _validating(REFUSED, of_refusals, _REFUSALS),
        binding("Validating", REFUSED, validationActions=["Deny"], matchResources=pods),
        binding(
            "Validating",
            WORKLOADS,
            REFUSED,
            validationActions=["Warn"],
            matchResources={"resourceRules": [*_RULES]},
        ),
        _validating(WARNED, of_warnings, _WARNINGS),
        binding("Validating", WARNED, validationActions=["Warn"]),
    )
    wanted = ("admission.pods.check", "platform.validatingPolicies")
    return tuple(Blueprint(body, wanted) for body in bodies)


def _validating(name: str, variables: dict[str, Node], rules: tuple[tuple[str, str], ...]) -> Json:
    validations = [
        {
            "expression": f"variables.pods.all(pod, {holds})",
            "messageExpression": f"variables.pods.filter(pod, !({holds})).map(pod, {sentence})[0]",
        }
        for holds, sentence in rules
    ]
    written = [{"name": "written", "expression": _WRITTEN}]
    return policy(
        "Validating",
        name,
        SHARES | _TEMPLATES | variables,
        _RULES,
        matchConditions=written,
        validations=validations,
    )
