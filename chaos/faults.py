"""How each fault of schedule.py begins on a lab of native nodes, and how it ends.

What is killed is started again by who keeps it: the kubelet its containers, runit the node's
services, the lab's supervisor the control plane. A node that is off keeps its disks and its boot
id, which is this machine's; its memory, namespaces and processes are gone. A tmpfs that somebody
writes to cannot be remounted read-only, so its files and folders are immutable in place of that.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import NamedTuple

from chaos import setup
from chaos.schedule import Fault, Target
from kube_rdma_lab import backups, cluster, network, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.native.replay import Replay
from kube_rdma_lab.switch import turn

AGENT = "[k]ube-rdma agent"  # a pattern that its own command line does not match
CONTROLLER = "[k]ube-rdma controller"
FILLER = f"{setup.JOURNALS}/.filler"
BUMP = 10**9  # how far versions go on above those of before a restore
# A controller manager ends when the API server does not know its rights for 20 s after a restore.
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
GARBAGE = "pools: [\x01 this is no policy"
KINDS = "crds"
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


def kubectl(lab: Lab, *words: str, stdin: str = "") -> None:
    """Run kubectl until the API server takes it: a fault may have hit it a moment ago."""

    def done() -> bool:
        cluster.kubectl(lab, *words, stdin=stdin)
        return True

    waiting.until(lab, f"kubectl {words[0]} {words[1]}", done)


class Acts(NamedTuple):
    """What begins a fault and what ends it; without an end somebody else does."""

    begin: Callable[[Target], object]
    end: Callable[[Target], object] | None = None


class Faults:
    """Begins and ends faults on one lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._pulled: dict[Target, str] = {}
        self._numbers = itertools.count()
        self._acts = {
            Fault.AGENT_KILLED: Acts(lambda target: self._signal(target.node, "KILL", AGENT)),
            Fault.AGENT_FROZEN: Acts(
                lambda target: self._signal(target.node, "STOP", AGENT),
                lambda target: self._signal(target.node, "CONT", AGENT),
            ),
            Fault.AGENT_ROLLED_BACK: Acts(self._roll_out, self._roll_back),
            Fault.CONTROLLER_KILLED: Acts(self._kill_controllers),
            Fault.KUBELET_KILLED: Acts(
                lambda target: self._signal(target.node, "KILL", "^kubelet")
            ),
            Fault.CONTAINERD_KILLED: Acts(
                lambda target: self._signal(target.node, "KILL", "^containerd$")
            ),
            Fault.ETCD_KILLED: Acts(lambda _: self._crash("etcd")),
            Fault.API_SERVER_KILLED: Acts(lambda _: self._crash("kube-apiserver")),
            Fault.STORE_RESTORED: Acts(self._save, self._restore),
            Fault.NODE_OFF: Acts(
                lambda target: self._shell(target.node, POWER_OFF),
                lambda target: self._shell(target.node, POWER_ON),
            ),
            Fault.NODE_CUT: Acts(
                lambda target: self._wire(target.node, "down"),
                lambda target: self._wire(target.node, "up"),
            ),
            Fault.DISK_FULL: Acts(
                lambda target: self._shell(
                    target.node, f"dd if=/dev/zero of={FILLER} bs=4k 2>/dev/null; true"
                ),
                lambda target: self._shell(target.node, f"rm -f {FILLER}"),
            ),
            Fault.DISK_READ_ONLY: Acts(
                lambda target: self._shell(target.node, f"chattr -R +i {setup.JOURNALS}"),
                lambda target: self._shell(target.node, f"chattr -R -i {setup.JOURNALS}"),
            ),
            Fault.LINK_DOWN: Acts(
                lambda target: Replay(self._lab, target.node).down(target.card),
                lambda target: Replay(self._lab, target.node).up(target.card),
            ),
            Fault.CARD_REMOVED: Acts(self._pull, self._plug),
            Fault.CONFIG_GARBAGE: Acts(
                lambda _: self._configure(GARBAGE),
                lambda _: self._configure(json.dumps(setup.POLICY)),
            ),
            Fault.DEFINITIONS_GONE: Acts(self._delete_definitions, self._restore_definitions),
        }

    def begin(self, fault: Fault, target: Target) -> None:
        """Let a fault begin; one that lasts goes on until `end`."""
        self._acts[fault].begin(target)

    def end(self, fault: Fault, target: Target) -> None:
        """End a fault that lasts."""
        act = self._acts[fault].end
        assert act is not None
        act(target)

    def keep_control_plane(self) -> None:
        """Start what ended by itself, as a kubelet does with static pods; the others run on."""
        for program in CONTROL_PLANE:
            turn(self._lab.home, "start", program)

    def _shell(self, node: str, script: str) -> None:
        cluster.shell(self._lab, node, script)

    def _signal(self, node: str, signal: str, pattern: str) -> None:
        """Send a signal; who is not there just now gets none."""
        self._shell(node, f"pkill -{signal} -f '{pattern}' || true")

    def _kubectl(self, *words: str, stdin: str = "") -> None:
        kubectl(self._lab, *words, stdin=stdin)

    def _kill_controllers(self, _: Target) -> None:
        for spec in self._lab.topology.natives:
            self._signal(spec.name, "KILL", CONTROLLER)

    def _crash(self, program: str) -> None:
        turn(self._lab.home, "kill", program)
        turn(self._lab.home, "start", program)

    def _roll_out(self, _: Target) -> None:
        words = ("set", "env", f"daemonset/{setup.AGENT}", f"CHAOS={next(self._numbers)}")
        self._kubectl("-n", setup.NAMESPACE, *words)

    def _roll_back(self, _: Target) -> None:
        self._kubectl("-n", setup.NAMESPACE, "rollout", "undo", f"daemonset/{setup.AGENT}")

    def _save(self, _: Target) -> None:
        backups.save(self._lab, self._lab.home / "chaos.db")

    def _restore(self, _: Target) -> None:
        backups.restore(self._lab, self._lab.home / "chaos.db", bump=BUMP)

    def _wire(self, node: str, state: str) -> None:
        name = network.tap(self._lab.node(node), 0)
        waiting.run(self._lab, [*self._lab.enter(), "ip", "link", "set", name, state])

    def _pull(self, target: Target) -> None:
        self._pulled[target] = Replay(self._lab, target.node).pull(target.card)

    def _plug(self, target: Target) -> None:
        Replay(self._lab, target.node).plug(self._pulled.pop(target))

    def _configure(self, text: str) -> None:
        """Change the agents' file; a kubelet looks at a pod's volumes when its object changes."""
        patch = json.dumps({"data": {"policy.yaml": text}})
        words = ("-n", setup.NAMESPACE)
        self._kubectl("patch", "configmap", setup.AGENT, *words, "--type=merge", "-p", patch)
        mark = f"chaos={next(self._numbers)}"
        which = ("-l", f"name={setup.AGENT}", "--overwrite")
        self._kubectl("annotate", "pods", *words, *which, mark)

    def _delete_definitions(self, _: Target) -> None:
        folder = scc.examples().parent / "config" / KINDS
        self._kubectl("delete", "-f", str(folder), "--ignore-not-found")

    def _restore_definitions(self, _: Target) -> None:
        folder = scc.examples().parent / "config" / KINDS
        self._kubectl("apply", "-f", str(folder))
        self._kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
        self._kubectl("apply", "-f", "-", stdin=json.dumps(setup.pool()))
