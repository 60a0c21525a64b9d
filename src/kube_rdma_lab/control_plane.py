"""etcd, API server, controller manager, scheduler and CoreDNS, run natively beside the nodes.

They live in the supervisor's network namespace, with TLS, client certificates, the Node authorizer
and RBAC.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from kube_rdma_lab import audit, dns, gates, relay
from kube_rdma_lab.api_client import ApiClient
from kube_rdma_lab.kubeconfig import SERVER, kubeconfig
from kube_rdma_lab.patience import Patience
from kube_rdma_lab.pki import Authority, new_key, private_pem, public_pem, write_secret
from kube_rdma_lab.processes import Program, call, running
from kube_rdma_lab.topology import (
    API_PORT,
    CONTROL_PLANE_IP,
    POD_CIDR,
    SERVICE_CIDR,
    Topology,
)

ETCD = "https://127.0.0.1:2379"
# First address of the Service range: the Service `kubernetes` of namespace default.
SERVICE_IP = "10.96.0.1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The running programs of the control plane, and the authority of their certificates."""

    authority: Authority
    programs: tuple[Program, ...]


def write_credentials(folder: Path, authority: Authority, host_port: int) -> None:
    """Write every key, certificate and kubeconfig of the control plane's programs.

    host.kubeconfig is the admin's on the host, where the API server is relayed at `host_port`.
    """
    folder.mkdir(mode=0o700)
    (folder / "ca.crt").write_bytes(authority.certificate)
    hosts = (
        CONTROL_PLANE_IP,
        SERVICE_IP,
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        f"kubernetes.default.svc.{dns.DOMAIN}",
    )
    authority.issue("etcd", hosts=("127.0.0.1",)).write(folder, "etcd")
    authority.issue("kube-apiserver", hosts=hosts).write(folder, "apiserver")
    authority.issue("kube-apiserver-etcd-client").write(folder, "etcd-client")
    # The API server acts on kubelets (logs, exec) for its users, after it has authorised them.
    authority.issue("kube-apiserver-kubelet-client", groups=("system:masters",)).write(
        folder, "kubelet-client"
    )
    front_proxy = Authority("kube-rdma lab front proxy")
    (folder / "front-proxy-ca.crt").write_bytes(front_proxy.certificate)
    front_proxy.issue("front-proxy-client").write(folder, "front-proxy-client")
    signer = new_key()
    write_secret(folder / "service-accounts.key", private_pem(signer))
    (folder / "service-accounts.pub").write_bytes(public_pem(signer))
    users = {
        "admin": authority.issue("kubernetes-admin", groups=("system:masters",)),
        "controller-manager": authority.issue(
            "system:kube-controller-manager", hosts=("127.0.0.1", "localhost")
        ),
        "scheduler": authority.issue("system:kube-scheduler", hosts=("127.0.0.1", "localhost")),
        "coredns": authority.issue(dns.USER),
    }
    for name, pair in users.items():
        pair.write(folder, name)
        write_secret(folder / f"{name}.kubeconfig", kubeconfig(authority.certificate, pair))
    at_host = kubeconfig(authority.certificate, users["admin"], f"https://{relay.HOST}:{host_port}")
    write_secret(folder / "host.kubeconfig", at_host)


def etcd(binaries: Path, pki: Path, data: Path) -> list[str | Path]:
    """Return etcd's command line: one member, client certificates required, no fsync (lab data)."""
    return [
        binaries / "etcd",
        f"--data-dir={data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:0",
        f"--cert-file={pki}/etcd.crt",
        f"--key-file={pki}/etcd.key",
        f"--trusted-ca-file={pki}/ca.crt",
        "--client-cert-auth",
        "--log-level=warn",
    ]


