"""Readers of what the API server, other drivers, people and agents write, beside tests/kit.

One of the tables of target.py. The kit's own lists (foreign_parsers, foreign_texts, foreign_files)
have most readers of JSON and YAML; here is what needs more than a function of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import h11

from kube_base.errors import KubeError, Unavailable
from kube_client import wire
from kube_client.errors import WebsocketFault
from kube_client.http import HttpConnection, HttpRequest
from kube_client.pod_commands import CommandOutput
from kube_client.websocket import OpenWebsocket
from kube_rdma.adapters.cluster.kinds import node, resource_api
from kube_rdma.adapters.metrics.local import samples
from kube_rdma.admission.documents.pod_manifest import counted
from kube_rdma.claims import parameters
from kube_rdma.claims.cluster import claimed_pod
from kube_rdma.claims.parameters import parameters_by_request
from kube_rdma.claims.rules.cel.evaluate import Selectors
from kube_rdma.claims.rules.cel.functions import EvaluationError
from kube_rdma.claims.rules.cel.syntax import NotEvaluated
from kube_rdma.cli import verify
from kube_rdma.lib.text import reader
from kube_rdma.model.claims.devices import DRIVER, DeviceAttribute, DeviceCapacity, ListedDevice
from kube_rdma.model.kubernetes import quantity
from kube_rdma.verify.rules import copies
from tests.fuzz.kubelet import _LOOP, _Reader, _run, _Writer
from tests.fuzz.target import FuzzTarget
from tests.kit.foreign_parsers import META, POD_OBJECT, _of, text_of
from tests.kit.foreign_texts import as_file, as_text

PARAMETERS = {
    "apiVersion": "kube-rdma.io/v1alpha1",
    "kind": "ClaimParameters",
    "network": "team-a/rdma-net",
    "routes": [{"dst": "10.0.0.0/8", "gw": "10.0.0.1"}],
}
OPAQUE = {"driver": DRIVER, "parameters": PARAMETERS}
RESULT = {
    "request": "nic",
    "driver": DRIVER,
    "pool": "n",
    "device": "mlx5-0",
    "shareID": "s",
    "consumedCapacity": {"slots": "1"},
}
CLAIM = META | {
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "nic",
                    "exactly": {
                        "deviceClassName": "c",
                        "count": 2,
                        "selectors": [{"cel": {"expression": "true"}}],
                        "capacity": {"requests": {"slots": "1k"}},
                        "tolerations": [{"key": "a", "operator": "Exists"}],
                    },
                },
                {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]},
            ],
            "constraints": [{"requests": ["nic"], "matchAttribute": "a/b"}],
            "config": [{"requests": ["nic"], "opaque": OPAQUE}],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [RESULT],
                "config": [{"source": "FromClaim", "requests": ["nic"], "opaque": OPAQUE}],
            }
        },
        "reservedFor": [{"resource": "pods", "name": "a", "uid": "u"}],
    },
}
TEMPLATE = META | {"spec": {"spec": CLAIM["spec"]}}
CLASS = META | {
    "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "rdma/hca"}
}
RULE = META | {
    "spec": {
        "deviceSelector": {"driver": "d.test", "pool": "n", "device": "a"},
        "taint": {"key": "a", "value": "b", "effect": "NoSchedule"},
    }
}
SLICE = META | {
    "spec": {
        "driver": "d.test",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "sharedCounters": [{"name": "c", "counters": {"x": {"value": "8"}}}],
        "devices": [
            {
                "name": "a",
                "attributes": {
                    "resource.kubernetes.io/pciBusID": {"string": "0000:81:00.0"},
                    "d.test/ifName": {"string": "eth1"},
                    "rail": {"int": 1},
                    "rdma": {"bool": True},
                    "firmware": {"version": "28.39.1"},
                },
                "capacity": {
                    "slots": {
                        "value": "64",
                        "requestPolicy": {
                            "default": "1",
                            "validValues": ["1", "2"],
                            "validRange": {"min": "1", "max": "4", "step": "1"},
                        },
                    }
                },
                "taints": [{"key": "a", "effect": "NoSchedule"}],
                "consumesCounters": [{"counterSet": "c", "counters": {"x": {"value": "1"}}}],
                "allowMultipleAllocations": True,
            }
        ],
    }
}
NODE = META | {
    "spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule", "value": "x"}]},
    "status": {
        "allocatable": {"rdma/hca": "1k", "cpu": "3920m"},
        "nodeInfo": {"kubeletVersion": "v1.36.0", "containerRuntimeVersion": "containerd://2"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    },
}
CLAIMING = POD_OBJECT | {
    "spec": {
        "nodeName": "n",
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"limits": {"rdma/hca": "1"}, "claims": [{"name": "nic"}]},
            }
        ],
        "resourceClaims": [{"name": "nic", "resourceClaimName": "x"}],
    },
    "status": {
        "resourceClaimStatuses": [{"name": "nic", "resourceClaimName": "x"}],
        "extendedResourceClaimStatus": {
            "resourceClaimName": "y",
            "requestMappings": [{"containerName": "c", "requestName": "nic"}],
        },
    },
}
DEVICE = ListedDevice(
    "a",
    attributes={
        "rail": DeviceAttribute.of(1),
        "model": DeviceAttribute("ConnectX-7"),
        "fast": DeviceAttribute.of(True),
        "firmware": DeviceAttribute(version="28.39.1"),
    },
    capacity={"memory": DeviceCapacity(quantity("40Gi"))},
    shared=True,
)
SELECTORS = (
    b'device.driver == "d.test" && device.attributes["d.test"].rail in [0, 1 + 2 * 3 % 4]',
    b'has(device.attributes["d.test"].rail) ? -1 < 2.5 : !(true || false)',
    b"device.attributes['d.test'].?rate.orValue(400) == 400",
    b'device.attributes["d.test"].model.matches("^C.*-[67]$")',
    b'device.attributes["d.test"].firmware.isLessThan(semver("28.39.2"))',
    b'device.capacity["d.test"].memory.compareTo(quantity("40Gi")) >= 0',
    b'cel.bind(own, device.attributes["d.test"], own.fast && own.model.size() > 2)',
    b"!!!true && 0+1+1+1 == 3 && --1 == 1",
    b"true&&true&&true&&true || false||false||false||false",
    b"(((true))) ? [[[1]]] == [[[1]]] : device.a.a.a == size(size(size([])))",
    b"''.lowerAscii().lowerAscii().lowerAscii() == '' && false?1==1:false?1==1:false?1==1:true",
    b"cel.bind(a,[1,1],cel.bind(a,[a,a],cel.bind(a,[a,a],cel.bind(a,[a,a],a==a))))",
    b"'aaa'.matches('(a|a)(a|a)(a|a)a?a?a?a*') || isQuantity('111x') || isSemver('1.0.111')",
)
_THRICE = re.compile(r"(.{1,16}?)\1\1", re.DOTALL)
METRICS = b"""\
# read 8043.25
# HELP kube_rdma_cards Cards.
# TYPE kube_rdma_cards gauge
kube_rdma_cards{state="healthy",name="a\\"b\\n"} 3
kube_rdma_seconds_bucket{le="+Inf"} 1.5e3 1700000000
"""
POD_YAML = b"""\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: b}
spec:
  containers:
  - {name: c, image: i, resources: {limits: {rdma/hca: 1}}}
