"""A made-up release for the tests of this folder."""

from kube_rdma_tools.release.contents import ImageComponent
from kube_rdma_tools.release.identity import ReleaseIdentity
from kube_rdma_tools.release.version import ReleaseVersion

IDENTITY = ReleaseIdentity(
    version=ReleaseVersion("0.2.0rc1"),
    commit="0123456789abcdef0123456789abcdef01234567",
    epoch=1_700_000_000,
    image="registry.example.com/rdma/kube-rdma",
    homepage="https://project.example.com",
    downloads="https://files.example.com/v0.2.0-rc.1",
)
COMPONENTS = (
    ImageComponent(
        "deb",
        "libc6",
        "2.36-9+deb12u14",
        ("GPL-2", "LGPL-2.1"),
        {"copyright": b"text"},
        sha256="a" * 64,
        architecture="amd64",
    ),
    ImageComponent("pypi", "PyYAML", "6.0.3", ("MIT License",), {"LICENSE": b"text"}),
    ImageComponent("pypi", "click", "8.5.1", ("BSD-3-Clause",), {"LICENSE.txt": b"text"}),
)
