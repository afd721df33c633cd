"""Agents that somebody else wrote: they ask OpenAI's chat completions or responses, and the policy answers."""
