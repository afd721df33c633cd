"""A language model as the judge: prompts, what its answers mean, and how it is asked."""
