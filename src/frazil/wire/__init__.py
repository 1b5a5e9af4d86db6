"""What goes over the wire: requests, answers and the error tree, shared by server and client."""
