"""What all keepers of a node have: one write for a difference, none without one, none in doubt."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.errors import NotInstalled
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.reports.node_keeper import NodeKeeper, WritePace, pause
from tests.kit.beside import beside

NODE = NodeState("node-1", "u")
WORDS = st.sampled_from("abc")


class VersionKeeper(NodeKeeper[str]):
    """Keeps a word of the Node object; a write fails as long as `failures` are left."""

    part = "word"
    failure = "word not written"

    def __init__(self):
        super().__init__(WritePace(after=lambda *_: 0.0))
        self.shown, self.written, self.failures = "", [], 0

    def _wanted(self, look):
        return look

    def _agrees(self, node, wanted):
        return node.kubelet_version == wanted

    async def _write(self, node, wanted):
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise Unavailable("away")
        self.shown = wanted
        self.written.append(wanted)
        return replace(node, kubelet_version=wanted)


def running(keeper):
    return beside(keeper.run())


async def settled():
    """Let everything go on that waits for nothing but its turn."""
    for _ in range(30):
        await asyncio.sleep(0)


ACTS = st.lists(
    st.tuples(st.sampled_from(("seen", "look", "doubted", "fail")), WORDS, st.booleans()),
    max_size=12,
)


@given(ACTS)
def test_in_the_end_the_node_says_what_the_last_certain_look_was(acts):
    """In any order of news, failures and doubts; in doubt what it says stays."""

    async def life():
        keeper = VersionKeeper()
        async with running(keeper):
            for act, word, waits in acts:
                match act:
                    case "seen":
                        keeper.shown = word
                        keeper.seen(replace(NODE, kubelet_version=word))
                    case "look":
                        keeper.look(word)
                    case "doubted":
                        keeper.doubted()
                    case "fail":
                        keeper.failures += 1
                if waits:
                    await settled()
            await settled()
            return keeper

    keeper = asyncio.run(life())
    news = [act for act in acts if act[0] != "fail"]
    looks = [word for act, word, _ in news if act == "look"]
    certain = next((act for act, *_ in reversed(news) if act != "seen"), None) == "look"
    if certain and any(act == "seen" for act, *_ in news):
        assert keeper.shown == looks[-1]
    if not looks or not any(act == "seen" for act, *_ in news):
        assert keeper.written == []
    assert len(keeper.written) <= len(news)


async def test_a_failure_is_in_the_log_once(recording):
    keeper = VersionKeeper()
    keeper.failures = 3
    async with running(keeper):
        keeper.seen(NODE)
        keeper.look("a")
        await settled()
    (warning,) = recording.of("word not written")
    assert (warning["node"], warning["why"]) == ("node-1", "away")
    assert keeper.written == ["a"]


def test_a_refusal_is_not_repeated_soon():
    """Every node of a cluster may lack the right, or the kind, for ever."""
    assert pause(Refused("no", remedy="give it"), 0) >= 300
    assert 60 <= pause(NotInstalled("no", remedy="install it"), 0) <= 120
    assert pause(Unavailable("away"), 0) < 1


def test_what_worked_before_is_tried_again_within_half_a_minute_and_what_never_did_is_not():
    for error in (Refused("no", remedy="give it"), NotInstalled("no", remedy="install it")):
        assert WritePace().until_next(error, worked=False) >= 60
        assert 15 <= WritePace().until_next(error, worked=True) <= 30
    assert WritePace().until_next(Unavailable("away"), worked=True) < 1
