"""The list of an image's parts keeps the schema of CycloneDX, and follows from the image alone."""

import json

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kube_rdma_tools.release.sbom import sbom
from tests.unit.kube_rdma_tools.release.values import COMPONENTS, IDENTITY

DIGEST = f"sha256:{'b' * 64}"
VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)


def test_it_keeps_the_schema_and_names_every_part():
    text = sbom(IDENTITY, "amd64", DIGEST, COMPONENTS)
    assert VALIDATOR.validate_str(text) is None
    document = json.loads(text)
    parts = {one["name"]: one for one in document["components"]}
    assert parts.keys() == {"libc6", "PyYAML", "click"}
    assert parts["libc6"]["purl"].startswith("pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64")
    assert parts["libc6"]["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert [one["license"]["name"] for one in parts["libc6"]["licenses"]] == ["GPL-2", "LGPL-2.1"]
    assert parts["click"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert parts["PyYAML"]["purl"] == "pkg:pypi/pyyaml@6.0.3"
    image = document["metadata"]["component"]
    assert image["version"] == "0.2.0-rc.1"
    (ours,) = (one for one in document["dependencies"] if one["ref"] == image["bom-ref"])
    assert len(ours["dependsOn"]) == len(COMPONENTS)


def test_equal_images_have_equal_lists_and_others_have_another_number():
    first, second = (sbom(IDENTITY, "amd64", DIGEST, COMPONENTS) for _ in range(2))
    assert first == second
    other = sbom(IDENTITY, "amd64", f"sha256:{'c' * 64}", COMPONENTS)
    assert json.loads(first)["serialNumber"] != json.loads(other)["serialNumber"]
    assert json.loads(first)["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"


def test_a_list_that_breaks_the_schema_is_found():
    document = json.loads(sbom(IDENTITY, "amd64", DIGEST, COMPONENTS))
    document["components"][0]["colour"] = "red"
    assert VALIDATOR.validate_str(json.dumps(document)) is not None
