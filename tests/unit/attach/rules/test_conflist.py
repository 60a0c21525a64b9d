"""Chaining: our entry once, all else as it was, and out of the way of a meta-plugin."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.attach.rules.conflist import (
    ENTRY,
    chained,
    describe_plan,
    plan,
    proven,
    unplan,
    without,
)
from kube_rdma.model.attach.cni import PLUGIN, ConfFile, ConfPlan, Wiring

FLANNEL = """{
  "name": "cbr0",
  "cniVersion": "0.3.1",
  "plugins": [
    {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
"""
CALICO = """{
  "name": "k8s-pod-network",
  "cniVersion": "0.3.1",
  "plugins": [
    {"type": "calico", "mtu": 0, "nodename_file_optional": false, "policy": {"type": "k8s"},
     "ipam": {"type": "calico-ipam"}, "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico"}},
    {"type": "bandwidth", "capabilities": {"bandwidth": true}}
  ]
}"""
CILIUM = """
{"cniVersion": "0.3.1", "name": "cilium", "disableCheck": true,
 "plugins": [{"type": "cilium-cni", "enable-debug": false, "log-file": "/var/run/cilium.log"}]}
"""
BRIDGE = """{"cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "cni0",
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]]}}"""
MULTUS = """{"cniVersion": "1.1.0", "name": "multus-cni-network", "type": "multus-shim",
 "clusterNetwork": "/host/etc/cni/net.d/10-flannel.conflist"}"""
GENIE = '{"cniVersion": "1.0.0", "name": "g", "plugins": [{"type": "genie"}]}'


def files(**texts):
    """Keyword names stand for file names: `a10_flannel__conflist` is 10-flannel.conflist."""
    return tuple(
        ConfFile(name[1:].replace("__", ".").replace("_", "-"), text)
        for name, text in texts.items()
    )


def after(folder, made):
    """The folder when the plan is done."""
    there = {file.name: file.text for file in folder}
    there |= {file.name: file.text for file in made.writes}
    return tuple(ConfFile(name, text) for name, text in there.items() if name not in made.removes)


def types(text):
    return [plugin["type"] for plugin in json.loads(text)["plugins"]]


@pytest.mark.parametrize("text", [FLANNEL, CALICO, CILIUM])
def test_a_list_gets_our_entry_at_its_end(text):
    """Everything else stays, in its order; done again, nothing changes."""
    folder = files(a10_net__conflist=text)
    made = plan(folder)
    (written,) = made.writes
    assert (made.wiring, made.default, made.removes) == (Wiring.CHAIN, "10-net.conflist", ())
    assert types(written.text) == [*types(text), PLUGIN]
    before, now = json.loads(text), json.loads(written.text)
    now["plugins"].pop()
    assert json.dumps(now) == json.dumps(before)
    assert not plan(after(folder, made)).changes


@pytest.mark.parametrize("text", [FLANNEL, CALICO, CILIUM])
def test_it_can_be_undone(text):
    folder = files(a10_net__conflist=text)
    done = after(folder, plan(folder))
    (left,) = after(done, unplan(done))
    assert json.dumps(json.loads(left.text)) == json.dumps(json.loads(text))
    assert not unplan(folder).changes


def test_a_lone_plugin_gets_a_list_before_it():
    """Its file stays untouched; a list with it and us comes first, and goes to undo it."""
    folder = files(a10_bridge__conf=BRIDGE)
    made = plan(folder)
    (written,) = made.writes
    assert written.name == "00-kube-rdma.conflist"
    assert json.loads(written.text) == {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [json.loads(BRIDGE), ENTRY],
    }
    done = after(folder, made)
    assert not plan(done).changes
    assert after(done, unplan(done)) == folder


@pytest.mark.parametrize("name", ["00-a.conf", "00-kube-aaa.conf", "0-a.conf"])
def test_our_list_always_sorts_before_the_file(name):
    """However early the file's name sorts, ours is what the runtime takes."""
    folder = (ConfFile(name, BRIDGE),)
    (written,) = plan(folder).writes
    assert written.name < name
    assert not plan(after(folder, plan(folder))).changes


def test_our_list_follows_the_file_it_stands_for():
    """A changed lone plugin changes our list; a real list or its removal ends it."""
    folder = files(a10_bridge__conf=BRIDGE)
    done = {file.name: file for file in after(folder, plan(folder))}
    changed = BRIDGE.replace("10.244.1.0", "10.9.9.0")
    again = plan((done["00-kube-rdma.conflist"], ConfFile("10-bridge.conf", changed)))
    assert "10.9.9.0" in again.writes[0].text
    real = plan((*done.values(), ConfFile("05-net.conflist", FLANNEL)))
    assert (real.default, real.removes) == ("05-net.conflist", ("00-kube-rdma.conflist",))
    for left in (done["00-kube-rdma.conflist"], ConfFile("00-kube-rdma.conflist", "torn")):
        gone = plan((left,))
        assert (gone.wiring, gone.removes) == (Wiring.NONE, ("00-kube-rdma.conflist",))


