"""Commits of declared files beside what other systems do for the same change."""
