"""The whole system in one process, under virtual time, from one number: see README.md."""
