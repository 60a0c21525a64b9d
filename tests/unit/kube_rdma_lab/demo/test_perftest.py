"""Reading perftest's table: the units, the identities, and output that holds no result."""

import shlex

import pytest

from kube_base.errors import Unavailable
from kube_rdma.verify.rules.perftest import LISTENING
from kube_rdma_lab.demo.perftest import Endpoint, measure, parse
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.state import State

# Layout of perftest 4.5 (reports 6.06); values made up.
CLIENT = """\
---------------------------------------------------------------------------------------
                    RDMA_Read BW Test
 Dual-port       : OFF		Device         : rxe0
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0011 PSN 0xa5e6be OUT 0x80 RKey 0x0005a2 VAddr 0x007f
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:50:12
 remote address: LID 0000 QPN 0x0011 PSN 0x4d8e1c OUT 0x80 RKey 0x000501 VAddr 0x007f
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:50:11
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
 65536      3000             0.00               {average}   		   {messages}
---------------------------------------------------------------------------------------
"""


def printed(average, unit="Gb/sec", messages="0.000458"):
    return CLIENT.format(unit=unit, average=average, messages=messages)


def test_gigabits_are_taken_as_they_are():
    assert parse(printed("0.24")).gbps == 0.24


def test_what_was_moved_is_known_where_the_rate_rounds_to_nothing():
    """As on a machine whose clock perftest cannot follow."""
    outcome = parse(printed("0.00", messages="0.000000"))
    assert (outcome.iterations, outcome.gbps) == (3000, 0.0)


def test_megabytes_are_binary_as_perftest_counts_them():
    assert parse(printed("5500.00", unit="MB/sec")).gbps == pytest.approx(46.137, abs=1e-3)


def test_both_identities_are_kept_local_first():
    local, remote = parse(printed("0.24")).gids
    assert local.endswith("192:168:50:12")
    assert remote.endswith("192:168:50:11")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Couldn't connect to 10.244.1.2:18515",
        printed("1", unit="furlongs"),
        printed("1").partition(" 65536")[0],
    ],
)
def test_output_without_figures_is_no_result(text):
    with pytest.raises(Unavailable, match="perftest printed"):
        parse(text)


def test_a_server_that_ends_before_it_listens_is_told_with_its_words(tmp_path):
    lab = Lab(tmp_path, State("x", "two-nodes", 0, "up", 0.0))
    place = Endpoint("pod-a", "127.0.0.1", lambda *words: ["sh", "-c", "echo no device; exit 1"])
    with pytest.raises(Unavailable, match="server on pod-a ended: no device"):
        measure(lab, place, place, ("ib_write_bw",))


@pytest.mark.parametrize(
    ("failures", "words", "sentence"),
    [
        (2, "Completion with error at client", None),
        (5, "Completion with error at client", "Completion with error"),
        (1, "Correlation coefficient r^2: 0.84 < 0.9; Can't produce a report", None),
        (1, "nothing moved for 90 s", None),
        (1, "no device", "no device"),
    ],
)
def test_a_request_that_fails_on_a_starved_machine_is_made_again(
    tmp_path, failures, words, sentence
):
    """Soft-RoCE's do; what else goes wrong is told at once, and so is what lasts."""
    (tmp_path / "answer").write_text(printed("0.24"))
    script = (
        f"cd {tmp_path}; echo run >>runs; "
        f"[ $(wc -l <runs) -gt {failures} ] && exec cat answer; "
        f"echo {shlex.quote(words)} >&2; exit 1"
    )
    lab = Lab(tmp_path, State("x", "two-nodes", 0, "up", 0.0))
    server = Endpoint("pod-a", "127.0.0.1", lambda *_: ["sh", "-c", f"echo {LISTENING}; cat"])
    client = Endpoint("pod-b", "127.0.0.2", lambda *_: ["sh", "-c", script])
    if sentence is None:
        assert measure(lab, server, client, ("ib_write_bw",)).gbps == 0.24
    else:
        with pytest.raises(Unavailable, match=sentence):
            measure(lab, server, client, ("ib_write_bw",))
