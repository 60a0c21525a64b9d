"""What a caller sees of objects: leniently, with other codecs, as the server says them."""

import json

import pytest

from kube_base.errors import Unavailable
from kube_client.kinds import NOTHING, ObjectCodec
from kube_client.wire import Unreadable
from tests.kit.api_server import TRIAL, Status

TEXT = ObjectCodec(bytes.decode)


def trial(name, size):
    return {"metadata": {"name": name}, "spec": {"size": size}, "status": {"seen": 7}}


async def test_an_object_that_is_not_understood_hides_no_other_from_see(server, cluster):
    """As it does from list; both are sorted."""
    for name, size in (("c", 3), ("bad", "large"), ("a", 1)):
        server.put(TRIAL, trial(name, size))
    seen = await cluster.see(TRIAL)
    assert [(each.name, each.spec.size) for each in seen.objects] == [("a", 1), ("c", 3)]
    (why,) = seen.muddled
    assert why.startswith("Trial bad: the object is not one that this version understands")
    with pytest.raises(Unreadable, match="Trial bad"):
        await cluster.list(TRIAL)


async def test_see_ends_where_the_server_is_away(cluster, line):
    line.cut()
    with pytest.raises(Unavailable):
        await cluster.see(TRIAL)


async def test_a_kind_may_be_read_as_more_or_less(server, cluster):
    """The object is the same, and so is what is not named."""
    server.put(TRIAL, trial("a", "large"))
    told = await cluster.get(TRIAL.read_as(TEXT, NOTHING), "a")
    assert (json.loads(told.spec), told.status) == ({"size": "large"}, None)
    told = await cluster.get(TRIAL.read_as(NOTHING, TRIAL.status), "a")
    assert (told.spec, told.status) == (None, Status(7))


async def test_a_document_is_all_that_the_server_says(server, cluster):
    server.put(TRIAL, trial("a", "large"))
    assert json.loads(await cluster.document(TRIAL, "a"))["spec"] == {"size": "large"}
    assert await cluster.document(TRIAL, "b") is None
