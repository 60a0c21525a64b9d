"""CDI is used where it is known to work, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.attach.rules.late_binding import cdi_works
from kube_rdma.model.late_binding import Runtime


@pytest.mark.parametrize(
    ("kubelet", "runtime", "sentence"),
    [
        ("v1.36.3", Runtime("containerd", "v2.4.2"), "containerd is v2.4.2 and CDI is on."),
        ("v1.29.0-eks-5e0fdde", Runtime("containerd", "2.0.2-k3s2", True), "CDI is on"),
        ("1.31", Runtime("containerd", "1.7.13~ds1", True), "CDI is on"),
        ("v1.30.1+k0s.0", Runtime("cri-o", "1.30.1"), "cri-o is 1.30.1."),
        (f"v1.{'9' * 5_000}", Runtime("cri-o", f"1.{'9' * 5_000}"), "cri-o is 1.9999"),
    ],
)
def test_where_it_works(kubelet, runtime, sentence):
    works, why = cdi_works(kubelet, runtime)
    assert works
    assert sentence in why


@pytest.mark.parametrize(
    ("kubelet", "runtime", "sentence"),
    [
        (None, Runtime("containerd", "v2.4.2"), "kubelet is not known"),
        ("", Runtime("containerd", "v2.4.2"), "kubelet is not known"),
        ("v1.28.9", Runtime("containerd", "v2.4.2"), "need 1.29"),
        ("v1.36.3", None, "runtime is not known"),
        ("v1.36.3", Runtime("containerd", "git"), "cannot be read"),
        ("v1.36.3", Runtime("containerd", "1.6.36", True), "need 1.7 with enable_cdi"),
        ("v1.36.3", Runtime("containerd", "1.7.20"), "does not say"),
        ("v1.36.3", Runtime("containerd", "1.7.20", False), "is off"),
        ("v1.36.3", Runtime("containerd", "2.1.0", False), "is off"),
        ("v1.36.3", Runtime("cri-o", "1.27.8"), "need 1.28"),
        ("v1.36.3", Runtime("docker", "28.0.1"), "not known that docker"),
    ],
)
def test_where_it_does_not(kubelet, runtime, sentence):
    works, why = cdi_works(kubelet, runtime)
    assert not works
    assert sentence in why


versions = st.one_of(st.text(max_size=8), st.from_regex(r"v?[0-3]\.\d{1,2}(\.\d)?", fullmatch=True))
runtimes = st.builds(
    Runtime,
    st.sampled_from(["containerd", "cri-o", "docker", ""]),
    versions,
    st.sampled_from([None, True, False]),
)


@given(st.none() | versions, st.none() | runtimes)
def test_what_is_not_known_does_not_work(kubelet, runtime):
    """Whatever it is told, it answers with a sentence."""
    works, why = cdi_works(kubelet, runtime)
    assert why.endswith(".")
    if works:
        assert kubelet
        assert runtime
        assert runtime.name == "cri-o" or runtime.cdi is not False