def apiserver(binaries: Path, pki: Path) -> list[str | Path]:
    """Return the command line of the kube-apiserver of a lab."""
    return [
        binaries / "kube-apiserver",
        f"--etcd-servers={ETCD}",
        f"--etcd-cafile={pki}/ca.crt",
        f"--etcd-certfile={pki}/etcd-client.crt",
        f"--etcd-keyfile={pki}/etcd-client.key",
        f"--bind-address={CONTROL_PLANE_IP}",
        f"--advertise-address={CONTROL_PLANE_IP}",
        f"--secure-port={API_PORT}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/service-accounts.pub",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
        # No kube-proxy runs here, so webhooks are called by endpoint, not by Service address.
        "--enable-aggregator-routing=true",
        # DaemonSets in the vendors' documents (examples/) are privileged.
        "--allow-privileged=true",
    ]


def _client(binaries: Path, pki: Path, user: str) -> list[str | Path]:
    """Return the part of their command lines that controller manager and scheduler share."""
    return [
        binaries / f"kube-{user}",
        f"--kubeconfig={pki}/{user}.kubeconfig",
        f"--authentication-kubeconfig={pki}/{user}.kubeconfig",
        f"--authorization-kubeconfig={pki}/{user}.kubeconfig",
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={pki}/{user}.crt",
        f"--tls-private-key-file={pki}/{user}.key",
        "--leader-elect=false",
    ]


def controller_manager(binaries: Path, pki: Path) -> list[str | Path]:
    """Return the controller manager's command line; it assigns no pod CIDRs, the topology does."""
    return [
        *_client(binaries, pki, "controller-manager"),
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/service-accounts.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        f"--cluster-cidr={POD_CIDR}",
        "--use-service-account-credentials=true",
    ]


def scheduler(binaries: Path, pki: Path) -> list[str | Path]:
    """Return the command line of the kube-scheduler of a lab."""
    return _client(binaries, pki, "scheduler")


def _admits_pods(client: ApiClient) -> bool:
    """Return whether the default namespace has its service account, without which no pod starts."""
    return any(each["metadata"]["name"] == "default" for each in client.items(ACCOUNTS))


@contextlib.asynccontextmanager
async def control_plane(
    topology: Topology, binaries: Path, state: Path, host: socket.socket, slowness: float
) -> AsyncIterator[ControlPlane]:
    """Run a control plane until the scope closes; entered once pods can be made and DNS answers.

    `state` is the lab's folder: keys go to pki/, etcd's data to etcd/, output to logs/. The API
    server is reachable at `host` too, a listening socket of the host (relay.py). `slowness` is this
    machine's pace. Only feature gates and API groups of the `topology` are used. Raise Unavailable
    if API server, controller manager or CoreDNS ends before it is ready, or is not ready in time.
    """
    pki, logs = state / "pki", state / "logs"
    authority = Authority("kube-rdma lab")
    write_credentials(pki, authority, host.getsockname()[1])
    async with contextlib.AsyncExitStack() as stack:

        async def start(name: str, argv: list[str | Path]) -> Program:
            return await stack.enter_async_context(running(name, argv, logs / f"{name}.log"))

        async def start_gated(name: str, argv: list[str | Path]) -> Program:
            return await start(name, [*argv, *gates.options(name, topology, binaries)])

        database = await start("etcd", etcd(binaries, pki, state / "etcd"))
        server = await start_gated(
            "kube-apiserver", [*apiserver(binaries, pki), *audit.options(state)]
        )
        client = ApiClient(pki, SERVER)
        await server.until(lambda: asyncio.to_thread(client.ready), Patience(slowness))
        await stack.enter_async_context(relay.relaying(host))
        manager = await start_gated("kube-controller-manager", controller_manager(binaries, pki))
        chooser = await start_gated("kube-scheduler", scheduler(binaries, pki))
        kubectl = (binaries / "kubectl", f"--kubeconfig={pki}/admin.kubeconfig")
        await call((*kubectl, "apply", "--server-side", "-f", "-"), stdin=dns.objects())
        (state / "Corefile").write_text(dns.corefile(pki / "coredns.kubeconfig"))
        names = await start("coredns", dns.command_line(binaries, state / "Corefile"))
        await names.until(lambda: asyncio.to_thread(dns.ready), Patience(slowness))
        await manager.until(lambda: asyncio.to_thread(_admits_pods, client), Patience(slowness))
        yield ControlPlane(authority, (database, server, manager, chooser, names))
