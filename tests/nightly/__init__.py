"""What takes too long for ``make test``, in one run, and the report of what came of it."""
