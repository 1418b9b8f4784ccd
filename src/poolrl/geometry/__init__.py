"""PUBLIC SHAPES: where values live. No log is read here, and no number learned."""
