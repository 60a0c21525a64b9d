"""No file holds what belongs to one machine or person: home folders, registry hosts, keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .tree import texts

FORBIDDEN = {
    "a home folder": re.compile(r"(?<![\w.$}~])/(?:root|home)/[\w.-]+"),
    "a package registry": re.compile(
        r"\b(?:pypi\.org|files\.pythonhosted\.org|(?:proxy|sum)\.golang\.org"
        r"|(?:deb|security|snapshot)\.debian\.org|registry\.npmjs\.org|static\.crates\.io)\b"
    ),
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\n[\w+/=]{16}"),
}

# What a name starts with -> why such words are right there.
ALLOWED = {
    "src/kube_rdma/adapters/cni/conf/places.py": "GKE has its CNI binaries in such a folder",
    "tests/unit/adapters/cni/conf/test_places.py": "the same folder",
    "tests/unit/adapters/cni/conf/test_distributions.py": "the same folder",
    "config/distributions/gke.yaml": "the same folder",
    "src/kube_rdma/install/rules/presets.py": "the same folder",
    "src/kube_rdma_tools/judge/environments.py": "the same folder",
    "charts/kube-rdma/README.md": "the same folder",
    "charts/kube-rdma/files/layers.json": "the same folder",
    "charts/kube-rdma/values.schema.json": "the same folder",
    "charts/kube-rdma/values.yaml": "the same folder",
    "docs/agent.md": "the same folder",
    "src/kube_rdma_lab/node/root/": "files of a lab node, a machine of ours where root has a home",
}


def words(name: str, text: str) -> Iterator[str]:
    """One sentence for each forbidden word in one file."""
    for what, pattern in FORBIDDEN.items():
        for found in pattern.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{name}:{line}: {what}: {found.group()[:40]!r}"


def test_words() -> None:
    """The tree is free of them."""
    looked_at = [(n, t) for n, t in texts() if not n.startswith(tuple(ALLOWED))]
    found = [sentence for name, text in looked_at for sentence in words(name, text)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("cache = '/~root/.cache/x'", "a home folder"),
        ("see /~home/ann/notes", "a home folder"),
        ("index-url = https://pypi~.org/simple", "a package registry"),
        ("deb http://deb~.debian.org/debian sid main", "a package registry"),
        ("-----BEGIN EC ~PRIVATE KEY-----\nMHcCAQEEIDZl0q8sWmVhZ", "a private key"),
    ],
)
def test_a_planted_word_is_found(text: str, what: str) -> None:
    """Each kind of word is found and named with its line (the ~ hides it from the rule above)."""
    (sentence,) = words("x.py", "# fine\n" + text.replace("~", ""))
    assert sentence.startswith(f"x.py:2: {what}: ")


def test_words_that_only_look_alike() -> None:
    """A root of our own making and a mention of root are fine."""
    assert not list(words("x", "f'{tree}/root/.bashrc'; mount / ; $HOME/root/x; chroot/root/x"))
