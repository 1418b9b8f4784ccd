"""`poolrl.toml`: everything that must be public, declared by a person. Nothing in it is read off the log."""
