"""The scheduler: a pod waits in the queue, one cycle decides and reserves, one Binding tells the world."""
