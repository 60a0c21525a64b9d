"""CDI files of ours: what the runtime makes of them, and that nothing else is touched."""

import json
import os
from errno import ENOSPC
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_base.errors import Broken, Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.runtime.cdi import CdiFolder, document, file_name
from kube_rdma.model.late_binding import Binding, CdiFile, Edits, PodName, cdi_name, lift_memlock
from kube_rdma.model.pools import FileMount
from kube_rdma_testing.runtime.cdi import FakeCdiRuntime

EDITS = Edits(
    ("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"),
    (("NCCL_IB_HCA", "=rxe0"), ("EMPTY", "")),
    (FileMount("/run/kube-rdma/n1/nccl.conf", "/etc/nccl.conf"),),
    (lift_memlock("/opt/cni/bin/kube-rdma"),),
)


def binding(nonce="n1", container="c1", shares=("0000:81:00.0-3",)):
    pod = PodName("default", "a")
    cdi = cdi_name(shares, nonce)
    return Binding(nonce, container, pod, "uid", "/ns", "rdma/hca", shares, (), cdi, 0.0)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def folder(tmp_path):
    return CdiFolder(tmp_path / "cdi", Clock())


def names(folder):
    return sorted(path.name for path in folder.path.iterdir())


def test_the_runtime_finds_what_was_written(folder):
    one = binding()
    folder.write(one, EDITS)
    runtime = FakeCdiRuntime(folder.path)
    assert runtime.create(one.cdi) == EDITS
    assert runtime.errors() == ()
    assert names(folder) == ["kube-rdma-c1-n1.json"]
    assert (folder.path / "kube-rdma-c1-n1.json").stat().st_mode & 0o777 == 0o600


def test_the_document(snapshot):
    """Byte for byte what other people's tools will read; no m among the rights."""
    snapshot("cdi.json", document((binding().cdi, EDITS)).decode())


@settings(max_examples=50)  # of the disk
@given(st.text(min_size=1, max_size=63))
def test_every_share_has_a_name_that_the_library_takes(tmp_path_factory, share):
    folder = CdiFolder(tmp_path_factory.mktemp("cdi"))
    one = binding(shares=(share,))
    folder.write(one, EDITS)
    assert FakeCdiRuntime(folder.path).create(one.cdi) == EDITS


def test_one_name_for_the_whole_grant():
    """Several shares of one Allocate make one device, so its nodes are given once."""
    assert cdi_name(("rxe0@eth1-0", "rxe0@eth1-1"), "n1") == "kube-rdma.io/hca=rxe0_eth1-0-n1"


def changed(path):
    """What a write changes of a file, and a read does not."""
    facts = path.stat()
    return facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns


def test_a_live_file_is_never_rewritten(folder):
    folder.write(binding(), EDITS)
    path = folder.path / "kube-rdma-c1-n1.json"
    before = changed(path)
    folder.write(binding(), EDITS)
    assert changed(path) == before
    with pytest.raises(Broken, match="other content"):
        folder.write(binding(), Edits(("/dev/infiniband/uverbs1",)))
    assert changed(path) == before


def test_remove_takes_the_files_of_one_sandbox(folder):
    """Those of others stay, also of one whose id begins alike, and so do files of other people."""
    for container, nonce in [("c1", "n1"), ("c1", "n2"), ("c1-x", "n3"), ("c2", "n4")]:
        folder.write(binding(nonce, container), EDITS)
    foreign = ["nvidia.json", "kube-rdma-c1.yaml", "kube-rdma-c1.json", "c1-n1.json"]
    for name in foreign:
        (folder.path / name).touch()
    (folder.path / ".kube-rdma-c1-n9.json.tmp").touch()
    folder.remove("c1")
    folder.remove("c1")
    assert names(folder) == sorted([*foreign, "kube-rdma-c1-x-n3.json", "kube-rdma-c2-n4.json"])


def test_remove_one_file(folder):
    folder.write(binding("n1"), EDITS)
    folder.write(binding("n2"), EDITS)
    folder.remove("c1", "n1")
    assert names(folder) == ["kube-rdma-c1-n2.json"]


def test_present_counts_from_the_first_sight(folder):
    """A file's own time does not matter: it is on a clock that may step."""
    clock = folder._clock
    folder.write(binding(), EDITS)
    os.utime(folder.path / "kube-rdma-c1-n1.json", (0, 0))
    (folder.path / "other.json").touch()
    clock.now = 101.0
    (first,) = folder.present()
    clock.now = 105.0
    assert folder.present() == (first,)
    later = CdiFolder(folder.path, clock)  # after a restart of ours
    assert later.present() == (CdiFile("n1", "c1", 105.0),)


def test_a_file_that_was_replaced_is_new(folder):
    folder.write(binding(), EDITS)
    folder.remove("c1")
    folder._clock.now = 200.0
    folder.write(binding(), EDITS)
    assert folder.present() == (CdiFile("n1", "c1", 200.0),)


def test_leftovers_of_a_crash_are_no_files(folder):
    folder.path.mkdir()
    (folder.path / ".kube-rdma-c1-n1.json.tmp").write_text("{")
    assert folder.present() == ()
    assert FakeCdiRuntime(folder.path).errors() == ()
    folder.write(binding(), EDITS)
    assert names(folder) == ["kube-rdma-c1-n1.json"]


