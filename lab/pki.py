"""The cluster's certificates: two authorities, a key for service accounts, and one leaf certificate per process."""

from __future__ import annotations

import ipaddress
import shutil
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from certs import x509
from lab.files import write_private

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from lab.layout import Layout

LIFETIME = timedelta(days=365)
SERVICE_ACCOUNT = "service-account"
# etcd has a separate authority, because every client that can authenticate may read and write everything.
CLUSTER_CA = "ca"
ETCD_CA = "etcd-ca"


@dataclass(frozen=True, slots=True)
class CertificateSpec:
    """The content of a leaf certificate: with addresses it is for a server, with `client` for a client."""

    name: str
    common_name: str
    groups: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    client: bool = True
    authority: str = CLUSTER_CA


def certificate(layout: Layout, name: str) -> Path:
    """Return the certificate file of an authority or a leaf."""
    return layout.pki / f"{name}.crt"


def key(layout: Layout, name: str) -> Path:
    """Return the private key file of an authority, a leaf, or the service accounts."""
    return layout.pki / f"{name}.key"


def public_key(layout: Layout, name: str) -> Path:
    """Return the public key file that verifies signatures of the service accounts' key."""
    return layout.pki / f"{name}.pub"


def ensure(layout: Layout, *, now: datetime) -> None:
    """Create all certificates if the lab has none; they appear atomically."""
    if layout.pki.exists():
        return
    partial = layout.pki.with_name(".pki")
    shutil.rmtree(partial, ignore_errors=True)
    authorities = {
        name: x509.new_authority(f"tranche-lab-{name}", lifetime=LIFETIME, now=now) for name in (CLUSTER_CA, ETCD_CA)
    }
    for name, authority in authorities.items():
        _write(partial, name, authority)
    signer = x509.new_private_key()
    write_private(partial / f"{SERVICE_ACCOUNT}.key", x509.private_key_pem(signer))
    write_private(
        partial / f"{SERVICE_ACCOUNT}.pub",
        signer.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    )
    for leaf in _leaves(layout):
        pair = x509.issue(
            authorities[leaf.authority],
            common_name=leaf.common_name,
            organizations=leaf.groups,
            dns_names=leaf.dns_names,
            ip_addresses=leaf.addresses,
            lifetime=LIFETIME,
            now=now,
            server=bool(leaf.addresses),
            client=leaf.client,
        )
        _write(partial, leaf.name, pair)
    partial.rename(layout.pki)


def _leaves(layout: Layout) -> tuple[CertificateSpec, ...]:
    """Return the leaf certificates, with the users and groups that Kubernetes' RBAC bootstrap roles bind."""
    loopback = ("127.0.0.1",)
    kubernetes_service = str(ipaddress.ip_network(layout.service_subnet)[1])
    return (
        CertificateSpec("etcd", "etcd", addresses=loopback, authority=ETCD_CA),
        CertificateSpec("kube-apiserver-etcd-client", "kube-apiserver", authority=ETCD_CA),
        CertificateSpec(
            "kube-apiserver",
            "kube-apiserver",
            dns_names=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
            addresses=(*loopback, layout.node_address, kubernetes_service),
            client=False,
        ),
        CertificateSpec("kube-apiserver-kubelet-client", "kube-apiserver-kubelet-client", groups=("system:masters",)),
        CertificateSpec("admin", "kubernetes-admin", groups=("system:masters",)),
        CertificateSpec("kube-controller-manager", "system:kube-controller-manager", addresses=loopback),
        CertificateSpec("kube-scheduler", "system:kube-scheduler", addresses=loopback),
        CertificateSpec(
            "kubelet",
            f"system:node:{layout.node_name}",
            groups=("system:nodes",),
            dns_names=(layout.node_name,),
            addresses=(layout.node_address,),
        ),
    )


def _write(folder: Path, name: str, pair: x509.KeyPair) -> None:
    write_private(folder / f"{name}.crt", pair.certificate_pem)
    write_private(folder / f"{name}.key", pair.key_pem)
