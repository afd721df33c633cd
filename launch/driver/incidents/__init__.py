"""Incidents: what a run writes down when a part dies, a phase hangs or the run fails, and how a person gets at it."""
