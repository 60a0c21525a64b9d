"""A planted fault for every rule of the judge, beside a good object that it passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.install.rules.release import recommended
from kube_rdma.model.kubernetes import Taint
from kube_rdma_tools.judge.environment import JudgedNode
from kube_rdma_tools.judge.environments import ENVIRONMENTS
from kube_rdma_tools.judge.judged_pods import judged_pods
from kube_rdma_tools.judge.rules import RULES, judge, meaning
from kube_rdma_tools.judge.scheduling import takes, tolerated
from kube_rdma_tools.judge.selinux_policies import SELINUX_POLICIES
from tests.unit.kube_rdma_tools.judged_objects import (
    CONTAINER,
    EVERYWHERE,
    bound,
    container,
    definition,
    mounting,
    namespace,
    plain,
    workload,
)

SPC = {"type": "spc_t"}
CARDS = "feature.node.kubernetes.io/pci-15b3.present"
LINUX = {"kubernetes.io/os": "linux"}
NOT_VIRTUAL = {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]}
REQUIRED = {"nodeSelectorTerms": [{"matchExpressions": [NOT_VIRTUAL]}]}
VIRTUAL = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": REQUIRED}}
CRITICAL = {"priorityClassName": "system-node-critical"}
PLAIN = "kubeadm-1.36"
CRI_POLICY = "admissionregistration.k8s.io/v1"
OTHERS_DEFINITION = "nicclusterpolicies.mellanox.com"
ARMOR = {"appArmorProfile": {"type": "Unconfined"}}
CHECKED = {"schema": {"openAPIV3Schema": {"x-kubernetes-validations": [{"rule": "true"}]}}}
ACCOUNT = plain("v1", "ServiceAccount", "agent")
ACCOUNT["metadata"]["namespace"] = "team"
RENDERED = namespace(enforce="privileged")
WRITES_LABELS = {"args": ["agent", "--node-labels=write-nfd"]}


def quota(operator, **values):
    """A quota of the pods whose priority class fits."""
    made = plain("v1", "ResourceQuota", "critical")
    made["metadata"]["namespace"] = "team"
    scope = {"scopeName": "PriorityClass", "operator": operator, **values}
    return made | {"spec": {"scopeSelector": {"matchExpressions": [scope]}}}


def labelled(made):
    """The same object with the labels that Kubernetes recommends, and its pods with them."""
    labels = recommended("agent", "rdma", "1.0", "Helm")
    metadata = made["metadata"] | {"labels": labels}
    if "template" not in made.get("spec", {}):
        return made | {"metadata": metadata}
    template = made["spec"]["template"]
    pods = template["metadata"] | {"labels": template["metadata"]["labels"] | labels}
    spec = made["spec"] | {"template": template | {"metadata": pods}}
    return made | {"metadata": metadata, "spec": spec}


def selecting(key):
    """A workload that selects its pods by a label."""
    made = labelled(workload())
    value = made["spec"]["template"]["metadata"]["labels"][key]
    return made | {"spec": made["spec"] | {"selector": {"matchLabels": {key: value}}}}


def annotated(made):
    """The same object with AppArmor's profile as an annotation too."""
    key = "container.apparmor.security.beta.kubernetes.io/agent"
    made["spec"]["template"]["metadata"]["annotations"] = {key: "unconfined"}
    return made


