"""What recovery by backtracking costs when nothing fails, and how long it takes, beside
waiting for acknowledgements and doing nothing.
"""
