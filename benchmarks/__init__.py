"""Speed and memory of the project, measured beside plain PySpark."""
