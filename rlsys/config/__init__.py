"""The core's configuration: one frozen dataclass a section, one file a section; `recipe.py` holds the tree."""
