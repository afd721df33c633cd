"""Makers of what a test starts from: records, episodes, run directories, data sets, models."""
