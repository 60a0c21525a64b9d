"""The program that measures Allocate is what it says it is: the kubelet's own gRPC."""

import pytest

from bench.allocate import MODULES
from kube_rdma_lab.build import go


@pytest.mark.parametrize("module", ["google.golang.org/grpc", "k8s.io/kubelet"])
def test_it_has_the_versions_of_the_labs_kubelet(module):
    """Both lists of modules name the same version."""
    texts = [
        (MODULES / "allocate/go.mod").read_text(),
        (go.MODULES / "kubernetes/go.mod").read_text(),
    ]
    ours, kubelets = (go.parse_go_mod(text).versions[module] for text in texts)
    assert ours == kubelets
