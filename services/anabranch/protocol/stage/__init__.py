"""Rules of a replica of a stage: what its batches read, when it continues without an input, how it
corrects tentative results, and how standby processes take over.
"""
