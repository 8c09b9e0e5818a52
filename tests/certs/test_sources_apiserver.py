"""Each source of certificates in a webhook process that a real API server calls."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from certs import authority_secret, ca_bundle, canary
from certs.authorities import Authorities
from certs.leaf import ServerNames
from certs.probe import served_certificate
from certs.x509 import KeyPair, issue, new_authority
from cluster.api import Api
from cluster.connect import connect
from cluster.errors import ConflictError
from cluster.resource import PODS, SECRETS
from lab import kubeconfig
from lab.client import client
from lab.layout import Port
from tests.certs.support import replicas
from tests.certs.support.replicas import Replica
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NAMES = ServerNames(("localhost",), ("127.0.0.1",))
RESTORED_S = 2.0
SELDOM_S = 120.0
# Pod Security requires these in our own namespace.
PLAIN = {"securityContext": {"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}}}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.fixture
async def api(installed: Layout) -> AsyncIterator[Api]:
    """Return an administrator's client of the API server."""
    async with connect(program="tranche-test", kubeconfig=str(installed.kubeconfig)) as connection:
        yield Api(connection)


@pytest.fixture
def replica(installed: Layout) -> Iterator[Replica]:
    """Return a replica that the API server calls, not started yet."""
    made = Replica(installed, installed.port(Port.WEBHOOK), installed.port(Port.WEBHOOK_METRICS))
    yield made
    made.kill()


def put(folder: Path, signer: KeyPair) -> None:
    """Write a pair of an authority into a folder, one file after the other."""
    pair = issue(
        signer,
        common_name="webhook",
        dns_names=NAMES.dns_names,
        ip_addresses=NAMES.ip_addresses,
        lifetime=timedelta(days=1),
        now=replicas.now(),
        server=True,
    )
    for name, content in (
        ("tls.crt", pair.certificate_pem),
        ("tls.key", pair.key_pem),
        ("ca.crt", signer.certificate_pem),
    ):
        (folder / name).write_bytes(content)


async def inject(api: Api, *signers: KeyPair) -> None:
    """Publish authorities as cert-manager's cainjector does."""
    bundle = ca_bundle.to_pem(each.certificate for each in signers)
    while True:
        try:
            await ca_bundle.write(api, await ca_bundle.read(api), bundle=bundle)
        except ConflictError:
            continue
        return


async def test_replaced_files_are_published_and_served_without_a_failed_admission(
    api: Api, replica: Replica, tmp_path: Path
) -> None:
    """A pair of another authority is put into the folder under load: it is trusted first, then served."""
    old, new = (new_authority(name, lifetime=timedelta(days=30), now=replicas.now()) for name in ("old", "new"))
    put(tmp_path, old)
    flags = ("--certificates-source", "files", "--certificates-folder", str(tmp_path))
    await asyncio.to_thread(replica.start, *flags)
    await replicas.eventually(lambda: replicas.is_admitted(api))
    first = await served_certificate(replica.address)
    async with replicas.load(api) as load:
        put(tmp_path, new)

        async def followed() -> bool:
            return await served_certificate(replica.address) != first

        await replicas.eventually(followed)
        assert {old.certificate, new.certificate} <= (await ca_bundle.read(api)).common_certificates
    assert load.failures == []
    assert load.admitted > 0
    await replicas.eventually(lambda: replicas.is_admitted(api))


async def test_cert_manager_certificate_is_served_once_cainjector_has_published(
    api: Api, replica: Replica, tmp_path: Path
) -> None:
    """Before, the process is not ready. It never writes the caBundle; a renewed authority fails no admission."""
    old, new = (new_authority(name, lifetime=timedelta(days=30), now=replicas.now()) for name in ("old", "new"))
    put(tmp_path, old)
    flags = ("--certificates-source", "cert-manager", "--certificates-folder", str(tmp_path))
    await inject(api, new)
    starting = asyncio.create_task(asyncio.to_thread(replica.start, *flags))
    await replicas.eventually(lambda: _serves_tls(replica))
    assert not starting.done()
    assert (await ca_bundle.read(api)).common_certificates == {new.certificate}
    assert "unknown authority" in await canary.problem(api, authority=old.certificate)
    await inject(api, old)
    await starting
    assert await canary.problem(api, authority=old.certificate) == ""
    await replicas.eventually(lambda: replicas.is_admitted(api))
    first = await served_certificate(replica.address)
    async with replicas.load(api) as load:
        put(tmp_path, new)
        await inject(api, old, new)

        async def followed() -> bool:
            return await served_certificate(replica.address) != first

        await replicas.eventually(followed)
    assert load.failures == []


