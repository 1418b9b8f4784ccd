"""The command line: one list of verbs, one thin file per verb."""
