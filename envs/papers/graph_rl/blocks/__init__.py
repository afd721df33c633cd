"""Blocksworld: its rules, PlanBench's wording of them, a generator, the records of task files, world and reward."""
