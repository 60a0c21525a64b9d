"""Certificates as Kubernetes wants them: who is who, and who may serve where."""

import stat

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID

from kube_rdma_lab.pki import Authority, write_secret, write_ssh_key


def test_a_kubelet_is_named_as_the_node_authorizer_expects():
    authority = Authority("test")
    pair = authority.issue("system:node:node-1", groups=("system:nodes",))
    subject = x509.load_pem_x509_certificate(pair.certificate).subject
    assert subject.rfc4514_string() == "CN=system:node:node-1,O=system:nodes"


def test_only_a_certificate_with_hosts_is_good_for_serving():
    authority = Authority("test")

    def usages(pair):
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        return certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    assert ExtendedKeyUsageOID.SERVER_AUTH not in usages(authority.issue("user"))
    assert ExtendedKeyUsageOID.SERVER_AUTH in usages(authority.issue("server", hosts=("::1",)))


def test_another_authority_of_the_same_name_does_not_verify():
    pair = Authority("test").issue("user")
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    stranger = x509.load_pem_x509_certificate(Authority("test").certificate)
    with pytest.raises(InvalidSignature):
        certificate.verify_directly_issued_by(stranger)


def test_secrets_are_readable_by_their_owner_alone_even_over_an_old_file(tmp_path):
    path = tmp_path / "key"
    path.write_text("old")
    path.chmod(0o644)
    write_secret(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"new"


def test_an_ssh_key_is_private_and_its_public_half_is_one_line(tmp_path):
    public = write_ssh_key(tmp_path / "ssh.key")
    assert public.startswith("ssh-ed25519 ")
    assert "\n" not in public
    assert stat.S_IMODE((tmp_path / "ssh.key").stat().st_mode) == 0o600
