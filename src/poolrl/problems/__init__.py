"""The public facts of a decision problem: nothing here has seen a log."""
