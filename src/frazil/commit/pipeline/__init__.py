"""Owns the control flow of a commit, from the queue to the swap."""
