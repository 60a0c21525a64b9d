"""A link's name when it comes home, while systemd-udevd gives names to the same link."""

import errno

import pytest

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink.rtnl_read import Interface
from kube_rdma.adapters.kernel.pod import links
from kube_rdma.model.attach.attachment import SeenLink
from kube_rdma_testing.kernel.network import refusal

HOME, POD = "ens1f0", "net1"
CARD = Interface(SeenLink(POD, 7, 1500, "02:00:00:00:00:01", up=False), 1, 0, "")


class Kernel:
    """The links of the node; `meanwhile` happens before the first rename."""

    def __init__(self, patch, meanwhile):
        self.links, self.meanwhile = [CARD], meanwhile
        patch.setattr(links.rtnl_read, "interfaces", lambda _: tuple(self.links))
        patch.setattr(links.rtnl_write, "send", lambda _, request: request())
        patch.setattr(
            links.rtnl_write, "rename_link", lambda index, name: lambda: self.rename(name)
        )
        patch.setattr(
            links.rtnl_write, "remove_alternative_name", lambda index, name: lambda: self.free(name)
        )

    def rename(self, name):
        if self.meanwhile:
            self.links, self.meanwhile = self.meanwhile, None
        if any(each.is_called(name) and each.seen.name != name for each in self.links[:1]):
            raise refusal(errno.EEXIST)
        if any(each.is_called(name) for each in self.links[1:]):
            raise refusal(errno.EEXIST)
        card = self.links[0]
        self.links[0] = replace(card, seen=replace(card.seen, name=name))

    def free(self, name):
        card = self.links[0]
        self.links[0] = replace(card, alternative_names=card.alternative_names - {name})


def test_a_name_that_it_gets_meanwhile_as_an_alternative_is_freed(monkeypatch):
    kernel = Kernel(monkeypatch, [replace(CARD, alternative_names=frozenset({HOME}))])
    assert links._rename(None, CARD, HOME)
    assert kernel.links == [replace(CARD, seen=replace(CARD.seen, name=HOME))]


def test_a_name_that_the_daemon_gave_it_already_is_well(monkeypatch):
    kernel = Kernel(monkeypatch, [replace(CARD, seen=replace(CARD.seen, name=HOME))])
    assert links._rename(None, CARD, HOME)
    assert kernel.links[0].seen.name == HOME


@pytest.mark.parametrize("names", [(HOME, ()), ("other", (HOME,))])
def test_a_name_that_another_link_took_is_another_s(monkeypatch, names):
    name, also = names
    other = replace(CARD, seen=replace(CARD.seen, index=8, name=name))
    kernel = Kernel(monkeypatch, [CARD, replace(other, alternative_names=frozenset(also))])
    assert not links._rename(None, CARD, HOME)
    assert kernel.links[0] == CARD
