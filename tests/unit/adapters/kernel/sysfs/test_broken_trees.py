"""Trees that are broken, mutated or contradict themselves: a survey is taken all the same.

Faults say what was wrong, in text that can be printed, and the rules can judge what is left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_base.frozen import asdict
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.pools.rules.discovery import judge, notes
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_testing.kernel.tree import Damage, damaged
from tests.unit.adapters.kernel.sysfs.picture import TREES

NAMES = sorted(folder.name for folder in TREES.iterdir())

# Without the long tails of unused GIDs, so that a tree is written and listed in no time.
MANIFESTS = {
    name: re.sub(
        r"^.*\{\d+\.\.\d+\}: .*\n", "", (TREES / name / "tree.txt").read_text(), flags=re.MULTILINE
    )
    for name in NAMES
}

WORDS = [
    "",
    "\n\n",
    "-1",
    "0",
    "4: ACTIVE",
    "0x",
    "0xffffffff",
    "9" * 300,
    "a" * 9000,
    "..",
    "/",
    "%s",
]
ODD_NAMES = [
    b"a\nb",
    b"\xff\xfe",
    b"n" * 255,
    b" ",
    b"-",
    b"0",
    "٣".encode(),
    b"virtfn9",
    b"uverbs9",
]


def delete(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def put(path, data):
    delete(path)
    path.write_bytes(data)


def link(path, target):
    delete(path)
    path.symlink_to(target)


def fifo(path):
    delete(path)
    os.mkfifo(path)


def lock(path):
    """Take all rights away; the superuser reads on, which is fine too."""
    if not path.is_symlink():
        path.chmod(0)


def fill(path, name):
    """Put something with an odd name in a folder, or beside a file."""
    folder = path if path.is_dir() and not path.is_symlink() else path.parent
    there = Path(os.fsdecode(os.path.join(os.fsencode(folder), name)))  # noqa: PTH118
    if not os.path.lexists(there):
        there.symlink_to(path.name)


def is_inside(path, root):
    """Whether there is such a path and no link of an earlier mutation leads to it from outside."""
    return os.path.lexists(path) and path.parent.resolve().is_relative_to(root.resolve())


MUTATIONS = st.one_of(
    st.just((delete,)),
    st.just((fifo,)),
    st.just((lock,)),
    st.tuples(
        st.just(put), st.one_of(st.binary(max_size=20), st.sampled_from(WORDS).map(str.encode))
    ),
    st.tuples(
        st.just(link), st.sampled_from(["self", ".", "..", "/", "/proc/self", "nowhere", "a\nb"])
    ),
    st.tuples(st.just(fill), st.sampled_from(ODD_NAMES)),
)


def printable(survey):
    """Whether everything in a survey can be sent as UTF-8 and its faults fit in one line each."""
    json.dumps(asdict(survey), ensure_ascii=False).encode()
    return all(f.path.isprintable() and f.reason.isprintable() for f in survey.faults)


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Each tree in a folder of its own, for tests that leave it as it was."""
    roots = {}
    for name in NAMES:
        roots[name] = tmp_path_factory.mktemp(name)
        unpack(MANIFESTS[name], roots[name])
    return roots


@pytest.fixture(scope="module")
def places(trees):
    """What there is to mutate in each tree; the folders that a survey begins with count double."""
    found = {}
    for name, root in trees.items():
        paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))
        found[name] = paths + [path for path in paths if path.count("/") < 3]
    return found


