"""Whatever happens to the Secret, what a copy shows is trusted, and each reason is said."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kube_rdma.model.admission.certificate import (
    CertificateLife,
    CertificateTimes,
    Fingerprint,
    Forget,
    KeptCertificates,
    MakeAuthority,
    MakeServer,
    Rest,
    ServerCertificate,
    Trust,
    TrustBundle,
    TrustedAuthority,
)
from kube_rdma.rules.admission.certificate import MOST_AUTHORITIES, next_act

HOST = "webhook.test"
START = datetime(2030, 1, 1, tzinfo=UTC)
TIMES = CertificateTimes(authority=timedelta(days=30), server=timedelta(days=9))
COPIES = st.integers(0, 1)
LATE = 3  # losses of the Secret that a copy may miss; more authorities than that are trusted
FAR = timedelta(days=400)


def authority(name, begins=START, ends=START + FAR, *, own=True):
    return TrustedAuthority(name, Fingerprint(name), CertificateLife(begins, ends), own)


def server(issuer="a", hosts=(HOST,), begins=START, ends=START + FAR):
    print_ = Fingerprint(issuer) if issuer else None
    return ServerCertificate(print_, hosts, CertificateLife(begins, ends))


def trusting(*authorities, agree=True):
    return TrustBundle("Validating", authorities, agree)


def act(kept, *bundles, now=START):
    return next_act(kept, bundles, HOST, now, TIMES)


A, B = authority("a"), authority("b")
WHOLE = KeptCertificates((A,), A.fingerprint, server(), exists=True)


def test_a_whole_one_is_left_alone_until_two_thirds_are_over():
    assert act(WHOLE, trusting(A)) == Rest(START + FAR * 2 / 3)


@pytest.mark.parametrize(
    ("kept", "words", "repair"),
    [
        (KeptCertificates(), "the Secret is missing", False),
        (KeptCertificates(exists=True), "lacks the key", True),
        (KeptCertificates(exists=True, faults=("ca.crt is nonsense",)), "nonsense", True),
        (KeptCertificates((A,), None, server(), exists=True), "lacks the key", True),
        (KeptCertificates((A, B), A.fingerprint, server(), exists=True), "newest", True),
    ],
)
def test_an_authority_that_cannot_sign_is_replaced(kept, words, repair):
    made = act(kept, trusting())
    assert isinstance(made, MakeAuthority)
    assert words in made.why
    assert made.repair is repair


def test_what_was_trusted_before_a_loss_is_trusted_after_it():
    assert act(KeptCertificates(), trusting(A), trusting(A, B)) == MakeAuthority(
        (A, B), "the Secret is missing", repair=True
    )


def test_somebody_else_s_authority_is_not_kept():
    foreign = authority("f", own=False)
    kept = KeptCertificates((foreign,), foreign.fingerprint, server("f"), exists=True)
    made = act(kept, trusting(foreign, A))
    assert (made.kept, made.repair) == ((A,), True)
    assert "not kube-rdma's" in made.why


@pytest.mark.parametrize("bundle", [(), (B,), (A, B), (B, A)])
def test_no_certificate_is_made_before_its_authority_is_trusted(bundle):
    kept = KeptCertificates((A,), A.fingerprint, None, exists=True)
    assert act(kept, trusting(A), trusting(*bundle)) == Trust(("Validating",), (A,))
    assert act(kept, trusting(A, agree=False)) == Trust(("Validating",), (A,))
    assert isinstance(act(kept, trusting(A)), MakeServer)


@pytest.mark.parametrize(
    ("shown", "words", "repair"),
    [
        (None, "none yet", False),
        (server(hosts=("other",)), f"not for {HOST}", True),
        (server(ends=START), "was valid from 2030-01-01 00:00 to 2030-01-01 00:00 UTC", True),
        (server(begins=START + TIMES.server), "was valid from", True),
        (server("b"), "another authority", False),
        (server(None), "another authority", True),
        (server(begins=START - FAR, ends=START + FAR / 2), "ends soon", False),
    ],
)
def test_a_certificate_that_does_not_serve_is_replaced(shown, words, repair):
    kept = KeptCertificates((A,), A.fingerprint, shown, exists=True)
    made = act(kept, trusting(A))
    assert isinstance(made, MakeServer)
    assert words in made.why
    assert made.repair is repair
    assert made.ends == START + TIMES.server


def test_no_certificate_outlives_its_authority():
    brief = authority("a", START - timedelta(days=1), START + timedelta(days=3))
    kept = KeptCertificates((brief,), brief.fingerprint, None, exists=True)
    assert act(kept, trusting(brief)).ends == brief.life.ends


def test_an_authority_that_is_over_is_forgotten():
    over = authority("o", START - FAR, START)
    kept = KeptCertificates((over, A), A.fingerprint, server(), exists=True)
    assert act(kept, trusting(over, A)) == Forget((A,))


class Rotation(RuleBasedStateMachine):
    """A leader that may end between two acts, a Secret in bad hands, two copies that follow it."""

    def __init__(self):
        super().__init__()
        self.now = START
        self.names = itertools.count()
        self.secret = KeptCertificates()
        self.bundles = {"Validating": (), "Mutating": ()}
        self.served = [server(None, ends=START)] * 2  # by copy; at first nothing that counts
        self.missed = [0, 0]  # losses since a copy has looked

    def step(self):
        """One act of a leader that remembers nothing; False when all is well."""
        bundles = [TrustBundle(name, trusted) for name, trusted in self.bundles.items()]
        done = next_act(self.secret, bundles, HOST, self.now, TIMES)
        kept = self.secret
        match done:
            case MakeAuthority(former):
                made = authority(f"{next(self.names)}", self.now, self.now + TIMES.authority)
                self.keep((*former, made), made.fingerprint, kept.server)
            case MakeServer(ends):
                self.keep(
                    kept.authorities, kept.signer, server(kept.signer, (HOST,), self.now, ends)
                )
            case Forget(authorities):
                self.keep(authorities, kept.signer, kept.server)
            case Trust(configurations, authorities):
                self.bundles |= dict.fromkeys(configurations, authorities)
            case Rest(until):
                assert until > self.now
        return not isinstance(done, Rest)

    def keep(self, authorities, signer, shown):
        self.secret = KeptCertificates(authorities, signer, shown, exists=True)

    @rule(count=st.integers(1, 3))
    def leader_works_and_ends(self, count):
        for _ in range(count):
            self.step()

    @rule()
    def leader_works_until_all_is_well(self):
        acts = list(itertools.takewhile(bool, (self.step() for _ in range(9))))
        assert len(acts) < 9
        shown = self.secret.server
        assert shown.issuer == self.secret.signer
        assert shown.life.begins <= self.now < shown.life.ends

    @rule(copy=COPIES)
    def copy_follows(self, copy):
        if self.secret.server:
            self.served[copy], self.missed[copy] = self.secret.server, 0

    @rule(hours=st.sampled_from([1, 30, 100, 300]))
    def time_passes(self, hours):
        self.now += timedelta(hours=hours)

    @rule(part=st.sampled_from(["all", "key", "server", "authorities"]))
    def somebody_breaks_the_secret(self, part):
        if max(self.missed) >= LATE:
            return
        self.missed = [count + 1 for count in self.missed]
        kept = self.secret
        match part:
            case "all":
                self.secret = KeptCertificates()
            case "key":
                self.keep(kept.authorities, None, kept.server)
            case "server":
                self.keep(kept.authorities, kept.signer, None)
            case "authorities":
                self.keep((), None, kept.server and server(None))

    @invariant()
    def each_copy_is_trusted_by_everyone_who_asks(self):
        for shown in self.served:
            if shown.issuer is None or self.now >= shown.life.ends:
                continue  # nothing yet, or late for a third of its life
            for trusted in self.bundles.values():
                assert shown.issuer in {
                    one.fingerprint for one in trusted if self.now < one.life.ends
                }

    @invariant()
    def no_bundle_grows_without_end(self):
        assert all(len(trusted) <= MOST_AUTHORITIES for trusted in self.bundles.values())


TestRotation = Rotation.TestCase
TestRotation.settings = settings(stateful_step_count=60)