def test_only_the_file_that_the_runtime_takes_is_chained():
    folder = files(a10_flannel__conflist=FLANNEL)
    done = (*after(folder, plan(folder)), *files(a05_cilium__conflist=CILIUM))
    now = {file.name: file.text for file in after(done, plan(done))}
    assert types(now["05-cilium.conflist"])[-1] == PLUGIN
    assert PLUGIN not in types(now["10-flannel.conflist"])


def test_what_a_runtime_passes_over_is_passed_over():
    """Broken JSON, other endings, empty lists and files without a type are no networks."""
    folder = files(
        a00_broken__conflist="{",
        a01_empty__conflist='{"name": "x", "plugins": []}',
        a02_none__conf='{"name": "x"}',
        a03_text__txt=FLANNEL,
        a04_array__conf="[1]",
        a05_odd__conflist='{"plugins": [1]}',
        a10_flannel__conflist=FLANNEL,
    )
    assert plan(folder).default == "10-flannel.conflist"
    assert plan(folder[:-1]).wiring is Wiring.NONE


# CNI 1.1: plugins of a list lie in the folder of its name. What libcni 1.3 makes of each of these
# was seen by its own NetworkConfFromFile.
FOLDER_ONLY = '{"cniVersion": "1.1.0", "name": "k8s-pod-network"}'
PTP = ConfFile("k8s-pod-network/10.conf", '{"type": "ptp", "ipam": {"type": "host-local"}}')
TUNING = ConfFile("k8s-pod-network/20-tuning.conf", '{"type": "tuning"}')
OURS = "k8s-pod-network/zz-kube-rdma.conf"
UNCHECKED = FOLDER_ONLY.replace("}", ', "disableCheck": true, "cniVersions": ["0.4.0", "1.1.0"]}')
MANY_VERSIONS = '{"cniVersions": ["0.2.0", "1.0.0", "0.4.0"], "name": "k8s-pod-network"}'


@pytest.mark.parametrize("text", [FOLDER_ONLY, UNCHECKED, MANY_VERSIONS])
@pytest.mark.parametrize("beside", [(PTP,), (TUNING, PTP)])
def test_a_list_without_plugins_gets_our_entry_into_its_folder(text, beside):
    """Plugins in the list come before those of the folder, and the entry belongs behind."""
    flannel = files(a10_flannel__conflist=FLANNEL)
    folder = (*files(a05_x__conflist=text), *beside, *after(flannel, plan(flannel)))
    made = plan(folder)
    assert (made.wiring, made.default) == (Wiring.CHAIN, "05-x.conflist")
    now = {file.name: file.text for file in after(folder, made)}
    assert json.loads(now[OURS]) == ENTRY
    assert max(one.name for one in beside) < OURS
    assert PLUGIN not in types(now["10-flannel.conflist"]), "which no pod uses"
    assert now["05-x.conflist"] == text
    done = after(folder, made)
    assert not plan(done).changes
    assert OURS not in {file.name for file in after(done, unplan(done))}
    assert proven(made, folder, {"ptp", "tuning"}).wiring is Wiring.CHAIN
    assert proven(plan(done), done, {"tuning"}).missing == ("ptp",)
    assert proven(plan(done), done, {"tuning"}).removes == (OURS,)


EMPTY_LIST = '{"cniVersion": "1.1.0", "name": "k8s-pod-network", "plugins": []}'
ONLY_INLINED = FOLDER_ONLY.replace("}", ', "loadOnlyInlinedPlugins": true}')


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        (FOLDER_ONLY, ()),
        (FOLDER_ONLY, (ConfFile("whereabouts.d/whereabouts.conf", '{"type": "ptp"}'),)),
        (FOLDER_ONLY, (PTP, ConfFile("k8s-pod-network/20.conf", "{"))),
        (FOLDER_ONLY, (PTP, ConfFile("k8s-pod-network/20.conf", '{"typ": "tuning"}'))),
        (FOLDER_ONLY, (ConfFile(OURS, json.dumps(ENTRY)),)),
        ('{"cniVersion": "1.1.0", "name": ""}', (PTP,)),
        ('{"cniVersion": "1.1.0"}', (ConfFile("None/10.conf", PTP.text),)),
        (EMPTY_LIST, (PTP,)),
        (ONLY_INLINED, (PTP,)),
        (ONLY_INLINED.replace("true", '"True"'), (PTP,)),
    ],
)
def test_a_list_that_has_no_plugins_at_all_is_passed_over(text, beside):
    folder = (*files(a05_x__conflist=text, a10_flannel__conflist=FLANNEL), *beside)
    made = plan(folder)
    assert made.default == "10-flannel.conflist"
    assert OURS not in {file.name for file in after(folder, made)}


