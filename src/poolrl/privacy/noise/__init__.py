"""Noise: exact and secure for releases, seeded for dry runs."""