"""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
_ENDED = b'\3{"status": "Success"}'
FRAMES = b"\x82\x04\1abc\x89\x01x\x02\x02\1d\x80\x01e\x82" + bytes((len(_ENDED),)) + _ENDED


def _selector(data: bytes) -> None:
    """Also with a run of hundreds where the bytes have the same signs three times in a row."""
    text = as_text(data)
    for one in (text, _THRICE.sub(lambda match: match[1] * 500, text)):
        with suppress(EvaluationError, NotEvaluated):  # no value, as for the scheduler
            Selectors().take(one, "d.test", DEVICE)


def _slice(data: bytes) -> None:
    stored = wire.stored(resource_api.RESOURCE_SLICE, data)
    resource_api.resource_slice(stored)
    resource_api.device_slice(stored)


def _claim(data: bytes) -> None:
    parameters_by_request(
        resource_api.resource_claim(wire.stored(resource_api.RESOURCE_CLAIM, data))
    )


def _claiming(data: bytes) -> None:
    resource_api.pod_claims(wire.stored(resource_api.CLAIMING_POD, data))
    claimed_pod(reader.read(data, "a").value)  # type: ignore[arg-type]


def _written_claim(data: bytes) -> None:
    document = reader.read(data, "claim.yaml")
    for kind in parameters.PLACES:
        for place in parameters.places(document, parameters.GROUP, kind):
            parameters.judged(document, place)
    parameters.places(document, "a", "b")


def _metrics(data: bytes) -> None:
    samples(as_text(data))


def _manifest(data: bytes) -> None:
    pod = verify._manifest(as_file(data, "pod.yaml"))
    verify._namespace(pod)
    copies.amounts(pod)
    claimed_pod(copies.pod_for(pod, "n", "r", "pod.yaml"))


class _SocketWriter(_Writer):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return SimpleNamespace(setsockopt=lambda *_: None)

    def is_closing(self) -> bool:
        return False


async def _exchange(data: bytes) -> None:
    stream: Any = _Reader(data)
    stream.at_eof = lambda: False
    writer: Any = _SocketWriter()
    connection = HttpConnection(stream, writer, lambda: None)
    await connection.ask(HttpRequest("GET", "/", (("Host", "a"),)), 3)
    async for _ in connection.body(3):
        pass


class _Octets:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self) -> bytes:
        piece, self._data = self._data[:64], self._data[64:]
        return piece

    async def write(self, data: bytes) -> None:
        pass


@contextmanager
def _asking() -> Iterator[None]:
    """As connect.py has it: what breaks is Unavailable."""
    try:
        yield
    except (WebsocketFault, OSError) as error:
        raise Unavailable(f"it does not answer ({error})") from error


def _websocket(data: bytes) -> None:
    async def run() -> None:
        output = CommandOutput(1 << 12)
        async for message in OpenWebsocket(_Octets(data), "v5", _asking).messages():
            output.take(message)
            if output.outcome:
                break
        output.check("sh in pod a")

    _run(run())


def _quantity(data: bytes) -> None:
    text = as_text(data)
    with suppress(ValueError):
        counted(text)
    quantity(text)


OTHERS = (
    FuzzTarget("ResourceSlice", _slice, (text_of(SLICE),)),
    FuzzTarget(
        "ResourceClaim",
        _of(resource_api.RESOURCE_CLAIM, resource_api.resource_claim),
        (text_of(CLAIM),),
    ),
    FuzzTarget("allocated claim", _claim, (text_of(CLAIM),)),
    FuzzTarget(
        "ResourceClaimTemplate",
        _of(resource_api.CLAIM_TEMPLATE, resource_api.claim_of_template),
        (text_of(TEMPLATE),),
    ),
    FuzzTarget(
        "DeviceClass", _of(resource_api.DEVICE_CLASS, resource_api.device_class), (text_of(CLASS),)
    ),
    FuzzTarget(
        "DeviceTaintRule", _of(resource_api.TAINT_RULE, lambda one: one.spec), (text_of(RULE),)
    ),
    FuzzTarget("Node", _of(node.NODE, node.node_state), (text_of(NODE),)),
    FuzzTarget("pod with claims", _claiming, (text_of(CLAIMING),)),
    FuzzTarget("claim as people write it", _written_claim, (text_of(CLAIM), text_of(TEMPLATE))),
    FuzzTarget(
        "parameters of a claim",
        lambda data: parameters.of_bytes(data, "claim a"),
        (text_of(PARAMETERS),),
    ),
    FuzzTarget("selector in CEL", _selector, SELECTORS, most=1024),
    FuzzTarget("quantity", _quantity, (b"40Gi", b"1e3", b"500m", b"-1.5k"), (ValueError,), 64),
    FuzzTarget("metrics of an agent", _metrics, (METRICS,)),
    FuzzTarget("manifest of a pod to verify", _manifest, (POD_YAML,)),
    FuzzTarget(
        "answer of the API server",
        lambda data: _LOOP.run_until_complete(_exchange(data)),
        (ANSWER, CHUNKED),
        (KubeError, h11.ProtocolError, OSError),
    ),
    FuzzTarget("WebSocket of a command", _websocket, (FRAMES,)),
)
