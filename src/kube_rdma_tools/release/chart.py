"""The Helm chart in the two forms in which Helm takes it: a .tgz, and an artefact of a registry.

Media types and annotations are as Helm writes them (helm, pkg/registry: constants.go, chart.go).
The config is Chart.yaml as JSON, and the one layer is the .tgz. A tag has `_` where a version has
`+`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from kube_rdma_tools.release import layouts
from kube_rdma_tools.release.archives import ArchivedFile, write_tar_gz
from kube_rdma_tools.release.identity import ReleaseIdentity

CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
CONTENT_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def write_chart(folder: Path, target: Path, identity: ReleaseIdentity) -> tuple[Path, Path]:
    """Write a Helm chart into `target` as a package and as an OCI layout; return both files."""
    described: dict[str, Any] = yaml.safe_load((folder / "Chart.yaml").read_text())
    name = f"{described['name']}-{described['version']}"
    package, artefact = (
        target / f"{name}.tgz",
        target / f"{described['name']}-chart-{described['version']}.tar",
    )
    files = {
        f"{described['name']}/{path.relative_to(folder)}": ArchivedFile(path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }
    write_tar_gz(package, files, identity.epoch)
    write_artefact(package, artefact, described, identity)
    return package, artefact


def write_artefact(
    package: Path, target: Path, described: dict[str, Any], identity: ReleaseIdentity
) -> None:
    """Write a packaged chart as an OCI image layout, described by its Chart.yaml."""
    config = layouts.Blob(CONFIG_TYPE, json.dumps(described, sort_keys=True).encode())
    content = layouts.Blob(CONTENT_TYPE, package.read_bytes())
    manifest = layouts.json_blob(
        layouts.MANIFEST_TYPE,
        {
            "schemaVersion": 2,
            "mediaType": layouts.MANIFEST_TYPE,
            "config": config.descriptor(),
            "layers": [content.descriptor()],
            "annotations": {
                "org.opencontainers.image.title": described["name"],
                "org.opencontainers.image.description": described["description"],
                "org.opencontainers.image.version": described["version"],
                "org.opencontainers.image.revision": identity.commit,
                "org.opencontainers.image.created": identity.time.isoformat(),
            },
        },
    )
    tag = described["version"].replace("+", "_")
    reference = f"{identity.reference.rpartition('/')[0]}/charts/{described['name']}:{tag}"
    layouts.write_layout(target, manifest, reference, (config, content))
