"""What is said to a bad configuration: all of its faults, each with its place and a remedy."""

import errno
import json
import os
import re
from pathlib import Path

import pytest

from kube_base.errors import Refused
from kube_rdma.lib.text.document import unreadable
from kube_rdma.pools.config import parse_config
from tests.kit.refusals import assert_written_down, refusal
from tests.unit.bad_input.bad_dialects import DIALECTS
from tests.unit.bad_input.bad_documents import DOCUMENTS as TEXTS
from tests.unit.bad_input.bad_ip import IP, load

DOCUMENTS = TEXTS | DIALECTS | IP
GOLDEN = Path(__file__).with_name("refusals.txt")
OPENING = {
    "missing file": FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)),
    "folder": IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)),
    "no permission": PermissionError(errno.EACCES, os.strerror(errno.EACCES)),
    "broken disk": OSError(errno.EIO, os.strerror(errno.EIO)),
    "error without words": OSError("odd"),
}


def refused(data):
    return refusal(parse_config, data, "config.json")


def refusal_named(name):
    if name in OPENING:
        return unreadable("/config", OPENING[name])
    return refusal(load, name, "config.json") if name in IP else refused(DOCUMENTS[name])


def faults_of(error):
    yield error
    for further in error.more:
        yield from faults_of(further)


def test_every_sentence_is_written_down():
    assert_written_down(GOLDEN, refusal_named, [*DOCUMENTS, *OPENING])


@pytest.mark.parametrize("name", [*DOCUMENTS, *OPENING])
def test_every_fault_has_a_place_and_a_remedy(name):
    """One line for each fault: file first, then a problem and a remedy, both sentences."""
    error = refusal_named(name)
    for fault in faults_of(error):
        assert fault.remedy, name
        assert fault.remedy[0].isupper(), name
        assert fault.remedy[-1] not in ".!\n", name
        assert re.match(r"(config\.json|/config)(:\d+:\d+(: \S+)?)?$", fault.where), fault.where
        assert "\n" not in fault.problem + fault.remedy + fault.where, name
    assert len(str(error).splitlines()) == len(list(faults_of(error)))


def test_faults_come_together_in_the_order_of_the_text():
    """Three faults in three lines are three lines, so that one edit can mend them all."""
    places = [line.split(": ")[0] for line in str(refused(DOCUMENTS["several faults"])).split("\n")]
    assert places == ["config.json:2:3", "config.json:3:11", "config.json:4:3"]


def test_of_very_many_faults_the_first_are_told_and_their_number():
    fields = ",".join(f'"f{n}": 1' for n in range(40_000))
    lines = str(refused(f'{{"mode": "hca",\n{fields}}}'.encode())).splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith("there are 39980 more faults. Mend these first.")


def test_the_nearest_field_is_proposed():
    """A slip is corrected; a foreign word is not guessed at."""
    assert 'Did you mean "mode"' in str(refused(b'{"mode": "hca", "mod": 1}'))
    assert "Did you mean" not in str(refused(b'{"mode": "hca", "xyz": 1}'))


def test_a_list_with_too_many_entries_is_refused():
    """As the API server refuses an object; a file comes here first."""
    spec = {"pools": [{"resource": "rdma/a", "mode": "hca"}] * 65}
    policy = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "NodePolicy", "spec": spec}
    text = str(refused(json.dumps(policy).encode()))
    assert text.endswith("has more than 64 entries. Keep 64 or fewer.")


def test_faults_of_several_documents_have_an_end_too():
    """Each may carry its own; twenty and a count are told, of all of them together."""
    document = Refused.all([Refused(f"fault {n}", remedy="mend it") for n in range(15)])
    lines = str(Refused.all([document] * 1000)).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "there are 14980 more faults. Mend these first."
    assert str(Refused.all([document])) == str(document)
