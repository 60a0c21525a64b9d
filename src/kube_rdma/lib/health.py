"""Says whether a program runs and is ready, in the form of Kubernetes' own: /livez and /readyz.

    GET ─► adapters/http_server ─► each check, asked now ─► a line of it, 503 if one fails

Nothing is kept up to date for it: a check reads what the program knows anyway. No person sees the
answers to probes, so a change of readiness is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import structlog

from kube_base.errors import Unavailable
from kube_base.notices import Notices
from kube_base.plain_text import plain

Check = Callable[[], Iterable[str]]
"""A function that returns why something is not as it has to be; nothing while all is well."""

log = structlog.get_logger()


class HealthChecks:
    """The pages /livez and /readyz of a program, with its checks of readiness by name."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._notices = Notices()

    async def run(self, address: tuple[str | None, int]) -> None:
        """Answer at a host and a port until cancelled; raise Refused if it cannot listen there."""
        from kube_rdma.adapters.http_server import HttpServer

        pages = {"/livez": self.livez, "/readyz": self.readyz}
        await HttpServer(pages, "--health-address").run(*address, "health served")

    async def livez(self) -> bytes:
        """Return a text, which shows that the event loop still runs."""
        return b"[+]event-loop ok\nlivez check passed\n"

    async def readyz(self) -> bytes:
        """Return a line for each check of readiness; raise Unavailable with them if one fails."""
        why = {name: plain(" ".join(check())) for name, check in self._checks.items()}
        lines = [f"[-]{name}: {text}" if text else f"[+]{name} ok" for name, text in why.items()]
        failed = [line for line in lines if line.startswith("[-]")]
        if failed:
            for reason in self._notices.news("readyz", *failed):
                log.warning("not ready", why=reason.removeprefix("[-]"))
            raise Unavailable("\n".join((*lines, "readyz check failed")))
        if self._notices.over("readyz"):
            log.info("ready")
        return "\n".join((*lines, "readyz check passed\n")).encode()
