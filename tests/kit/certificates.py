"""What an API server does to a webhook's certificate, at a time of the test's choice."""

from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError


def verified(certificate, authorities, host, when):
    """Whether the authorities of a bundle (PEM) verify a server's certificate for a name."""
    try:
        store = Store(x509.load_pem_x509_certificates(authorities))
    except ValueError:
        return False
    verifier = PolicyBuilder().store(store).time(when).build_server_verifier(x509.DNSName(host))
    try:
        verifier.verify(x509.load_pem_x509_certificate(certificate), [])
    except VerificationError:
        return False
    return True
