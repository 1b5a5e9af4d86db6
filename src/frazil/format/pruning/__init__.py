"""Evaluates filters over partitions and column statistics."""
