"""Deployment on this machine: an embedded Kafka and Redis, a supervisor that runs every service as
a process of its own, and drills that kill, pause or cut off one of them.
"""
