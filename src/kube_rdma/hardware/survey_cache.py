"""Keeps the last survey of the node for callers that cannot wait for a new one.

A survey reads thousands of files, 0.2 s on a large node, and a pod waits for its networks. The loop
of agent/loop takes one whenever the kernel announces something: a device or
interface that comes, goes or changes, an address. It is kept here for
attach/node_view.

So it is as old as the last thing that was announced, and as a burst that is under way, some tenths
of a second; where kernel events are unavailable, 10 s. Taken from it: which cards there are and
what they are, which interface is on which of them, which virtual function belongs where.

Read again for each pod, because it changes without a word or a pod's network depends on it: the
interfaces that its networks are on (index, MTU, MAC, state, addresses), the RDMA namespace mode,
the node's default routes where a card is about to go, the pod's RDMA devices with their GIDs and
device nodes. Where the interfaces contradict what is kept, or it does not know one of them, a whole
survey is taken before anything is refused (attach/rules/host_links).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink.rdma_read import read_mode
from kube_rdma.hardware.survey import rerouted, take_devices, take_survey
from kube_rdma.model.device import Device
from kube_rdma.model.survey import NamespaceMode, Survey

Devices = tuple[tuple[Device, ...], str | None]
"""RDMA devices, and the connection manager's node."""


@dataclass
class SurveyCache:
    """All of it blocks: call it in a thread."""

    survey: Callable[[], Survey] = take_survey
    mode: Callable[[], NamespaceMode] = read_mode
    routes: Callable[[Survey], Survey] = rerouted
    devices: Callable[[Sequence[str]], Devices] = take_devices
    _last: Survey | None = field(default=None, init=False)

    def take(self) -> Survey:
        """A new one, which is the one that is kept from now on."""
        self._last = self.survey()
        return self._last

    @property
    def has_cards(self) -> bool:
        """Whether the one that is kept shows an RDMA device."""
        return self._last is not None and bool(self._last.devices)

    def last(self, *, leaving: bool) -> Survey:
        """The one that is kept, with the current namespace mode.

        `leaving`: a card may be given away, so the default routes are current too.
        """
        survey = self._last or self.take()
        if survey.namespace_mode is not NamespaceMode.UNKNOWN:  # else the kernel has no RDMA
            mode = self.mode()
            if mode not in (NamespaceMode.UNKNOWN, survey.namespace_mode):
                survey = replace(survey, namespace_mode=mode)
        return self.routes(survey) if leaving else survey
