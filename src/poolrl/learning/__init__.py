"""POST-PROCESSING: everything here sees public facts and released numbers only."""
