"""etcd, API server, controller manager and scheduler, run natively beside the node VMs.

They live in the supervisor's network namespace: TLS on every port, client certificates, Node
authorizer and RBAC, as in production. Ready in a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from kube_rdma_lab.kubeconfig import SERVER, kubeconfig
from kube_rdma_lab.pki import Authority, new_key, private_pem, public_pem, write_secret
from kube_rdma_lab.processes import Program, running
from kube_rdma_lab.topology import CONTROL_PLANE_IP, POD_CIDR, SERVICE_CIDR

READY_SECONDS = 90.0
ETCD = "https://127.0.0.1:2379"
# First address of the Service range: the Service `kubernetes` of namespace default.
SERVICE_IP = "10.96.0.1"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Running programs of the control plane and the authority that signed them."""

    authority: Authority
    programs: tuple[Program, ...]


def write_credentials(folder: Path, authority: Authority) -> None:
    """Write every key, certificate and kubeconfig that the four programs read."""
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
        "kubernetes.default.svc.cluster.local",
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
    }
    for name, pair in users.items():
        pair.write(folder, name)
        write_secret(folder / f"{name}.kubeconfig", kubeconfig(authority.certificate, pair))


def etcd(binaries: Path, pki: Path, data: Path) -> list[str | Path]:
    """Command line of etcd: one member, client certificates required, no fsync (lab data)."""
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
    """Command line of the API server."""
    return [
        binaries / "kube-apiserver",
        f"--etcd-servers={ETCD}",
        f"--etcd-cafile={pki}/ca.crt",
        f"--etcd-certfile={pki}/etcd-client.crt",
        f"--etcd-keyfile={pki}/etcd-client.key",
        f"--bind-address={CONTROL_PLANE_IP}",
        f"--advertise-address={CONTROL_PLANE_IP}",
        "--secure-port=6443",
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
        # The seed's DaemonSets are privileged.
        "--allow-privileged=true",
    ]


def _client(binaries: Path, pki: Path, user: str) -> list[str | Path]:
    """Command line that controller manager and scheduler share: who they are, where they serve."""
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
    """Command line of the controller manager; pod CIDRs are the topology's, not allocated."""
    return [
        *_client(binaries, pki, "controller-manager"),
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/service-accounts.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        f"--cluster-cidr={POD_CIDR}",
        "--use-service-account-credentials=true",
    ]


def scheduler(binaries: Path, pki: Path) -> list[str | Path]:
    """Command line of the scheduler."""
    return _client(binaries, pki, "scheduler")


@contextlib.asynccontextmanager
async def control_plane(binaries: Path, state: Path) -> AsyncIterator[ControlPlane]:
    """Run a control plane until the scope closes; entered once the API server is ready.

    `state` is the lab's folder: keys go to pki/, etcd's data to etcd/, output to logs/.
    """
    pki, logs = state / "pki", state / "logs"
    authority = Authority("kube-rdma lab")
    write_credentials(pki, authority)
    async with contextlib.AsyncExitStack() as stack:

        async def start(name: str, argv: list[str | Path]) -> Program:
            return await stack.enter_async_context(running(name, argv, logs / f"{name}.log"))

        database = await start("etcd", etcd(binaries, pki, state / "etcd"))
        server = await start("kube-apiserver", apiserver(binaries, pki))
        probe = _Probe(pki)
        await server.until(probe.ready, READY_SECONDS)
        manager = await start("kube-controller-manager", controller_manager(binaries, pki))
        chooser = await start("kube-scheduler", scheduler(binaries, pki))
        yield ControlPlane(authority, (database, server, manager, chooser))


class _Probe:
    """Asks the API server whether it is ready, with the admin's certificate."""

    def __init__(self, pki: Path) -> None:
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        ).open

    async def ready(self) -> bool:
        """Return True once /readyz answers 200."""
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> bool:
        try:
            with self._open(f"{SERVER}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
