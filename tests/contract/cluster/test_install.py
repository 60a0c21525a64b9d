"""What `kube-rdma install` asks of every API server: the fake always, the real one in the lab."""

import re

import pytest

from kube_base.errors import Refused
from kube_rdma.install import cluster as objects
from tests.kit.api_server import TRIAL

WANTED = {
    "apiVersion": TRIAL.api_version,
    "kind": TRIAL.kind,
    "metadata": {"name": "a"},
    "spec": {"size": 1},
}


async def test_the_server_has_a_version(clients):
    assert re.match(r"v1\.\d+\.\d+", await objects.version(clients.cluster))


async def test_a_dry_run_returns_what_would_be_stored_and_stores_nothing(clients):
    made = await objects.apply(clients.cluster, WANTED, dry=True)
    assert made["spec"] == WANTED["spec"]
    assert await objects.found(clients.other, WANTED) is None
    await objects.apply(clients.cluster, WANTED)
    larger = {**WANTED, "spec": {"size": 2}}
    assert (await objects.apply(clients.cluster, larger, dry=True))["spec"] == {"size": 2}
    assert (await objects.found(clients.other, WANTED))["spec"] == {"size": 1}


async def test_the_same_again_makes_no_version(clients):
    first = await objects.apply(clients.cluster, WANTED)
    assert await objects.apply(clients.cluster, WANTED) == first


async def test_a_dry_run_is_refused_to_a_user_without_the_right(clients):
    with pytest.raises(Refused):
        await objects.apply(clients.powerless, WANTED, dry=True)
    assert await objects.found(clients.other, WANTED) is None


async def test_a_review_tells_the_verbs_that_a_user_lacks(clients):
    await objects.require_rights(clients.cluster, WANTED)
    with pytest.raises(Refused, match="you may not get, create"):
        await objects.require_rights(clients.powerless, WANTED)
