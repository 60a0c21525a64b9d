"""Who reads which annotation, two meta-plugins on one another, and what each has to find there."""

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.documents import cni_conf
from kube_rdma.attach.rules.conflist import (
    CELLO_RDMA,
    ENTRY,
    META_PLUGINS,
    RDMA_CONF,
    describe_plan,
    named_by_pods,
    plan,
    rdma_conf,
    unplan,
    unread,
)
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION
from kube_rdma.model.attach.cni import BUILT_IN, PLUGIN, ConfFile, Wiring
from kube_rdma.model.kubernetes import PodState

LONE = {"cniVersion": "0.4.0", "name": "ovn-kubernetes", "type": "ovn-k8s-cni-overlay"}
OWN = "00-kube-rdma.conflist"


def conf(name, /, **document):
    return ConfFile(name, json.dumps({"cniVersion": "1.0.0", "name": "x", **document}))


def conflist(name, /, *kinds, **document):
    return conf(name, plugins=[{"type": kind} for kind in kinds], **document)


def multus(**more):
    return conf("00-multus.conf", type="multus-shim", **more)


CELLO = conflist("01-cello-meta.conflist", "cello-meta", name="cello-meta")
CHAINER = conflist("10-cello.conflist", "cello", name="cello-chainer")
LEFT = conflist("20-rdma.conflist", CELLO_RDMA, name="rdma")


def after(folder, made):
    """The folder when the plan is done."""
    there = {file.name: file for file in folder}
    there |= {file.name: file for file in made.writes}
    return tuple(file for name, file in there.items() if name not in made.removes)


def text_of(folder, name):
    return json.loads({file.name: file.text for file in folder}[name])


@pytest.mark.parametrize(
    ("kind", "readers"),
    [
        ("multus", ((ANNOTATION, "Multus"),)),
        ("multus-shim", ((ANNOTATION, "Multus"),)),
        ("genie", ((ANNOTATION, "CNI-Genie"),)),
        ("cello-meta", ((POD_NETWORKS, "Cello"),)),
    ],
)
def test_the_table_says_which_annotation_a_product_reads(kind, readers):
    made = plan((conf("00-meta.conf", type=kind), conflist("10-net.conflist", "flannel")))
    assert (made.wiring, made.readers) == (Wiring.DELEGATE, readers)
    assert f"{readers[0][1]} reads {readers[0][0]}." in describe_plan(made)


@pytest.mark.parametrize("kind", ["coordinator", "danm"])
def test_behind_a_plugin_that_reads_neither_annotation_we_are_chained(kind):
    """Else nobody would read them: Spiderpool's coordinator, and DANM, which has one of its own."""
    made = plan((conflist("10-net.conflist", "macvlan", kind),))
    assert (made.wiring, made.readers) == (Wiring.CHAIN, ())


@pytest.mark.parametrize(
    "folder",
    [
        (conflist("00-m.conflist", "multus", "cello-meta"),),
        (multus(delegates=[LONE, {"name": "c", "type": "cello-meta"}]),),
    ],
)
def test_two_that_are_called_beside_one_another_are_refused(folder):
    """In one list, or in the networks that one calls for every pod."""
    with pytest.raises(
        Refused, match=r"two meta-plugins claim .* Multus in 00-m.* and Cello in 00"
    ):
        plan(folder)


@pytest.mark.parametrize(
    "folder",
    [
        (multus(clusterNetwork="/host/etc/cni/net.d/01-cello-meta.conflist"), CELLO, CHAINER),
        (multus(clusterNetwork="cello-meta"), CELLO, CHAINER),
        (multus(delegates=[json.loads(CELLO.text)]), CELLO, CHAINER),
        (multus(delegates=[json.loads(CELLO.text)]), CHAINER),
    ],
)
def test_one_that_another_calls_for_the_clusters_network_stays(folder):
    """However it is named: each annotation has one reader, and removing it would cut every pod."""
    made = plan(folder)
    assert made.wiring is Wiring.DELEGATE
    assert made.readers == ((ANNOTATION, "Multus"), (POD_NETWORKS, "Cello"))
    assert {file.name for file in made.writes} == {RDMA_CONF}
    assert not made.removes


def test_one_that_nobody_names_is_refused_with_both_files():
    """The runtime does not take it, so it is left over, or its product is."""
    named = multus(clusterNetwork="/etc/cni/net.d/10-cello.conflist")
    with pytest.raises(Refused, match=r"Multus in 00-multus.conf and Cello in 01-cello-meta") as e:
        plan((named, CELLO, CHAINER))
    assert "name the other's file as the cluster's network" in e.value.remedy


def test_two_readers_of_one_annotation_are_refused_on_one_another_too():
    genie = conf("05-genie.conf", name="g", type="genie")
    with pytest.raises(Refused, match=r"Multus in 00-multus.conf and CNI-Genie in 05-genie.conf"):
        plan((multus(clusterNetwork="g"), genie))


def test_a_meta_plugin_that_names_itself_ends_the_search():
    assert plan((multus(clusterNetwork="/etc/cni/net.d/00-multus.conf"),)).readers


