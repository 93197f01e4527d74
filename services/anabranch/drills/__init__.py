"""Fault drills: kill, pause or cut off the services of a running deployment, to see that nothing is
lost.
"""
