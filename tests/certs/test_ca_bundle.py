"""The caBundle: written where it belongs, and nothing else."""

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


async def test_every_entry_gets_it_and_nothing_else_changes(api: Any) -> None:
    """Entries without and with another bundle alike."""
    api.put_configuration(None, b"old")
    sent = copy.deepcopy(api.objects[PATH]["webhooks"])
    await write(api, await read(api), bundle=b"PEM")
    for webhook in sent:
        webhook["clientConfig"]["caBundle"] = base64.b64encode(b"PEM").decode()
    assert api.objects[PATH]["webhooks"] == sent
    assert (await read(api)).bundles == {"w0.gpu.scheduling": b"PEM", "w1.gpu.scheduling": b"PEM"}


async def test_what_changed_meanwhile_is_not_written(api: Any) -> None:
    """Another replica was faster: nothing of its work is undone unseen."""
    api.put_configuration(None)
    found = await read(api)
    api.put_configuration(b"theirs")
    with pytest.raises(ConflictError):
        await write(api, found, bundle=b"PEM")
    assert api.bundles() == [b"theirs"]


async def test_revision_tells_entries_from_everything_else(api: Any) -> None:
    """A label that somebody adds does not unsettle an authority; another caBundle does."""
    api.put_configuration(b"PEM")
    before = await read(api)
    api.objects[PATH]["metadata"]["labels"] = {"a": "b"}
    api.put(PATH, api.objects[PATH])
    labelled = await read(api)
    assert labelled.version != before.version
    assert labelled.revision == before.revision
    api.put_configuration(b"other")
    assert (await read(api)).revision != before.revision


async def test_an_authority_counts_where_every_entry_has_it(api: Any) -> None:
    """One entry without it and the pods of that entry fail."""
    api.put_configuration(ONE.certificate_pem + TWO.certificate_pem, TWO.certificate_pem)
    assert (await read(api)).certificates == {TWO.certificate}
    api.put_configuration(ONE.certificate_pem, None)
    assert not (await read(api)).certificates
    api.put_configuration()
    assert not (await read(api)).certificates


async def test_a_missing_configuration_is_an_error(api: Any) -> None:
    """It is the manifests' to create."""
    with pytest.raises(NotFoundError):
        await read(api)


def test_what_cannot_be_read_holds_no_authority() -> None:
    """Whatever somebody wrote there."""
    assert certificates(b"PEM") == []
