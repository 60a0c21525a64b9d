"""What a pod is refused or warned for, rule by rule."""

import json
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.admission.rules.findings import findings, misplaced
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS
from kube_rdma.model.admission import (
    COMPLETE,
    AdmissionFacts,
    AdmissionSettings,
    AnnotationAbove,
    ClaimFacts,
    OfferedPool,
)
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import InterfaceAddress
from kube_rdma.model.finding import Severity
from kube_rdma.model.ipam import IPPool, IPRange, PoolName
from kube_rdma.model.pools import Bind, Mode, PoolSpec
from kube_rdma.model.preflight import AWAITS, MEASURES, REQUEST
from tests.kit.admission import VKE, asking, blocks, container, networks, template

LABEL = "vke.node.rdma.mode"
HCA = "rdma/hca"
TWO = blocks("rdma", "rdma")
ON_HOST = AdmissionFacts((OfferedPool(PoolSpec(HCA, Mode.HCA, "c", host_network=True)),))
OFF_HOST = AdmissionFacts((OfferedPool(PoolSpec(HCA, Mode.HCA, "c")),))
VEPFS = {"name": "data", "csi": {"driver": "vepfs.csi.volcengine.com"}}


def rules(*args, **kwargs):
    return [each.code for each in findings(*args, **kwargs)]


def only(*args, **kwargs):
    (finding,) = findings(*args, **kwargs)
    return finding


def net(name, **fields):
    return kinds.MacvlanNetwork(name=f"team/{name}", source=name, **fields)


def offered(mode, resource=VKE, selector=(), **spec):
    return OfferedPool(PoolSpec(resource, mode, "policy", **spec), selector)


def test_a_pod_as_the_documents_write_it_has_no_fault():
    facts = AdmissionFacts(ip_pools=("rdma",))
    assert not findings(template(asking(), annotations=TWO), facts)
    assert not findings(template(asking(HCA, 1), hostNetwork=True), ON_HOST)


def test_a_network_of_another_namespace_is_refused_where_namespaces_are_apart():
    """By the namespaces whose networks are everybody's; without them nobody is."""
    pod = template(asking(HCA, 1), annotations=networks("rdma", "other/rdma", "shared/rdma"))
    apart = AdmissionSettings(global_namespaces=("shared",))
    found = [one for one in findings(pod, settings=apart) if one.code == "namespace-isolation"]
    assert [(one.severity, one.path[-1]) for one in found] == [(Severity.ERROR, ANNOTATION)]
    assert found[0].problem.startswith("networks[1]: the network other/rdma is for pods of other")
    assert "namespace-isolation" not in rules(pod)


def test_a_block_that_means_a_network_of_kube_system_is_refused_where_namespaces_are_apart():
    """As the agent finds it: after one of the pod's own namespace."""
    pod = template(asking(), annotations=blocks("storage", "storage"))
    own = pod.namespace
    apart = AdmissionSettings(global_namespaces=("shared",))
    of = [replace(net("storage"), name=f"{space}/storage") for space in ("kube-system", own)]

    def refused(networks, settings=apart):
        found = findings(pod, AdmissionFacts(networks=networks), settings)
        return [one for one in found if one.code == "namespace-isolation"]

    first, _ = refused((of[0],))
    assert (first.path[-1], first.severity) == (POD_NETWORKS, Severity.ERROR)
    assert "the network kube-system/storage is for pods of kube-system" in first.problem
    assert not refused(tuple(of))
    assert not refused((of[0],), AdmissionSettings(global_namespaces=("kube-system",)))


def test_an_address_of_a_pool_for_others_is_told():
    """Where the network has no pool; a pool says itself whose it is."""
    ranges = (IPRange(ip_network("10.20.0.0/24")),)
    pool = IPPool(PoolName("team-a"), ranges, namespaces=("team-a",))
    entry = json.dumps([{"name": "plain", "ips": ["10.20.0.5/24"]}])
    pod = template(asking(HCA, 1), annotations={ANNOTATION: entry})
    plain = replace(net("plain", resource=HCA), name=f"{pod.namespace}/plain")
    facts = AdmissionFacts(networks=(plain,), reserved=(pool,))
    (told,) = [one for one in findings(pod, facts) if one.code == "network-entry"]
    assert "10.20.0.5 is of IPPool team-a, which is for pods of team-a" in told.problem
    assert "network-entry" not in rules(pod, replace(facts, reserved=()))


