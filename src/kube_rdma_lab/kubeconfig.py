"""Makes kubeconfigs for users of the lab's API server, with everything embedded."""

from __future__ import annotations

import base64
import json

from kube_rdma_lab.pki import KeyPair
from kube_rdma_lab.topology import API_PORT, CONTROL_PLANE_IP

SERVER = f"https://{CONTROL_PLANE_IP}:{API_PORT}"  # inside the lab's network


def kubeconfig(authority: bytes, user: KeyPair, server: str = SERVER) -> bytes:
    """Return a kubeconfig (JSON, which is YAML too) for the owner of a client certificate."""
    cluster = {"server": server, "certificate-authority-data": _b64(authority)}
    credentials = {
        "client-certificate-data": _b64(user.certificate),
        "client-key-data": _b64(user.key),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "user", "user": credentials}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "user"}}],
        "current-context": "lab",
    }
    return json.dumps(document, indent=1).encode()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
