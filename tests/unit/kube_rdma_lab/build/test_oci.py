"""The image writer, checked by a reader of its own: digests, order, ownership, equal bytes."""

import gzip
import hashlib
import io
import json
import os
import tarfile

import pytest

from kube_base.errors import Refused
from kube_rdma_lab.build import oci

REFERENCE = "example.com/team/thing:1"


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "content"
    for name in ("usr/bin/program", "etc/config", "dev/null-like", "usr/dev/kept"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "usr/bin/program").chmod(0o700)
    (root / "usr/bin/alias").symlink_to("program")
    os.link(root / "usr/bin/program", root / "usr/bin/twin")
    return root


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def members(layer: oci.Layer) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(layer.blob) as tar:
        return {member.name: member for member in tar}


def test_layer_digests_are_true(folder, tmp_path):
    """The digest is that of the file, the diff id that of the tar in it."""
    layer = oci.write_layer(folder, tmp_path / "layer")
    blob = layer.blob.read_bytes()
    assert layer.digest == sha256(blob)
    assert layer.diff_id == sha256(gzip.decompress(blob))
    assert layer.size == len(blob)


def test_equal_folders_give_equal_bytes(folder, tmp_path):
    """Times and the order of creation leave no trace."""
    first = oci.write_layer(folder, tmp_path / "one")
    for path in folder.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    second = oci.write_layer(folder, tmp_path / "two")
    assert first.blob.read_bytes() == second.blob.read_bytes()


def test_layer_holds_links_and_no_machine_folders(folder, tmp_path):
    """Links stay links; only the top /dev, /proc, /sys and /run are emptied."""
    found = members(oci.write_layer(folder, tmp_path / "layer"))
    assert found["usr/bin/alias"].linkname == "program"
    assert found["usr/bin/twin"].islnk()
    assert found["dev"].isdir()
    assert "dev/null-like" not in found
    assert "usr/dev/kept" in found


def test_root_owned_gives_plain_modes(folder, tmp_path):
    """What did not come from Debian belongs to root and can be read by all."""
    found = members(oci.write_layer(folder, tmp_path / "layer", root_owned=True))
    assert {(member.uid, member.gid) for member in found.values()} == {(0, 0)}
    assert found["usr/bin/program"].mode == 0o755
    assert found["etc/config"].mode == 0o644
    assert found["etc"].mode == 0o755


def test_image_can_be_followed_from_its_index(folder, tmp_path):
    """Index, manifest, config and layers name one another by true digests and sizes."""
    layer = oci.write_layer(folder, tmp_path / "layer")
    config = oci.ContainerConfig(entrypoint=("/program",), cmd=("run",), labels={"a": "b"})
    written = oci.write_image(tmp_path / "image.tar", REFERENCE, [layer, layer], config)
    with tarfile.open(written.path) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}

    def follow(descriptor):
        data = files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert sha256(data) == descriptor["digest"]
        assert len(data) == descriptor["size"]
        return data

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads(files["index.json"])["manifests"]
    assert described["digest"] == written.digest
    assert described["annotations"]["io.containerd.image.name"] == REFERENCE
    manifest = json.loads(follow(described))
    image = json.loads(follow(manifest["config"]))
    assert image["config"]["Entrypoint"] == ["/program"]
    assert image["config"]["Labels"] == {"a": "b"}
    plain = [gzip.decompress(follow(entry)) for entry in manifest["layers"]]
    assert [sha256(data) for data in plain] == image["rootfs"]["diff_ids"]
    with tarfile.open(fileobj=io.BytesIO(plain[0])) as tar:
        assert tar.getmember("etc/config").size == 10
    (older,) = json.loads(files["manifest.json"])
    assert older["RepoTags"] == [REFERENCE]
    assert set(older["Layers"]) | {older["Config"]} <= set(files)


def test_image_is_the_same_every_time(folder, tmp_path):
    """Two runs write the same file, so a digest tells the content."""
    layer = oci.write_layer(folder, tmp_path / "layer")
    images = [
        oci.write_image(tmp_path / name, REFERENCE, [layer], oci.ContainerConfig())
        for name in ("a", "b")
    ]
    assert images[0].path.read_bytes() == images[1].path.read_bytes()
    assert images[0].digest == images[1].digest


def image_file(path, **files):
    """An archive of these JSON files, as image programs of others write theirs."""
    with tarfile.open(path, "w") as tar:
        for name, document in files.items():
            data = json.dumps(document).encode()
            info = tarfile.TarInfo(f"{name}.json")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_a_written_image_is_read_by_its_name(folder, tmp_path):
    layer = oci.write_layer(folder, tmp_path / "layer")
    written = oci.write_image(tmp_path / "image", REFERENCE, (layer,), oci.ContainerConfig())
    read = oci.read_image(written.path)
    assert (read.reference, read.size) == (REFERENCE, written.size)
    assert read.digest == sha256(written.path.read_bytes())


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("me/thing", "docker.io/me/thing:latest"),
        ("localhost/thing:2", "localhost/thing:2"),
        ("localhost:5000/thing", "localhost:5000/thing:latest"),
        ("ghcr.io/a/b/c@sha256:00", "ghcr.io/a/b/c@sha256:00"),
    ],
)
def test_a_short_name_is_completed_as_the_runtime_does(tmp_path, name, full):
    docker = [{"Config": "c.json", "RepoTags": [name], "Layers": []}]
    assert oci.read_image(image_file(tmp_path / "x.tar", manifest=docker)).reference == full


def test_the_name_is_read_from_the_newer_list_too(tmp_path):
    described = {"annotations": {"io.containerd.image.name": REFERENCE}}
    path = image_file(tmp_path / "x.tar", index={"manifests": [described]})
    assert oci.read_image(path).reference == REFERENCE


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "neither index.json nor manifest.json is in it"),
        ({"index": {"manifests": [{}]}}, "the image has no name"),
        ({"manifest": [{"RepoTags": None}], "index": {}}, "the image has no name"),
    ],
)
def test_a_file_that_is_no_named_image_is_refused(tmp_path, files, sentence):
    path = image_file(tmp_path / "x.tar", **files)
    with pytest.raises(Refused, match=sentence):
        oci.read_image(path)


def test_a_text_file_is_refused_as_an_image(tmp_path):
    path = tmp_path / "x.tar"
    path.write_text("FROM scratch\n")
    with pytest.raises(Refused, match="not an image archive"):
        oci.read_image(path)


def test_an_image_says_what_processor_it_is_for(folder, tmp_path):
    """Twice: an engine that loads it reads its configuration, a registry the index."""
    layer = oci.write_layer(folder, tmp_path / "layer")
    config = oci.ContainerConfig(architecture="arm64")
    written = oci.write_image(tmp_path / "image.tar", REFERENCE, (layer,), config)
    with tarfile.open(written.path) as tar:
        index = json.load(tar.extractfile("index.json"))
        (older,) = json.load(tar.extractfile("manifest.json"))
        inside = json.load(tar.extractfile(older["Config"]))
    assert index["manifests"][0]["platform"] == {"os": "linux", "architecture": "arm64"}
    assert inside["architecture"] == "arm64"
