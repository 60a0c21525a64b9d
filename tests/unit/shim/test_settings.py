"""The shim as an OCI hook merges settings with what a container has itself, whose word counts.

Only the compiled one: it mounts, in a mount namespace that each test makes. `rootfs` stands for the
container's root, as it is before the runtime changes to it.
"""

import json
import os
import subprocess

import pytest

from kube_rdma.attach.rules.settings import TOPOLOGY_FILE

OURS = {"nccl.conf": "NCCL_IB_HCA==rxe0:1\n", "ucx.conf": "UCX_NET_DEVICES=rxe0:1\n"}
PLACES = {"nccl.conf": "etc/nccl.conf", "ucx.conf": "etc/ucx/ucx.conf"}
KEPT = b"stays as the container has it"
OWN_NAMESPACE = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-Urm")


class Container:
    """A bundle, the agent's folder, and what the hook makes of both."""

    def __init__(self, folder, binary):
        self._binary = binary
        self.bundle, self.settings = folder / "bundle", folder / "settings"
        self.root = self.bundle / "rootfs"
        for made in (self.root / "etc", self.settings):
            made.mkdir(parents=True)
        self.configure("rootfs")
        for name, text in OURS.items():
            (self.settings / name).write_text(text)

    def configure(self, root):
        config = {"ociVersion": "1.2.0", "root": {"path": root}, "process": {"root": {}}}
        (self.bundle / "config.json").write_text(json.dumps(config))

    def own(self, name, text, mode=0o644):
        path = self.root / PLACES[name]
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def state(self, name):
        return {"ociVersion": "1.2.0", "id": name, "pid": 1, "bundle": str(self.bundle)}

    def run(self, **how):
        """What `after` prints in the container's mount namespace, with the hook's complaints."""
        with self.begin(**how) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def begin(self, *, before="", after="", state=None):
        """The same as a process that runs."""
        state = state or self.state("c1")
        (self.settings.parent / "state").write_text(json.dumps(state))
        script = (
            f"set -e; {before}\n{self._binary} hook settings {self.settings} <"
            f" {self.settings.parent}/state\ncd {self.root}; {after}"
        )
        command = [*OWN_NAMESPACE, "sh", "-c", script]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def shown(self, name, **how):
        """What the container reads."""
        done = self.run(after=f"cat {PLACES[name]}", **how)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()


@pytest.fixture
def container(tmp_path, binary):
    return Container(tmp_path, binary)


RUNTIMES = {
    "containerd": ("io.kubernetes.cri.sandbox-id", "io.kubernetes.cri.container-name"),
    "cri-o": ("io.kubernetes.cri-o.SandboxID", "io.kubernetes.container.name"),
}


@pytest.fixture(params=RUNTIMES)
def of_pod(request, container):
    """A container of a pod, by a runtime's words; its own folder of settings."""
    state, named = container.state, dict(zip(RUNTIMES[request.param], ("s1", "main"), strict=True))
    folder = container.settings / "s1" / "main"
    folder.mkdir(parents=True)

    def told(**other):
        return {**state("c1"), "annotations": {"some": "other", **named, **other}}

    return folder, told


def test_a_container_that_has_a_claim_reads_its_own_settings(container, of_pod):
    """Those of its sandbox and its name, where the agent has written some."""
    folder, told = of_pod
    (folder / "nccl.conf").write_text("NCCL_IB_HCA==mlx5_7:1\n")
    assert container.shown("nccl.conf", state=told()) == "NCCL_IB_HCA==mlx5_7:1\n"
    folder.rename(folder.with_name("other"))
    assert container.shown("nccl.conf", state=told()) == OURS["nccl.conf"]


def test_a_folder_of_a_container_with_nothing_in_it_is_no_settings(container, of_pod):
    """Nothing is made up of what is for others."""
    _, told = of_pod
    done = container.run(after=f"! test -e {PLACES['nccl.conf']}", state=told())
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_word_of_a_runtime_leads_out_of_the_folder(container):
    for word in ("..", "../../etc", ""):
        keys = dict.fromkeys(RUNTIMES["containerd"], word)
        state = {**container.state("c1"), "annotations": keys}
        assert container.shown("nccl.conf", state=state) == OURS["nccl.conf"]


@pytest.mark.parametrize("name", OURS)
def test_a_container_without_the_file_reads_the_settings(container, name):
    assert container.shown(name) == OURS[name]


