"""Certificates with the real library: what is made is verified, and what is wrong is told apart."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.pki import certificates
from kube_rdma.adapters.pki.certificates import MadePair, bundle, new_authority, new_key, read
from kube_rdma_lab.pki import Authority
from tests.kit.certificates import verified

HOST = "webhook.test"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIFE = timedelta(days=30)


def made_authority():
    return new_authority(new_key, NOW, NOW + LIFE)


def made_server(authority):
    return certificates.new_server(new_key, authority, HOST, NOW, NOW + LIFE)


def whole():
    authority = made_authority()
    server = made_server(authority)
    return {
        "ca.crt": authority.certificate,
        "ca.key": authority.key,
        "tls.crt": server.certificate,
        "tls.key": server.key,
    }


def test_what_is_made_is_read_as_it_was_meant():
    kept = read(whole())
    (authority,) = kept.authorities
    assert kept.exists
    assert kept.faults == ()
    assert authority.own
    assert kept.signer == kept.server.issuer == authority.fingerprint
    assert kept.server.hosts == (HOST,)
    assert authority.life.begins < NOW  # clocks of API servers may be late
    assert (authority.life.ends, kept.server.life.ends) == (NOW + LIFE, NOW + LIFE)


@pytest.mark.parametrize(
    ("host", "when", "trusted"),
    [
        (HOST, NOW, True),
        ("other.test", NOW, False),
        (HOST, NOW + LIFE + timedelta(minutes=1), False),
        (HOST, NOW - timedelta(hours=2), False),
    ],
)
def test_a_server_is_verified_for_its_name_and_time(host, when, trusted):
    data = whole()
    assert verified(data["tls.crt"], data["ca.crt"], host, when) is trusted


def test_of_two_authorities_with_one_name_the_right_one_verifies():
    """As in a bundle while one follows the other."""
    former, newer = made_authority(), made_authority()
    both = former.certificate + newer.certificate
    signer = MadePair(both, newer.key)
    for pair in (former, signer):
        assert verified(made_server(pair).certificate, both, HOST, NOW)
    assert not verified(made_server(signer).certificate, former.certificate, HOST, NOW)
    assert (
        read({**whole(), "ca.crt": both, "ca.key": newer.key}).signer == bundle(both)[1].fingerprint
    )


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"ca.crt": b""}, "ca.crt of the Secret holds no certificates"),
        ({"ca.key": b""}, "ca.key of the Secret holds no key of an authority"),
        ({"tls.crt": b"-----BEGIN"}, "tls.crt and tls.key of the Secret are not a pair"),
        ({"tls.key": whole()["tls.key"]}, "tls.crt and tls.key of the Secret are not a pair"),
        ({"tls.key": b""}, "tls.crt and tls.key of the Secret are not a pair"),
    ],
)
def test_what_is_broken_is_said(changes, fault):
    assert read({**whole(), **changes}).faults == (fault,)


def test_a_key_of_another_kind_is_no_key():
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    assert read({**whole(), "ca.key": pem}).signer is None


def test_a_stranger_s_pair_is_seen_as_that():
    stranger = Authority("stranger")
    pair = stranger.issue(HOST, hosts=(HOST,))
    kept = read({"ca.crt": stranger.certificate, "tls.crt": pair.certificate, "tls.key": pair.key})
    assert [one.own for one in kept.authorities] == [False]
    assert kept.signer is None
    assert kept.server.issuer == kept.authorities[0].fingerprint
    assert read(whole() | {"tls.crt": pair.certificate, "tls.key": pair.key}).server.issuer is None


WHOLE = whole()


@given(
    st.dictionaries(st.sampled_from(["ca.crt", "ca.key", "tls.crt", "tls.key"]), st.binary()),
    st.sampled_from(["ca.crt", "tls.crt"]),
    st.integers(0, 350),
    st.integers(0, 255),
)
def test_no_content_is_an_error(content, name, place, byte):
    """Nor a certificate that was whole but for a byte."""
    read(content)
    read(WHOLE | content)
    der = bytearray(ssl.PEM_cert_to_DER_cert(WHOLE[name].decode()))
    der[place % len(der)] = byte
    text = ssl.DER_cert_to_PEM_cert(bytes(der)).encode()
    kept = read(WHOLE | {name: text})
    assert kept.exists
    assert len(bundle(text)) <= 1
