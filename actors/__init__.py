"""Ray actors and what runs inside them: the vLLM engine, the renderer, rollout workers, services."""
