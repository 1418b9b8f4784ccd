"""SIMULATED DEMAND: families, worlds and logs without real purchases, and what policies cost on them."""
