"""Links of a page as they are in the site: what they have to become, and what stays."""

import pytest

from kube_rdma_tools.site.links import Surroundings, rewritten

FILES = {"src/a.py", "examples/gpu", "examples/gpu/README.md", "LICENSE"}
AROUND = Surroundings(
    in_site={"README.md", "docs/README.md", "docs/ip.md", "examples/gpu/README.md"},
    exists=FILES.__contains__,
    address="https://project.example/files/",
)


@pytest.mark.parametrize(
    ("page", "target", "wanted"),
    [
        ("docs/README.md", "ip.md#pools", "ip.md#pools"),
        ("docs/ip.md", "../README.md", "../index.md"),
        ("README.md", "docs/README.md#how-to", "docs/index.md#how-to"),
        ("docs/ip.md", "../examples/gpu", "../examples/gpu/index.md"),
        ("docs/ip.md", "../src/a.py", "https://project.example/files/src/a.py"),
        ("README.md", "LICENSE", "https://project.example/files/LICENSE"),
        ("docs/ip.md", "https://kubernetes.example/x.md", "https://kubernetes.example/x.md"),
        ("docs/ip.md", "mailto:a@b.example", "mailto:a@b.example"),
    ],
)
def test_a_link_leads_to_the_same_in_the_site(page, target, wanted):
    assert rewritten(page, f"see [it]({target}).", AROUND) == f"see [it]({wanted})."


@pytest.mark.parametrize("target", ["gone.md", "../src/gone.py", "../nothing", "#gone"])
def test_a_link_to_nothing_stays_for_sphinx_to_refuse(target):
    text = f"[it]({target})"
    assert rewritten("docs/ip.md", text, AROUND) == text


def test_code_blocks_stay_as_they_are():
    block = "```sh\necho [it](../README.md)\n```\n"
    page = f"[a](../README.md)\n\n{block}\n[b](../README.md)\n\n  ````\n  ```\n  [c](x)\n  ````\n"
    assert rewritten("docs/ip.md", page, AROUND) == page.replace(
        "[a](../README", "[a](../index"
    ).replace("[b](../README", "[b](../index")
