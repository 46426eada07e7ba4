"""The computation graphs: one module an architecture, built from a file's keys and tensors alone."""
