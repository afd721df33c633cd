"""Pure functions of text that worlds, rewards and services share."""
