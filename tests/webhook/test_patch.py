"""JSON Pointers to keys that contain the characters `/` and `~`."""

import jsonpatch
import pytest

from webhook.patch import pointer


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "a~b", "~1", "a~/b"])
def test_pointer_reaches_any_key(key: str) -> None:
    """RFC 6901, section 3: `~` is `~0`, `/` is `~1`, in this order."""
    patched = jsonpatch.apply_patch({"limits": {}}, [{"op": "add", "path": pointer("limits", key), "value": "1"}])
    assert patched == {"limits": {key: "1"}}
