"""The commit room: it owns the control flow of everything that changes the catalog."""
