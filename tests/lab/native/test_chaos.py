"""Chaos on real nodes: the audit finds what is planted, and finds nothing after seeds of faults.

The lab is this file's own, for its store goes back and its definitions go. What is planted is
undone again, so that the next audit begins with none.
"""

import pytest

from chaos import setup, sites
from chaos.audit import audit
from chaos.collect import collect
from chaos.load import LABEL, documents
from chaos.run import Run
from chaos.schedule import Create, Size, Way, schedule
from kube_rdma_lab import cluster, waiting
from tests.groups import own
from tests.lab.conftest import up

NAME, VARIABLE, NODE = own("chaos"), "KUBE_RDMA_TEST_CHAOS", "node-1"
PODS = (
    Create("by-share", NODE, Way.SHARE, 2),
    Create("by-claim", NODE, Way.CLAIM),
    Create("elsewhere", "node-2", Way.SHARE),
)
SPACE = (
    "$(ls /run/netns | while read n; do ip -n $n link show net2 >/dev/null 2>&1 && echo $n; done)"
)
FIRST = "$(ip -n $space -o -4 address show net1 | grep -o 'inet [0-9.]*' | cut -c6-)"
IN_POD = f"space={SPACE}; address={FIRST};"
RECORD = "cd {0}; file=$(ls | grep -v lock | grep -m1 {1});"
COPY = RECORD + ' sed \'s/"{2}":"[0-9a-f]\\{{8\\}}-/"{2}":"00000000-/\' $file >{3}.json'
# What is done on a node, and what undoes it.
LEAKS = {
    "share": (
        COPY.format("/var/lib/kube-rdma/bindings", "binding-", "uid", "binding-0-0"),
        "rm /var/lib/kube-rdma/bindings/binding-0-0.json",
    ),
    "address": (
        COPY.format("/var/lib/kube-rdma/addresses", "'^[0-9a-f]*.json'", "pod", "0"),
        "rm /var/lib/kube-rdma/addresses/0.json",
    ),
    "netdev": ("ip link add net9 link ib0 type macvlan", "ip link delete net9"),
    "CDI file": (
        "echo '{\"devices\": []}' >/run/cdi/kube-rdma-planted.json",
        "rm /run/cdi/kube-rdma-planted.json",
    ),
    "rule": ("ip rule add from 10.77.0.99 lookup 101", "ip rule delete from 10.77.0.99"),
    "namespace": ("ip netns add cni-planted", "ip netns delete cni-planted"),
}
LOSSES = {
    "address": (
        f"{IN_POD} ip -n $space address delete $address/24 dev net1; echo $address >/tmp/a",
        f"space={SPACE}; ip -n $space address add $(cat /tmp/a)/24 dev net1",
    ),
    "rule": (
        f"{IN_POD} ip -n $space rule del from $address",
        f"{IN_POD} ip -n $space rule add from $address lookup 101 priority 20000",
    ),
    "CDI file": ("mv /run/cdi/kube-rdma* /tmp/", "mv /tmp/kube-rdma* /run/cdi/"),
    "netdev": (
        f"space={SPACE}; ip -n $space link set net2 down",
        f"space={SPACE}; ip -n $space link set net2 up",
    ),
    "record": (
        "mkdir /tmp/r; mv /var/lib/kube-rdma/attachments/*.json /tmp/r/",
        "mv /tmp/r/*.json /var/lib/kube-rdma/attachments/; rmdir /tmp/r",
    ),
}


@pytest.fixture(scope="module")
def ground():
    """The lab with kube-rdma on it, and what it shows without pods.

    The environment may name one that `make chaos ARGS="--lab NAME"` left up.
    """
    with up(NAME, "native", "kube-rdma lab up --topology native", VARIABLE) as lab:
        setup.install(lab)
        yield lab, collect(lab)


@pytest.fixture(scope="module")
def loaded(ground):
    """Pods of both ways."""
    lab, before = ground
    cluster.apply(lab, *(document for made in PODS for document in documents(made)))
    cluster.ready(lab, *(made.name for made in PODS))
    yield lab, before
    for kind in ("pods", "resourceclaimtemplates"):
        cluster.kubectl(lab, "delete", kind, "-l", LABEL, "--wait")


def kinds(lab, before):
    return {(each.wrong, each.thing) for each in audit(collect(lab), before)}


@pytest.mark.parametrize(
    ("wrong", "thing"),
    [*(("leaked", thing) for thing in LEAKS), *(("lost", thing) for thing in LOSSES)],
)
def test_what_is_planted_on_a_node_is_found(loaded, wrong, thing):
    lab, before = loaded
    waiting.until(lab, "an audit without a finding", lambda: not kinds(lab, before))
    plant, undo = (LEAKS if wrong == "leaked" else LOSSES)[thing]
    cluster.shell(lab, NODE, plant)
    try:
        assert (wrong, thing) in kinds(lab, before)
    finally:
        cluster.shell(lab, NODE, undo)


def clean(ground, seed):
    """Run a seed; what was wrong, when it was."""
    lab, before = ground
    site = sites.NATIVE
    outcome = Run(lab, before, print).take(schedule(seed, site.place, Size(), site.faults))
    assert outcome.is_clean, outcome


@pytest.mark.parametrize("seed", [3, 15, 37])  # without the minute after lost definitions
def test_a_seed_of_faults_leaves_nothing_behind(ground, seed):
    clean(ground, seed)


@pytest.mark.slow  # about a minute for each seed
@pytest.mark.parametrize("seed", range(4, 14))  # ten
def test_more_seeds_of_faults_leave_nothing_behind(ground, seed):
    clean(ground, seed)
