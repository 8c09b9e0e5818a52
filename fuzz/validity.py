"""The validation by the API server on which this project's processes rely."""

import re
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
import yaml

from allocation import quantity
from allocation.errors import AllocationError

_MANIFESTS: Final = Path(__file__).parents[1] / "manifests"
_AMOUNTS: Final = frozenset(("limits", "requests", "overhead", "allocatable", "allocatedResources", "capacity"))
_SIZES: Final = frozenset(("capacity", "maximumVolumeSize"))  # of a CSIStorageCapacity
_TIMES: Final = ("Timestamp", "Time")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LARGEST: Final = 2**63 - 1
_INT32: Final = {"minimum": -(2**31), "maximum": 2**31 - 1}


def is_valid(content: Any) -> bool:
    """Return whether the API server accepts an object: name, UID, amounts, times, a Lease's duration, CRD's schema."""
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict):
        return False
    name, uid = content["metadata"].get("name"), content["metadata"].get("uid")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(uid, str) or not uid:
        return False
    if not _has_times(content):
        return False
    match content.get("kind"):
        case "Lease":
            spec = content.get("spec")
            seconds = spec.get("leaseDurationSeconds") if isinstance(spec, dict) else None
            return seconds is None or (isinstance(seconds, int) and 0 < seconds <= quantity.INT32_MAX)
        case kind if schema := _schemas().get(str(kind)):
            return bool(schema.is_valid(content))
        case "CSINode":  # its `allocatable` is a number of volumes
            return True
        case _:
            return _has_amounts(content)


def _has_times(content: Any) -> bool:
    """Return whether all points in time are RFC 3339; an absent one may be null."""
    if isinstance(content, list):
        return all(map(_has_times, content))
    if not isinstance(content, dict):
        return True
    times = (value for key, value in content.items() if key.endswith(_TIMES))
    return all(map(_is_time, times)) and all(map(_has_times, content.values()))


def _is_time(value: Any) -> bool:
    """Return whether Go reads a point in time; it knows the year 0, unlike Python."""
    try:
        return value is None or datetime.fromisoformat(value.replace("0000-", "0004-", 1)).tzinfo is not None
    except (AttributeError, ValueError):
        return False


def _has_amounts(content: Any) -> bool:
    if isinstance(content, list):
        return all(map(_has_amounts, content))
    if not isinstance(content, dict):
        return True
    for key, value in content.items():
        if key in _AMOUNTS and isinstance(value, dict) and not all(map(_is_amount, value.values())):
            return False
        if key in _SIZES and isinstance(value, str) and not _is_amount(value):
            return False
        if not _has_amounts(value):
            return False
    return True


def _is_amount(value: Any) -> bool:
    try:
        return isinstance(value, str) and abs(quantity.parse(value)) <= _LARGEST
    except AllocationError:
        return False


@cache
def _schemas() -> dict[str, jsonschema.Draft202012Validator]:
    """Return the schemas of this project's kinds."""
    files = [*(_MANIFESTS / "base" / "crds").glob("*.yaml"), _MANIFESTS / "gpubindings" / "crd.yaml"]
    specs = [yaml.safe_load(each.read_text())["spec"] for each in files]
    return {
        each["names"]["kind"]: jsonschema.Draft202012Validator(
            _bounded(each["versions"][0]["schema"]["openAPIV3Schema"])
        )
        for each in specs
    }


def _bounded(schema: Any) -> Any:
    """Add the bounds that `format: int32` implies to an API server."""
    if isinstance(schema, list):
        return list(map(_bounded, schema))
    if not isinstance(schema, dict):
        return schema
    bounds = _INT32 if schema.get("format") == "int32" else {}
    return {**bounds, **{key: _bounded(value) for key, value in schema.items()}}
