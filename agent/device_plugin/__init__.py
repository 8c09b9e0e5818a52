"""The agent as a device plugin of the kubelet, which gives containers devices of the cards of their allocation."""
