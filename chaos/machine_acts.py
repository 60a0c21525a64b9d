"""Faults as they happen to a machine, which has a kernel, a clock and a disk of its own.

A node that is off is a QEMU process that ended: the kernel gets no word of it, and boots anew, with
another boot id, from the disk as it is. The disk was synchronised the moment before, for the lab's
file systems have no journal that would mend them. The lab's own way onto a node is its wire to the
cluster, so a cut leaves SSH alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from chaos import setup
from chaos.acts import Acts, Hand
from chaos.schedule import Fault, Target
from kube_base.errors import Unavailable
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.switch import turn

FILLER = f"{setup.JOURNALS}/.filler"
# The disk holds images and the kubelet's files too: what is full is all of it.
FILL = f"""
free() {{ df --output=avail -B1 {setup.JOURNALS} | tail -n 1; }}
fallocate -l "$(free)" {FILLER} || fallocate -l "$(($(free) * 9 / 10))" {FILLER}
dd if=/dev/zero of={FILLER}.more bs=4k 2>/dev/null
true
"""
_EACH_WAY = (
    "INPUT -i eth0 -j DROP",
    "INPUT -i eth0 -p tcp --dport 22 -j ACCEPT",
    "OUTPUT -o eth0 -j DROP",
    "OUTPUT -o eth0 -p tcp --sport 22 -j ACCEPT",
    "FORWARD -i eth0 -j DROP",
    "FORWARD -o eth0 -j DROP",
)
CUT = "\n".join(f"iptables -w -I {rule}" for rule in _EACH_WAY)
JOIN = "\n".join(f"iptables -w -D {rule}" for rule in _EACH_WAY)
# The function of a virtio card has the driver's own device between it and the interface.
PULL = """
function=$(readlink -f /sys/class/net/{card}/device)
case $function in */virtio*) function=${function%/*} ;; esac
echo 1 >"$function/remove"
"""
# There is no udev: what came back is named and furnished as at boot (sbin/lab-init).
PLUG = """
echo 1 >/sys/bus/pci/rescan
grep ' {card} ' /lab/nics | while read -r mac name address rxe _; do
  until [ -e "/sys/class/net/$name" ]; do
    for path in /sys/class/net/*; do
      [ "$(cat "$path/address")" = "$mac" ] && ip link set "${path##*/}" name "$name"
    done
  done
  ip link set "$name" mtu 9000 up
  ip address add "$address" dev "$name"
  rdma link add "$rxe" type rxe netdev "$name"
done
"""
JUMP_SECONDS = 2 * 3600  # longer than a token of a pod is good for


def acts(hand: Hand) -> Mapping[Fault, Acts]:
    """What differs from other kinds of nodes."""
    power = _Power(hand)
    return {
        Fault.NODE_OFF: Acts(power.off, power.on),
        Fault.NODE_CUT: hand.script(CUT, JOIN),
        Fault.DISK_FULL: hand.script(FILL, f"rm -f {FILLER} {FILLER}.more"),
        Fault.DISK_READ_ONLY: hand.script(
            f"chattr -R +i {setup.JOURNALS}", f"chattr -R -i {setup.JOURNALS}"
        ),
        Fault.LINK_DOWN: hand.script("ip link set {card} down", "ip link set {card} up"),
        Fault.CARD_REMOVED: hand.script(PULL, PLUG),
        Fault.CLOCK_AHEAD: _clock(hand, JUMP_SECONDS),
        Fault.CLOCK_BEHIND: _clock(hand, -JUMP_SECONDS),
    }


def _clock(hand: Hand, seconds: int) -> Acts:
    """A node's wall clock goes so far, and comes back to that of this machine."""

    def put(target: Target, ahead: int) -> None:
        hand.shell(target.node, f"date -s @{round(time.time()) + ahead}")

    return Acts(lambda target: put(target, seconds), lambda target: put(target, 0))


class _Power:
    """Ends machines, and boots them from what their disks have."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand

    def off(self, target: Target) -> None:
        lab = self._hand.lab
        self._hand.shell(target.node, "sync")
        self._hand.off.add(target.node)
        turn(lab.home, "end", target.node)
        # Without it a shell waits for a node that answers no more.
        connection = ("-o", f"ControlPath={lab.home}/ssh-%h", "-O", "exit")
        words = [*lab.enter(), "ssh", *connection, f"root@{lab.node(target.node).ip}"]
        with contextlib.suppress(Unavailable):
            waiting.run(lab, words)

    def on(self, target: Target) -> None:
        lab = self._hand.lab
        turn(lab.home, "start", target.node)
        waiting.until(
            lab, f"a shell on {target.node}", lambda: cluster.shell(lab, target.node, "echo up")
        )
        self._hand.off.discard(target.node)
