"""The Containerfile as it is read: no container engine is here that could build it."""

import re
import subprocess
from pathlib import Path

from kube_rdma_lab.build import product

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
SITE = "/site/"  # of the stage that puts everything together


def copies(*, other):
    """The COPY lines, those from another stage or those from the checkout, as words."""
    lines = [line.split()[1:] for line in TEXT.splitlines() if line.startswith("COPY ")]
    return [words for words in lines if words[0].startswith("--from=") is other]


def test_what_is_copied_is_in_the_checkout():
    assert copies(other=False)
    for *sources, _ in copies(other=False):
        assert all((ROOT / source).exists() for source in sources)


def test_the_packages_are_those_of_the_tested_image():
    copied = [words for words in copies(other=False) if words[0].startswith("src/")]
    assert copied == [[f"src/{name}", f"{SITE}{name}"] for name in product.PACKAGES]


def test_the_shim_lies_where_the_agent_looks_for_every_kind_of_node():
    (target,) = [words[-1] for words in copies(other=True) if words[0] == "--from=shim"]
    (output,) = re.findall(r'shim/build\.py "\$machine" "/out/(\S+)"', TEXT)
    (machines,) = re.findall(r"for machine in ([^;]+);", TEXT)
    places = {f"{target}/{output.replace('$machine', one)}" for one in machines.split()}
    assert places == {
        f"{SITE}{product.SHIM_PLACE.format(machine=platform.machine)}"
        for platform in product.PLATFORMS.values()
    }


def test_the_compiler_is_the_one_that_is_locked():
    """Its lines alone, with their digests."""
    (script,) = re.findall(r"RUN (sed .*) > /locks/shim\.txt", TEXT)
    script = script.replace("/locks/dev.txt", str(ROOT / "locks/dev.txt"))
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    head, *digests = said.splitlines()
    assert re.fullmatch(r"ziglang==[\d.]+ \\", head)
    assert digests
    assert all(line.strip().startswith("--hash=sha256:") for line in digests)


def test_the_licences_lie_where_the_tested_image_has_them():
    (words,) = [w for w in copies(other=False) if w[-1].strip("/") == product.DOCUMENTS]
    sources = [ROOT / word for word in words[:-1]]
    copied = [file for path in sources for file in (path.iterdir() if path.is_dir() else [path])]
    assert {file.name for file in copied} == {path.name for path in product.LICENCES}
    assert all(path.is_file() for path in product.LICENCES)


def test_the_image_has_what_verify_and_a_preflight_run():
    """The same Debian packages as the tested image, of the same release."""
    images = re.findall(r"^FROM (?:--\S+ )?python:\S+-slim-(\w+)", TEXT, re.MULTILINE)
    (packages,) = re.findall(r"--no-install-recommends ([^&]*) &&", TEXT)
    assert set(images) == {product.TREE.suite}
    assert tuple(packages.split()) == product.MEASURING
