"""IPPool documents: what they mean, that nothing gets lost, what the status says."""

import json
import re
from ipaddress import ip_address
from pathlib import Path
from time import process_time

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.foreign_json import decoded
from kube_rdma.ipam import ip_pool, objects
from kube_rdma.ipam.ip_pool import MOST_EXCLUDES, MOST_RANGES
from kube_rdma.ipam.objects import IPPoolStatus, PoolFindings
from kube_rdma.lib.text.document import of_value
from kube_rdma.lib.text.reader import read
from kube_rdma.lib.text.words import meeting, meets
from kube_rdma.model.ipam import BorrowRequest, Span, Usage
from tests.kit import manifests
from tests.unit.ipam.ip_values import QUEUES, pools

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = [
    text
    for text in re.findall(r"```yaml\n(.*?)```", (DOCS / "ip.md").read_text(), re.DOTALL)
    if "kind: IPPool" in text
]


SPANS = st.builds(
    lambda base, first, length: Span(ip_address(base) + first, ip_address(base) + first + length),
    st.sampled_from(["10.0.0.0", "::a00:0"]),
    st.integers(0, 40),
    st.integers(0, 8),
)


def whole(spec, name="rail-0"):
    return manifests.manifest("kube-rdma.io/v1alpha1", "IPPool", name, spec)


@given(pools())
def test_a_pool_survives_its_document(pool):
    """Value, JSON, value: the same, with the places of the ranges."""
    assert ip_pool.named(ip_pool.decode(ip_pool.encode(pool)), pool.name) == pool


@given(pools())
def test_a_whole_object_means_the_same_as_its_spec(pool):
    document = of_value(whole(ip_pool.spec(pool), pool.name), f"IPPool {pool.name}")
    assert ip_pool.load(document) == pool


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_of_the_page_is_read(text):
    assert ip_pool.load(read(text.encode(), "docs/ip.md")).ranges


def seconds(call):
    """Of the processor, at best."""

    def once():
        begin = process_time()
        call()
        return process_time() - begin

    return min(once() for _ in range(5))


def spread(ranges, excludes):
    """A pool whose excludes are all in the last of its ranges, where a search ends last."""
    last = f"10.{ranges - 1}"
    return json.dumps(
        {
            "ranges": [{"subnet": f"10.{number}.0.0/16"} for number in range(ranges)],
            "excludes": [f"{last}.{n >> 8}.{n & 255}" for n in range(1, 1 + excludes)],
        }
    ).encode()


def test_many_ranges_make_excludes_no_dearer():
    """Spans are sorted once: reading costs ranges plus excludes, and not their product."""
    few, many = spread(1, MOST_EXCLUDES), spread(MOST_RANGES, MOST_EXCLUDES)
    assert seconds(lambda: ip_pool.decode(many)) < 3 * seconds(lambda: ip_pool.decode(few))


@pytest.mark.parametrize("ends", [(MOST_RANGES, MOST_EXCLUDES + 1), (MOST_RANGES + 1, 1)])
def test_a_pool_of_too_many_ranges_or_excludes_is_refused_in_a_sentence(ends):
    with pytest.raises(Refused, match=r"it has more than [0-9]+ entries\. Keep [0-9]+ or fewer"):
        ip_pool.decode(spread(*ends))


@given(spans=st.lists(SPANS), one=SPANS)
def test_a_span_meets_the_union_where_it_meets_a_part(spans, one):
    assert meeting(spans)(one) == any(meets(one, each) for each in spans)


def test_the_page_has_an_example():
    assert EXAMPLES


def test_excludes_are_addresses_subnets_and_ranges():
    excludes = ["10.0.0.5", "10.0.0.16/30", "10.0.0.40-10.0.0.49"]
    spec = {"ranges": [{"subnet": "10.0.0.0/24"}], "excludes": excludes}
    pool = ip_pool.load(of_value(whole(spec), "x"))
    spans = [f"{each.first} {each.last}" for each in pool.excludes]
    assert spans == ["10.0.0.5 10.0.0.5", "10.0.0.16 10.0.0.19", "10.0.0.40 10.0.0.49"]


def test_nothing_is_outside_of_ranges_that_cannot_be_read():
    spec = {"ranges": [{"subnet": "10.0.0.0/99"}], "excludes": ["10.0.0.5"]}
    with pytest.raises(Refused) as refused:
        ip_pool.load(of_value(whole(spec), "x"))
    assert refused.value.more == ()


def test_neighbouring_ranges_do_not_overlap():
    ends = ({"start": "10.0.0.128"}, {"end": "10.0.0.127"})
    spec = {"ranges": [{"subnet": "10.0.0.0/24", **end} for end in ends]}
    assert len(ip_pool.load(of_value(whole(spec), "x")).ranges) == 2


def test_faults_of_an_object_name_object_and_field():
    spec = {"blockSize": 0, "ranges": [{"subnet": "10.0.0.0/24", "end": "10.0.1.0"}]}
    with pytest.raises(Refused) as caught:
        ip_pool.load(of_value(whole(spec), "IPPool rail-0"))
    places = [line.split(": ")[:2] for line in str(caught.value).splitlines()]
    assert places == [["IPPool rail-0", "spec.blockSize"], ["IPPool rail-0", "spec.ranges[0].end"]]


@given(QUEUES)
def test_wants_survive_the_status(queue):
    status = IPPoolStatus(wants=queue.requests)
    assert decoded(msgspec.json.encode(status), IPPoolStatus) == status


USAGES = (
    Usage(family="IPv4", rail=0, size=254, held=250, free=4, nodes=3),
    Usage(family="IPv4", rail=1, size=254, held=4, free=250, nodes=1),
    Usage(family="IPv6", size=2**64, held=8, free=2**64 - 8, nodes=1),
)


@pytest.fixture
def pool():
    spec = {"ranges": [{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]}
    return ip_pool.load(of_value(whole(spec), "x"))


def test_the_status_sums_by_family(pool):
    """Columns of kubectl are short; no number is larger than JSON clients can hold."""
    status = objects.pool_status(None, pool, PoolFindings(1, USAGES), "T1")
    assert (status.ranges, status.used) == ("10.0.0.0/24, fd00::/64", "254 v4, 8 v6")
    assert status.free == "254 v4, 1.8e19 v6"
    sizes = [each["size"] for each in json.loads(msgspec.json.encode(status))["usage"]]
    assert sizes == [254, 254, 2**53 - 1]


def test_a_condition_keeps_its_time_until_it_changes(pool):
    """Ready stays of T1, NearlyFull becomes true at T2; the wants of nodes stay."""
    wants = IPPoolStatus(wants=(BorrowRequest(node="n", family="IPv4", count=1),))
    first = objects.pool_status(wants, pool, PoolFindings(1, USAGES), "T1")
    scarce = PoolFindings(1, USAGES, scarce=("250 of 254 are held",))
    second = objects.pool_status(first, pool, scarce, "T2")
    found = {each.type: (each.status, each.last_transition_time) for each in second.conditions}
    assert found == {"Ready": ("True", "T1"), "NearlyFull": ("True", "T2")}
    assert second.wants == wants.wants


def test_yaml_as_people_write_it():
    text = yaml.safe_dump(whole({"ranges": [{"subnet": "10.0.0.0/24", "rail": 1}]}))
    pool = ip_pool.load(read(text.encode(), "pool.yaml"))
    assert (pool.ranges[0].rail, pool.ranges[0].source) == (1, "pool.yaml:7:5: spec.ranges[0]")
