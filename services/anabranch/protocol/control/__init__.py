"""Control records that processes exchange beside the data (heartbeats, fences, trim points,
requests, moves), and the decisions based on them.
"""
