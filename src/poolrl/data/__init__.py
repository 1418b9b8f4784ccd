"""Sensitive: logs and their exact counts. Only `privacy.release` may import this room."""
