"""Checks commit validations."""
