"""The list of an image's components (SBOM), as CycloneDX 1.6 in JSON.

CycloneDX's own library writes it. Equal images of a commit have equal lists: the serial number
follows from commit and image, and the time is the commit's.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from kube_rdma_tools.release.contents import DEBIAN, ImageComponent
from kube_rdma_tools.release.identity import ReleaseIdentity

NAMES = uuid.UUID("0d0c1f6e-6a53-4b0a-8c0b-5a4c6a9f3e27")  # namespace of serial numbers, random


def sbom(
    identity: ReleaseIdentity, architecture: str, digest: str, listed: Sequence[ImageComponent]
) -> str:
    """Return the CycloneDX document of an image, by its architecture and manifest digest."""
    url = PackageURL(
        "oci",
        name="kube-rdma",
        version=digest,
        qualifiers={"arch": architecture, "tag": identity.version.semantic},
    )
    image = Component(
        name="kube-rdma",
        type=ComponentType.CONTAINER,
        version=identity.version.semantic,
        licenses=[LicenseFactory().make_with_id("Apache-2.0")],
        purl=url,
        bom_ref=str(url),
    )
    parts = [_component(part) for part in listed]
    document = Bom(
        serial_number=uuid.uuid5(NAMES, f"{identity.commit} {digest}"),
        metadata=BomMetaData(component=image, timestamp=identity.time),
        components=parts,
    )
    document.register_dependency(image, parts)
    return JsonV1Dot6(document).output_as_string(indent=2) + "\n"


def _component(part: ImageComponent) -> Component:
    url = _url(part)
    return Component(
        name=part.name,
        type=ComponentType.LIBRARY,
        version=part.version,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else [],
        licenses=_licenses(part),
        purl=url,
        bom_ref=str(url),
    )


def _url(part: ImageComponent) -> PackageURL:
    if part.kind != "deb":
        return PackageURL(part.kind, name=part.name.lower(), version=part.version)
    qualifiers = {"arch": part.architecture, "distro": f"debian-{DEBIAN}"}
    return PackageURL("deb", "debian", part.name, part.version, qualifiers)


def _licenses(part: ImageComponent) -> list[License]:
    """Return a component's licences: a single one as SPDX id or expression if it reads as one."""
    factory = LicenseFactory()
    if part.kind != "deb" and len(part.licences) == 1:
        return [factory.make_from_string(part.licences[0])]
    return [factory.make_with_name(name) for name in part.licences]
