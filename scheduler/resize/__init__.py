"""Running pods that get another size of the same cards, as their users wish by annotation (docs/resize.md)."""
