"""Container images of the lab, and the store of layers that all images are made of.

    pause     busybox that sleeps; holds a pod's namespaces
    verbs     the node's own Debian: perftest, ibverbs and the usual shell programs, for pods; and
              the programs of training_image/, which the Job of examples/s0-ack runs

The product's own image is in product.py. Layers are artifacts of their own, so a changed line of
Python packs one small layer anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kube_rdma_lab.build import oci
from kube_rdma_lab.build.root import BUSYBOX
from kube_rdma_lab.build.shell import Shell
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import PACKAGE

PAUSE = "localhost/lab/pause:1"
VERBS = "localhost/lab/verbs:1"
PAUSE_CONFIG = oci.ContainerConfig(entrypoint=("/busybox", "sleep", "infinity"))
VERBS_CONFIG = oci.ContainerConfig(cmd=("sleep", "infinity"))
# Where the container has the files of training_image/; the Job of examples/s0-ack names the script.
TRAINING = {
    "training": "workspace/wdl_8gpu_outbrain.py",
    "python": "usr/local/bin/python",
}
RECIPE = f"1, gzip {oci.GZIP_LEVEL}"

# Returns the folder to pack; may fill the empty one that it is given.
Content = Callable[[Path, Shell], Path]


def build_pause(store: Store, node_base: Path) -> oci.Written:
    """Build the image of pods' sandbox container, which containerd's configuration names."""

    def content(stage: Path, _: Shell) -> Path:
        shutil.copy(node_base / BUSYBOX, stage / "busybox")
        return stage

    layer = get_layer(store, "pause", {"tree": node_base.parent.name}, content, root_owned=True)
    return get_image(store, PAUSE, (layer,), PAUSE_CONFIG)


def build_verbs(store: Store, node_base: Path) -> oci.Written:
    """Return the tool image with RDMA programs, made of the node's Debian tree."""
    inputs = {"tree": node_base.parent.name}
    debian = get_layer(store, "verbs", inputs, lambda *_: node_base, root_owned=False)
    return get_image(store, VERBS, (debian, _training_layer(store)), VERBS_CONFIG)


def _training_layer(store: Store) -> oci.Layer:
    """Return the image layer with the programs that the training Job of examples/s0-ack runs."""
    folder = PACKAGE / "training_image"
    files = {place: (folder / name).read_bytes() for name, place in TRAINING.items()}

    def content(stage: Path, _: Shell) -> Path:
        for place, text in files.items():
            path = stage / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            path.chmod(0o755)
        return stage

    inputs = {place: hashlib.sha256(text).hexdigest() for place, text in files.items()}
    return get_layer(store, "training", inputs, content, root_owned=True)


def get_layer(
    store: Store, name: str, inputs: Mapping[str, str], content: Content, *, root_owned: bool
) -> oci.Layer:
    """Return an image layer from the store, built if missing from the folder of `content`.

    `root_owned` is as in `oci.write_layer`.
    """

    def make(folder: Path, shell: Shell) -> None:
        stage = folder / "stage"
        stage.mkdir()
        packed = content(stage, shell)
        layer = oci.write_layer(packed, folder / "layer.tar.gz", root_owned=root_owned)
        shutil.rmtree(stage)
        described = {"digest": layer.digest, "diff_id": layer.diff_id, "size": layer.size}
        (folder / "layer.json").write_text(json.dumps(described))

    path = store.get(f"layer-{name}", {**inputs, "recipe": RECIPE}, make)
    return oci.Layer(path / "layer.tar.gz", **json.loads((path / "layer.json").read_text()))


def get_image(
    store: Store, reference: str, layers: Sequence[oci.Layer], config: oci.ContainerConfig
) -> oci.Written:
    """Return an image from the store as an OCI archive, built if missing."""
    name = reference.rpartition("/")[2].partition(":")[0]

    def make(folder: Path, _: Shell) -> None:
        written = oci.write_image(folder / "image.tar", reference, layers, config)
        (folder / "digest").write_text(written.digest)

    inputs = {
        "reference": reference,
        "config": repr(config),
        "layers": " ".join(layer.digest for layer in layers),
    }
    folder = store.get(f"image-{name}", inputs, make)
    tar = folder / "image.tar"
    return oci.Written(tar, reference, (folder / "digest").read_text(), tar.stat().st_size)
