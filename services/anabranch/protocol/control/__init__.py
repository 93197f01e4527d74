"""What processes tell each other beside the data: heartbeats, fences, trim points, requests,
moves; and who judges by them, and how.
"""
