"""Pods for tests of admission: few words make a manifest, and the manifest a PodTemplate."""

import json

from kube_rdma.admission.documents import pod_manifest
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS
from kube_rdma.lib.text.document import of_value

VKE = "vke.volcengine.com/rdma"


def container(*, name="main", volumes=(), security=None, **limits):
    """A container with these limits."""
    made = {"name": name, "resources": {"limits": limits}}
    if volumes:
        made["volumeMounts"] = [{"name": key, "mountPath": path} for key, path in volumes]
    if security is not None:
        made["securityContext"] = security
    return made


def asking(resource=VKE, count=2, **rest):
    """A container that asks for shares."""
    return container(**rest) | {"resources": {"limits": {resource: count}}}


def blocks(*names):
    """The annotation with a block for each network."""
    return {POD_NETWORKS: json.dumps([{"cniConf": {"name": name}} for name in names])}


def networks(*names):
    """The annotation with these networks."""
    return {ANNOTATION: ",".join(names)}


def pod(*containers, annotations=None, **spec):
    """The manifest of a pod."""
    metadata = {"name": "pod", "namespace": "team", "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": list(containers), **spec}}


def template(*containers, **rest):
    """What the manifest means."""
    return pod_manifest.load(of_value(pod(*containers, **rest), "pod"))
