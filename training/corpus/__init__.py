"""The small world that the model is to know, as a seeded grammar of conversations."""
