"""Opens inotify, by which adapters hear of changed folders, or says what the node lacks.

The neighbours that watch folders share it: a node runs out of instances for all of them at once.
"""

from __future__ import annotations

from asyncinotify import Inotify

from kube_rdma.model.errors import Unavailable


def open_inotify() -> Inotify:
    """A new instance, to be closed by the caller; raise Unavailable when the kernel has none left.

    Root's processes share fs.inotify.max_user_instances, 128 as the kernel comes.
    """
    try:
        return Inotify()
    except OSError as error:
        raise Unavailable(
            f"The kernel gives no inotify instance ({error.strerror}): raise the sysctl "
            "fs.inotify.max_user_instances of this node."
        ) from error
