"""`rlsys submit`: a run as a Ray job, from what is uploaded to its exit code."""
