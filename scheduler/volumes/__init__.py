"""Volumes: which nodes a pod's PersistentVolumeClaims permit, and which PersistentVolumes they get there."""
