"""Work on tables that the server does by itself: jobs, and the deletion of files."""
