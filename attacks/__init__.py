"""Attacks from outside: hostile files (`python -m attacks.fuzz`) and faults (`python -m attacks.soak`)."""
