"""Commands that make the project's figures; none of them is a test."""
