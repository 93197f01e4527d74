"""Index in a real Redis, by redis-py."""
