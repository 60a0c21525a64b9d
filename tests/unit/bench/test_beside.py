"""Two checkouts are compared by figures of the same key, and by each one's own examples."""

import pytest

from bench import beside
from bench.figures import Figure


def test_a_ratio_is_ours_to_theirs_and_a_figure_without_a_partner_has_none():
    theirs = [Figure("pod_seconds", 4.0, "s"), Figure("rest_s3_node_1", 0.0, "")]
    ours = [
        Figure("pod_seconds", 3.0, "s"),
        Figure("rest_s3_node_1", 0.5, ""),
        Figure("new", 1.0, "s"),
    ]
    assert beside.ratios(ours, theirs, "there") == (
        Figure("pod_to_beside", 0.75, "×", "", "there"),
    )


def test_nothing_is_measured_where_no_checkout_is_named(monkeypatch):
    monkeypatch.delenv("KUBE_RDMA_BESIDE", raising=False)
    (row,) = beside.measure(None)
    assert not row.failed


@pytest.mark.parametrize("name", ["pod1.yml", "pod-1.yaml"], ids=["now", "at an older commit"])
def test_the_seed_s_pod_is_the_checkout_s_own(tmp_path, name):
    folder = tmp_path / "examples/s3-network"
    folder.mkdir(parents=True)
    (folder / f"rdma-test-{name}").write_text("kind: Pod\n---\n")
    lab = beside.CheckoutLab(tmp_path)
    assert lab.documents(beside.POD) == [{"kind": "Pod"}]


def test_this_checkout_has_what_is_installed():
    """The seed's first pod is one document, its agent one DaemonSet."""
    lab = beside.CheckoutLab(beside.HERE)
    assert len(lab.documents(beside.POD)) == 1
    kinds = [each["kind"] for each in lab.documents(f"{beside.FOLDER}/agent.yaml")]
    assert kinds.count("DaemonSet") == 1
