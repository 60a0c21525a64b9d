"""What libcni makes of a list for the plugin at its end, and what it takes from it.

From libcni/api.go (buildOneConfig, injectRuntimeConfig) and pkg/types/040, 100: the configuration
gets name, cniVersion, the previous result in the list's version, and of runtimeConfig what the
plugin's capabilities name.
"""

import json
from ipaddress import ip_address, ip_interface, ip_network

NETNS = "/run/netns/a"
_FAMILY_TOLD = ("0.3.0", "0.3.1", "0.4.0")
_KEYS = {"cniVersion", "interfaces", "ips", "routes", "dns"}


def previous(version):
    """What a plugin before made, in the form of a version."""
    ips = [
        {"version": "4", "interface": 1, "address": "10.1.2.3/24", "gateway": "10.1.2.1"},
        {"version": "6", "interface": 1, "address": "fd00::3/64", "gateway": "fd00::1"},
    ]
    if version not in _FAMILY_TOLD:
        ips = [{key: value for key, value in one.items() if key != "version"} for one in ips]
    return {
        "cniVersion": version,
        "interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": NETNS}],
        "ips": ips,
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.2.1"}],
        "dns": {},
    }


def as_given(listed, verb, annotations=None, shape=None):
    """The environment and the configuration of a call of the last plugin of a list."""
    plugin = dict(listed["plugins"][-1])
    given = {"io.kubernetes.cri.pod-annotations": annotations or {}, "portMappings": []}
    wanted = {key for key, on in plugin.get("capabilities", {}).items() if on}
    runtime = {key: value for key, value in given.items() if key in wanted}
    plugin |= {
        "name": listed["name"],
        "cniVersion": listed["cniVersion"],
        "prevResult": previous(shape or listed["cniVersion"]),
        **({"runtimeConfig": runtime} if runtime else {}),
    }
    variables = {
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": "c0ffee",
        "CNI_NETNS": NETNS,
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_UID=u",
        "CNI_PATH": "/opt/cni/bin",
    }
    environment = b"".join(f"{key}={value}\0".encode() for key, value in variables.items())
    return environment, json.dumps(plugin).encode()


def valid(answer, version):
    """Whether libcni reads this result in this version without an error."""
    if answer["cniVersion"] != version or set(answer) - _KEYS:
        return False
    for one in answer["ips"]:
        family = str(ip_interface(one["address"]).version)
        if one.get("version") != (family if version in _FAMILY_TOLD else None):
            return False
        if str(ip_address(one["gateway"]).version) != family:
            return False
        if one["interface"] >= len(answer["interfaces"]):
            return False
    for route in answer["routes"]:
        if set(route) - {"dst", "gw"} or not ip_network(route["dst"]):
            return False
    return all(set(one) <= {"name", "mac", "sandbox"} for one in answer["interfaces"])
