"""Admission policies for pods that ask for shares: what CEL can say of rules/admission/findings.

Where no webhook is wanted the API server judges pods itself. CEL sees the pod alone: no policies,
networks, claims or pools, and no JSON inside of an annotation, whose blocks are counted by a
pattern that never counts too few. So a part of what the rules find is found, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.model.admission.facts import USUAL
from kube_rdma.model.install.blueprint import Blueprint, Json, Node
from kube_rdma.model.pools.pool import Mode
from kube_rdma.rules.admission.placement import VKE_LABEL
from kube_rdma.rules.attach.requests import (
    ANNOTATION,
    POD_NETWORKS,
    POD_NETWORKS_DEFINITION,
    RESOURCE,
)
from kube_rdma.rules.install.pod_cel import (
    CARDS,
    LIMITS,
    SHARED,
    VARIABLES,
    binding,
    policy,
    values,
)
from kube_rdma.rules.labels.table import MODE
from kube_rdma.rules.phrases import listed

REFUSED, WARNED = "pods-refused.kube-rdma.io", "pods-warned.kube-rdma.io"

_TERMS = (
    "object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
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
        f"object.spec.?nodeSelector[?'{label}'].orValue('') in {among} || "
        f"({_TERMS}.size() > 0 && {_TERMS}.all(term, {holds}))"
    )


def _only(modes: Sequence[Mode]) -> str:
    """Whether a share of the pod can have these modes alone."""
    return (
        f"(variables.cards > 0 && ({_fixed(VKE_LABEL, modes)})) || "
        f"(variables.rdma && ({_fixed(MODE, modes)}))"
    )


_BLOCKS: dict[str, Node] = {
    # What Cello is still to complete, and the cluster's own network, are left to the agent.
    "counted": (
        f"'{POD_NETWORKS}' in variables.annotations && "
        f"!('{POD_NETWORKS_DEFINITION}' in variables.annotations) && "
        "!variables.text.lowerAscii().contains('master')"
    ),
    "blocks": "variables.text.findAll(r'(?i)\"?cniConf\"?\\s*:').size()",
    "named": (
        'variables.text.findAll(r\'(?i)"?cniConf"?\\s*:\\s*\\{\\s*"?name"?\\s*:\\s*"'
        f"{USUAL.block}\"\\s*[,}}]').size()"
    ),
    "others": (
        f"variables.containers.exists(c, {LIMITS}.exists(key, key != '{RESOURCE}' && {SHARED}))"
    ),
    "mgpu": values("mgpuResources"),
    "drivers": values("vepfsDrivers"),
    "classes": values("vepfsStorageClasses"),
    "exclusive": _only(USUAL.without_vepfs),
}
_WARNED: dict[str, Node] = {
    "gpus": values("gpuResources"),
    "host": values("hostNetworkResources"),
    "multi": _only(USUAL.without_gpus),
}
_VEPFS = (
    "volume.?csi.?driver.orValue('') in variables.drivers || "
    "volume.?ephemeral.?volumeClaimTemplate.?spec.?storageClassName.orValue('') "
    "in variables.classes.filter(name, name != '')"
)

# What has to hold, and an expression that makes the sentence for what does not.
_REFUSALS = (
    (
        (
            f"!variables.rdma || variables.containers.all(c, {LIMITS}.all(key, "
            "!(key in variables.mgpu)))"
        ),
        (
            "'spec.containers: RDMA and mGPU cannot be used together. Ask for whole GPUs, or for "
            "no RDMA.'"
        ),
    ),
    (
        (
            "!variables.counted || (variables.cards <= variables.blocks && "
            "(variables.named <= variables.cards || variables.others))"
        ),
        (
            f"'metadata.annotations[{POD_NETWORKS}]: the pod has ' + string(variables.blocks) + "
            f"' blocks, and its containers ask for ' + string(variables.cards) + ' of {RESOURCE}. "
            "Write a block for each.'"
        ),
    ),
    (
        f"!variables.exclusive || object.spec.?volumes.orValue([]).all(volume, !({_VEPFS}))",
        (
            f"'spec.volumes: vePFS cannot be used in mode {listed(USUAL.without_vepfs)}. Select "
            "nodes of another mode, or remove the volume.'"
        ),
    ),
)
_WARNINGS = (
    (
        (
            f"['{POD_NETWORKS}', '{ANNOTATION}'].exists(key, key in variables.annotations) || "
            "variables.cards == 0 || object.spec.?hostNetwork.orValue(false)"
        ),
        (
            f"'metadata.annotations[{POD_NETWORKS}]: the pod asks for ' + "
            f"string(variables.cards) + ' of {RESOURCE} and for no network, so it gets their "
            "device nodes alone. Write a block for each.'"
        ),
    ),
    (
        f"variables.containers.all(c, {CARDS} in {[0, *USUAL.advised]})",
        (
            f"'spec.containers: a container asks for another number of {RESOURCE} than the "
            f"recommended {' or '.join(map(str, USUAL.advised))}.'"
        ),
    ),
    (
        (
            f"!variables.multi || variables.containers.all(c, {LIMITS}.all(key, "
            "!(key in variables.gpus)))"
        ),
        (
            f"'spec.nodeSelector: mode {listed(USUAL.without_gpus)} is not recommended for pods "
            "with GPUs. Select nodes of another mode.'"
        ),
    ),
    (
        (
            "object.spec.?hostNetwork.orValue(false) || variables.containers.all(c, "
            f"{LIMITS}.all(key, !(key in variables.host)))"
        ),
        (
            "'spec.hostNetwork: the pod asks for a resource of pods on the node\\'s own network. "
            "Add hostNetwork: true.'"
        ),
    ),
)


def pod_policies() -> tuple[Blueprint, ...]:
    """The policies, each with what puts it into force, where the installation wants them."""
    check = ("admission.pods.check", "platform.validatingPolicies")
    refusing = VARIABLES | _BLOCKS
    return (
        Blueprint(_validating(REFUSED, refusing, _REFUSALS), check),
        Blueprint(binding("Validating", REFUSED, validationActions=["Deny"]), check),
        Blueprint(_validating(WARNED, VARIABLES | _WARNED, _WARNINGS), check),
        Blueprint(binding("Validating", WARNED, validationActions=["Warn"]), check),
    )


def _validating(name: str, variables: dict[str, Node], rules: tuple[tuple[str, str], ...]) -> Json:
    validations = [
        {"expression": expression, "messageExpression": sentence} for expression, sentence in rules
    ]
    return policy("Validating", name, variables, validations=validations)
