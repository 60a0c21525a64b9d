"""What makes shares or networks void that are written right."""

import pytest

from kube_rdma.admission.rules.findings import findings, misplaced
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS
from kube_rdma.model.admission import AdmissionFacts, AnnotationAbove
from kube_rdma.model.finding import Severity
from tests.kit.admission import asking, blocks, container, networks, template

HCA = "rdma/hca"


def only(*args, **kwargs):
    (finding,) = findings(*args, **kwargs)
    return finding


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
