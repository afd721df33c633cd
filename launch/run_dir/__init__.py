"""Run directories as they lie on the disk, for every command that looks at one: files in, plain records out.

Nothing that a run names is imported: its configuration is plain YAML, its rows are numbers. A run may be in progress,
killed in the middle of a line, damaged, or made by an earlier version; what is missing is empty.
"""
