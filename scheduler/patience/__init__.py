"""Cards are held for pods that have waited for longer than the patience of their queue."""
