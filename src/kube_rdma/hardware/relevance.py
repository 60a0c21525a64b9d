"""Which announcements are about cards: a node makes and removes an interface for every pod.

Between the kernel's announcements and the survey of role plugin. One end of a pod's veth, or a
macvlan on its way into a pod, is no card's interface, and on a node of a thousand functions each
survey costs; unless a soft RDMA device sits on it, of which the last survey knows.
"""

from __future__ import annotations

from kube_rdma.adapters.kernel.netlink.rtnl_events import News, RtnlEvent
from kube_rdma.adapters.kernel.netlink.uevents import LOST, Uevent
from kube_rdma.model.survey import Survey

_OF_PODS = frozenset({"veth", "macvlan", "ipvlan"})  # IFLA_INFO_KIND
_VIRTUAL = "/devices/virtual/net/"
_LINKS = frozenset({News.LINK, News.LINK_GONE})


class CardEvents:
    """One per agent; it remembers which interfaces are of pods, for an address tells only where."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._of_pods: set[int] = set()

    def surveyed(self, survey: Survey) -> None:
        """Take note of the interfaces that count."""
        ports = (port.netdev for device in survey.devices for port in device.ports)
        functions = (netdev.name for one in survey.functions for netdev in one.netdevs)
        self._names = frozenset(filter(None, (*ports, *functions)))

    def concern(self, event: object) -> bool:
        """Whether an announcement may be about a card."""
        if isinstance(event, Uevent):
            # Of a virtual interface routing netlink tells more, with its kind.
            name = event.devpath.removeprefix(_VIRTUAL)
            return event.action == LOST or name == event.devpath or name in self._names
        if not isinstance(event, RtnlEvent) or event.news is News.LOST:
            self._of_pods.clear()
            return True
        if event.kind in _OF_PODS and event.name not in self._names:
            self._of_pods.add(event.interface)
        elif event.kind or event.name in self._names:
            self._of_pods.discard(event.interface)
        is_pods = event.interface in self._of_pods
        if event.news is News.LINK_GONE:
            self._of_pods.discard(event.interface)
        return not is_pods
