"""Tools that answer a model's calls. Their input is hostile text: bounded, parsed, never executed."""
