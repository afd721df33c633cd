"""Blocksworld, the pure parts: its rules, PlanBench's wording of them, a generator and the records of task files."""
