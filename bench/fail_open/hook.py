"""The floor: a driver that attaches in a hook of the runtime, to show that the rig sees fail-open.

It is a program of the bench's own (bench/go/hook) on the runtime's plugin interface, NRI, and no
driver of anybody. It runs on the node itself and is started again a second after it ended. What
becomes of a pod whose hook is late or away is the runtime's decision: containerd ends a plugin that
takes more than two seconds (containerd/nri@v0.12.3 pkg/adaptation/adaptation.go,
DefaultPluginRequestTimeout) and goes on without it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.fail_open.faults import FOLDER, Target
from bench.fail_open.steps import HOOK, Fault, Way
from bench.programs import built
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build.images import VERBS
from kube_rdma_lab.lab import Lab

PROGRAM, LOG = "/lab/hook", "/run/hook.log"
NAMESPACE = "fail-open"
ANNOTATION = "fail-open.example.com/nic"  # as bench/go/hook/main.go
LOOP = f"while :; do {PROGRAM} >>{LOG} 2>&1; sleep 1; done"
CONNECTED = "Started plugin"  # of the library's log


class HookFloor:
    """As Driver; it has no API server and no memory to speak of."""

    ways: tuple[Way, ...] = (HOOK,)
    faults: tuple[Fault, ...] = (Fault.FROZEN, Fault.KILLED)
    expect: tuple[str, ...] = ("netdev",)

    @contextmanager
    def on(self, lab: Lab) -> Iterator[None]:
        """It ends with the node."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        cluster.apply(lab, namespace)
        # The folder that the node has as /lab.
        shutil.copy(built("hook") / "hook", lab.home / "nodes" / HOOK.node / "files" / "hook")
        start = f"mkdir -p {FOLDER}; setsid sh -c '{LOOP}' >/dev/null 2>&1 </dev/null &"
        cluster.shell(lab, HOOK.node, start)
        self.renew(lab, HOOK)
        yield

    def pod(self, way: Way) -> dict[str, Any]:
        """By an annotation."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": way.name,
                "namespace": NAMESPACE,
                "annotations": {ANNOTATION: "true"},
            },
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": way.node},
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": VERBS}],
            },
        }

    def target(self, lab: Lab, way: Way) -> Target:
        """The program on its node."""
        return Target(way.node, f"^{PROGRAM}", "")

    def renew(self, lab: Lab, way: Way) -> None:
        """Wait until the runtime has it again."""
        running = f"pgrep -f '^{PROGRAM}' && tail -n 1 {LOG} | grep '{CONNECTED}'"
        waiting.until(lab, "the hook", lambda: cluster.shell(lab, way.node, running))
