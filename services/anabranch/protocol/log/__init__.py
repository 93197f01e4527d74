"""A stream as a log: buckets, boundary records, what every reader knows from them, timelines,
and snapshots of it all.
"""
