"""The pipeline file: what a user wrote, checked as a whole before anything runs."""
