"""The client: declares changes of files and sends them until their outcome is known.

It depends on `wire`, `values` and `datafiles`, and on no package of the server.
"""
