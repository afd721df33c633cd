"""Ray actors and what runs inside them: the vLLM engine, the renderer, rollout workers, services."""

import rlsys as rlsys  # first: it sees to it that our packages are found before others of the same name
