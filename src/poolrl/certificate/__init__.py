"""PAPERS TO SIGN: the claim of a release, its label and record, and how anybody checks them."""
