"""EndpointSlices as the controller of kube-rdma writes them."""

from kube_rdma.model.names import MANAGED_BY, SERVICE_NAME


def endpoint_slice(*pods, service="ring", namespace="default", address="10.20.0.5"):
    """A slice with pairs of pods and whether they are ready; all have one address."""
    labels = {SERVICE_NAME: service, MANAGED_BY[0]: MANAGED_BY[1]}
    endpoints = [
        {
            "addresses": [address],
            "hostname": name,
            "conditions": {"ready": ready},
            "targetRef": {"kind": "Pod", "namespace": namespace, "name": name},
        }
        for name, ready in pods
    ]
    meta = {"name": f"{service}-rdma-1", "namespace": namespace, "labels": labels}
    return {"metadata": meta, "addressType": "IPv4", "endpoints": endpoints}
