"""Faults as they happen to a native node, which is namespaces on this machine's kernel.

A node that is off keeps its disks and its boot id, which is this machine's; its memory, namespaces
and processes are gone. A tmpfs that somebody writes to cannot be remounted read-only, so its files
and folders are immutable in place of that.
"""

from __future__ import annotations

from collections.abc import Mapping

from chaos import setup
from chaos.acts import Acts, Hand
from chaos.schedule import Fault, Target
from kube_rdma_lab import network, waiting
from kube_rdma_lab.native.replay import Replay

FILLER = f"{setup.JOURNALS}/.filler"
# All but the first process and the writer of the console; what a power cut leaves is the disk.
POWER_OFF = """
for service in /etc/service/*; do touch "$service/down"; done
for round in 1 2 3; do
  for folder in /proc/[0-9]*; do
    number=${folder#/proc/}
    [ "$number" -le 2 ] || [ "$number" = $$ ] || kill -9 "$number" 2>/dev/null
  done
done
cut -d' ' -f2 /proc/mounts | grep -E '^/run/|^/var/lib/kubelet/' | tac | xargs -r -n1 umount -l
rm -rf /run/* /tmp/*
mkdir /run/lock
ip link delete cni0 2>/dev/null
for name in $(ip -o link show type veth | grep -o 'veth[0-9a-f]*'); do ip link delete "$name"; done
true
"""
POWER_ON = """
for service in /etc/service/*; do
  rm -f "$service/down"
  until sv up "$service" >/dev/null; do sleep 0.2; done
done
"""


def acts(hand: Hand) -> Mapping[Fault, Acts]:
    """What differs from other kinds of nodes."""
    cards = _Cards(hand)
    return {
        Fault.NODE_OFF: hand.script(POWER_OFF, POWER_ON),
        Fault.NODE_CUT: Acts(
            lambda target: _wire(hand, target.node, "down"),
            lambda target: _wire(hand, target.node, "up"),
        ),
        Fault.DISK_FULL: hand.script(
            f"dd if=/dev/zero of={FILLER} bs=4k 2>/dev/null; true", f"rm -f {FILLER}"
        ),
        Fault.DISK_READ_ONLY: hand.script(
            f"chattr -R +i {setup.JOURNALS}", f"chattr -R -i {setup.JOURNALS}"
        ),
        Fault.LINK_DOWN: Acts(
            lambda target: Replay(hand.lab, target.node).down(target.card),
            lambda target: Replay(hand.lab, target.node).up(target.card),
        ),
        Fault.CARD_REMOVED: Acts(cards.pull, cards.plug),
    }


def _wire(hand: Hand, node: str, state: str) -> None:
    name = network.tap(hand.lab.node(node), 0)
    waiting.run(hand.lab, [*hand.lab.enter(), "ip", "link", "set", name, state])


class _Cards:
    """Remembers the address of each function that was pulled, which its return asks for."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand
        self._pulled: dict[Target, str] = {}

    def pull(self, target: Target) -> None:
        self._pulled[target] = Replay(self._hand.lab, target.node).pull(target.card)

    def plug(self, target: Target) -> None:
        Replay(self._hand.lab, target.node).plug(self._pulled.pop(target))