def test_the_image_is_not_written_and_the_container_cannot_write_the_settings(container):
    own = container.own("nccl.conf", "NCCL_DEBUG=WARN\n")
    done = container.run(after=f"! echo x >> {PLACES['nccl.conf']}; ! touch {own}")
    assert done.returncode == 0
    assert b"ead-only" in done.stderr
    assert own.read_text() == "NCCL_DEBUG=WARN\n"
    assert (container.settings / "nccl.conf").read_text() == OURS["nccl.conf"]


@pytest.mark.parametrize(
    ("name", "merged"),
    [
        ("nccl.conf", "NCCL_IB_HCA=own\nNCCL_IB_HCA==rxe0:1\n"),  # the first value counts
        ("ucx.conf", "UCX_NET_DEVICES=rxe0:1\nUCX_NET_DEVICES=own\n"),  # the last one
    ],
)
def test_what_the_container_has_itself_counts(container, name, merged):
    """A last line without an end is ended."""
    variable = merged.partition("=")[0]
    container.own(name, f"{variable}=own{'' if name == 'nccl.conf' else chr(10)}")
    assert container.shown(name) == merged


def test_a_file_that_the_pod_mounts_counts_too(container):
    """As a ConfigMap's, with a subPath."""
    own, mounted = container.own("nccl.conf", ""), container.settings.parent / "mounted"
    mounted.write_text("NCCL_DEBUG=INFO\n")
    shown = container.shown("nccl.conf", before=f"mount --bind {mounted} {own}")
    assert shown == f"NCCL_DEBUG=INFO\n{OURS['nccl.conf']}"
    assert mounted.read_text() == "NCCL_DEBUG=INFO\n"


def test_whoever_could_not_read_it_cannot_now(container):
    container.own("nccl.conf", "SECRET=1\n", mode=0o600)
    assert container.run(after=f"stat -c %a {PLACES['nccl.conf']}").stdout == b"600\n"


def test_a_link_stays_inside_of_the_container(container):
    """What it names there is merged; outside nothing is read or made."""
    outside = container.settings.parent / "outside"
    outside.write_text("of the host\n")
    (container.root / "etc/nccl.conf").symlink_to(outside)
    done = container.run(after="ls -R; cat etc/ucx/ucx.conf")
    assert b"nccl.conf " + KEPT in done.stderr
    assert b"of the host" not in done.stdout
    (container.root / "opt").mkdir()
    (container.root / "opt/own").write_text("NCCL_DEBUG=INFO\n")
    (container.root / "etc/nccl.conf").unlink()
    (container.root / "etc/nccl.conf").symlink_to("/../../opt/own")
    done = container.run(after="cat opt/own")
    assert (done.stdout.decode(), done.stderr) == (f"NCCL_DEBUG=INFO\n{OURS['nccl.conf']}", b"")
    assert outside.read_text() == "of the host\n"


def make_kernel_file(container):
    (container.root / "proc").mkdir()
    (container.root / "etc/nccl.conf").symlink_to("/proc/version")
    return f"mount --bind /proc {container.root}/proc"


def make_pipe(container):
    os.mkfifo(container.root / "etc/nccl.conf")
    return ""


def make_folder(container):
    (container.root / "etc/nccl.conf").mkdir()
    return ""


def make_long(container):
    container.own("nccl.conf", "x" * (1 << 20) + "y")
    return ""


def make_full(container):
    """No room for a file that is not there."""
    return f"mount --bind -o ro {container.root} {container.root}"


def make_settings_full(container):
    """No room for what comes of both."""
    container.own("nccl.conf", "")
    return f"mount --bind -o ro {container.settings} {container.settings}"


NO_FILE = "it is no file of a disk"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_kernel_file, NO_FILE),
        (make_pipe, NO_FILE),
        (make_folder, NO_FILE),
        (make_long, "it has more than 1 MiB"),
        (make_full, "Read-only file system"),
        (make_settings_full, "Read-only file system"),
    ],
)
def test_what_cannot_be_merged_stays_with_its_reason_and_the_container_starts(container, make, why):
    done = container.run(before=make(container), after="grep nccl /proc/self/mounts || true")
    assert done.returncode == 0
    assert b"kube-rdma: nccl.conf " + KEPT + f" ({why}).\n".encode() in done.stderr
    assert b"nccl.conf" not in done.stdout
    assert not list(container.settings.glob("*-nccl.conf"))