@given(st.integers(0, 9), st.integers(0, 9))
def test_blocks_and_cards_are_as_many_as_each_other(count, cards):
    """Else the sentence has both numbers; a pod that asks for cards and no network is warned."""
    pod = template(asking(VKE, cards), annotations=blocks(*["rdma"] * count))
    found = [each for each in findings(pod) if each.code == "block-count"]
    assert bool(found) is (count != cards)
    for finding in found:
        assert finding.severity is Severity.ERROR
        assert finding.path == ("metadata", "annotations", POD_NETWORKS)
        assert f"{count} block" in finding.problem
        assert finding.problem.endswith(f"ask for {cards}")


def test_cards_without_the_annotation_are_a_warning():
    finding = only(template(asking()))
    assert (finding.code, finding.severity) == ("block-count", Severity.WARNING)
    assert not findings(template(asking(), hostNetwork=True))
    assert not findings(template(asking(), annotations=networks("net")))


def test_blocks_of_networks_that_have_no_card_are_not_counted():
    """Those that other plugins make; what nobody knows here may be one of them."""
    pod = template(asking(), annotations=blocks("rdma", "rdma", "slow"))
    assert not findings(pod)
    of_these = net("slow", resource=VKE, pools=("rdma",))
    assert rules(pod, AdmissionFacts(networks=(of_these,))) == ["block-count"]
    other = kinds.ForeignNetwork(name="team/rdma", source="s")
    assert rules(pod, AdmissionFacts(networks=(other,))) == ["block-count"]


def test_shares_of_a_pool_are_not_counted():
    facts = AdmissionFacts((offered(Mode.HCA, bind=Bind.POOL),), ip_pools=("rdma",))
    assert not findings(template(asking(), annotations=blocks("rdma")), facts)


def test_an_init_container_s_cards_are_free_before_the_others_start():
    pod = template(asking(), initContainers=[asking(VKE, 2)], annotations=TWO)
    assert not findings(pod)
    sidecar = asking(VKE, 2) | {"restartPolicy": "Always"}
    pod = template(asking(), initContainers=[sidecar], annotations=TWO)
    assert rules(pod) == ["block-count"]


@pytest.mark.parametrize("resource", ["vke.volcengine.com/mgpu-core", "team.example/slice"])
def test_rdma_and_mgpu_are_refused_together(resource):
    """In two containers too; what counts as mGPU is set by the administrator."""
    settings = AdmissionSettings(mgpu=(resource,))
    slicing = asking(resource, 30, name="slices")
    finding = only(template(asking(), slicing, annotations=TWO), settings=settings)
    assert finding.severity is Severity.ERROR
    assert finding.path == ("spec", "containers", 1, "resources", "limits", resource)
    assert resource in finding.problem
    assert not findings(template(slicing), settings=settings)


VOLUMES = {
    "a CSI driver": VEPFS,
    "a claim": {"name": "data", "persistentVolumeClaim": {"claimName": "files"}},
    "a class": {
        "name": "data",
        "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast-files"}}},
    },
    "a folder": {"name": "data", "hostPath": {"path": "/vepfs/team"}},
}


