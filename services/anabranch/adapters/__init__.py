"""Implementations of the ports: the only importers of the libraries that reach outside."""
