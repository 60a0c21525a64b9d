"""However clocks differ, answers are late or lost and copies die, at most one copy leads."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kube_rdma.controller.leadership import leader_record, may_take, observed, released
from kube_rdma.model.election import ElectionRecord, ElectionTiming

TIMING = ElectionTiming()
COPIES = st.integers(0, 2)
HOUR = 3600.0


class Copy:
    """One copy: a clock of its own, what it saw, the write that it has under way, its lead."""

    def __init__(self, number):
        self.identity = f"copy-{number}"
        self.offset = number * HOUR  # no two clocks show the same
        self.seen = None
        self.read = None  # the version that it read, which its write has to meet
        self.sent = None  # when, by its clock, and what
        self.until = float("-inf")


class Election(RuleBasedStateMachine):
    """Three copies, one Lease with compare-and-swap, and time that everybody sees pass equally."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.copies = [Copy(number) for number in range(3)]
        self.lease, self.version = None, 0

    def clock(self, copy):
        return self.now + copy.offset

    @rule(seconds=st.sampled_from([0.5, 4.0, 15.0, TIMING.deadline, TIMING.duration]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(number=COPIES)
    def looks(self, number):
        """It reads, and decides on what it wants to write."""
        copy = self.copies[number]
        now = self.clock(copy)
        copy.seen = observed(copy.seen, self.lease, now)
        copy.read, copy.sent = self.version, None
        if may_take(copy.seen, copy.identity, now):
            copy.sent = now, leader_record(copy.seen, copy.identity, TIMING, f"{self.now:.3f}")

    @precondition(lambda self: any(copy.sent for copy in self.copies))
    @rule(number=COPIES, answered=st.booleans())
    def its_write_arrives(self, number, answered):
        """Late perhaps, and perhaps its answer never comes."""
        copy = self.copies[number]
        if copy.sent is None:
            return
        (sent, record), copy.sent = copy.sent, None
        if copy.read != self.version:
            return
        self.lease, self.version = record, self.version + 1
        if answered:
            copy.seen = observed(copy.seen, record, sent)
            copy.until = sent + TIMING.deadline

    @rule(number=COPIES)
    def tries(self, number):
        """As almost always: it looks, writes and is answered."""
        self.looks(number)
        self.its_write_arrives(number, answered=True)

    @rule(number=COPIES, in_order=st.booleans())
    def it_ends_and_comes_again(self, number, in_order):
        """Another process, which knows nothing; in order it gives back what it had."""
        copy = self.copies[number]
        if in_order and self.lease and self.lease.holder == copy.identity:
            self.lease, self.version = released(self.lease, f"{self.now:.3f}"), self.version + 1
        self.copies[number] = Copy(number)
        self.copies[number].identity = f"copy-{number} after {self.now}"

    @invariant()
    def at_most_one_leads(self):
        leading = [copy.identity for copy in self.copies if self.clock(copy) < copy.until]
        assert len(leading) <= 1, leading


TestElection = Election.TestCase
TestElection.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=60)


def test_a_lease_that_is_not_renewed_is_free_after_its_time():
    record = ElectionRecord("other", 15.0, renewed="a")
    seen = observed(None, record, 100.0)
    assert not may_take(seen, "me", 114.9)
    assert may_take(seen, "me", 115.0)
    renewed = observed(seen, ElectionRecord("other", 15.0, renewed="b"), 114.0)
    assert not may_take(renewed, "me", 128.9)


def test_a_change_of_the_holder_is_counted_and_a_renewal_keeps_what_was():
    first = leader_record(observed(None, None, 0.0), "a", TIMING, "t0")
    assert first == ElectionRecord("a", TIMING.duration, "t0", "t0", 0)
    again = leader_record(observed(None, first, 1.0), "a", TIMING, "t1")
    assert again == ElectionRecord("a", TIMING.duration, "t0", "t1", 0)
    others = leader_record(observed(None, again, 2.0), "b", TIMING, "t2")
    assert others == ElectionRecord("b", TIMING.duration, "t2", "t2", 1)


def test_what_was_given_back_is_free_at_once():
    free = released(ElectionRecord("a", 15.0, transitions=3), "t")
    assert may_take(observed(None, free, 0.0), "b", 0.0)
    assert free.transitions == 3
