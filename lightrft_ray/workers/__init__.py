"""One Ray actor class a file."""