@pytest.mark.parametrize("kind", VOLUMES)
def test_exclusive_and_vepfs_are_refused_together(kind):
    """Where the selector fixes the mode; in any other mode, and with other volumes, they may be."""
    settings = AdmissionSettings(vepfs_classes=("fast-files",), vepfs_folders=("/vepfs",))
    facts = AdmissionFacts(claims=(ClaimFacts("team", "files", "vepfs.csi.volcengine.com"),))

    def judged(mode, volume):
        pod = template(
            asking(), annotations=TWO, nodeSelector={LABEL: mode}, volumes=[{"name": "x"}, volume]
        )
        return findings(pod, facts, settings)

    (finding,) = judged("exclusive", VOLUMES[kind])
    assert (finding.code, finding.severity) == ("vepfs", Severity.ERROR)
    assert finding.path == ("spec", "volumes", 1)
    assert not judged("shared", VOLUMES[kind])
    for other in (
        {"csi": {"driver": "disk.example"}},
        {"persistentVolumeClaim": {"claimName": "x"}},
        {"hostPath": {"path": "/vepfs-not"}},
    ):
        assert not judged("exclusive", {"name": "data", **other})


def test_a_mode_that_nothing_fixes_refuses_nothing():
    pod = template(asking(), annotations=TWO, volumes=[VEPFS])
    assert not findings(pod)
    assert not findings(pod, AdmissionFacts((offered(Mode.EXCLUSIVE, selector=(("a", "b"),)),)))
    assert rules(pod, AdmissionFacts((offered(Mode.EXCLUSIVE),))) == ["vepfs"]


def test_shared_multi_is_not_recommended_with_a_gpu():
    def judged(mode):
        limits = {VKE: 2, "nvidia.com/gpu": 8}
        busy = container() | {"resources": {"limits": limits}}
        return findings(template(busy, annotations=TWO, nodeSelector={LABEL: mode}))

    finding, shm = judged("shared-multi")
    assert (finding.code, finding.severity) == ("gpu-in-shared-multi", Severity.WARNING)
    assert finding.path[-1] == "nvidia.com/gpu"
    assert judged("shared") == (shm,)  # of its 8 GPUs


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_two_or_four_cards_are_recommended(count):
    """As a note: other counts work, and some jobs need them."""
    found = findings(template(asking(VKE, count), annotations=blocks(*["rdma"] * count)))
    noted = [("card-count", Severity.ADVICE)]
    assert [(one.code, one.severity) for one in found] == ([] if count in (2, 4) else noted)
    assert not findings(template(asking("rdma/a", count)))
    limits = {VKE: count, "nvidia.com/gpu": count}  # one for each GPU
    railed = container() | {"resources": {"limits": limits}}
    every = findings(template(railed, annotations=blocks(*["rdma"] * count)))
    assert "card-count" not in {one.code for one in every}


def test_a_pool_of_the_host_s_network_warns_pods_that_are_not_on_it():
    """It is a property of the pool: S2's pods on the same name are right as they are."""
    finding = only(template(asking(HCA, 1)), ON_HOST)
    assert (finding.code, finding.path) == ("host-network", ("spec", "hostNetwork"))
    assert finding.severity is Severity.WARNING
    assert not findings(template(asking(HCA, 1)), OFF_HOST)
    assert not findings(template(asking(HCA, 1)))


def test_a_network_takes_a_share_of_its_resource():
    facts = AdmissionFacts((offered(Mode.SHARED, "rdma/a"),), (net("one", resource="rdma/a"),))
    two = networks("one", "one@net7")

    def judged(*containers, annotations=two, among=facts):
        return [
            (one.code, one.severity)
            for one in findings(template(*containers, annotations=annotations), among)
            if one.code != "no-address"
        ]

    assert judged(asking("rdma/a", 2)) == []
    assert judged(asking("rdma/a", 1)) == [("network-shares", Severity.ERROR)]
    assert judged(asking("rdma/b", 1)) == [("network-shares", Severity.WARNING)]
    pooled = AdmissionFacts((offered(Mode.HCA, "rdma/a"),), facts.networks)
    assert judged(asking("rdma/a", 1), among=pooled) == []


