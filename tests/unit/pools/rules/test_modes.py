"""The mode table is complete, keeps its own rules and says what the documents say."""

import pytest

from kube_base.frozen import replace
from kube_rdma.model.pools import Attach, Bind, Mode, PoolSpec, Preference
from kube_rdma.pools.rules.modes import MODES, Takes, terms, with_networks

SPEC = PoolSpec("rdma/hca", Mode.SHARED_MULTI, "c:1:1")


def test_every_mode_has_a_row():
    assert tuple(MODES) == tuple(Mode)


@pytest.mark.parametrize("mode", Mode)
def test_a_row_is_complete(mode):
    row = MODES[mode]
    for text in (row.moves, row.isolation, row.meaning, row.takes.value):
        assert text
        assert not text.endswith(".")
        assert text == text.strip()
        assert not text[0].isupper() or text[:2].isupper() or text.startswith("RDMA")


@pytest.mark.parametrize("mode", Mode)
def test_a_row_agrees_with_itself(mode):
    row = MODES[mode]
    assert 0 < row.shares <= (row.most or row.shares)
    if row.owns:
        assert row.bind is Bind.PER_CARD, "shares of a pool open every card, so none is owned"
        assert row.most == 1, "a card that belongs to one pod has one share"
    if not row.numbered:
        assert row.most == 1, "several shares of a card need numbers to tell them apart"
    if row.takes in {Takes.MOVABLE, Takes.FUNCTION}:
        assert row.owns, "what is moved into a pod cannot be another's"


@pytest.mark.parametrize("mode", Mode)
def test_what_is_given_alone_never_carries_the_nodes_own_traffic(mode):
    row = MODES[mode]
    assert ("can do without" in row.takes) is row.owns


def test_hca_is_what_the_scc_document_says():
    row = MODES[Mode.HCA]
    assert (row.shares, row.bind, row.attach) == (1000, Bind.POOL, Attach.NONE)


def test_sriov_is_what_the_sriov_device_plugin_does():
    row = MODES[Mode.SRIOV]
    assert (row.numbered, row.attach, row.takes) == (False, Attach.NONE, Takes.FUNCTION)


def test_a_wish_that_says_nothing_gets_the_row():
    assert terms(SPEC) == MODES[Mode.SHARED_MULTI]


@pytest.mark.parametrize(
    "said",
    [{"shares": 4}, {"bind": Bind.POOL}, {"attach": Attach.REQUIRED}, {"prefer": Preference.NUMA}],
)
def test_what_a_wish_says_goes_before_the_row(said):
    row = MODES[Mode.SHARED_MULTI]
    assert all(getattr(row, field) != value for field, value in said.items())
    assert terms(replace(SPEC, **said)) == replace(row, **said)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("said", [None, *Attach])
def test_networks_change_what_a_wish_leaves_unsaid(mode, said):
    wish = PoolSpec("rdma/hca", mode, "c:1:1", attach=said)
    unsaid = Attach.NONE if mode is Mode.SRIOV else Attach.AUTO
    assert terms(with_networks(wish)).attach is (said or unsaid)