@pytest.mark.parametrize("root", ["nowhere", None])
def test_a_root_that_is_not_there_is_told_once(container, root):
    container.configure(root)
    why = "No such file or directory" if root else "the bundle's config.json names no root"
    done = container.run()
    sentence = f"kube-rdma: all files stay as the container has them ({why}).\n"
    assert (done.returncode, done.stderr.decode()) == (0, sentence)


def test_a_container_that_starts_again_and_again_leaves_nothing(container):
    """The folder is in memory, and is the agent's until the container's device goes."""
    container.own("nccl.conf", "x" * (1 << 19))
    for number in range(3):
        done = container.run(after="wc -c etc/nccl.conf", state=container.state(f"c{number}"))
        assert done.stderr == b""
        assert int(done.stdout.split()[0]) > 1 << 19
    assert {path.name for path in container.settings.iterdir()} == OURS.keys()


def test_what_is_judged_is_covered_and_not_what_takes_its_place(container):
    """Others write to a volume meanwhile; here while the hook reads the settings, a pipe's."""
    own, ours = container.own("nccl.conf", "NCCL_DEBUG=INFO\n"), container.settings / "nccl.conf"
    ours.unlink()
    os.mkfifo(ours)
    with container.begin(after="cat etc/nccl.conf; head -n 1 etc/judged") as process:
        with ours.open("wb") as pipe:
            pipe.write(b"#\n" * (1 << 17))  # ends when the hook has read from it, after the own
            pipe.flush()
            own.rename(own.with_name("judged"))
            own.write_text("another\n")
        out, err = process.communicate()
    assert (process.returncode, out, err) == (0, b"another\nNCCL_DEBUG=INFO\n", b"")


def test_a_program_is_there_that_prints_the_same(container):
    """`source nccl_env.sh` finds it; one of the container's own stays."""
    (container.settings / "nccl_env.sh").write_text("echo ours\n")
    place = "usr/local/bin/nccl_env.sh"
    done = container.run(after=f"stat -c %a {place}; cat {place}")
    assert done.stdout == b"755\necho ours\n"
    (container.root / place).write_text("echo own\n")
    done = container.run(after=f"cat {place}", state=container.state("c2"))
    assert (done.stdout, done.stderr) == (b"echo own\n", b"")


def test_open_mpi_is_told_where_it_is(container):
    """In its own folder, where Debian's has it; no container gets one."""
    (container.settings / "openmpi-mca-params.conf").write_text("pml_ucx_devices = any\n")
    place = container.root / "etc/openmpi/openmpi-mca-params.conf"
    done = container.run(after="ls etc")
    assert (b"openmpi" in done.stdout, done.stderr) == (False, b"")
    place.parent.mkdir()
    place.write_text("pml_ucx_devices = own\n")
    done = container.run(after=f"cat {place}", state=container.state("c2"))
    assert done.stdout == b"pml_ucx_devices = any\npml_ucx_devices = own\n"


def test_a_topology_file_lies_where_nccl_is_told(container):
    """One of the container's own stays as it is: it is not to be added to."""
    (container.settings / TOPOLOGY_FILE).write_text("<system/>\n")
    place = f"etc/kube-rdma/{TOPOLOGY_FILE}"
    done = container.run(after=f"cat {place}")
    assert (done.stdout, done.stderr) == (b"<system/>\n", b"")
    (container.root / place).write_text("<own/>\n")
    done = container.run(after=f"cat {place}", state=container.state("c2"))
    assert (done.stdout, done.stderr) == (b"<own/>\n", b"")


def test_a_root_is_named_from_the_bundle_or_from_above(container):
    container.configure(str(container.root))
    assert container.shown("nccl.conf") == OURS["nccl.conf"]


def test_settings_of_one_kind_leave_the_other_alone(container):
    (container.settings / "ucx.conf").unlink()
    done = container.run(after="ls etc")
    assert (done.stdout, done.stderr) == (b"nccl.conf\n", b"")


@pytest.mark.parametrize("state", [{"id": "c1"}, {"bundle": "/"}, {"id": "../c", "bundle": "/"}])
def test_what_is_no_state_is_said(container, state):
    done = container.run(state=state, after="ls etc")
    assert b"no OCI state" in done.stderr
    assert done.stdout == b""
