"""What the image for Arm does, run by Debian's qemu-user: survey, shim and agent.

The cards are a constructed tree, the kubelet a fake. The kernel is this machine's.
"""

import json
import os
import stat
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_rdma.adapters.cni.conf import places
from kube_rdma.model.attach.cni import PLUGIN
from kube_rdma_lab.build import product, resolution
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.native import cards, trees
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.kit import qemu_user

from .test_image import unpack_image

# Slow: another Debian tree, another compilation.
pytestmark = pytest.mark.slow

TREE, HCA, SHARES = "dgx-like", "rdma/hca", 1000
COMMAND = (f"/usr/bin/python{product.PYTHON}", "-I", "/usr/local/bin/kube-rdma")
PATIENCE = 600.0  # for what certainly happens; emulated Python starts slowly
# A root has no /proc that would be left mounted.
INSIDE = 'mkdir -p "$0/proc" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
PATHS = "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(scope="module")
def roots(machine, tmp_path_factory):
    """By platform a root with its image and constructed cards, and the words that run a program."""
    made = {}
    with open_store() as store:
        stamp = resolution.stamp(update=False)
        for name in product.PLATFORMS:
            root = tmp_path_factory.mktemp("a", numbered=True)
            unpack_image(store, stamp, name, root)
            trees.write(TREE, root / "sys")
            add_devices(root)
            words = ("unshare", "--mount", "sh", "-c", INSIDE, str(root))
            if name == "linux/arm64":
                words += (qemu_user.put(store, stamp, root),)
            made[name] = (root, words)
    return made


def add_devices(root):
    """The device nodes of the constructed cards, and those that every container has."""
    for char in cards.read(root / "sys").devices:
        path = root / char.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(char.major, char.minor))
    for name in ("null", "urandom"):
        facts = Path("/dev", name).stat()
        if not (root / "dev" / name).exists():
            os.mknod(root / "dev" / name, facts.st_mode, facts.st_rdev)


def run(words, *command, text="", **environment):
    """What a program prints."""
    variables = {"PATH": PATHS, **environment}
    done = subprocess.run(
        (*words, *command), input=text, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def arm(roots):
    return roots["linux/arm64"]


def test_it_sees_the_cards_that_the_other_processor_sees(roots):
    """The whole answer for programs, eight cards."""
    told = {
        name: json.loads(run(words, *COMMAND, "devices", "-o", "json"))
        for name, (_, words) in roots.items()
    }
    assert told["linux/arm64"] == told["linux/amd64"]
    assert len(told["linux/arm64"]["devices"]) == 8


def test_its_shim_answers_the_runtime(arm):
    """As the agent installs it."""
    root, words = arm
    shim = root / product.SITE / product.SHIM_PLACE.format(machine="aarch64")
    places.install(shim.read_bytes(), root / "opt/cni/bin")
    answer = json.loads(run(words, f"/opt/cni/bin/{PLUGIN}", text="{}", CNI_COMMAND="VERSION"))
    assert "1.0.0" in answer["supportedVersions"]


@contextmanager
def agent(root, words):
    """Its agent with the cards of mode `hca`, until the scope closes."""
    (root / "config.json").write_text('{"mode": "hca"}')
    options = ("agent", "--config", "/config.json", "--kubelet-root", "/k")
    log = root / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            (*words, *COMMAND, *options), env={"PATH": PATHS}, stdout=out, stderr=out
        ) as running,
    ):
        try:
            yield
        finally:
            running.terminate()
            running.wait()
            print(log.read_text())


async def test_its_agent_gives_a_container_the_recorded_cards(arm):
    """To a kubelet that connects to its socket."""
    root, words = arm
    folder = root / "k/device-plugins"
    folder.mkdir(parents=True)
    async with FakeKubelet(folder) as kubelet:
        with agent(root, words):
            await kubelet.until(lambda: kubelet.healthy(HCA) == SHARES, PATIENCE)
            answer = await kubelet.allocate(HCA, 1)
    given = {spec.host_path for spec in answer.devices}
    assert {f"/dev/infiniband/uverbs{number}" for number in range(8)} <= given
