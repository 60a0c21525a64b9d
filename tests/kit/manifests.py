"""Objects that labs apply, as manifests."""

import json

OWN = "kube-rdma.io/v1alpha1"
RESOURCE_NAME = "k8s.v1.cni.cncf.io/resourceName"


def manifest(api_version, kind, metadata, spec):
    """An object of any kind; a name stands for metadata of nothing else."""
    metadata = {"name": metadata} if isinstance(metadata, str) else metadata
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def network(name, config, namespace=None, *, resource=None):
    """A NetworkAttachmentDefinition; `resource` is whose shares it takes."""
    metadata = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if resource:
        metadata["annotations"] = {RESOURCE_NAME: resource}
    spec = {"config": json.dumps(config)}
    return manifest("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", metadata, spec)


def ip_pool(name, **spec):
    return manifest(OWN, "IPPool", name, spec)


def node_policy(name, *pools, **spec):
    return manifest(OWN, "NodePolicy", name, {"pools": list(pools), **spec})
