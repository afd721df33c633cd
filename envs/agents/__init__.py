"""Agents that somebody else wrote: they ask an endpoint of chat completions, and the policy answers."""
