"""How each fault of schedule.py begins on a lab, and how it ends.

What is killed is started again by who keeps it: the kubelet its containers, runit the node's
services, the lab's supervisor the control plane. What happens to a node as such depends on what it
is: native_acts.py, machine_acts.py.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping

from chaos import machine_acts, native_acts, setup, sites
from chaos.acts import Acts, Hand
from chaos.schedule import Fault, Target
from kube_rdma_lab import backups, cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.switch import turn

AGENT = "[k]ube-rdma agent"  # a pattern that its own command line does not match
CONTROLLER = "[k]ube-rdma controller"
BUMP = 10**9  # how far versions go on above those of before a restore
# A controller manager ends when the API server does not know its rights for 20 s after a restore.
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
GARBAGE = "pools: [\x01 this is no policy"
KINDS = "crds"
OF_A_KIND = {
    sites.NATIVE.topology: native_acts.acts,
    sites.MACHINES.topology: machine_acts.acts,
    sites.USER_MODE.topology: machine_acts.acts,
}


def kubectl(lab: Lab, *words: str, stdin: str = "") -> None:
    """Run kubectl until the API server takes it: a fault may have hit it a moment ago."""

    def done() -> bool:
        cluster.kubectl(lab, *words, stdin=stdin)
        return True

    waiting.until(lab, f"kubectl {words[0]} {words[1]}", done)


class Faults:
    """Begins and ends faults on one lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._site = sites.of(lab)
        self._numbers = itertools.count()
        hand = self._hand = Hand(lab)
        self.acts: Mapping[Fault, Acts] = {
            Fault.AGENT_KILLED: self._killed(AGENT),
            Fault.AGENT_FROZEN: Acts(
                lambda target: hand.signal(target.node, "STOP", AGENT),
                lambda target: hand.signal(target.node, "CONT", AGENT),
            ),
            Fault.AGENT_ROLLED_BACK: Acts(self._roll_out, self._roll_back),
            Fault.CONTROLLER_KILLED: Acts(self._kill_controllers),
            Fault.KUBELET_KILLED: self._killed("^kubelet"),
            Fault.CONTAINERD_KILLED: self._killed("^containerd$"),
            Fault.ETCD_KILLED: Acts(lambda _: self._crash("etcd")),
            Fault.API_SERVER_KILLED: Acts(lambda _: self._crash("kube-apiserver")),
            Fault.STORE_RESTORED: Acts(self._save, self._restore),
            Fault.CONFIG_GARBAGE: Acts(
                lambda _: self._configure(GARBAGE),
                lambda _: self._configure(json.dumps(setup.policy(self._site))),
            ),
            Fault.DEFINITIONS_GONE: Acts(self._delete_definitions, self._restore_definitions),
            **OF_A_KIND[self._site.topology](hand),
        }

    def begin(self, fault: Fault, target: Target) -> None:
        """Let a fault begin; one that lasts goes on until `end`."""
        self.acts[fault].begin(target)

    def end(self, fault: Fault, target: Target) -> None:
        """End a fault that lasts."""
        act = self.acts[fault].end
        assert act is not None
        act(target)

    def keep_control_plane(self) -> None:
        """Start what ended by itself, as a kubelet does with static pods; the others run on."""
        for program in CONTROL_PLANE:
            turn(self._lab.home, "start", program)

    def _killed(self, pattern: str) -> Acts:
        return Acts(lambda target: self._hand.signal(target.node, "KILL", pattern))

    def _kubectl(self, *words: str, stdin: str = "") -> None:
        kubectl(self._lab, *words, stdin=stdin)

    def _kill_controllers(self, _: Target) -> None:
        for spec in self._lab.topology.nodes:
            self._hand.signal(spec.name, "KILL", CONTROLLER)

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
        for made in setup.own_kinds(self._site):
            self._kubectl("apply", "-f", "-", stdin=json.dumps(made))