@pytest.mark.parametrize("more", [{}, {"disableCheck": True}, {"loadOnlyInlinedPlugins": True}])
def test_a_list_with_plugins_of_both_kinds_is_chained_in_its_file(more):
    """The folder's come behind; without the bridge's binary the runtime could call nobody."""
    listed = {"cniVersion": "1.1.0", "name": "k8s-pod-network", "plugins": [{"type": "bridge"}]}
    folder = (*files(a05_x__conflist=json.dumps({**listed, **more})), TUNING)
    made = plan(folder)
    (written,) = made.writes
    assert json.loads(written.text) == {**listed, **more, "plugins": [*listed["plugins"], ENTRY]}
    called = {"bridge"} if "loadOnlyInlinedPlugins" in more else {"bridge", "tuning"}
    assert not proven(made, folder, called).missing
    assert proven(made, folder, ()).missing == tuple(sorted(called))


def test_our_entry_leaves_a_list_that_a_plugin_of_its_folder_has_broken():
    """Repaired after the uninstallation, it would call a binary that is gone."""
    listed = {"cniVersion": "1.1.0", "name": "k8s-pod-network", "plugins": [{"type": "bridge"}]}
    whole = files(a05_x__conflist=json.dumps(listed))
    broken = (*after(whole, plan(whole)), ConfFile("k8s-pod-network/20.conf", "{"))
    now = {file.name: file.text for file in after(broken, unplan(broken))}
    assert json.loads(now["05-x.conflist"]) == listed


def test_our_entry_goes_with_the_list_that_it_was_for_and_before_a_meta_plugin():
    multus = ConfFile("k8s-pod-network/00-multus.conf", '{"type": "multus-shim"}')
    ours = ConfFile(OURS, json.dumps(ENTRY))
    made = plan((*files(a05_x__conflist=FOLDER_ONLY), multus, ours))
    assert (made.wiring, made.removes) == (Wiring.DELEGATE, (OURS,))
    made = plan((*files(a10_flannel__conflist=FLANNEL), PTP, ours))
    assert (made.default, made.removes) == ("10-flannel.conflist", (OURS,))


def test_a_meta_plugin_calls_us_and_nothing_is_chained():
    """Multus first: our entry is taken out of the list that it delegates to."""
    folder = files(a10_flannel__conflist=FLANNEL)
    done = (*after(folder, plan(folder)), *files(a00_multus__conf=MULTUS))
    made = plan(done)
    assert (made.wiring, made.default) == (Wiring.DELEGATE, "00-multus.conf")
    assert types(made.writes[0].text) == types(FLANNEL)
    assert not plan(after(done, made)).changes


def test_our_entry_is_taken_out_of_the_copy_that_a_meta_plugin_keeps():
    """Else it would bring the pods' networks to us once more, behind the one that reads them."""
    copy = json.loads(chained(FLANNEL))
    text = json.dumps({"cniVersion": "1.0.0", "type": "multus", "delegates": [copy]})
    for folder in (
        files(a00_multus__conf=text),
        files(a00_multus__conflist=json.dumps({"name": "m", "plugins": [json.loads(text)]})),
    ):
        made = plan(folder)
        assert made.wiring is Wiring.DELEGATE
        assert PLUGIN not in {word for file in made.writes for word in file.text.split('"')}
        assert "flannel" in made.writes[0].text
        assert not plan(after(folder, made)).changes


@pytest.mark.parametrize(
    ("wiring", "words"),
    [
        (Wiring.CHAIN, "chained in 10-a.conflist"),
        (Wiring.DELEGATE, "the meta-plugin of 10-a.conflist"),
        (Wiring.NONE, "no CNI configuration yet"),
    ],
)
def test_who_calls_us_can_be_told(wiring, words):
    assert words in describe_plan(ConfPlan(wiring, "10-a.conflist"))


def test_when_the_meta_plugin_goes_we_are_chained_again():
    folder = files(a00_multus__conf=MULTUS, a10_flannel__conflist=FLANNEL)
    left = tuple(one for one in after(folder, plan(folder)) if one.name != "00-multus.conf")
    made = plan(left)
    assert made.wiring is Wiring.CHAIN
    assert types(made.writes[0].text) == [*types(FLANNEL), PLUGIN]


