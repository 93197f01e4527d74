"""``ports.Index`` over a real Redis, by redis-py."""
