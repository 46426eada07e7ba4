"""A verified model file in, tokens out. Knows nothing of HTTP, keys or processes."""
