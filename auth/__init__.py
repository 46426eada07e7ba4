"""Who may call: keys, the ASGI gate, Host and Origin rules. Knows nothing of models or generation."""
