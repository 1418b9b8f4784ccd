"""AUDIT: attacks on our own releases, to see whether the guarantee holds."""
