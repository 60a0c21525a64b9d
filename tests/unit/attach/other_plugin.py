"""A CNI plugin that is not ours, on the made-up node of network_world.py."""

import json
from ipaddress import ip_address
from pathlib import Path

from kube_rdma.adapters.cni.plugins import ProcessOutcome

ADDRESS = ip_address("10.5.0.2")


class Veths:
    """What another plugin does in the kernel of a node, and what it records of it.

    `calls` are those that it got: its variables and its configuration. `failing` is its error.
    """

    def __init__(self, kernel):
        self._kernel, self.records, self.calls, self.failing = kernel, set(), [], None

    def call(self, environment, text):
        life = self._kernel.life
        life.alive()
        if environment["CNI_COMMAND"] == "VERSION":
            return ProcessOutcome(0, b"{}")
        self.calls.append((dict(environment), json.loads(text)))
        if self.failing:
            return ProcessOutcome(1, json.dumps(self.failing).encode())
        netns, name = environment["CNI_NETNS"], environment["CNI_IFNAME"]
        record = environment["CNI_CONTAINERID"], name
        space = self._kernel.space(Path(netns)) if netns else None
        link = self._kernel.named(space, name) if space else None
        match environment["CNI_COMMAND"]:
            case "ADD":
                self.records.add(record)
                life.act("another plugin's record")
                facts = {"kind": "veth", "up": True, "addresses": [(ADDRESS, 24)]}
                self._kernel.add_link(name, mac="06:cc:00:00:00:01", pod=Path(netns), **facts)
                life.act("another plugin's link")
            case "DEL":
                if link:
                    self._kernel.remove(link)
                self.records.discard(record)
                life.act("another plugin's end")
        return ProcessOutcome(
            0, json.dumps({"cniVersion": "1.0.0", "dns": {"domain": "x"}}).encode()
        )
