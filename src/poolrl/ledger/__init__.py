"""BOOKKEEPING: what was ever spent on a data set."""
