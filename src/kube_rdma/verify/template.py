"""The pod that a BandwidthCheck copies to nodes: the fields that are looked at, and any others.

verify/rules/copies makes the copies, out of the pod as it was written.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from kube_rdma.lib.text.typed import Many, Typed
from kube_rdma.lib.text.words import Labels

# As the API server takes them: 256 KiB in all.
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=1 << 18)]], Field(max_length=256)]


class PodPart(Typed):
    """A part of a pod; fields that are not known here are accepted."""

    model_config = ConfigDict(extra="allow")


class TemplateResources(PodPart):
    """The resources of a container."""

    limits: dict[str, Any] | None = None
    """limits are the resource limits of the container. A node gets a copy only if it offers each
    extended resource that the limits of any container name, as shares or by claims of a
    DeviceClass. Example: rdma/hca: 1.
    """


class TemplateContainer(PodPart):
    """A container of the pod."""

    resources: TemplateResources | None = None
    """resources are the resources of the container, as in any Pod. Left out: the container asks for
    nothing.
    """


class TemplateClaim(PodPart):
    """A claim of the pod."""

    name: str = Field(max_length=253)
    """name is what containers call the claim, as in any Pod. Example: nics."""
    resource_claim_name: str | None = Field(None, max_length=253)
    """resourceClaimName is refused: a claim is allocated on one node, so copies cannot share it."""
    resource_claim_template_name: str | None = Field(None, max_length=253)
    """resourceClaimTemplateName is the ResourceClaimTemplate of each copy's claim, in the namespace
    of the check. Example: nics.
    """


class TemplateSpec(PodPart):
    """The spec of the pod."""

    containers: Many[TemplateContainer] = Field(
        min_length=1, max_length=64, examples=[[{"name": "c", "image": "IMAGE"}]]
    )
    """containers are the containers of the pod. A copy has the first one alone, which waits instead
    of its own command. Its image needs perftest and a shell.
    """
    resource_claims: Many[TemplateClaim] | None = Field(default=None, max_length=64)
    """resourceClaims are the claims of the pod, as in any Pod. A node gets a copy only if its
    devices can meet them. Left out: the pod has none.
    """
    node_selector: Labels | None = None
    """nodeSelector has labels that a node needs, as in any Pod. The label kubernetes.io/hostname in
    it is ignored. A copy on a node without these labels does not start, and the node takes no part.
    """


class TemplateMetadata(PodPart):
    """The metadata of the pod, as far as copies keep it."""

    labels: Labels | None = None
    """labels are the labels of each copy; labels of kube-rdma come on top. Left out: only those."""
    annotations: Annotations | None = None
    """annotations are the annotations of each copy, such as those that name its networks. Left out:
    none. Example: k8s.v1.cni.cncf.io/networks: rdma-net.
    """


class BandwidthTemplate(Typed):
    """The pod, without a name."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """metadata has the labels and annotations of each copy. Its other fields are ignored. Left out:
    none.
    """
    spec: TemplateSpec = Field(examples=[{"containers": [{"name": "c", "image": "IMAGE"}]}])
    """spec is the specification of the pod, as in any Pod. A copy has no probes, lifecycle hooks
    and init containers. kube-rdma sets its affinity, restartPolicy and
    terminationGracePeriodSeconds.
    """
