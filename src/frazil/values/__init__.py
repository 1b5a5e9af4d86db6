"""Holds types, transforms, single values, Puffin and deletion vectors."""
