"""Short keys for large values: equal values have equal keys, and different values have different ones."""

import hashlib

import msgspec

_SHORT = 256
_encoder = msgspec.msgpack.Encoder(order="deterministic")  # a set has no order


def digest(value: object) -> bytes:
    """Return a key of at most 256 bytes for `value`, which msgspec can encode."""
    encoded = _encoder.encode(value)
    return encoded if len(encoded) <= _SHORT else hashlib.blake2b(encoded, digest_size=16).digest()