# By rule and case: objects with the fault, objects without it, and the environment (PLAIN).
PLANTED = {
    "pod-security, host network at level baseline": (
        [workload(hostNetwork=True)],
        [namespace(enforce="privileged"), workload(hostNetwork=True)],
        "talos",
    ),
    "pod-security, a namespace's own level": (
        [namespace(enforce="restricted"), workload("DaemonSet", container(runAsNonRoot=False))],
        [namespace(enforce="restricted"), workload()],
    ),
    "constraint, a user outside of the range": (
        [workload("Deployment", container(runAsUser=65532))],
        [workload("Deployment"), workload("Job", container(runAsUser=1_000_650_001))],
        "openshift",
    ),
    "constraint, an account that is bound to nothing": (
        [workload(hostNetwork=True), bound("system:openshift:scc:privileged", "other")],
        [workload(hostNetwork=True), bound("system:openshift:scc:privileged")],
        "openshift",
    ),
    "priority-quota, no quota for the class": (
        [workload(**CRITICAL)],
        [
            workload(**CRITICAL),
            quota("In", values=["system-node-critical"]),
            workload(namespace="kube-system", **CRITICAL),
        ],
        "gke",
    ),
    "priority-quota, a quota of pods without a class": (
        [workload(**CRITICAL), quota("DoesNotExist")],
        [workload(**CRITICAL), quota("Exists")],
        "gke",
    ),
    "nowhere, all nodes are tainted": (
        [workload("Deployment")],
        [workload("Deployment", tolerations=EVERYWHERE)],
        "tainted",
    ),
    "nowhere, a label that no node has": (
        [workload("Deployment", nodeSelector={"disk": "fast"})],
        [workload("Deployment", nodeSelector={"kubernetes.io/arch": "amd64"})],
    ),
    "unfit-node, Windows": ([workload("Job")], [workload("Job", nodeSelector=LINUX)], "windows"),
    "unfit-node, a virtual node that is tolerated": (
        [workload(tolerations=EVERYWHERE)],
        [workload(), workload(tolerations=EVERYWHERE, affinity=VIRTUAL)],
        "aks",
    ),
    "unfit-node, an architecture without an image": (
        [workload("Deployment")],
        [workload("Deployment", nodeSelector={"kubernetes.io/arch": "amd64"})],
        "mixed",
    ),
    "missed-node, a taint of the GPU nodes": (
        [workload()],
        [workload(tolerations=EVERYWHERE), workload("Deployment")],
        "gke",
    ),
    "missed-node, a label that an agent on other nodes writes": (
        [
            workload(tolerations=EVERYWHERE, nodeSelector={CARDS: "true"}),
            workload("DaemonSet", CONTAINER | WRITES_LABELS),
        ],
        [
            workload(tolerations=EVERYWHERE, nodeSelector={CARDS: "true"}),
            workload("DaemonSet", CONTAINER | WRITES_LABELS, tolerations=EVERYWHERE),
        ],
        "gke",
    ),
    "missed-node, a label that is nobody's": (
        [workload(nodeSelector={CARDS: "true"})],
        [workload(nodeSelector={"kube-rdma.io/driver-ready": "true"})],
        "nfd",
    ),
    "selinux-type, a type of another policy": (
        [workload("DaemonSet", container(seLinuxOptions={"type": "container_device_plugin_t"}))],
        [workload(), workload("DaemonSet", container(seLinuxOptions=SPC))],
        "bottlerocket",
    ),
    "selinux-reach, a folder of the host without a type": (
        [mounting("/opt/cni/bin")],
        [
            workload(),
            mounting("/opt/cni/bin", security={"seLinuxOptions": SPC}),
            mounting("/opt/cni/bin", security={"privileged": True}),
        ],
        "rhel",
    ),
    "read-only-folder, a folder of a read-only root": (
        [mounting("/opt/cni/bin")],
        [mounting("/opt/cni/bin", readOnly=True), mounting("/var/lib/x"), mounting("/run/x")],
        "gke",
    ),
    "other-folder, the runtime's folder of CDI files": (
        [mounting("/var/run/cdi", "cdi")],
        [mounting("/var/cdi/dynamic", "cdi"), mounting("/var/cdi", "cdi")],
        "talos-dra",
    ),
    "unserved-kind, a policy before 1.30": (
        [plain(CRI_POLICY, "ValidatingAdmissionPolicy", "own-node")],
        [
            workload(),
            definition("widgets.example.com", "Widget"),
            plain("example.com/v1", "Widget", "one"),
        ],
        "kubeadm-1.28",
    ),
    "unserved-kind, a version that is gone": (
        [plain("policy/v1beta1", "PodDisruptionBudget", "controller")],
        [plain("policy/v1", "PodDisruptionBudget", "controller")],
    ),
    "unserved-kind, a kind without its definition": (
        [plain("example.com/v1", "Widget", "one")],
        [plain(CRI_POLICY, "ValidatingAdmissionPolicy", "own-node")],
    ),
    "unserved-kind, a kind of another group": (
        [plain("whereabouts.cni.cncf.io/v1alpha1", "IPPool", "one")],
        [plain("crd.projectcalico.org/v1", "IPPool", "one")],
        "calico",
    ),
    "unknown-field, AppArmor before 1.30": (
        [workload("DaemonSet", container(**ARMOR))],
        [workload(), annotated(workload("DaemonSet", container(**ARMOR)))],
        "kubeadm-1.28",
    ),
    "unknown-field, rules of a definition before 1.25": (
        [definition("widgets.example.com", "Widget", **CHECKED)],
        [definition("widgets.example.com", "Widget")],
        "kubeadm-1.24",
    ),
    "taken-name, the vendor's ClusterRole": (
        [plain("rbac.authorization.k8s.io/v1", "ClusterRole", "network-operator")],
        [plain("rbac.authorization.k8s.io/v1", "ClusterRole", "kube-rdma-operator")],
        "network-operator",
    ),
    "taken-definition, another scope": (
        [definition(OTHERS_DEFINITION, "NicClusterPolicy", "Namespaced")],
        [definition("ippools.kube-rdma.io", "IPPool")],
        "network-operator",
    ),
    "ambiguous-plural, the vendor's policies, which pages write without their group": (
        [definition("nicclusterpolicies.example.com", "NicClusterPolicy")],
        [definition("ippools.kube-rdma.io", "IPPool"), definition("ipblocks.a.io", "IPBlock")],
        "network-operator",
    ),
    "starts-others, labels of the vendor's drivers": (
        [workload("DaemonSet", CONTAINER | WRITES_LABELS)],
        [workload("DaemonSet", CONTAINER | {"args": ["agent", "--node-labels=write"]})],
        "network-operator",
    ),
    "missing-reference, an account that is not rendered": (
        [RENDERED, workload(serviceAccountName="agent")],
        [RENDERED, ACCOUNT, workload(serviceAccountName="agent")],
    ),
    "missing-reference, a namespace that is not rendered": (
        [workload()],
        [workload(namespace="kube-system")],
    ),
    "missing-reference, a role of OpenShift elsewhere": (
        [RENDERED, ACCOUNT, bound("system:openshift:scc:privileged", "agent")],
        [RENDERED, ACCOUNT, bound("view", "agent")],
    ),
    "missing-reference, a ConfigMap that is not rendered": (
        [RENDERED, workload(volumes=[{"name": "x", "configMap": {"name": "rdma-devices"}}])],
        [RENDERED, workload(volumes=[{"name": "x", "configMap": {"name": "x", "optional": True}}])],
    ),
    "late-object, a pod before its namespace": (
        [workload(), namespace()],
        [namespace(), workload()],
    ),
    "late-object, an object before its definition": (
        [plain("example.com/v1", "Widget", "one"), definition("widgets.example.com", "Widget")],
        [definition("widgets.example.com", "Widget"), plain("example.com/v1", "Widget", "one")],
    ),
    "unlabelled, an object": (
        [plain("v1", "ConfigMap", "rdma"), labelled(workload())],
        [labelled(plain("v1", "ConfigMap", "rdma")), labelled(workload())],
    ),
    "unlabelled, the pods of an object": (
        [workload() | {"metadata": labelled(workload())["metadata"]}],
        [labelled(workload("Job"))],
    ),
    "selected-by-version, a selector with the version in it": (
        [selecting("app.kubernetes.io/version")],
        [selecting("name"), labelled(workload())],
    ),
    "selected-by-version, a selector with the manager in it": (
        [selecting("app.kubernetes.io/managed-by")],
        [selecting("app.kubernetes.io/name"), selecting("app.kubernetes.io/part-of")],
    ),
    "malformed-object, a name with capitals": (
        [plain("v1", "ConfigMap", "Rdma")],
        [plain("rbac.authorization.k8s.io/v1", "ClusterRole", "system:Rdma")],
    ),
    "malformed-object, two objects of one name": (
        [workload(), workload()],
        [workload(), workload(namespace="other")],
    ),
    "malformed-object, a mount without its volume": (
        [workload("DaemonSet", container() | {"volumeMounts": [{"name": "x", "mountPath": "/x"}]})],
        [mounting("/x")],
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_fault_is_seen_and_a_good_object_is_not(case):
    bad, good, *environment = PLANTED[case]
    row = ENVIRONMENTS[environment[0] if environment else PLAIN]
    rule = case.partition(",")[0]
    seen = [violation for violation in judge(bad, row) if violation.rule == rule]
    assert seen
    for violation in seen:
        assert violation.where
        assert violation.field
        assert violation.problem
        assert violation.remedy
    assert not [violation for violation in judge(good, row) if violation.rule == rule]


def test_every_rule_has_a_planted_fault_and_says_what_is_wrong():
    assert {case.partition(",")[0] for case in PLANTED} == RULES.keys()
    assert all(meaning(rule) for rule in RULES)


def test_a_violation_leads_to_the_field():
    (violation,) = judge(
        [workload("Deployment", container(runAsUser=65532))], ENVIRONMENTS["openshift"]
    )[:1]
    assert violation.rule == "constraint"
    assert violation.where == "Deployment/agent"
    assert violation.container == "agent"
    assert violation.field == "spec.template.spec.containers[agent].securityContext.runAsUser"
    assert "65532" in violation.problem


@pytest.mark.parametrize("policy", SELINUX_POLICIES, ids=lambda policy: policy.name)
def test_a_policy_has_the_types_that_it_speaks_of(policy):
    assert policy.default in policy.types
    assert policy.confined.keys() <= policy.types
    assert "spc_t" in policy.types


names = st.sampled_from(("dedicated", "gpu", "os"))
values = st.sampled_from(("", "a", "b"))
effects = st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))
taints = st.builds(Taint, names, effects, values)


def template(**spec):
    (pod,) = judged_pods([workload(**spec)])
    return pod


@given(st.lists(taints))
def test_who_tolerates_everything_goes_everywhere(listed):
    assert takes(JudgedNode("n", taints=tuple(listed)), template(tolerations=EVERYWHERE))


@given(taints)
def test_a_toleration_is_for_its_own_taint(taint):
    """By key and value or by key alone, for one effect or for all."""
    own = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    for row in (own, {"key": taint.key, "operator": "Exists"}, own | {"effect": ""}):
        assert tolerated(taint, template(tolerations=[row]))
    others = ({"key": "elsewhere", "operator": "Exists"}, own | {"value": "c"})
    for row in (*others, own | {"effect": "PreferNoSchedule"}):
        repels = taint.effect != "PreferNoSchedule"
        assert tolerated(taint, template(tolerations=[row])) is not repels
