"""SIMULATED DEMAND: families, worlds and logs that reveal nobody's purchases, and what policies cost on them."""
