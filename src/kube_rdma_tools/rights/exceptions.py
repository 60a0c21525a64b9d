"""Rights that no run of the lab can show, and requests that are refused on purpose: why, for each.

judgement.py reports a right here that a run used. unrecorded.json has rights that no recorded run
used yet, by the test of the lab that is to show them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kube_rdma_tools.rights.recorded import rights
from kube_rdma_tools.rights.right import Right

UNRECORDED = Path(__file__).parent / "unrecorded.json"

_POLICY_ASKS = "At no API: the policy for agents asks for it (install/rules/objects/policies.yaml)."
_DRIVER_ASKS = (
    "The API server asks for it inside of resourceclaims/status, and writes it nowhere: "
    "tests/lab/native/test_agent_policy.py."
)
_OWNER = (
    "The plugin OwnerReferencesPermissionEnforcement asks for it inside of a create; OpenShift has "
    "it on, the lab has not."
)
_WEBSOCKET = (
    "The API server asks for it inside of a GET with a WebSocket (feature gate "
    "AuthorizePodWebsocketUpgradeCreatePermission), and writes it nowhere."
)
_LATER = "The hook watches only while a node is not clean at once; in the lab each is."
_BY_HAND = "kubectl exec reads the pod first; kube-rdma doctor does not, and people use both."
_PARTS = (
    "The operator deletes what a policy asks for no more (tests/unit/operator); no test "
    "of the lab takes a part out of a policy."
)
_TEMPLATES = (
    "A template of pods may name ResourceClaimTemplates (tests/unit/verify); that of the "
    "lab's check names a resource."
)
_AS_A_CHECK = (
    "`verify nodes` asks as a BandwidthCheck does: tests/lab/native/test_claims_resource.py."
)
_SIZE = (
    "A gang's size is read of it as of a Job (tests/unit/preflight); no test of the lab has a gang "
    "of it."
)
_AFTER_A_DAY = "Results of preflights are deleted after a day (tests/unit/preflight)."
_POLICIES = "mellanox.com"
_CLAIM_GROUP = "resource.k8s.io"


def _unrecorded() -> Mapping[Right, str]:
    document = json.loads(UNRECORDED.read_text(encoding="utf-8"))
    return {
        right: f"{test} is to show it, and no run of that is recorded yet."
        for test, tree in document.items()
        for right in rights(tree)
    }


UNUSED: Mapping[Right, str] = {
    **_unrecorded(),
    Right("ClusterRole agent", "nfdlabels.kube-rdma.io", "write"): _POLICY_ASKS,
    **{
        Right(f"ClusterRole {role}", f"resourceclaimtemplates.{_CLAIM_GROUP}", "get"): _TEMPLATES
        for role in ("bandwidth-check", "verify")
    },
    **{
        Right("ClusterRole controller", "bandwidthchecks.kube-rdma.io", verb): _AFTER_A_DAY
        for verb in ("get", "delete")
    },
    **{
        Right("ClusterRole controller", owner, "get"): _SIZE
        for owner in (
            *("mpijobs.kubeflow.org", "pytorchjobs.kubeflow.org", "rayclusters.ray.io"),
            "statefulsets.apps",
        )
    },
    **{
        Right("ClusterRole verify", f"{plural}.{_CLAIM_GROUP}", "list"): _AS_A_CHECK
        for plural in ("deviceclasses", "devicetaintrules")
    },
    Right("Role retirement", "daemonsets.apps", "watch"): _LATER,
    Right("Role doctor", "pods", "get"): _BY_HAND,
    Right("Role controller", "daemonsets.apps", "delete"): _PARTS,
    Right("Role controller", "configmaps", "delete"): _PARTS,
    Right(
        "ClusterRole agent", "resourceclaims/driver.resource.k8s.io", "associated-node:patch"
    ): _DRIVER_ASKS,
    **{
        Right(f"{kind} controller", f"nicclusterpolicies/finalizers.{_POLICIES}", "update"): _OWNER
        for kind in ("ClusterRole", "Role")
    },
    **{
        Right(role, "pods/exec", "create"): _WEBSOCKET
        for role in ("ClusterRole bandwidth-check", "ClusterRole verify", "Role doctor")
    },
}

_DOCTOR = "The doctor in an agent's container names what the agent's account does not show it."
_HARM = "tests/lab/native/test_agent_policy.py tries it with an agent's token."

REFUSALS: Mapping[Right, str] = {
    Right("agent", "daemonsets.apps", "list"): _DOCTOR,
    Right("agent", "events", "list"): _DOCTOR,
    Right("agent", "network-attachment-definitions.k8s.cni.cncf.io", "list"): _DOCTOR,
    Right("agent", f"nicclusterpolicies.{_POLICIES}", "list"): _DOCTOR,
    Right(
        "agent", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "list"
    ): _DOCTOR,
    Right("agent", "ipblocks.kube-rdma.io", "delete"): _HARM,
}