@settings(max_examples=settings().max_examples * 3 // 5)
@given(name=st.sampled_from(NAMES), data=st.data())
def test_a_mutated_tree_never_raises_and_its_faults_can_be_printed(places, name, data):
    with TemporaryDirectory() as folder:
        root = Path(folder, "sys")
        unpack(MANIFESTS[name], root)
        for place in data.draw(st.lists(st.sampled_from(places[name]), min_size=1, max_size=6)):
            mutate, *arguments = data.draw(MUTATIONS)
            if is_inside(root / place, root):
                mutate(root / place, *arguments)
        survey = read_survey(root)
        assert printable(survey)
        assert len(judge(survey)) == len(survey.devices)
        notes(survey)


SPEAKING = re.compile(
    r"class/infiniband/[^/]+/(node_guid|node_type|ports/1/(state|phys_state|link_layer))"
    r"|class/infiniband/[^/]+/ports/1/gid_attrs/types/0"
    r"|class/infiniband_[^/]+/[^/]+/(dev|ibdev)"
    r"|class/misc/rdma_cm/dev"
)


def speaking(root):
    """Every file that says something on every kernel, by the path that the survey calls it."""
    below = (p for top in ("infiniband", "infiniband_verbs", "infiniband_mad", "misc")
             for device in sorted((root / "class" / top).glob("*")) if device.is_dir()
             for p in sorted(device.rglob("*")))  # fmt: skip
    paths = (path.relative_to(root).as_posix() for path in below)
    return [path for path in paths if SPEAKING.fullmatch(path)]


@settings(max_examples=settings().max_examples * 4 // 5)
@given(name=st.sampled_from(NAMES), how=st.sampled_from(Damage), data=st.data())
def test_in_every_tree_a_broken_file_is_a_fault_that_names_it(trees, name, how, data):
    path = data.draw(st.sampled_from(speaking(trees[name])))
    with damaged(trees[name], path, how):
        assert path in [fault.path for fault in read_survey(trees[name]).faults]


@pytest.fixture
def fabric(tmp_path):
    unpack(MANIFESTS["mlx5-ib-pf-vfs"], tmp_path)
    return tmp_path


@pytest.fixture
def switched(tmp_path):
    unpack(MANIFESTS["dgx-like"], tmp_path)
    return tmp_path


BUS = "devices/pci0000:40/0000:40:01.1"
PF, VF = f"{BUS}/0000:41:00.0", f"{BUS}/0000:41:00.2"


def only_fault(root):
    (fault,) = read_survey(root).faults
    return fault.path, fault.reason


def test_two_devices_cannot_claim_one_device_number(fabric):
    (fabric / "class/infiniband_verbs/uverbs1/dev").write_text("231:192\n")
    survey = read_survey(fabric)
    assert [f.path for f in survey.faults] == ["class/infiniband_verbs/uverbs1/dev"]
    assert "number of class/infiniband_verbs/uverbs0" in survey.faults[0].reason
    owners = [d.name for d in survey.devices for c in d.char_devices if c.minor == 192]
    assert owners == ["mlx5_0"]


def test_a_node_of_a_device_that_is_not_there_names_it(fabric):
    (fabric / "class/infiniband_verbs/uverbs1/ibdev").write_text("mlx5_9\n")
    path, reason = only_fault(fabric)
    assert path == "class/infiniband_verbs/uverbs1/ibdev"
    assert "'mlx5_9'" in reason


def test_a_virtual_function_that_its_physical_one_does_not_list(fabric):
    (fabric / PF / "virtfn0").unlink()
    assert only_fault(fabric) == (
        f"{VF}/physfn",
        "names 0000:41:00.0, which does not list 0000:41:00.2",
    )


def test_a_virtual_function_that_names_another_physical_one(fabric):
    (fabric / VF / "physfn").unlink()
    (fabric / VF / "physfn").symlink_to("../0000:41:00.1")
    faults = {fault.path: fault.reason for fault in read_survey(fabric).faults}
    assert faults == {
        f"{VF}/physfn": "names 0000:41:00.1, which does not list 0000:41:00.2",
        PF: "lists 0000:41:00.2, which names 0000:41:00.1 instead",
    }


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("../0000:41:00.2", "leads to 0000:41:00.2, as another one does"),
        ("../0000:41:07.7", "leads to 0000:41:07.7, which bus/pci/devices does not show"),
        ("../net", "leads to 'net', which is not a PCI function"),
        ("a\nb", "leads to a name that is not text: 'a\\nb'"),
    ],
)
def test_a_virtual_function_link_that_leads_nowhere(fabric, target, reason):
    (fabric / PF / "virtfn3").unlink()
    (fabric / PF / "virtfn3").symlink_to(target)
    faults = {fault.path: fault.reason for fault in read_survey(fabric).faults}
    # The function itself is there, and is still a network function.
    missed = "names 0000:41:00.0, which does not list 0000:41:00.5"
    assert faults == {f"{PF}/virtfn3": reason, f"{BUS}/0000:41:00.5/physfn": missed}
    assert len(read_survey(fabric).devices[0].position.virtual_functions) == 3


def test_functions_that_name_each_other_as_physical_ones_end(fabric):
    for this, other in ((PF, "2"), (VF, "0")):
        (fabric / this / "physfn").unlink(missing_ok=True)
        (fabric / this / "physfn").symlink_to(f"../0000:41:00.{other}")
    assert {f.path for f in read_survey(fabric).faults} >= {f"{PF}/physfn", f"{VF}/physfn"}


def test_two_names_for_one_device(fabric):
    (fabric / "class/infiniband/mlx5_9").symlink_to("mlx5_0")
    assert only_fault(fabric) == (
        "class/infiniband/mlx5_9",
        "leads to the same device as class/infiniband/mlx5_0",
    )


def test_an_interface_that_is_gone_is_a_fact_of_the_gid(tmp_path):
    """It may be in the network namespace of a pod, where it is called so."""
    unpack(MANIFESTS["bnxt-re"], tmp_path)
    place = tmp_path / "devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0/infiniband/bnxt_re0/ports/1"
    (place / "gid_attrs/ndevs/3").write_text("gone0\n")
    survey = read_survey(tmp_path)
    port = survey.devices[0].ports[0]
    assert (port.gids[3].netdev, port.netdev, survey.faults) == ("gone0", "ens2f0np0", ())


def test_a_master_that_is_no_bond_is_none(tmp_path):
    unpack(MANIFESTS["mlx5-bond"], tmp_path)
    shutil.rmtree(tmp_path / "devices/virtual/net/bond0/bonding")
    assert read_survey(tmp_path).devices[0].ports[0].bond is None


@pytest.mark.parametrize(
    ("file", "text"), [("class", "3D"), ("vendor", "10de"), ("device", ""), ("numa_node", "left")]
)
def test_a_gpu_with_a_garbled_file_is_a_fault_that_names_it(switched, file, text):
    gpu = "bus/pci/devices/0000:23:00.0"
    (switched / gpu / file).write_text(f"{text}\n")
    survey = read_survey(switched)
    assert [fault.path.rpartition("/")[2] for fault in survey.faults] == [file]
    assert "0000:23:00.0" in survey.faults[0].path
    assert len(survey.gpus) == (8 if file == "numa_node" else 7)


def test_a_local_identifier_that_is_no_number_is_a_fault(fabric):
    path = "class/infiniband/mlx5_0/ports/1/sm_lid"
    (fabric / path).write_text("1\n")
    assert only_fault(fabric) == (path, "says '1', which is not of its form")
