"""Rejections as tests compare them."""

from collections.abc import Mapping

from allocation.reasons import NodeRejection


def texts(rejections: Mapping[str, NodeRejection]) -> dict[str, str]:
    """Return the text of each node's rejection."""
    return {name: each.text for name, each in rejections.items()}
