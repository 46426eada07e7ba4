"""Makes the small language model that the package carries, from its corpus to its evaluation."""