async def test_wrong_bundle_refuses_gpu_pods_with_the_policys_message(
    api: Api, replica: Replica, tmp_path: Path
) -> None:
    """The API server skips a webhook that it cannot verify; the policy refuses the pod until the caBundle is right.

    Pods without a GPU request are created all the time.
    """
    right, wrong = (new_authority(name, lifetime=timedelta(days=30), now=replicas.now()) for name in ("right", "wrong"))
    put(tmp_path, right)
    await inject(api, right)
    flags = ("--certificates-source", "cert-manager", "--certificates-folder", str(tmp_path))
    await asyncio.to_thread(replica.start, *flags)
    await replicas.eventually(lambda: replicas.is_admitted(api))
    await inject(api, wrong)
    faults: list[str] = []

    async def refused() -> bool:
        faults.append(await replicas.fault(api))
        return bool(faults[-1])

    await replicas.eventually(refused)
    assert "the admission webhook tranche-webhook did not prepare this pod" in faults[-1]
    plain = {**replicas.POD, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    await api.request("POST", PODS.path(namespace=replicas.TEAM), params={"dryRun": "All"}, body=plain)
    await inject(api, right)
    await replicas.eventually(lambda: replicas.is_admitted(api))


async def _serves_tls(replica: Replica) -> bool:
    return await served_certificate(replica.address) is not None


async def test_watch_restores_an_overwritten_bundle_at_once(api: Api, replica: Replica) -> None:
    """A replica that polls only every two minutes restores it by its watch."""
    await asyncio.to_thread(replica.start, poll_seconds=SELDOM_S)
    await replicas.eventually(lambda: replicas.is_admitted(api))
    right = (await ca_bundle.read(api)).bundles
    stranger = new_authority("stranger", lifetime=timedelta(days=1), now=replicas.now())
    took = []
    for _ in range(5):
        await inject(api, stranger)
        begin = time.monotonic()

        async def restored() -> bool:
            return (await ca_bundle.read(api)).bundles == right

        await replicas.eventually(restored)
        took.append(time.monotonic() - begin)
    print(f"caBundle restored after {', '.join(f'{each * 1000:.0f}' for each in took)} ms")  # noqa: T201 -- for the record
    assert max(took) < RESTORED_S


async def test_every_name_of_the_service_verifies_by_the_published_bundle(api: Api, replica: Replica) -> None:
    """The four DNS names of a Service, and no other, verify for a process with its default settings."""
    await asyncio.to_thread(replica.start, "--dns-names", ",".join(WebhookSettings().dns_names))
    assert WebhookSettings().dns_names == tuple(
        f"tranche-webhook{rest}"
        for rest in (".tranche-system.svc", ".tranche-system.svc.cluster.local", ".tranche-system", "")
    )
    bundle = (await ca_bundle.read(api)).bundles["namespace.gpu.scheduling"]
    trusting = ssl.create_default_context(cadata=bundle.decode())
    for name in WebhookSettings().dns_names:
        _, writer = await asyncio.open_connection("127.0.0.1", replica.port, ssl=trusting, server_hostname=name)
        writer.transport.abort()
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await asyncio.open_connection(
            "127.0.0.1", replica.port, ssl=trusting, server_hostname="tranche-webhook.other.svc"
        )


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "tranche-system"])
async def test_labels_never_enable_the_webhook_in_system_namespaces(
    installed: Layout, api: Api, replica: Replica, namespace: str
) -> None:
    """Neither a label of the namespace nor one of the pod: the API server does not send the pod."""
    await asyncio.to_thread(replica.start)
    await replicas.eventually(lambda: replicas.is_admitted(api))
    label = "gpu.scheduling/injection"
    client(installed).patch("namespace", namespace, {"metadata": {"labels": {label: "enabled"}}})
    try:
        body = {**replicas.POD, "metadata": {"generateName": "load-", "labels": {label: "enabled"}}}
        body["spec"] = {
            **PLAIN,
            "containers": [{**each, "securityContext": RESTRICTED} for each in replicas.CONTAINERS],
        }
        answer = await api.request("POST", PODS.path(namespace=namespace), params={"dryRun": "All"}, body=body)
    finally:
        client(installed).patch("namespace", namespace, {"metadata": {"labels": {label: None}}})
    spec = json.loads(answer)["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert "env" not in spec["containers"][0]


async def test_webhook_with_an_expired_authority_exits_with_the_remedy(installed: Layout, api: Api) -> None:
    """It replaces nothing, whichever clock is wrong, and names the remedy."""
    path = SECRETS.path(namespace="tranche-system", name=authority_secret.SECRET)
    expired = new_authority("expired", lifetime=timedelta(days=1), now=replicas.now() - timedelta(days=2))
    await api.request("DELETE", path)
    await authority_secret.create(api, Authorities(expired))
    identity = kubeconfig.service_account_kubeconfig(installed, namespace="tranche-system", name="tranche-webhook")
    command = [sys.executable, "-m", "webhook", "--kubeconfig", str(identity), "--port", "0", "--metrics-port", "0"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert 'data["tls.crt"] is valid from' in done.stderr
    assert "kubectl -n tranche-system delete secret tranche-webhook-ca" in done.stderr
    assert "Traceback" not in done.stderr
    assert expired.certificate_pem == (await _stored_pem(api))
    await api.request("DELETE", path)


async def _stored_pem(api: Api) -> bytes:
    before_its_end = replicas.now() - timedelta(days=1, hours=12)
    return (await authority_secret.read(api, now=before_its_end)).authorities.signing.certificate_pem
