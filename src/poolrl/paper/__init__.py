"""The reproduction of the paper: baselines, sweeps, results, claims, figures."""
