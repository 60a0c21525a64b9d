"""What LLDP frames say, and what follows from one after another, also of those that are forged."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.fabric.rules import lldp
from kube_rdma.fabric.rules.lldp import MOST_FRAMES, TTL_SECONDS, Announced, Unheard, announced
from kube_rdma.model.device import LinkLayer
from kube_rdma.model.reports import ReportedNeighbour
from tests.kit.lldp import ADDRESS, LOCAL, SWITCH, frame, head, tlv

NAMES = st.text(st.characters(categories=("L", "N"), max_codepoint=0x7F), min_size=1, max_size=60)
TTL = tlv(3, b"\0\x78")
CHASSIS, PORT = tlv(1, b"\4" + SWITCH), tlv(2, b"\5Ethernet1/1")


def told(*tlvs):
    return announced(head() + b"".join(tlvs))


class TestFrames:
    @given(NAMES, NAMES, st.integers(1, 65535))
    def test_what_a_switch_says_is_read(self, name, port, ttl):
        read = announced(frame(name, port, ttl=ttl))
        assert read == Announced(ReportedNeighbour(name, port, SWITCH.hex(":")), ttl)

    def test_a_switch_without_a_name_has_that_of_its_chassis(self):
        assert announced(frame("")).neighbour == ReportedNeighbour(SWITCH.hex(":"), "Ethernet1/1")

    @pytest.mark.parametrize(
        ("kind", "octets", "text"),
        [
            (ADDRESS, b"\1\x0a\0\0\1", "10.0.0.1"),
            (ADDRESS, b"\2" + bytes(15) + b"\1", "::1"),
            (ADDRESS, b"\1\xff\xfe", "01:ff:fe"),  # no address of its family
            (LOCAL, b"rack 7\0", "rack 7"),
            (LOCAL, b"\xff\xfe", "ff:fe"),
            (0, b"reserved", "reserved"),
            (LOCAL, b"a\x1b[31mb\nc", "a?[31mb c"),
            (LOCAL, b"x" * 255, "x" * 127 + "…"),
        ],
    )
    def test_identities_of_all_kinds_are_short_printable_lines(self, kind, octets, text):
        read = told(tlv(1, bytes([kind]) + octets), PORT, TTL)
        assert read.neighbour.switch == text

    def test_a_frame_may_end_without_a_mark_or_in_zeros_up_to_the_least_length(self):
        for end in ((), (bytes(30),), (tlv(127, b"\0\x12\x0f\1xyz"),) * 2, (tlv(0, b""), b"junk")):
            assert told(CHASSIS, PORT, TTL, *end).neighbour.port == "Ethernet1/1"

    @pytest.mark.parametrize(
        "tlvs",
        [
            (),
            (CHASSIS, PORT),
            (PORT, CHASSIS, TTL),
            (CHASSIS, TTL, PORT),
            (tlv(5, b"x"), CHASSIS, PORT, TTL),
            (CHASSIS, PORT, TTL, CHASSIS),
            (CHASSIS, PORT, TTL, TTL),
            (CHASSIS, PORT, TTL, tlv(5, b"a"), tlv(5, b"b")),
            (CHASSIS, PORT, tlv(3, b"\1")),
            (CHASSIS, PORT, tlv(3, b"\0\0")),  # the port ends LLDP
            (tlv(1, b"\4"), PORT, TTL),
            (tlv(1, b""), PORT, TTL),
            (CHASSIS, tlv(2, b"\5" + b"x" * 256), TTL),
            (CHASSIS, tlv(2, b"\5\0\0"), TTL),  # a name of nothing
            (CHASSIS, PORT, TTL, tlv(5, b"leaf-1")[:-1]),
            (CHASSIS, PORT, TTL, b"\x0a"),
        ],
    )
    def test_what_the_standard_discards_says_nothing(self, tlvs):
        assert told(*tlvs) is None

    def test_another_protocol_says_nothing(self):
        assert announced(frame().replace(b"\x88\xcc", b"\x08\x00", 1)) is None

    @given(st.binary(max_size=400), st.booleans())
    def test_any_octets_are_refused_or_give_bounded_printable_text(self, data, whole):
        read = announced(data if whole else head() + CHASSIS + PORT + TTL + data)
        if read:
            words = (read.neighbour.switch, read.neighbour.port, read.neighbour.chassis)
            assert all(len(word) <= 128 and word.isprintable() for word in words)


A, B, C = (Announced(ReportedNeighbour(f"leaf-{n}", "1", f"id-{n}"), 120) for n in "abc")


def after(*frames, every=1.0, port=None):
    """A port after frames that come every so many seconds; its time ends where it has to."""
    now, port = 0.0, port or lldp.listening(0.0)
    for one in frames:
        now += every
        if port.until <= now:
            port = lldp.expired(port, port.until)
        port = lldp.heard(port, one, now)
    return port


class TestPorts:
    def test_the_first_frame_is_believed_and_the_next_ones_renew_it(self):
        port = after(A)
        assert (port.neighbour, port.until) == (A.neighbour, 121)
        assert after(A, A) == replace(port, until=122, frames=2)

    def test_a_neighbour_that_falls_silent_is_over(self):
        port = lldp.expired(after(A), 121)
        assert (port.neighbour, port.unheard, port.ttl) == (None, Unheard.SILENT, 120)
        assert port.until == inf

    def test_a_port_on_which_nobody_speaks_is_silent_after_the_usual_time(self):
        port = lldp.listening(5)
        assert port.until == 5 + TTL_SECONDS
        assert lldp.expired(port, port.until).unheard is Unheard.SILENT

    def test_a_moved_cable_is_seen_with_the_second_frame_of_the_new_switch(self):
        assert after(A, B, every=30).neighbour == A.neighbour
        port = after(A, B, B, every=30)
        assert (port.neighbour, port.turns) == (B.neighbour, 1)

    def test_one_forged_frame_changes_nothing(self):
        port = after(A, B, A, every=30)
        assert (port.neighbour, port.unheard) == (A.neighbour, Unheard.WAITING)

    def test_two_switches_on_one_port_are_not_told_apart_but_named_as_a_fault(self):
        port = after(*(A, B) * 4, every=15)
        assert (port.neighbour, port.unheard) == (None, Unheard.RESTLESS)

    def test_a_new_switch_every_second_is_a_fault(self):
        flood = [Announced(ReportedNeighbour(f"leaf-{n}", "1"), 65535) for n in range(4096)]
        port = after(*flood[:5])
        assert port.unheard is Unheard.RESTLESS
        assert after(*flood, every=0.01).unheard is Unheard.RESTLESS

    def test_a_switch_that_comes_and_goes_is_a_fault(self):
        short = Announced(A.neighbour, 1)
        assert after(*(short,) * 4, every=3).unheard is Unheard.RESTLESS

    def test_too_many_frames_are_a_fault_also_when_they_are_alike_or_garbled(self):
        for one in (A, None):
            assert after(*(one,) * MOST_FRAMES, every=0.01).unheard is Unheard.WAITING
            assert after(*(one,) * (MOST_FRAMES + 1), every=0.01).unheard is Unheard.RESTLESS
        assert after(*(A,) * (MOST_FRAMES + 1), every=1).neighbour == A.neighbour

    def test_a_restless_port_is_deaf_for_a_while_and_then_begins_anew(self):
        port = after(A, B, C, A, B, A)
        assert port.unheard is Unheard.RESTLESS
        assert lldp.heard(port, A, port.until - 1) == port
        assert lldp.expired(port, port.until) == lldp.listening(port.until)

    def test_a_forged_time_to_live_has_an_end(self):
        assert after(Announced(A.neighbour, 65535)).until == 1 + lldp.LONGEST_TTL

    @given(
        st.lists(
            st.tuples(
                st.sampled_from([A, B, C, None, replace(B, ttl=1)]),
                st.floats(0.001, 40),
            ),
            max_size=150,
        )
    )
    def test_whatever_is_sent_changes_little_and_never_gives_an_unheard_name(self, steps):
        """Three contradictions with two changes each, twice where a time of counting ends."""
        now, port, changes, sent = 0.0, lldp.listening(0.0), [], set()
        for one, pause in steps:
            now += pause
            while port.until <= now:
                before, port = port, lldp.expired(port, port.until)
                changes += [before.until] * (told_of(before) != told_of(port))
            before, port = port, lldp.heard(port, one, now)
            sent |= {one.neighbour} if one else set()
            changes += [now] * (told_of(before) != told_of(port))
            assert port.neighbour is None or port.neighbour in sent
        for began in changes:
            assert sum(began <= one < began + TTL_SECONDS for one in changes) <= 12


def told_of(port):
    return port.neighbour, port.unheard


class TestPresence:
    def test_a_card_in_a_pod_keeps_its_neighbour_until_it_is_back_and_heard_nothing_since(self):
        port = lldp.away(after(A))
        assert (port.neighbour, port.until) == (A.neighbour, inf)
        back = lldp.present(port, 1000.0)
        assert (back.neighbour, back.until) == (A.neighbour, 1000 + TTL_SECONDS)
        assert lldp.present(back, 1001.0) == back

    @pytest.mark.parametrize("frames", [(), (A,), (A, B, C, A, B, A)])
    def test_whatever_a_port_was_it_is_heard_again_after_a_pod(self, frames):
        port = lldp.present(lldp.away(after(*frames)), 500.0)
        while port.unheard is Unheard.RESTLESS:
            assert port.until < inf
            port = lldp.expired(port, port.until)
        assert lldp.heard(port, A, 700.0).neighbour == A.neighbour


class TestSentences:
    ETHERNET = lldp.PortPlace(LinkLayer.ETHERNET, "ens1")

    def test_infiniband_and_an_agent_without_the_right_say_so(self):
        place = lldp.PortPlace(LinkLayer.INFINIBAND, "ib0")
        assert "subnet manager" in lldp.known(place, None, "").unheard
        known = lldp.known(self.ETHERNET, lldp.listening(0), "Operation not permitted")
        assert known.unheard == (
            "no LLDP frame of ens1 can be received (Operation not permitted): agents that attach "
            "networks have the right, CAP_NET_RAW"
        )

    @pytest.mark.parametrize("silence", list(Unheard)[1:])
    def test_each_silence_has_a_sentence_that_names_the_interface(self, silence):
        port = replace(lldp.listening(0), unheard=silence)
        assert "ens1" in lldp.known(self.ETHERNET, port, "").unheard

    def test_who_has_a_neighbour_or_may_still_hear_one_has_no_sentence(self):
        assert lldp.known(self.ETHERNET, after(A), "").neighbour == A.neighbour
        for port in (after(A), lldp.listening(0), None):
            assert lldp.known(self.ETHERNET, port, "").unheard == ""

    @pytest.mark.parametrize(
        ("flags", "driver", "words"),
        [
            ({"fw-lldp-agent": True}, "ice", "ethtool --set-priv-flags ens1 fw-lldp-agent off"),
            ({"disable-fw-lldp": False}, "i40e", "--set-priv-flags ens1 disable-fw-lldp on"),
            ({"fw-lldp-agent": False}, "ice", "LLDP may be off at the switch"),
            ({"disable-fw-lldp": True}, "i40e", "LLDP may be off at the switch"),
            ({}, "mlx5_core", "mstconfig -d 0000:81:00.0 query | grep LLDP_NB_RX_MODE"),
            ({}, None, "LLDP may be off at the switch"),
        ],
    )
    def test_a_card_whose_firmware_may_take_the_frames_has_the_command(self, flags, driver, words):
        place = replace(self.ETHERNET, driver=driver, pci="0000:81:00.0")
        assert words in lldp.firmware_hint(place, flags)
