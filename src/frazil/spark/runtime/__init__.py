"""Starts a local Spark and finds its Java."""
