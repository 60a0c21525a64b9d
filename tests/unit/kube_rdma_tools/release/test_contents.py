"""What an unpacked image says of itself: Debian's packages, Python's, the shim's compiler."""

import pytest

from kube_base.errors import Broken
from kube_rdma_lab.build import product
from kube_rdma_tools.release.contents import components
from kube_rdma_tools.release.licences import common_licences, of_components

METADATA = "Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{more}\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def distribution(root, name, more, *files):
    folder = f"{name}-1.0.dist-info"
    site = root / product.SITE
    write(site / folder / "METADATA", METADATA.format(name=name, more=more))
    for file in files:
        write(site / folder / file, f"text of {file}")
    listed = [f"{folder}/{file},," for file in ("METADATA", "RECORD", *files)]
    write(site / folder / "RECORD", "\n".join(listed))


@pytest.fixture
def root(tmp_path):
    """An image with two packages of Debian; one has its documents under the other's name."""
    write(
        tmp_path / product.PACKAGE_LIST,
        f"{'a' * 64} gcc-12-base 12.2.0-14 amd64\n{'b' * 64} libgcc-s1 12.2.0-14 amd64\n",
    )
    write(
        tmp_path / "usr/share/doc/gcc-12-base/copyright",
        "Format: x\n\nLicense: GPL-3\n text\n\nLicense: Artistic\n text\n",
    )
    (tmp_path / "usr/share/doc/libgcc-s1").symlink_to("gcc-12-base")
    write(tmp_path / "usr/share/common-licenses/GPL-3", "the text")
    for name in ("musl.txt", "zig.txt"):
        write(tmp_path / product.DOCUMENTS / name, f"text of {name}")
    distribution(tmp_path, "new", "License-Expression: MIT", "licenses/LICENSE")
    classifier = "Classifier: License :: OSI Approved :: BSD License"
    distribution(tmp_path, "old", classifier, "LICENSE.txt", "top_level.txt")
    return tmp_path


def test_every_component_has_version_licences_and_texts(root):
    listed = {one.name: one for one in components(root, "0.17.0")}
    assert listed["libgcc-s1"].licences == ("Artistic", "GPL-3")
    assert listed["libgcc-s1"].sha256 == "b" * 64
    assert listed["new"].licences == ("MIT",)
    assert listed["new"].texts == {"LICENSE": b"text of licenses/LICENSE"}
    assert listed["old"].licences == ("BSD License",)
    assert listed["old"].texts == {"LICENSE.txt": b"text of LICENSE.txt"}
    assert (listed["ziglang"].version, len(listed["ziglang"].texts)) == ("0.17.0", 2)


def test_the_texts_lie_by_kind_and_name(root):
    files = {**of_components(components(root, "0.17.0")), **common_licences(root)}
    assert files["deb/libgcc-s1/copyright"].data.startswith(b"Format")
    assert files["pypi/new/LICENSE"].data == b"text of licenses/LICENSE"
    assert files["deb/common-licenses/GPL-3"].data == b"the text"


def test_a_component_without_a_text_of_its_licence_cannot_be_released(root):
    distribution(root, "bare", "License-Expression: MIT")
    with pytest.raises(Broken, match=r"bare 1\.0 has no text of its licence"):
        components(root, "0.17.0")
