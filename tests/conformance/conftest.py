"""The admission fixtures of the webhook's tests."""

from tests.webhook.conftest import admit, gpu, pod, reference

__all__ = ["admit", "gpu", "pod", "reference"]