@pytest.mark.parametrize(
    ("fields", "pools", "fault"),
    [
        ({}, ("a",), True),
        ({"pools": ("gone",)}, ("a",), True),
        ({"pools": ("a",)}, ("a",), False),
        ({"pools": ("gone",)}, None, False),
        ({"ipam_plugin": "dhcp"}, (), False),
        ({"static": (InterfaceAddress(None, 24),)}, (), False),
    ],
)
def test_a_network_without_addresses_is_a_warning(fields, pools, fault):
    facts = AdmissionFacts(networks=(net("one", **fields),), ip_pools=pools)
    pod = template(asking("rdma/a", 1), annotations=networks("one"))
    assert rules(pod, facts) == (["no-address"] if fault else [])
    asked = {ANNOTATION: '[{"name": "one", "ips": ["10.0.0.9/24"]}]'}
    assert not findings(template(asking("rdma/a", 1), annotations=asked), facts)


def test_the_built_in_network_has_the_addresses_of_the_pool_of_its_name():
    """Or those of the card, where that moves into the pod."""
    facts = AdmissionFacts(ip_pools=("other",))
    assert set(rules(template(asking(), annotations=TWO), facts)) == {"no-address"}
    moving = template(asking(), annotations=TWO, nodeSelector={LABEL: "exclusive"})
    assert not findings(moving, facts)
    for unknown in (networks("rdma"), blocks("storage", "storage")):
        assert not findings(template(asking(), annotations=unknown), facts)


def test_an_annotation_that_cannot_be_read_is_refused_with_its_place():
    """Networks may be for another program, so theirs is a warning."""
    bad = template(asking(), annotations={POD_NETWORKS: '[{"cniconf": {"name": 3}}]'})
    finding = only(bad)
    assert finding.severity is Severity.ERROR
    assert finding.path == ("metadata", "annotations", POD_NETWORKS)
    assert "pod-networks[0]" in finding.problem
    finding = only(template(asking("rdma/a", 1), annotations={ANNOTATION: "a,,b"}))
    assert finding.severity is Severity.WARNING


def test_a_pod_without_shares_is_nobody_s_business():
    slicing = asking("vke.volcengine.com/mgpu-core", 1)
    assert not findings(template(slicing, volumes=[VEPFS], annotations=networks("net")))


def test_an_annotation_that_nobody_can_read_is_told_of_any_pod():
    """Whoever attaches its networks."""
    assert rules(template(container(), annotations=networks("net,"))) == ["annotation"]
    asks = [{"name": "net", "ipRequest": "10.0.0.1"}]
    finding = only(template(container(), annotations={ANNOTATION: json.dumps(asks)}))
    assert (finding.code, finding.severity) == ("annotation", Severity.WARNING)
    assert "there is no such field" in finding.problem


def test_what_pools_policies_and_networks_name_is_a_share():
    """Whatever its prefix; a GPU stays one."""
    pod = template(asking("intel.com/rdma_a", 1))
    named = AdmissionFacts(resources=("intel.com/rdma_a", "nvidia.com/gpu"))
    on_host = offered(Mode.HCA, "intel.com/rdma_a", host_network=True)
    assert "host-network" in rules(pod, AdmissionFacts((on_host,)))
    mgpu = asking("vke.volcengine.com/mgpu-core", 1)
    assert "mgpu" not in rules(template(asking("intel.com/rdma_a", 1), mgpu))
    assert "mgpu" in rules(template(asking("intel.com/rdma_a", 1), mgpu), named)
    assert "mgpu" not in rules(template(asking("nvidia.com/gpu", 1), mgpu), named)


def test_sentences_are_short_and_end_without_a_stop():
    pods = (
        template(asking(VKE, 3), asking("vke.volcengine.com/mgpu-core", 1), annotations=TWO),
        template(asking(HCA, 1)),
        template(asking(VKE, 1)),
    )
    every = [each for pod in pods for each in findings(pod, ON_HOST)]
    assert {"mgpu", "block-count", "host-network", "card-count"} <= {each.code for each in every}
    for finding in every:
        for text in (finding.problem, finding.remedy):
            assert len(text.split()) <= 25
            assert not text.endswith(".")


# What makes shares or networks void that are written right.


