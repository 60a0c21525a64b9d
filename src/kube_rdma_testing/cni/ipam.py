"""An IPAM plugin that is not kube-rdma's, as a function for FakeHost.

Like host-local it records addresses by container and interface. It refuses an address that is
taken, a second ADD, and CHECK without a record. Like static it refuses CHECK without a previous
result, and like dhcp ADD while the interface is missing in the namespace, or down.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

from kube_rdma.adapters.cni.plugins import ProcessOutcome

_INTERNAL = 999  # what the reference plugins answer for errors of their own (pkg/skel)
_OLD = ("0.3.0", "0.3.1")  # before there was CHECK


class FakeIpam:
    """A fake IPAM plugin that gives addresses of ipam.subnet in its configuration.

    The first address of the subnet is the gateway's. `is_up` returns whether an interface exists
    and is up in the namespace at a path; `acted` is called at each change. `calls` has the
    environment and configuration of each call, `leases` the given addresses, `failing` the error to
    answer with. `extra` is added to an answer to ADD.
    """

    def __init__(
        self, is_up: Callable[[str, str], bool], acted: Callable[[str], None] = lambda _: None
    ) -> None:
        self._is_up, self._acted = is_up, acted
        self.leases: dict[tuple[str, str], IPv4Address] = {}
        self.calls: list[tuple[dict[str, str], Any]] = []
        self.failing: dict[str, object] | None = None
        self.extra: dict[str, object] = {}

    def call(self, environment: Mapping[str, str], text: bytes) -> ProcessOutcome:
        """Run the IPAM plugin once, with the configuration `text`."""
        verb = environment["CNI_COMMAND"]
        if verb == "VERSION":
            return ProcessOutcome(0, b'{"cniVersion": "1.1.0"}')
        conf = json.loads(text)
        self.calls.append((dict(environment), conf))
        if self.failing:
            return ProcessOutcome(1, json.dumps(self.failing).encode())
        if "subnet" not in conf.get("ipam", {}):
            return _fault("IPAM config missing 'ipam' key")
        return self._answer(verb, environment, conf)

    def _answer(self, verb: str, environment: Mapping[str, str], conf: Any) -> ProcessOutcome:
        key = environment.get("CNI_CONTAINERID", ""), environment.get("CNI_IFNAME", "")
        match verb:
            case "ADD":
                return self._add(key, environment["CNI_NETNS"], conf)
            case "CHECK" if "prevResult" not in conf:
                return _fault("Required prevResult missing")
            case "CHECK" if key not in self.leases:
                return _fault(f"failed to find address added by container {key[0]}")
            case "DEL" if self.leases.pop(key, None):
                self._acted("an IPAM plugin's end")
        return ProcessOutcome(0)

    def _add(self, key: tuple[str, str], netns: str, conf: Any) -> ProcessOutcome:
        subnet = ip_network(conf["ipam"]["subnet"])
        if key in self.leases:
            return _fault(f"{self.leases[key]} has been allocated to {key[0]}")
        if not self._is_up(netns, key[1]):
            return _fault(f"error looking up {key[1]!r}: Link not found, or down")
        texts = conf.get("runtimeConfig", {}).get("ips", [])
        wanted = [ip_address(one.partition("/")[0]) for one in texts]
        taken = set(self.leases.values())
        free = (one for one in [*subnet][2:-1] if one not in taken)
        address = wanted[0] if wanted else next(free, None)
        if address is None or address not in subnet or address in taken:
            return _fault(f"no IP addresses available in {subnet}")
        assert isinstance(address, IPv4Address)
        self.leases[key] = address
        self._acted("an IPAM plugin's address")
        gateway = str(subnet.network_address + 1)
        old = {"version": "4"} if conf["cniVersion"] in _OLD else {}
        ip = {"address": f"{address}/{subnet.prefixlen}", "gateway": gateway, **old}
        document = {"cniVersion": conf["cniVersion"], "ips": [ip], **self.extra}
        return ProcessOutcome(0, json.dumps(document).encode())


def _fault(message: str) -> ProcessOutcome:
    return ProcessOutcome(1, json.dumps({"code": _INTERNAL, "msg": message}).encode())
