"""Which words of kubectl's commands are found in pages and in the texts of code."""

import pytest

from kube_rdma_tools.judge.written_commands import alone, alone_in_code, written_alone


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("kubectl get ippools", 1),
        ("Then:\nkubectl -n a delete pods,ippools --all", 2),
        ("kubectl get \\\n    ippools/rdma", 1),
        ("run `kubectl edit ippools` there", 1),
        ("kubectl get pods && kubectl describe 'ippools'", 1),
    ],
)
def test_a_word_without_its_group_is_found(text, line):
    assert (line, "ippools") in alone(text)
    assert (line, "ippools") in alone_in_code(
        f"print(f'''{text} {{name}}''')".replace("\\", "\\\\")
    )


@pytest.mark.parametrize(
    "text",
    [
        "kubectl get ippools.kube-rdma.io",
        "kubectl delete ippools.kube-rdma.io/rdma",
        "kubectl apply -f ippools.yaml",
        "kubectl explain ippools --api-version=kube-rdma.io/v1alpha1 --recursive",
        "kubectl get pods | grep ippools",
        "`kubectl get pods` shows no ippools",
        "the ippools of the cluster",
    ],
)
def test_a_word_that_can_be_read_one_way_is_not(text):
    assert "ippools" not in {word for _, word in alone(text)}


def test_this_checkout_is_read():
    """Pages and the help of the command; `pods` is a word that both write."""
    assert written_alone()["pods"].partition(":")[0].endswith((".md", ".py"))
    assert "nicclusterpolicy" in written_alone()
    assert not {"ippool", "ippools"} & written_alone().keys()
