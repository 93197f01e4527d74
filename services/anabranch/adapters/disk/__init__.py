"""Checkpoints on a disk: copied by hard links, made durable file by file."""
