"""Small made-up worlds of devices and a claim, as objects of Kubernetes: one for each number.

Each is what the API server would take (pkg/apis/resource/validation of Kubernetes 1.36.3), and few
values stand for many, so that devices, requests and what others hold meet often.
tests/lab/native/test_claim_verdicts gives them to the real allocator and to claims/rules.
"""

import random

from tests.kit import manifests

DOMAIN = "rdma.test"
DRIVERS = (DOMAIN, "gpu.test")
LABEL = "zone"
EXPRESSIONS = (
    f'device.driver == "{DOMAIN}"',
    'device.driver.endsWith(".test") && device.driver != "x"',
    f'device.attributes["{DOMAIN}"].rail == 1',
    f'has(device.attributes["{DOMAIN}"].rail) && device.attributes["{DOMAIN}"].rail >= 1',
    f'"rail" in device.attributes["{DOMAIN}"]',
    f'device.attributes["{DOMAIN}"].?rail.orValue(0) < 2',
    'device.attributes["std.test"].root in ["a", "b"]',
    'device.attributes["std.test"].root.startsWith("a") || device.driver == "gpu.test"',
    'device.attributes["std.test"].root.matches("^[ab]$")',
    f'device.attributes["{DOMAIN}"].firmware.isGreaterThan(semver("1.2.0"))',
    f'device.attributes["{DOMAIN}"].firmware.compareTo(semver("1.10.0-rc.1")) <= 0',
    f'!device.attributes["{DOMAIN}"].fast',
    f'device.attributes["{DOMAIN}"].fast ? true : device.driver == "gpu.test"',
    f'device.capacity["{DOMAIN}"].slots.compareTo(quantity("2")) >= 0',
    f'device.capacity["{DOMAIN}"].bandwidth.isLessThan(quantity("300G"))',
    "device.allowMultipleAllocations == true",
    f'cel.bind(own, device.attributes["{DOMAIN}"], has(own.rail) && own.rail % 2 == 0)',
    f'device.attributes["{DOMAIN}"].rail + 1 > 1 && !("{DOMAIN}" in device.capacity)',
    "true",
    'device.attributes["none.test"] == device.attributes["none.test"] || true',
)
TAINTS = (
    {"key": "down", "effect": "NoSchedule"},
    {"key": "down", "effect": "NoExecute", "value": "now"},
    {"key": "slow", "effect": "None"},
    {"key": "old", "effect": "NoSchedule", "value": "yes"},
)
TOLERATIONS = (
    {"key": "down", "operator": "Exists"},
    {"operator": "Exists"},
    {"key": "old", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
    {"key": "down", "value": "now", "operator": "Equal"},
    {"key": "down", "operator": "Exists", "effect": "NoExecute"},
)
CAPACITIES = (
    {"value": "4"},
    {"value": "4", "requestPolicy": {"default": "1"}},
    {
        "value": "4",
        "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}},
    },
    {"value": "4", "requestPolicy": {"default": "2", "validValues": ["1", "2", "4"]}},
    {"value": "8", "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "6"}}},
    {"value": "7", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "2"}}},
)
BANDWIDTHS = (
    {"value": "400G"},
    {
        "value": "400G",
        "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "400G", "step": "1G"}},
    },
    {"value": "200G", "requestPolicy": {"default": "100G", "validValues": ["100G", "200G"]}},
)
SELECTORS = (
    {"key": LABEL, "operator": "In", "values": ["a", "b"]},
    {"key": LABEL, "operator": "NotIn", "values": ["a"]},
    {"key": LABEL, "operator": "Exists"},
    {"key": LABEL, "operator": "DoesNotExist"},
    {"key": "size", "operator": "Gt", "values": ["4"]},
)


