"""Where a pod is or would be placed, or why it waits."""
