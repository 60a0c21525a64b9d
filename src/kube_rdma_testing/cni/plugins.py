"""A host whose CNI plugins are functions, for tests of code that calls plugins.

It refuses as the real one does: a plugin that is missing, takes too long or prints too much, and a
root that may not be entered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kube_rdma.adapters.cni.plugins import (
    CHROOT_FAILED,
    MOST,
    PATIENCE,
    ProcessOutcome,
    flood,
    late,
    not_there,
)

FakePlugin = Callable[[Mapping[str, str], bytes], ProcessOutcome | None]
"""A function of the environment and the configuration; None stands for one that never ends."""


class FakeHost:
    """A fake host with CNI `plugins` by name; `seen` returns the inode of a path in its root.

    `permitted` False is an agent without the capability SYS_CHROOT, which only a `root` other than
    / needs.
    """

    def __init__(
        self,
        plugins: Mapping[str, FakePlugin],
        seen: Callable[[str], int | None],
        root: str = "/",
        *,
        permitted: bool = True,
    ) -> None:
        """Make the host; raise ValueError for a plugin's name that no file can have."""
        if any("/" in name or name in ("", ".", "..") for name in plugins):
            raise ValueError(f"no file has such a name: {', '.join(plugins)}")
        self.root, self.folder = root, "/opt/cni/bin"
        self.plugins = dict(plugins)
        self.permitted = permitted
        self._seen = seen

    def names(self) -> tuple[str, ...]:
        """Return the names of the plugins, sorted."""
        return tuple(sorted(self.plugins))

    def inode(self, path: str) -> int | None:
        """Return the inode of a file in the plugins' root, None if there is none."""
        return self._seen(path)

    def run(self, name: str, environment: Mapping[str, str], text: bytes) -> ProcessOutcome:
        """Run a plugin and return its outcome; raise as HostPlugins.run does."""
        if name not in self.plugins:
            raise not_there(name, self.folder)
        if self.root != "/" and not self.permitted:
            why = f"chroot: cannot change root directory to '{self.root}': Operation not permitted"
            return ProcessOutcome(CHROOT_FAILED, errors=why.encode())
        outcome = self.plugins[name](environment, text)
        if outcome is None:
            raise late(PATIENCE)
        if max(len(outcome.out), len(outcome.errors)) > MOST:
            raise flood(MOST)
        return outcome
