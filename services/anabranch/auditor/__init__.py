"""Auditor service: recomputes samples of sellers' results, and writes its findings into the
ledgers.
"""
