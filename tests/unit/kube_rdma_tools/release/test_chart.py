"""The chart as Helm reads it from a file and from a registry."""

import json
import tarfile

import pytest
import yaml

from kube_rdma_tools.release.chart import CONFIG_TYPE, CONTENT_TYPE, write_chart
from tests.unit.kube_rdma_tools.release.test_layouts import blob, files
from tests.unit.kube_rdma_tools.release.values import IDENTITY

CHART = {
    "apiVersion": "v2",
    "name": "kube-rdma",
    "description": "RDMA cards",
    "version": "0.2.0-rc.1",
    "appVersion": "0.2.0-rc.1",
}


@pytest.fixture
def chart(tmp_path):
    folder = tmp_path / "chart"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text(yaml.safe_dump(CHART))
    (folder / "templates/NOTES.txt").write_text("well done")
    return folder


def test_the_package_has_the_files_in_a_folder_of_the_charts_name(chart, tmp_path):
    package, _ = write_chart(chart, tmp_path, IDENTITY)
    assert package.name == "kube-rdma-0.2.0-rc.1.tgz"
    with tarfile.open(package) as tar:
        assert tar.getnames() == ["kube-rdma/Chart.yaml", "kube-rdma/templates/NOTES.txt"]


def test_the_artefact_is_what_helm_pulls(chart, tmp_path):
    """Chart.yaml as config, the package as the one layer, the version as the tag."""
    package, artefact = write_chart(chart, tmp_path, IDENTITY)
    written = files(artefact)
    (entry,) = json.loads(written["index.json"])["manifests"]
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "0.2.0-rc.1"
    manifest = json.loads(blob(written, entry))
    assert manifest["config"]["mediaType"] == CONFIG_TYPE
    assert json.loads(blob(written, manifest["config"])) == CHART
    (layer,) = manifest["layers"]
    assert layer["mediaType"] == CONTENT_TYPE
    assert blob(written, layer) == package.read_bytes()
    assert manifest["annotations"]["org.opencontainers.image.created"].startswith("2023-11-14T")
