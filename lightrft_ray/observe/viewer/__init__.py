"""The viewer: a page that shows runs, served from their folders or written as one HTML file."""
