"""DEMAND NOBODY OWNS: families, worlds, simulated logs, and what policies cost on them."""
