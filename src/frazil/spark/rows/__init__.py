"""Changes rows: DELETE, UPDATE, MERGE and upserts."""
