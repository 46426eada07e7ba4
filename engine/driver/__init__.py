"""The command `prism-inference`: text or token ids in, JSON lines out, for one verified model file."""