def test_our_list_stays_while_a_meta_plugin_calls_it():
    """Multus takes the first file that it finds for the cluster's network: the one of ours."""
    lone = ConfFile("10-ovn.conf", json.dumps(LONE))
    (own,) = plan((lone,)).writes
    assert own.name == OWN
    named = multus(clusterNetwork=f"/host/etc/cni/net.d/{OWN}")
    done = after((lone, own, named), plan((lone, own, named)))
    assert text_of(done, OWN)["plugins"] == [LONE]
    assert not plan(done).changes
    changed = ConfFile("10-ovn.conf", json.dumps(LONE | {"mtu": 1400}))
    again = plan((changed, *done[1:]))
    assert json.loads(again.writes[0].text)["plugins"] == [LONE | {"mtu": 1400}]
    without_lone = plan(done[1:])
    assert (without_lone.changes, without_lone.wiring) == (False, Wiring.DELEGATE)
    left = after(done, unplan(done))
    assert text_of(left, OWN)["plugins"] == [LONE]
    assert unplan(left).notes == (
        f"{OWN} stays, without kube-rdma: a meta-plugin calls it for the cluster's network",
    )
    gone = tuple(one for one in left if one != named)
    assert text_of(after(gone, plan(gone)), OWN)["plugins"] == [LONE, ENTRY]
    assert plan((lone, own, multus(clusterNetwork="/a/10-ovn.conf"))).removes == (OWN,)


def test_our_list_is_not_made_of_a_meta_plugin_of_the_same_name():
    """Multus can be told to bear the name of the cluster's network."""
    lone = ConfFile("10-ovn.conf", json.dumps(LONE))
    (own,) = plan((lone,)).writes
    named = multus(name=LONE["name"], clusterNetwork=f"/etc/cni/net.d/{OWN}")
    done = after((lone, own, named), plan((lone, own, named)))
    assert text_of(done, OWN)["plugins"] == [LONE]


def test_behind_cello_there_is_a_network_rdma_for_it_to_find():
    """Cello looks for the names of blocks in this folder alone; no runtime may take it."""
    made = plan((CELLO, CHAINER))
    assert made.writes == (rdma_conf(),)
    document = json.loads(rdma_conf().text)
    assert document["name"] == cni_conf.DEFAULT_NETWORK
    assert document["meta"]["resourceName"] == cni_conf.built_in("x", pool=True).network.resource
    assert (document["type"], document[BUILT_IN]) == (PLUGIN, True)
    done = after((CELLO, CHAINER), made)
    assert (plan(done).changes, plan(done).default) == (False, CELLO.name)
    assert max(file.name for file in done) == RDMA_CONF
    assert unplan(done).removes == (RDMA_CONF,)
    assert plan(done[1:]).removes == (RDMA_CONF,)
    assert plan((rdma_conf(),)).removes == (RDMA_CONF,)
    assert plan((multus(), rdma_conf())).removes == (RDMA_CONF,)


@pytest.mark.parametrize("kind", [PLUGIN, "host-device", CELLO_RDMA])
def test_a_network_rdma_of_somebody_else_is_never_overwritten(kind):
    """It wins, also when it comes later; who asks is told when it is not ours to make."""
    theirs = conflist("99-rdma.conflist", kind, name="rdma")
    for folder in ((CELLO, theirs), (CELLO, theirs, rdma_conf())):
        made = plan(folder)
        assert theirs in after(folder, made)
        assert rdma_conf() not in after(folder, made)
        note = (
            f"Pods that name rdma go to {kind} until 99-rdma.conflist is removed, then to kube-rdma"
        )
        assert made.notes == (() if kind == PLUGIN else (note,))
        assert (note in describe_plan(made)) == (kind != PLUGIN)


def test_what_an_old_component_left_behind_is_passed_over():
    """VKE's own configuration outlives its plugin; while that is there it is called."""
    other = conflist("30-vpc.conflist", CELLO_RDMA, name="vpc")
    folder = (CHAINER, LEFT, other, conf("40-none.conf", plugins=[]), rdma_conf())
    found, over = named_by_pods(folder, ["bridge"])
    assert (found, over) == ((CHAINER, other, folder[3]), (LEFT.name,))
    found, over = named_by_pods(folder, ["bridge", CELLO_RDMA])
    assert (found, over) == (folder[:-1], ())


BLOCK = '[{"cniConf": {"name": "rdma"}}]'


@pytest.mark.parametrize(
    ("asked", "read", "missed"),
    [
        ({POD_NETWORKS: BLOCK}, {ANNOTATION: "Multus"}, POD_NETWORKS),
        ({POD_NETWORKS_DEFINITION: "[]"}, {ANNOTATION: "Multus"}, POD_NETWORKS),
        ({ANNOTATION: "a"}, {POD_NETWORKS: "Cello"}, ANNOTATION),
        ({ANNOTATION: "a", POD_NETWORKS: BLOCK}, {ANNOTATION: "Multus"}, POD_NETWORKS),
    ],
)
def test_an_annotation_that_nobody_reads_is_told(asked, read, missed):
    """With who makes the networks here, and where to name them."""
    error = unread(PodState("ml", "a", "u", tuple(asked.items())), read)
    (key, product), *_ = read.items()
    assert str(error) == (
        f"pod ml/a: the networks of pods on this node are made by {product}, which does not read "
        f"{missed}, so the pod gets none of those that it names there. "
        f"Name them in the annotation {key}."
    )


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ({ANNOTATION: "a"}, {ANNOTATION: "Multus"}),
        ({POD_NETWORKS: BLOCK}, {ANNOTATION: "Multus", POD_NETWORKS: "Cello"}),
        ({POD_NETWORKS: " "}, {ANNOTATION: "Multus"}),
        ({POD_NETWORKS: BLOCK}, {}),
    ],
)
def test_an_annotation_that_somebody_reads_is_none_of_our_business(asked, read):
    assert unread(PodState("ml", "a", "u", tuple(asked.items())), read) is None


def test_every_product_reads_an_annotation_that_we_know():
    assert {one.reads for one in META_PLUGINS.values()} == {ANNOTATION, POD_NETWORKS}
