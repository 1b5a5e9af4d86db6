"""Holds what every Spark statement shares: context, settings, results."""
