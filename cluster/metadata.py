"""The metadata of objects and lists, references to objects, and the format of their times."""

from datetime import UTC, datetime

import msgspec


class ObjectMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata that identifies an object; kinds that need further fields extend it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class AnnotatedMeta(ObjectMeta, rename="camel", gc=False):
    """The same with annotations."""

    annotations: dict[str, str] = {}


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata of a list: its resourceVersion and the token of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Reference(msgspec.Struct, frozen=True, rename="camel"):
    """A reference to an object, as in an Event."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"


def timestamp(unix: float) -> str:
    """Return Unix seconds as Kubernetes' Time, the format of times in metadata and conditions."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix_seconds(timestamp: str) -> float:
    """Return the Unix seconds of a timestamp of Kubernetes; 0 for one in the year 0, which only a node would write."""
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return 0.0


def micro_time(unix: float) -> str:
    """Return Unix seconds as Kubernetes' MicroTime, the format of times in Leases and Events."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
