"""Two chained stages at a light load, as a user runs them: time to start, age of results,
processor time, memory.
"""
