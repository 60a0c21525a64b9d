"""Levels of Pod Security and constraints of OpenShift, control by control."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_tools.judge.environment import SecurityLevel
from kube_rdma_tools.judge.judged_pods import judged_pods
from kube_rdma_tools.judge.openshift import admitted_by, refusals
from kube_rdma_tools.judge.pod_security import CONTROLS, controls
from kube_rdma_tools.judge.security_constraints import SECURITY_CONSTRAINTS
from tests.unit.kube_rdma_tools.judged_objects import (
    CONTAINER,
    bound,
    container,
    mounting,
    workload,
)

CONSTRAINTS = {row.name: row for row in SECURITY_CONSTRAINTS}


def only(made):
    (pod,) = judged_pods([made])
    return pod


def broken(made, level=SecurityLevel.RESTRICTED):
    """The controls of a level that a pod breaks."""
    pod = only(made)
    return {control.name for control in controls(level) if any(control.breaches(pod))}


BREAKING = {
    "host namespaces": workload(hostPID=True),
    "privileged containers": workload("Job", container(privileged=True)),
    "capabilities": workload("Job", container(capabilities={"add": ["NET_ADMIN"]})),
    "hostPath volumes": mounting("/dev"),
    "host ports": workload("Job", CONTAINER | {"ports": [{"containerPort": 80, "hostPort": 80}]}),
    "AppArmor": workload("Job", container(appArmorProfile={"type": "Unconfined"})),
    "SELinux": workload("Job", container(seLinuxOptions={"type": "spc_t"})),
    "/proc mount type": workload("Job", container(procMount="Unmasked")),
    "seccomp": workload("Job", container(seccompProfile={"type": "Unconfined"})),
    "host probes": workload(
        "Job", CONTAINER | {"livenessProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}
    ),
    "sysctls": workload(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    "volume types": workload(volumes=[{"name": "x", "nfs": {}}]),
    "privilege escalation": workload("Job", container(allowPrivilegeEscalation=None)),
    "running as non-root": workload("Job", container(runAsUser=0)),
    "seccomp (restricted)": workload("Job", container(seccompProfile=None)),
    "dropped capabilities": workload("Job", container(capabilities={"drop": ["MKNOD"]})),
    "capabilities (restricted)": workload("Job", container(capabilities={"add": ["CHOWN"]})),
}


@pytest.mark.parametrize("name", [control.name for control in CONTROLS])
def test_a_control_can_be_broken(name):
    assert name in broken(BREAKING[name])


def test_a_pod_that_keeps_everything_breaks_nothing():
    assert not broken(workload())
    assert not broken(
        workload(
            "Job",
            container(runAsNonRoot=None),
            securityContext={"runAsNonRoot": True, "runAsUser": 1000},
        )
    )


def test_the_older_spelling_of_an_apparmor_profile_counts_too():
    made = workload()
    for profile, broke in (("unconfined", {"AppArmor"}), ("runtime/default", set())):
        key = "container.apparmor.security.beta.kubernetes.io/agent"
        made["spec"]["template"]["metadata"]["annotations"] = {key: profile}
        assert broken(made) == broke


def test_on_the_host_s_network_a_port_is_the_host_s():
    port = CONTAINER | {"ports": [{"containerPort": 9879}]}
    assert "host ports" in broken(workload("Job", port, hostNetwork=True))
    assert "host ports" not in broken(workload("Job", port))


contexts = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "runAsNonRoot": st.booleans(),
        "runAsUser": st.sampled_from((0, 65532, 1_000_650_000)),
        "allowPrivilegeEscalation": st.booleans(),
        "capabilities": st.fixed_dictionaries(
            {},
            optional={
                "add": st.lists(st.sampled_from(("NET_BIND_SERVICE", "CHOWN", "SYS_ADMIN"))),
                "drop": st.lists(st.sampled_from(("ALL", "CHOWN"))),
            },
        ),
        "seccompProfile": st.fixed_dictionaries(
            {"type": st.sampled_from(("RuntimeDefault", "Localhost", "Unconfined"))}
        ),
        "seLinuxOptions": st.fixed_dictionaries(
            {"type": st.sampled_from(("container_t", "spc_t"))}
        ),
    },
)
workloads = st.builds(
    lambda security, network: workload(
        "Job", CONTAINER | {"securityContext": security}, hostNetwork=network
    ),
    contexts,
    st.booleans(),
)


@given(workloads)
def test_levels_are_cumulative(made):
    assert broken(made, SecurityLevel.BASELINE) <= broken(made)
    assert not broken(made, SecurityLevel.PRIVILEGED)


@given(workloads)
def test_privileged_admits_everything_and_the_others_no_more_than_it(made):
    pod = only(made)
    assert not list(refusals(pod, CONSTRAINTS["privileged"]))
    narrow = set(refusals(pod, CONSTRAINTS["restricted-v2"]))
    assert set(refusals(pod, CONSTRAINTS["nonroot-v2"])) <= narrow
    assert set(refusals(pod, CONSTRAINTS["hostnetwork-v2"])) <= narrow


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"runAsUser": 65532}, "securityContext.runAsUser"),
        ({"privileged": True}, "securityContext.privileged"),
        ({"allowPrivilegeEscalation": True}, "securityContext.allowPrivilegeEscalation"),
        ({"capabilities": {"add": ["CHOWN"]}}, "securityContext.capabilities.add"),
        ({"seccompProfile": {"type": "Localhost"}}, "securityContext.seccompProfile.type"),
        ({"seLinuxOptions": {"type": "container_t"}}, "securityContext.seLinuxOptions"),
    ],
)
def test_restricted_v2_refuses_what_a_container_names(fields, field):
    refused = list(
        refusals(only(workload("Job", container(**fields))), CONSTRAINTS["restricted-v2"])
    )
    assert [(name, path) for name, path, _ in refused] == [("agent", field)]


def test_restricted_v2_fills_in_what_is_left_out():
    bare = workload("Job", CONTAINER | {"securityContext": {}})
    assert not list(refusals(only(bare), CONSTRAINTS["restricted-v2"]))


def test_a_constraint_is_of_the_account_that_is_bound_in_the_pod_s_namespace():
    pod = only(workload(serviceAccountName="agent"))
    role = "system:openshift:scc:privileged"

    def names(*objects):
        return {row.name for row in admitted_by(objects, pod, SECURITY_CONSTRAINTS)}

    assert names() == {"restricted-v2"}
    assert names(bound(role, "agent")) == {"restricted-v2", "privileged"}
    assert names(bound(role, "other")) == {"restricted-v2"}
    assert names(bound(role, "agent", "elsewhere")) == {"restricted-v2"}
    group = bound(role)
    group["subjects"] = [{"kind": "Group", "name": "system:serviceaccounts:team"}]
    assert names(group) == {"restricted-v2", "privileged"}