@pytest.mark.parametrize("annotations", [networks("a"), blocks("rdma")])
def test_networks_beside_the_host_s_network_are_attached_to_nobody(annotations):
    """The kubelet asks no CNI plugin for such a pod."""
    pods = [template(container(), annotations=annotations, hostNetwork=on) for on in (True, False)]
    told = [[one for one in findings(pod) if one.code == "networks-on-host"] for pod in pods]
    ((finding,), ()) = told
    assert finding.severity is Severity.WARNING
    assert finding.path == ("metadata", "annotations", *annotations)
    assert not findings(template(asking(HCA, 1), hostNetwork=True))


@pytest.mark.parametrize(
    ("name", "handler", "word"),
    [
        ("kata", "", "virtual machine"),
        ("kata-qemu-nvidia-gpu", "", "virtual machine"),
        ("isolated", "kata-clh", "virtual machine"),
        ("gvisor", "", "gVisor"),
        ("sandbox", "runsc", "gVisor"),
        ("nvidia", "nvidia", None),
        ("other", "", None),
    ],
)
def test_a_pod_in_a_sandbox_that_asks_is_warned(name, handler, word):
    """By the name of its runtime class, or by the handler of that."""
    facts = AdmissionFacts(handlers=((name, handler),))
    for pod in (
        template(asking(HCA, 1), runtimeClassName=name),
        template(container(), annotations=networks("a"), runtimeClassName=name),
    ):
        listed = findings(pod, facts)
        assert [one.code for one in listed] == (["runtime-class"] if word else [])
        assert not word or (word in listed[0].problem and name in listed[0].problem)
    assert not findings(template(container(), runtimeClassName=name), facts)


def with_resources(**resources):
    return container() | {"resources": resources}


def test_a_request_of_a_share_equals_its_limit():
    """Kubernetes refuses another, of an extended resource."""
    assert not findings(template(with_resources(limits={HCA: 2}, requests={HCA: "2"})))
    finding = only(template(with_resources(limits={HCA: 2}, requests={HCA: 1})))
    assert (finding.code, finding.severity) == ("requests", Severity.ERROR)
    assert "requests 1 of rdma/hca with a limit of 2" in finding.problem
    finding = only(template(with_resources(requests={HCA: 1})))
    assert finding.path[-2:] == ("requests", HCA)
    assert finding.remedy == "Write limits with rdma/hca: 1"
    assert not findings(template(with_resources(requests={"example.com/other": 1})))


def test_an_annotation_above_the_template_reaches_no_pod():
    """One that all templates have too is nobody's mistake, and others' are not judged."""
    place = ("metadata", "annotations")
    bare, asks = template(container()), template(container(), annotations=networks("a"))
    above = [AnnotationAbove(ANNOTATION, "Deployment", (*place, ANNOTATION))]
    ((finding,), none) = (list(misplaced(above, [one])) for one in (bare, asks))
    assert (finding.code, finding.path[-1], none) == ("annotation-place", ANNOTATION, [])
    assert "stands at the Deployment" in finding.problem
    assert list(misplaced(above, [asks, bare]))
    nearly = AnnotationAbove("k8s.volcengine.com/pod-network", "Job", place)
    assert POD_NETWORKS in next(iter(misplaced([nearly], [bare]))).remedy
    assert not list(misplaced([AnnotationAbove("example.com/a", "Job", place)], [bare]))


@pytest.mark.parametrize(
    ("inits", "told"),
    [
        ([], True),
        ([AWAITS, MEASURES], True),
        (["fetch", MEASURES, AWAITS], True),
        ([MEASURES, AWAITS, "fetch"], False),
    ],
)
def test_a_pod_that_asks_for_a_preflight_is_told_how_to_write_it(inits, told):
    """As a note: from Kubernetes 1.36 on nobody has to. A pod that does not ask is told nothing."""
    spec = {"initContainers": [{"name": name} for name in inits]}
    found = findings(template(container(), annotations={REQUEST: "ring"}, **spec))
    assert [(one.code, one.severity) for one in found] == [("preflight", Severity.ADVICE)] * told
    assert all("kube-rdma preflight lines --image IMAGE" in one.remedy for one in found)
    assert findings(template(container(), **spec)) == ()
    main = [container() | {"name": name} for name in (MEASURES, AWAITS)]
    assert findings(template(*main, annotations={REQUEST: "ring"}))


