"""The page of a pipeline: who runs what, what is tentative, who carries whose load. Read-only:
nothing of the pipeline knows of it, or waits for it.
"""
