"""Readers of data files, one format a file: each yields rows one by one, in the file's order."""
