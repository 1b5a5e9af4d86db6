"""Controls the steps of a commit, from the queue to the swap."""
