"""Admission as the webhook's own tests send pods through it."""

from tests.webhook.conftest import admit, gpu, pod, reference

__all__ = ["admit", "gpu", "pod", "reference"]
