"""What a claim says of its devices, and the files that its containers read."""

from __future__ import annotations

import json
from ipaddress import ip_address

from kube_base.frozen import replace
from kube_rdma.claims.rules.prepare import FOLDER, MOST_ADDRESSES, device_statuses_of, files
from kube_rdma.model.attach.attachment import Attached, InterfaceAddress
from kube_rdma.model.claims.claim import ClaimName, PodClaims
from kube_rdma.model.pools import Attach
from tests.unit.claims.rules.test_prepare import FIRST, MULTI, booked, claim, result, world

NAME = ClaimName("team", "job-0-nic-x7", "uid-claim")
PREPARED = booked(
    claim(
        result(request="nics/fast", share="s1", slots=1),
        result("0000-a1-00-0", request="other", share="s2", slots=1),
        name=NAME,
    )
)
ADDRESS = InterfaceAddress(ip_address("10.9.0.4"), 24)
NET1 = Attached("team/rail", "net1", "02:00:00:00:00:01", 9000, (ADDRESS,), card=FIRST.id)


def conditions(status):
    return {one.type: (one.holds, one.reason) for one in status.conditions}


def test_a_device_says_what_its_network_made():
    left, right = device_statuses_of(PREPARED, [NET1])
    assert conditions(left) == {"Ready": (True, "Prepared"), "NetworkReady": (True, "Attached")}
    assert (left.interface, left.addresses, left.mac) == ("net1", ("10.9.0.4/24",), NET1.mac)
    assert left.conditions[1].message == "net1 of network team/rail has 10.9.0.4/24."
    assert conditions(right)["NetworkReady"] == (False, "NotAttached")
    assert (right.interface, right.addresses) == ("", ())
    assert [one.share_id for one in (left, right)] == ["s1", "s2"]


def test_a_device_that_waits_for_its_network_is_not_ready():
    (status,) = device_statuses_of(booked(claim(), world(replace(MULTI, attach=Attach.REQUIRED))))
    assert conditions(status)["Ready"] == (False, "WaitsForNetwork")


def test_a_look_at_a_device_has_no_network():
    (status,) = device_statuses_of(booked(claim(result(admin=True))), [NET1])
    assert conditions(status)["NetworkReady"] == (False, "NotAttached")


def test_no_more_addresses_than_the_field_has_room_for():
    many = tuple(InterfaceAddress(ip_address(f"10.9.0.{n}"), 24) for n in range(40))
    status, _ = device_statuses_of(PREPARED, [replace(NET1, addresses=many)])
    assert len(status.addresses) == MOST_ADDRESSES


POD = PodClaims("team", "job-0", "uid-job-0", (("nic", NAME.name),))
FACTS = {"0000-81-00-0": {"resource.kubernetes.io/pciBusID": {"string": "0000:81:00.0"}}}


def test_a_container_finds_its_device_by_what_the_pods_document_says():
    """The claim's own name, or the pod's word for one that was made for it."""
    direct = files(PREPARED, POD, FACTS, [NET1])
    made = files(PREPARED, replace(POD, templates=("nic",)), FACTS, [NET1])
    end = "rdma.kube-rdma.io-metadata.json"
    assert set(direct) == {
        f"{FOLDER}/resourceclaims/job-0-nic-x7/{request}/{end}" for request in ("nics", "other")
    }
    assert set(made) == {
        f"{FOLDER}/resourceclaimtemplates/nic/{request}/{end}" for request in ("nics", "other")
    }
    assert json.loads(made[f"{FOLDER}/resourceclaimtemplates/nic/nics/{end}"]) == {
        "apiVersion": "metadata.resource.k8s.io/v1alpha1",
        "kind": "DeviceMetadata",
        "metadata": {"name": NAME.name, "namespace": "team", "uid": "uid-claim"},
        "podClaimName": "nic",
        "requests": [
            {
                "name": "nics/fast",
                "devices": [
                    {
                        "driver": "rdma.kube-rdma.io",
                        "pool": "node-1",
                        "name": "0000-81-00-0",
                        "attributes": FACTS["0000-81-00-0"],
                        "networkData": {
                            "interfaceName": "net1",
                            "ips": ["10.9.0.4/24"],
                            "hardwareAddress": NET1.mac,
                        },
                    }
                ],
            }
        ],
    }
    other = json.loads(made[f"{FOLDER}/resourceclaimtemplates/nic/other/{end}"])
    assert set(other["requests"][0]["devices"][0]) == {"driver", "pool", "name"}


def test_a_pod_without_the_claim_has_no_file_of_it():
    assert files(PREPARED, replace(POD, claims=()), FACTS) == {}
