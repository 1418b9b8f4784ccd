"""PUBLIC SHAPES: where values lie. No log is read here, and no number is learned."""
