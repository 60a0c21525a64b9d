"""Nodes are grouped by what a driver's image is built for; one without labels is named."""

from kube_rdma.operator.rules.placement import driver_groups, peer_groups, policy_node

FEATURE = "feature.node.kubernetes.io"


def node(name, *, kernel="5.4.0", release="20.04", gpus=False, **changes):
    """A node with cards as Node Feature Discovery labels it; a label that is None is missing."""
    labels = {
        "kubernetes.io/arch": "amd64",
        f"{FEATURE}/pci-15b3.present": "true",
        f"{FEATURE}/kernel-version.full": kernel,
        f"{FEATURE}/system-os_release.ID": "ubuntu",
        f"{FEATURE}/system-os_release.VERSION_ID": release,
    }
    labels |= {f"{FEATURE}/pci-10de.present": "true"} if gpus else {}
    labels |= {f"{FEATURE}/{key.replace('__', '.')}": value for key, value in changes.items()}
    return policy_node(name, {key: value for key, value in labels.items() if value is not None})


def tags(grouping):
    return [group.tag for group in grouping.groups]


def test_each_kernel_and_system_is_a_group_of_its_own():
    nodes = [node("a"), node("b"), node("c", kernel="5.15.0"), node("d", release="22.04")]
    assert tags(driver_groups(nodes)) == [
        "amd64-ubuntu20.04-kver5.15.0",
        "amd64-ubuntu20.04-kver5.4.0",
        "amd64-ubuntu22.04-kver5.4.0",
    ]


def test_nodes_without_cards_are_in_none():
    grouping = driver_groups([node("a", **{"pci-15b3__present": "false"})])
    assert (grouping.groups, grouping.problem) == ((), "")


def test_the_peer_driver_wants_gpus_and_no_kernel():
    nodes = [node("a", gpus=True), node("b", gpus=True, kernel="5.15.0"), node("c")]
    assert tags(peer_groups(nodes)) == ["amd64-ubuntu20.04"]


def test_a_node_that_lacks_a_label_is_named_and_the_others_go_on():
    nodes = [
        node("a"),
        node("c", **{"kernel-version__full": None}),
        node("b", **{"system-os_release__ID": None}),
    ]
    grouping = driver_groups(nodes)
    assert tags(grouping) == ["amd64-ubuntu20.04-kver5.4.0"]
    assert grouping.problem == (
        f"node b has no label {FEATURE}/system-os_release.ID, and 1 more nodes lack labels"
    )
    assert not peer_groups(nodes).problem


def test_a_group_selects_just_its_nodes():
    (group,) = driver_groups([node("a")]).groups
    assert group.selector == {
        "kubernetes.io/arch": "amd64",
        f"{FEATURE}/system-os_release.ID": "ubuntu",
        f"{FEATURE}/system-os_release.VERSION_ID": "20.04",
        f"{FEATURE}/kernel-version.full": "5.4.0",
    }
