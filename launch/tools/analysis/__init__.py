"""Curves and tables out of run directories: `rlsys analyse`. It only reads, and imports nothing that a run names."""
