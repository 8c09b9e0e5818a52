"""A write of the caBundle changes nothing else."""

import base64
import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from certs.ca_bundle import certificates, read, write
from certs.x509 import new_authority
from cluster.errors import ConflictError, NotFoundError

PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tranche"
ONE, TWO = (new_authority(name, lifetime=timedelta(days=1), now=datetime.now(UTC)) for name in ("one", "two"))


async def test_write_sets_the_bundle_of_every_entry_and_nothing_else(api: Any) -> None:
    """Entries without a caBundle and entries with another one."""
    api.put_configuration(None, b"old")
    sent = copy.deepcopy(api.objects[PATH]["webhooks"])
    await write(api, await read(api), bundle=b"PEM")
    for webhook in sent:
        webhook["clientConfig"]["caBundle"] = base64.b64encode(b"PEM").decode()
    assert api.objects[PATH]["webhooks"] == sent
    assert (await read(api)).bundles == {"w0.gpu.scheduling": b"PEM", "w1.gpu.scheduling": b"PEM"}


async def test_write_to_a_changed_configuration_is_refused(api: Any) -> None:
    """The write of a faster replica is not undone."""
    api.put_configuration(None)
    outdated = await read(api)
    api.put_configuration(b"theirs")
    with pytest.raises(ConflictError):
        await write(api, outdated, bundle=b"PEM")
    assert api.bundles() == [b"theirs"]


async def test_revision_changes_with_entries_only(api: Any) -> None:
    """A new label does not restart the settle time; another caBundle does."""
    api.put_configuration(b"PEM")
    before = await read(api)
    api.objects[PATH]["metadata"]["labels"] = {"a": "b"}
    api.put(PATH, api.objects[PATH])
    labelled = await read(api)
    assert labelled.version != before.version
    assert labelled.revision == before.revision
    api.put_configuration(b"other")
    assert (await read(api)).revision != before.revision


async def test_common_certificates_are_in_every_entry(api: Any) -> None:
    """With one entry that lacks it, the pods of that entry would fail."""
    api.put_configuration(ONE.certificate_pem + TWO.certificate_pem, TWO.certificate_pem)
    assert (await read(api)).common_certificates == {TWO.certificate}
    api.put_configuration(ONE.certificate_pem, None)
    assert not (await read(api)).common_certificates
    api.put_configuration()
    assert not (await read(api)).common_certificates


async def test_missing_configuration_is_an_error(api: Any) -> None:
    """The manifests create it, not the webhook."""
    with pytest.raises(NotFoundError):
        await read(api)


def test_unreadable_bundle_has_no_certificates() -> None:
    """An unreadable caBundle has no authorities."""
    assert certificates(b"PEM") == []