class _Maker:
    """Rolls the dice for one world."""

    def __init__(self, number):
        self.dice = random.Random(number)  # noqa: S311 - no secret hangs on it
        self.nodes = [f"node-{n}" for n in range(1, self.dice.randint(1, 3) + 1)]
        self.expressions = self.dice.sample(EXPRESSIONS, 4)
        self.plain = self.dice.random() < 0.5  # no selector that has no value for some device
        if self.plain:
            self.expressions = ["true", EXPRESSIONS[0], EXPRESSIONS[1], EXPRESSIONS[5]]

    def often(self, share):
        return self.dice.random() < share

    def one(self, values):
        return self.dice.choice(values)

    def world(self):
        slices = self.slices()
        return {
            "nodes": [self.node(name) for name in self.nodes],
            "classes": [self.device_class(name) for name in ("any", "own")],
            "slices": slices,
            "claims": self.holders(slices),
            "claim": _object("ResourceClaim", "wanted", {"devices": self.devices_wanted()}),
            "rules": [self.rule(number, slices) for number in range(self.one((0, 0, 0, 1, 2, 3)))],
        }

    def node(self, name):
        labels = {LABEL: self.one("abc")} if self.often(0.7) else {}
        labels |= {"size": self.one(("3", "5"))} if self.often(0.5) else {}
        return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}

    def device_class(self, name):
        selectors = [] if name == "any" else [_cel(self.one(self.expressions))]
        return _object("DeviceClass", name, {"selectors": selectors}, space=False)

    # What is offered

    def slices(self):
        left = self.one((0, 2, 3, 4, 5, 6, 6, 6))
        slices = []
        for number in range(self.dice.randint(1, 3)):
            driver, count = self.one(DRIVERS), min(left, self.one((0, 1, 2, 3, 4, 6)))
            left -= count
            slices += self.pool(number, driver, count)
        self.dice.shuffle(slices)
        return slices

    def pool(self, number, driver, count):
        """Slices of a pool: of one node mostly, with counters at times; at times one is gone."""
        place = self.place()
        name = place.get("nodeName") or f"pool-{number}"
        counters = self.often(0.3)
        names = [f"dev-{number}-{index}" for index in range(count)]
        if count > 1 and self.often(0.03):
            names[1] = names[0]
        devices = [self.device(one, driver, counters) for one in names]
        cut = self.dice.randint(0, count) if self.often(0.4) else count
        parts = [devices[:cut], *([devices[cut:]] if cut < count else [])]
        specs = [{**self.own_place(place, part), "devices": part} for part in parts]
        if counters:
            sets = self.one((["set"], ["set", "more"]))
            shared = [{"name": one, "counters": {"memory": {"value": "4"}}} for one in sets]
            specs.append({**place, "sharedCounters": shared})
        total = len(specs)
        if total > 1 and self.often(0.1):
            specs.pop(self.dice.randrange(total))
        generation = self.dice.randint(1, 2)
        pool = {"name": name, "generation": generation, "resourceSliceCount": total}
        slices = [{**spec, "driver": driver, "pool": pool} for spec in specs]
        if self.often(0.1) and slices:
            slices.append(
                {**slices[0], "pool": {**pool, "generation": generation + self.one((-1, 1))}}
            )
        return [
            _object("ResourceSlice", f"{letter}-{number}", spec, space=False)
            for letter, spec in zip(self.dice.sample("abcdefgh", len(slices)), slices, strict=True)
        ]

    def place(self):
        selector = {"nodeSelectorTerms": [{"matchExpressions": [self.one(SELECTORS)]}]}
        return self.dice.choices(
            [
                {"nodeName": self.one(self.nodes)},
                {"allNodes": True},
                {"nodeSelector": selector},
                {"perDeviceNodeSelection": True},
            ],
            (6, 4, 2, 1.5),
        )[0]

    def own_place(self, place, devices):
        """The same; of a slice whose devices choose their nodes each gets a place of its own."""
        if place.get("perDeviceNodeSelection"):
            for device in devices:
                device.update(
                    self.one(
                        (
                            {"nodeName": self.one(self.nodes)},
                            {"allNodes": True},
                            {
                                "nodeSelector": {
                                    "nodeSelectorTerms": [{"matchExpressions": [SELECTORS[0]]}]
                                }
                            },
                        )
                    )
                )
        return place

    def device(self, name, driver, counters):
        device = {"name": name, "attributes": self.attributes(driver)}
        capacity = {}
        if self.often(0.5):
            capacity["slots"] = self.one(CAPACITIES)
        if self.often(0.3):
            capacity["bandwidth"] = self.one(BANDWIDTHS)
        shared = self.often(0.4)
        if not shared:  # only a device that is shared may have a policy
            capacity = {key: {"value": one["value"]} for key, one in capacity.items()}
        device |= {"capacity": capacity} if capacity else {}
        device |= {"allowMultipleAllocations": True} if shared else {}
        device |= {"taints": [self.one(TAINTS)]} if self.often(0.2) else {}
        if self.often(0.05):
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
        if counters and self.often(0.7):
            uses = self.one(("set", "set", "set", "more"))
            amount = {"memory": {"value": self.one(("1", "2", "3"))}}
            device["consumesCounters"] = [{"counterSet": uses, "counters": amount}]
        return device

    def rule(self, number, slices):
        """A DeviceTaintRule, mostly of devices that there are; at times without a selector."""
        spec = {"taint": {**self.one(TAINTS), "timeAdded": "2026-01-01T00:00:00Z"}}
        if self.often(0.9):
            part = self.one([one["spec"] for one in slices] or [{}])
            devices = [one["name"] for one in part.get("devices", ())]
            names = {
                "driver": part.get("driver", DOMAIN),
                "pool": part.get("pool", {}).get("name", "pool-9"),
                "device": self.one(devices or ["dev-9"]),
            }
            if self.often(0.1):
                names |= {"driver": self.one(DRIVERS), "pool": self.one(self.nodes)}
            spec["deviceSelector"] = {key: names[key] for key in names if self.often(0.6)}
        made = _object("DeviceTaintRule", f"rule-{number}", spec, space=False)
        return {**made, "apiVersion": "resource.k8s.io/v1beta2"}

    def attributes(self, driver):
        attributes = {}
        if driver == DOMAIN or self.often(0.2):
            prefix = "" if driver == DOMAIN else f"{DOMAIN}/"
            attributes[f"{prefix}rail"] = self.one(({"int": 0}, {"int": 1}, {"int": 2}))
            if self.often(0.8):
                attributes[f"{prefix}firmware"] = {
                    "version": self.one(("1.2.0", "1.10.0", "2.0.0"))
                }
            if self.often(0.8):
                attributes[f"{prefix}fast"] = {"bool": self.often(0.5)}
        if self.often(0.8):
            attributes["std.test/root"] = {"string": self.one("abc")}
        if self.often(0.05):
            attributes["std.test/root"] = {"int": 1}
        return attributes

    # What is held and what is wanted

    def holders(self, slices):
        claims = []
        for part in slices:
            for device in part["spec"].get("devices", ()):
                if self.often(0.18):
                    claims.append(self.holder(f"other-{len(claims)}", part["spec"], device))
        return claims

    def holder(self, name, spec, device):
        result = {
            "request": "all",
            "driver": spec["driver"],
            "pool": spec["pool"]["name"],
            "device": device["name"],
        }
        if self.often(0.1):
            result["adminAccess"] = True
        elif device.get("allowMultipleAllocations"):
            result["shareID"] = "5f2b1c2e-0000-4000-8000-000000000001"
            amounts = {
                key: self.one(("1", "2", one["value"]))
                for key, one in device.get("capacity", {}).items()
            }
            if amounts:
                result["consumedCapacity"] = amounts
        claim = _object("ResourceClaim", name, {"devices": {}})
        return {**claim, "status": {"allocation": {"devices": {"results": [result]}}}}

    def devices_wanted(self):
        requests = [self.request(f"r{number}") for number in range(self.one((1, 1, 1, 2, 2, 3)))]
        constraints = [self.constraint(requests) for _ in range(self.one((0, 0, 0, 1, 1, 2)))]
        return {"requests": requests, "constraints": constraints}

    def request(self, name):
        if self.often(0.25):
            choices = [self.exactly(admin=False) for _ in range(self.dice.randint(1, 3))]
            named = [{**one, "name": f"c{number}"} for number, one in enumerate(choices)]
            return {"name": name, "firstAvailable": named}
        return {"name": name, "exactly": self.exactly(admin=self.often(0.1))}

    def exactly(self, *, admin):
        asked = {"deviceClassName": self.one(("any", "any", "own"))}
        if self.often(0.01):
            asked["deviceClassName"] = "gone"
        if self.often(0.1):
            asked["allocationMode"] = "All"
        else:
            count = self.one((1, 1, 1, 1, 2, 2, 3))
            asked |= {"allocationMode": "ExactCount", "count": 33 if self.often(0.005) else count}
        if self.often(0.3):
            asked["selectors"] = [_cel(self.one(self.expressions))]
        if self.often(0.3):
            asked["tolerations"] = [self.one(TOLERATIONS)]
        if self.often(0.2):
            asked["capacity"] = {"requests": self.amounts()}
        return asked | ({"adminAccess": True} if admin else {})

    def amounts(self):
        amounts = {}
        if self.often(0.7):
            amounts["slots"] = self.one(("1", "2", "3", "5"))
        if not amounts or self.often(0.2):
            amounts["bandwidth"] = self.one(("50G", "100G", "150G", "1500M"))
        return amounts

    def constraint(self, requests):
        kind = self.one(("matchAttribute", "distinctAttribute"))
        name = self.one((f"{DOMAIN}/rail", "std.test/root", f"{DOMAIN}/fast"))
        constraint = {kind: name}
        if self.often(0.5):
            names = [one["name"] for one in requests]
            names += [
                f"{one['name']}/{choice['name']}"
                for one in requests
                for choice in one.get("firstAvailable", ())
            ]
            constraint["requests"] = self.dice.sample(names, self.dice.randint(1, len(names)))
        return constraint


def world(number):
    """The world of a number, always the same: nodes, classes, slices, claims and the claim."""
    return _Maker(number).world()


def _cel(expression):
    return {"cel": {"expression": expression}}


def _object(kind, name, spec, *, space=True):
    place = {"namespace": "default"} if space else {}
    return manifests.manifest(
        "resource.k8s.io/v1", kind, {"name": name, "uid": f"uid-{name}", **place}, spec
    )
