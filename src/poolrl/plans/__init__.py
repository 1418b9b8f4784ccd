"""Plans for shops as they are, on a private model: each planner is one module with its equation. All are free."""
