"""The machine's pip settings count for uv too."""

from kube_rdma_lab.build.wheels import translated

CONFIG = """\
global.index-url='https://mirror.example/simple'
:env:.index-url='https://nearer.example/simple'
:env:.cert='/certificates.pem'
global.timeout='30'
list.format='columns'
"""


def test_index_and_certificate_are_taken_over():
    """What pip knows uv is told, the environment before the files, and nothing else."""
    assert translated(CONFIG, {}) == {
        "UV_DEFAULT_INDEX": "https://nearer.example/simple",
        "SSL_CERT_FILE": "/certificates.pem",
    }


def test_uvs_own_settings_stay():
    """A variable that is set for uv itself is not overruled by pip's file."""
    found = translated(CONFIG, {"UV_DEFAULT_INDEX": "https://own.example/simple"})
    assert "UV_DEFAULT_INDEX" not in found


def test_no_pip_no_settings():
    """Without pip or settings uv is left as it is."""
    assert translated("", {}) == {}
