"""A tool of your own: a plain function. Its name, signature and docstring become what the model sees."""

HEIGHTS = {"Mont Blanc": 4806, "Ben Nevis": 1345, "Etna": 3403}


def height(mountain: str, unit: str = "metres") -> str:
    """Look up how high a mountain is.

    Args:
        mountain: Its name.
        unit: metres or feet.
    """
    if mountain not in HEIGHTS:
        raise KeyError(f"no mountain {mountain!r}; known are {', '.join(HEIGHTS)}")
    metres = HEIGHTS[mountain]
    return f"{metres} metres" if unit == "metres" else f"{round(metres / 0.3048)} feet"