# What a template has or lacks beside its shares.

LOCK = {"capabilities": {"add": ["IPC_LOCK"]}}
DEV = {"name": "dev", "hostPath": {"path": "/dev/infiniband/"}}
SHM = {"volumes": [("shm", "/dev/shm")]}
GPUS = "nvidia.com/gpu"


def holding(**fields):
    return container(**({HCA: 1} | fields))


def own(user, **more):
    return holding(security=LOCK | {"runAsUser": user} | more)


def with_entry(**fields):
    return template(holding(), annotations={ANNOTATION: json.dumps([{"name": "fabric", **fields}])})


@pytest.mark.parametrize(
    ("rule", "pod"),
    [
        ("init-alone", template(container(), initContainers=[holding()])),
        (None, template(holding(), initContainers=[holding()])),
        (None, template(container(security={"privileged": True}), initContainers=[holding()])),
        (
            None,
            template(container(), initContainers=[holding() | {"restartPolicy": "Always"}]),
        ),
        ("device-volume", template(holding(volumes=[("dev", "/dev/infiniband")]), volumes=[DEV])),
        (None, template(holding(volumes=[("dev", "/host/dev")]), volumes=[DEV])),
        (None, template(container(volumes=[("dev", "/dev")]), holding(), volumes=[DEV])),
        (
            None,
            template(
                holding(volumes=[("dev", "/dev")], security={"privileged": True}), volumes=[DEV]
            ),
        ),
        ("inert-lock", template(own(1000))),
        (None, template(own(0))),
        ("inert-lock", template(holding(security=LOCK), securityContext={"runAsNonRoot": True})),
        (None, template(holding(security={"runAsUser": 1000}))),
        (None, template(own(1000, privileged=True))),
        ("little-memory", template(holding(**{GPUS: 2}))),
        (None, template(holding(**{GPUS: 1}))),
        (None, template(holding(**{GPUS: 8}, **SHM))),
        (None, template(container(**{GPUS: 8}), holding())),
        (None, template(holding(**{GPUS: 8}), hostIPC=True)),
        (None, template(holding(**{GPUS: 8}), annotations={COMPLETE: "shm"})),
        (None, replace(template(holding(**{GPUS: 8})), kind="RayCluster")),
        (None, replace(template(holding(**{GPUS: 8})), whole=False)),
        (None, replace(template(container(), initContainers=[holding()]), whole=False)),
        ("default-route", with_entry(**{"default-route": ["10.0.0.1"]})),
        (None, with_entry()),
        ("one-address", replace(with_entry(ips=["10.0.0.9/24"]), copies=3)),
        ("one-address", replace(with_entry(ips=["10.0.0.9/24"]), kind="DaemonSet")),
        (None, with_entry(ips=["10.0.0.9/24"])),
    ],
)
def test_what_leaves_a_container_without_its_cards_memory_or_services_is_told(rule, pod):
    """Cases of people: forty mistakes 09, 10, 16, 17 and 18, and public case 17."""
    found = findings(pod)
    assert [one.code for one in found] == ([rule] if rule else [])
    expected = Severity.ADVICE if rule == "little-memory" else Severity.WARNING
    assert all(one.severity is expected for one in found)


def test_the_remedy_of_a_lock_without_effect_can_help():
    """no_new_privs keeps capabilities of a file from a program: prctl(2), PR_SET_NO_NEW_PRIVS."""
    assert "which runs as user 1000" in only(template(own(1000))).problem
    assert "setcap" in only(template(own(1000))).remedy
    assert "setcap" not in only(template(own(1000, allowPrivilegeEscalation=False))).remedy
