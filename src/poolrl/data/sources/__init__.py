"""SENSITIVE: where a log lies, and how it is opened as a table that stays there."""
