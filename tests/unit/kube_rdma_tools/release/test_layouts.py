"""OCI image layouts, read by other code: what is named is in them, under its digest."""

import hashlib
import json
import tarfile

from kube_rdma_lab.build import oci
from kube_rdma_tools.release import layouts

REFERENCE = "registry.example.com/rdma/kube-rdma:1"


def files(path):
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def blob(written, descriptor):
    """What a descriptor names; its digest and size are true."""
    data = written[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert descriptor["size"] == len(data)
    return data


def image(folder, architecture):
    """A small image for an architecture, as kube_rdma_lab writes it."""
    content = folder / architecture
    content.mkdir()
    (content / "name").write_text(architecture)
    layer = oci.write_layer(content, folder / f"{architecture}.layer")
    config = oci.ContainerConfig(entrypoint=("x",), architecture=architecture)
    return oci.write_image(folder / f"{architecture}.tar", REFERENCE, (layer,), config)


def test_joined_images_keep_their_digests_and_say_for_whom_they_are(tmp_path):
    images = [image(tmp_path, name) for name in ("amd64", "arm64")]
    target = tmp_path / "joined.tar"
    layouts.write_joined(target, REFERENCE, [one.path for one in images])
    written = files(target)
    (entry,) = json.loads(written["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == REFERENCE
    index = json.loads(blob(written, entry))
    assert [one["digest"] for one in index["manifests"]] == [one.digest for one in images]
    assert [one["platform"]["architecture"] for one in index["manifests"]] == ["amd64", "arm64"]
    for described in index["manifests"]:
        manifest = json.loads(blob(written, described))
        for part in (manifest["config"], *manifest["layers"]):
            assert blob(written, part)


def test_two_archives_of_equal_images_are_equal(tmp_path):
    paths = [image(tmp_path, name).path for name in ("amd64", "arm64")]
    for name in ("one", "two"):
        layouts.write_joined(tmp_path / name, REFERENCE, paths)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert layouts.manifest_digest(tmp_path / "one") != layouts.manifest_digest(paths[0])
