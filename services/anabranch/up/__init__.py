"""Local deployment: an embedded Kafka and Redis, and a supervisor that runs every service as a
process of its own.
"""
