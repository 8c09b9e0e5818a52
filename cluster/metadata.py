"""What every object and every list of the API says of itself."""

import msgspec


class ObjectMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata that identifies an object; kinds that need more extend it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """Where a list stands: its resourceVersion and the token of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Reference(msgspec.Struct, frozen=True, rename="camel"):
    """An object as an event names it."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