def test_no_folder(folder):
    assert folder.present() == ()
    folder.remove("c1")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    folder = CdiFolder(tmp_path / "file" / "cdi")
    with pytest.raises(Unavailable, match=r"kube-rdma-c1-n1\.json cannot be written \(Not a dir"):
        folder.write(binding(), EDITS)
    with pytest.raises(Unavailable, match="cannot be listed"):
        folder.present()


def test_a_full_disk(tmp_path, monkeypatch):
    """What was begun is removed."""
    folder = CdiFolder(tmp_path)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(ENOSPC, os.strerror(ENOSPC))))
    with pytest.raises(Unavailable, match="No space left on device"):
        folder.write(binding(), EDITS)
    assert names(folder) == []


@pytest.mark.parametrize(
    ("container", "nonce"), [("", "n"), ("a/b", "n"), ("..", "n"), ("c" * 129, "n"), ("c", "N-1")]
)
def test_names_that_no_file_can_have(container, nonce):
    with pytest.raises(Refused):
        file_name(container, nonce)


def test_two_files_of_one_name_are_none(folder):
    """The library drops both, so a promise is bound in one sandbox at a time."""
    for container in ("c1", "c2"):
        folder.write(binding("n1", container), EDITS)
    runtime = FakeCdiRuntime(folder.path)
    with pytest.raises(LookupError, match="unresolvable CDI devices"):
        runtime.create(binding().cdi)
    assert "conflicting device" in runtime.errors()[0]


def spec(**change):
    device = {"name": "a", "containerEdits": {"env": ["A=1"]}}
    return {"cdiVersion": "0.5.0", "kind": "kube-rdma.io/hca", "devices": [device]} | change


def device(name="a", **edits):
    return [{"name": name, "containerEdits": edits}]


REFUSED = {
    "version": spec(cdiVersion="9.0.0"),
    "old version": spec(cdiVersion="0.3.0", devices=device("0a", env=["A=1"])),
    "kind": spec(kind="hca"),
    "no devices": spec(devices=[]),
    "unknown field": spec(rlimits=[]),
    "unknown edit": spec(devices=device(rlimits=[1])),
    "sign in the name": spec(devices=device("rxe0@eth1", env=["A=1"])),
    "sign at the end": spec(devices=device("a-", env=["A=1"])),
    "twice": spec(devices=device(env=["A=1"]) * 2),
    "empty edits": spec(devices=device()),
    "variable": spec(devices=device(env=["=1"])),
    "rights": spec(devices=device(deviceNodes=[{"path": "/dev/x", "permissions": "rx"}])),
    "mount": spec(devices=device(mounts=[{"hostPath": "", "containerPath": "/x"}])),
    "hook's name": spec(devices=device(hooks=[{"hookName": "later", "path": "/a"}])),
    "hook's path": spec(devices=device(hooks=[{"hookName": "createRuntime", "path": ""}])),
    "no object": [],
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_the_fake_refuses_what_the_library_refuses(tmp_path, content):
    """Version 1.1.1 was tried with each of these, and refused it."""
    (tmp_path / "x.json").write_text(json.dumps(content))
    assert FakeCdiRuntime(tmp_path).errors()


def test_a_device_of_nobody_alone_is_written_over_and_outlives_all_bindings(folder):
    device = "kube-rdma.io/settings=rdma-hca-0123456789ab"
    assert folder.share(device, EDITS)
    assert not folder.share(device, EDITS), "the runtime knows it"
    assert folder.present() == ()
    folder.remove("c1")
    other = replace(EDITS, hooks=(lift_memlock("/opt/other/bin/kube-rdma"),))
    assert folder.share(device, other)
    runtime = FakeCdiRuntime(folder.path)
    assert runtime.create(device) == other
    assert runtime.errors() == ()


CLAIM = "5b0e8b0a-1111-2222-3333-444455556666"
LEFT, RIGHT = (f"kube-rdma.io/claim={CLAIM}_{name}_0000-81-00-0" for name in ("nic.fast", "look"))


def test_all_devices_of_a_claim_are_in_one_file(folder):
    assert folder.write_claim(CLAIM, [(LEFT, EDITS), (RIGHT, Edits(("/dev/infiniband/umad0",)))])
    runtime = FakeCdiRuntime(folder.path)
    assert runtime.create(LEFT) == EDITS
    assert runtime.create(RIGHT) == Edits(("/dev/infiniband/umad0",))
    assert runtime.errors() == ()
    assert folder.claims() == (CLAIM,)


def test_a_file_of_a_claim_changes_when_its_devices_do_and_no_binding_has_it(folder):
    assert folder.write_claim(CLAIM, [(LEFT, EDITS)])
    assert not folder.write_claim(CLAIM, [(LEFT, EDITS)])
    assert folder.present() == ()
    assert folder.write_claim(CLAIM, [(RIGHT, EDITS)])
    assert FakeCdiRuntime(folder.path).create(RIGHT) == EDITS
    assert folder.write_claim(CLAIM, []), "without a device there is no file"
    assert not folder.remove_claim(CLAIM)
    assert folder.claims() == ()


@pytest.mark.parametrize("uid", ["", "../x", "a" * 129, "-a"])
def test_uids_that_no_file_can_have(folder, uid):
    for act in (lambda: folder.write_claim(uid, [(LEFT, EDITS)]), lambda: folder.remove_claim(uid)):
        with pytest.raises(Refused, match="no CDI file can be named after claim"):
            act()
