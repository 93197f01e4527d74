"""Servers, processes and waiting for the tests."""
