"""Post-processing: everything here sees public facts and released numbers only."""
