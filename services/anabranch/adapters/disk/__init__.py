"""Checkpoints and other state on a local disk: copied by hard links, made durable file by file."""
