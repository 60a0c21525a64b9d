"""The installations to judge: every preset in the distribution of every environment, rendered once.

Beside what `kube-rdma render` prints these are the objects of Helm's hooks, and what the
operator makes of a NicClusterPolicy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from kube_base.frozen import replace
from kube_rdma.install.installation import assignment, blueprints, described, objects, policy_values
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import DISTRIBUTIONS, PRESETS, merged, over
from kube_rdma.model.install import Blueprint, Json, Values
from kube_rdma.model.operator import (
    ClusterPolicy,
    ComponentImage,
    DevicePluginSection,
    PeerDriverSection,
    PolicyDriver,
)
from kube_rdma.operator.rules.daemon_sets import SHARED, SRIOV, plugin_objects
from kube_rdma.operator.rules.driver_sets import driver_objects, peer_objects
from kube_rdma.operator.rules.placement import NodeGroup
from kube_rdma_lab.build.product import IMAGE
from kube_rdma_tools.judge.environment import Environment

_GROUP = NodeGroup("amd64", "ubuntu", "24.04", "6.8.0-45-generic")
_IMAGE = ComponentImage("registry.example.com/rdma", "kube-rdma", "1.0")
_DRIVER = ComponentImage("registry.example.com/rdma", "doca-driver", "doca3.5.0-26.07-0.7.0.0-0")
_CONFIG = '{"configList": [{"resourceName": "hca_shared_devices_a", "rdmaHcaMax": 63}]}'
_NETWORKS = "crds.networkAttachmentDefinitions"
_FUNCTIONS = '{"resourceList": [{"resourceName": "a", "selectors": {"pfNames": ["ens2f0"]}}]}'


def distribution(environment: Environment) -> str:
    """Return the first distribution of an environment that the product knows."""
    return next(name for name in environment.distributions if name in DISTRIBUTIONS)


def installation(preset: str, environment: Environment) -> tuple[Json, ...]:
    """Return all objects of a preset as its users would install it in an environment."""
    given = dict(environment.values)
    if PRESETS[preset].get("networks", {}).get("install") and not _has_networks(environment):
        given.setdefault(_NETWORKS, "true")  # as the chart does by itself (chart_templates)
    return _rendered(preset, assignments(environment, given))


def assignments(environment: Environment, given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the --set assignments of an installation in an environment, with these values."""
    first = {
        "distribution": distribution(environment),
        "kubernetesVersion": f"v1.{environment.kubernetes}",
    }
    return tuple(f"{path}={value}" for path, value in {**first, **given}.items())


def _has_networks(environment: Environment) -> bool:
    """Decide whether another installation has NetworkAttachmentDefinition already."""
    return any(
        definition.kind == "NetworkAttachmentDefinition"
        for neighbour in environment.neighbours
        for definition in neighbour.definitions
    )


@cache
def _rendered(preset: str, settings: tuple[str, ...]) -> tuple[Json, ...]:
    layers = [assignment(text) for text in (f"image.repository={IMAGE}", *settings)]
    made = objects(layers, preset)
    given: Any = {"preset": preset}
    for layer in layers:
        given = over(given, layer.value)
    values = merged(given)
    made += tuple(filled(_hooks(), values))
    if not values["platform"]["operator"]:
        return made
    return made + tuple(_of_policy(values["namespace"]["name"], _policy_set(made)))


@cache
def _hooks() -> list[Blueprint]:
    """Return the blueprints that only the chart has, changed so that `filled` keeps them."""
    listed = (blueprint for part in blueprints().values() for blueprint in part)
    return [replace(blueprint, for_helm=False) for blueprint in listed if blueprint.for_helm]


def _policy_set(objects: tuple[Json, ...]) -> Values:
    """Return the values in --policy-set options of the operator, which its agents get."""
    (deployment,) = (made for made in objects if made["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    option = "--policy-set="
    words = [word for word in container["args"] if word.startswith(option)]
    return policy_values([word.removeprefix(option) for word in words], option)


def _of_policy(namespace: str, values: Values) -> Iterator[Json]:
    """Yield the objects that a NicClusterPolicy with all sections makes.

    Its shared plugin attaches networks.
    """
    policy = ClusterPolicy(
        "nic-cluster-policy",
        namespace,
        "00000000-0000-0000-0000-000000000000",
        driver=PolicyDriver(_DRIVER),
        device_plugin=DevicePluginSection(_IMAGE, _CONFIG, networks=True),
        sriov_plugin=DevicePluginSection(_IMAGE, _FUNCTIONS),
        peer_driver=PeerDriverSection(_IMAGE, "/run/nvidia/driver"),
    )
    for names in (SHARED, SRIOV):
        plugin = plugin_objects(policy, described("workloads"), values=values, names=names)
        if plugin.config_map:
            yield plugin.config_map
        yield from plugin.daemon_sets
    yield from driver_objects(policy, (_GROUP,), values).daemon_sets
    yield from peer_objects(policy, (_GROUP,), values).daemon_sets


def presets() -> tuple[str, ...]:
    """Return the names of kube-rdma's presets."""
    return tuple(PRESETS)