def test_an_entry_without_the_mark_gets_it_where_it_stands():
    """As earlier versions wrote it, whoever stands behind us by now."""
    document = json.loads(FLANNEL)
    document["plugins"][1:1] = [{"type": PLUGIN}]
    now = json.loads(chained(json.dumps(document)))["plugins"]
    assert [one["type"] for one in now] == ["flannel", PLUGIN, "portmap"]
    assert now[1] == ENTRY


@pytest.mark.parametrize("entry", [{"type": PLUGIN, "chain": True}, {**ENTRY, "capabilities": {}}])
def test_an_entry_that_is_not_told_annotations_gets_the_capability(entry):
    """As earlier versions wrote it; what somebody added to ours is in nobody's way."""
    document = json.loads(FLANNEL)
    document["plugins"].append(entry)
    now = chained(json.dumps(document))
    assert json.loads(now)["plugins"][-1] == ENTRY
    assert chained(now) == now
    more = now.replace('"chain": true', '"chain": true, "note": 1')
    assert chained(more) == more


def test_a_network_of_our_type_is_not_our_entry():
    """A file that a NetworkAttachmentDefinition may mean by its name stays as it is."""
    ours = {"name": "rdma", "cniVersion": "1.0.0", "plugins": [{"type": PLUGIN, "ipam": {}}]}
    text = json.dumps(ours)
    assert without(text) == text
    bare = json.dumps(ours | {"plugins": [{"type": PLUGIN}]})
    assert without(bare) == bare
    folder = files(a10_flannel__conflist=FLANNEL, a20_rdma__conflist=text)
    assert [file.name for file in plan(folder).writes] == ["10-flannel.conflist"]


def test_a_meta_plugin_that_does_not_come_first_does_nothing():
    folder = files(a10_flannel__conflist=FLANNEL, a99_multus__conf=MULTUS)
    assert plan(folder).wiring is Wiring.CHAIN


def test_two_meta_plugins_are_refused_with_both_files():
    """Two would both read the pods' annotations; thick and thin Multus are one."""
    with pytest.raises(Refused, match=r"Multus in 00-multus.conf and CNI-Genie in 05-g.conflist"):
        plan(files(a00_multus__conf=MULTUS, a05_g__conflist=GENIE))
    thin = MULTUS.replace("multus-shim", "multus")
    assert plan(files(a00_m__conf=MULTUS, a01_m__conf=thin)).wiring is Wiring.DELEGATE


@pytest.mark.parametrize("version", ['"0.2.0"', '"0.1.0"', '"x"', "null"])
def test_an_old_version_is_refused(version):
    """Before 0.3.0 nothing can be chained; the file is named."""
    text = FLANNEL.replace('"0.3.1"', version)
    with pytest.raises(Refused, match=r"10-net.conflist: cniVersion is "):
        plan(files(a10_net__conflist=text))


def test_whoever_chains_behind_us_may_stay_there():
    """Two that both want to be last would rewrite the file for ever."""
    text = json.loads(chained(FLANNEL))
    text["plugins"].append({"type": "istio-cni"})
    assert chained(json.dumps(text)) == json.dumps(text)


@pytest.mark.parametrize("places", [(0,), (0, 1), (1, 2), (2, 3)])
def test_a_wrong_place_or_a_second_entry_is_put_right(places):
    """First in the list there is nothing to build on, and twice is once too often."""
    document = json.loads(FLANNEL)
    for place in places:
        document["plugins"].insert(place, {"type": PLUGIN})
    assert types(chained(json.dumps(document))) == [*types(FLANNEL), PLUGIN]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
PLUGINS = st.fixed_dictionaries(
    {"type": st.text(min_size=1).filter(lambda name: name != PLUGIN)}, optional={"x": VALUES}
)
LISTS = st.fixed_dictionaries(
    {"plugins": st.lists(PLUGINS, min_size=1)}, optional={"name": VALUES, "ÿ": VALUES}
)


@given(LISTS)
def test_any_list_is_chained_once_and_comes_back(document):
    """Chained twice is chained once; undone, every key and value is back in its place."""
    text = json.dumps(document)
    once = chained(text)
    assert chained(once) == once
    assert types(once) == [*types(text), PLUGIN]
    assert without(once) == text


@given(LISTS, st.sampled_from([None, 1, "\t", " \n "]), st.sampled_from([",", " ,\r\n"]))
def test_what_others_have_written_stays_as_they_wrote_it(document, indent, comma):
    """Spaces, escapes and the order of keys: the same bytes when the entry is out again."""
    text = f"\n {json.dumps(document, indent=indent, separators=(comma, ': '))}\n\n"
    assert without(chained(text)) == text
    assert types(chained(text)) == [*types(text), PLUGIN]
