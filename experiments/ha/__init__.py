"""What each mode of ``ha`` costs while nothing fails, and how long results take to come again after
a loss.
"""
