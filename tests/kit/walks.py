"""A person who follows pages with an account of their own: what no page says, they do not know.

For walks of tests/lab. A command has to stand on one of the pages, in a block or as code in the
text, with words in capitals for what the reader puts in. A role has to be named there, too, before
the person gets it.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager

from kube_rdma_lab import cluster, waiting
from tests.documents.pages import ROOT, blocks
from tests.documents.shell import Shell
from tests.kit.cluster_users import impersonating

_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


class Walker:
    """Somebody with pages, a kubeconfig and a namespace of their own."""

    def __init__(self, lab, account, pages, folder, *, namespace="default"):
        """`account` is the user's name, `pages` are paths in the checkout."""
        self.account, self._lab = account, lab
        texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in pages}
        self._text = "\n".join(texts.values())
        self._commands = {
            command.text.partition("  #")[0].strip()
            for page, text in texts.items()
            for block in blocks(page, text)
            for command in block.commands
        } | set(_CODE.findall(self._text))
        self._kubeconfig = _at_home(impersonating(lab, account, folder), namespace)

    def does(self, command, **values):
        """Run a command of the pages with words put in, ``NAME="w-0"``; its code and its output."""
        assert command in self._commands, f"no page has `{command}`"
        text = command
        for name, value in values.items():
            word = name.replace("_", "-")
            assert word in command, f"`{command}` has no {word}"
            text = re.sub(rf"(?<![\w-]){word}(?![\w-])", value, text)
        print(f"$ {text}")
        with Shell({"KUBECONFIG": str(self._kubeconfig)}, self._lab.state.binaries) as shell:
            code, printed = shell.run(text)
        print(printed)
        return code, printed

    def reads(self, text):
        """Whether the pages have a text."""
        return text in self._text

    @contextmanager
    def granted(self, role, *, kind="clusterrole", namespace=None):
        """What an administrator gives, if a page names it: in a namespace, else in the cluster."""
        assert self.reads(f"`{role}`"), f"no page names the role {role}"
        name = f"{self.account}-{role}"
        where = ("-n", namespace) if namespace else ()
        binding = "rolebinding" if namespace else "clusterrolebinding"
        words = ("create", binding, name, f"--{kind}={role}", f"--user={self.account}")
        cluster.kubectl(self._lab, *where, *words)
        try:
            yield
        finally:
            cluster.kubectl(self._lab, *where, "delete", binding, name)

    def may(self, *words):
        """Wait for a right: authorizers read bindings a moment after they were made."""
        asked = ("auth", "can-i", *words, f"--as={self.account}")
        what = f"the right to {' '.join(words)}"
        waiting.until(self._lab, what, lambda: cluster.kubectl(self._lab, *asked).strip() == "yes")


def _at_home(path, namespace):
    """The kubeconfig with a namespace of its context."""
    document = json.loads(path.read_text())
    for context in document["contexts"]:
        context["context"]["namespace"] = namespace
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    return path
