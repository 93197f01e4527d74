"""A replica of a stage: what its batches read, when it goes on without input, how it
corrects, who stands by.
"""
