"""Declares changes as immutable intents and loads tables."""
