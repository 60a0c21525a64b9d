"""NetworkAttachmentDefinitions of the Network Plumbing Working Group (k8s.cni.cncf.io/v1).

Their config is text, which attach/documents/network_definition compiles.
"""

from __future__ import annotations

import msgspec

from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind

RESOURCE = "k8s.v1.cni.cncf.io/resourceName"


class DefinitionSpec(msgspec.Struct, frozen=True):
    """The whole spec."""

    config: str = ""


DEFINITION = ObjectKind(
    "k8s.cni.cncf.io",
    "v1",
    "NetworkAttachmentDefinition",
    "network-attachment-definitions",
    namespaced=True,
    spec=ObjectCodec.of(DefinitionSpec),
    status=NOTHING,
)
