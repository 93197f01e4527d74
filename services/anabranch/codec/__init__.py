"""Bytes to values and back, without input or output (but for the schemas, which are read once from
the package's own data).

``catalog`` answers for ``schemas/``; ``record_schema`` is one user's record; ``edge`` turns users'
records into Arrow and back; ``boundary_records`` and ``control_records`` are what the services
write for each other; ``blocks`` are the rows between them.
"""
