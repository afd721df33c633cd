"""Problems that worlds pose, and what decides whether they are solved: made up by a seed, or read from records."""
