"""Conversations to prompts, with built-in renderers; a template inside a model file is never evaluated."""
