"""Worlds as the application shows them: one protocol `Trade`, one set of files for each world."""
