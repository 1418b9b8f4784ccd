"""The command line: one registry, one thin file per verb."""
