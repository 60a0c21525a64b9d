"""Views of clusters that `kube-rdma migrate plan` begins from, as values."""

from kube_rdma.model import migrate
from tests.kit import device_plugins as kit

OPERATOR = "nvidia-network-operator/network-operator"
SECTION = {"image": "k8s-rdma-shared-dev-plugin", "config": kit.SHARED_TEXT}
CLUSTER_POLICY = migrate.VendorPolicy(
    "NicClusterPolicy", "", "nic-cluster-policy", "rdmaSharedDevicePlugin", SECTION
)
SPACE_POLICY = migrate.VendorPolicy(
    "NicClusterPolicy", "mlnx-network-operator", "example-nicclusterpolicy", "devicePlugin", SECTION
)


def plugin(document, **more):
    """A DaemonSet as it is read."""
    meta = document["metadata"]
    owner = next(((one["kind"], one["name"]) for one in meta.get("ownerReferences", ())), ())
    more = {"ready": 2} | more
    return migrate.PluginDaemonSet(meta["namespace"], meta["name"], document["spec"], owner, **more)


def ours(namespace="kube-rdma"):
    """kube-rdma's own DaemonSet."""
    document = kit.daemon_set(namespace, "rdma-device-plugin", {"name": "rdma-sriov-dp-ds"})
    return plugin(document, is_ours=True)


def nodes(resource, quantity, *names, **more):
    """Nodes that offer so many shares."""
    return tuple(migrate.MigratingNode(name, {resource: quantity}, **more) for name in names)


def view(document, resource, quantity, *, names=("node-1", "node-2"), text="", **more):
    """A cluster with one plugin; `text` is its configuration."""
    seen = plugin(document)
    shares = {resource: 1000 if quantity == "1k" else int(quantity)}
    configs = {f"{seen.namespace}/rdma-devices": migrate.PluginConfig(text, shares)} if text else {}
    return migrate.MigrationView(
        (seen,), nodes=nodes(resource, quantity, *names), configs=configs, **more
    )


def starts():
    """A view of each start, by its name."""
    shared = kit.SHARED_RESOURCE
    old = kit.nvidia(SPACE_POLICY.namespace, SPACE_POLICY.name)
    return {
        "shared-plugin": view(kit.shared(), shared, "12", text=kit.SHARED_TEXT),
        "scc": view(kit.scc(), "rdma/hca", "1k", text='{"mode": "hca"}\n'),
        "ack": view(kit.ack(), "rdma/hca", "1k"),
        "vke": view(kit.vke(), "vke.volcengine.com/rdma", "4"),
        "nvidia-operator-0.1": view(
            old, shared, "12", text=kit.SHARED_TEXT, policies=(SPACE_POLICY,), operators=(OPERATOR,)
        ),
        "nvidia-operator": view(
            kit.nvidia(),
            shared,
            "12",
            text=kit.SHARED_TEXT,
            policies=(CLUSTER_POLICY,),
            operators=(OPERATOR,),
        ),
    }
