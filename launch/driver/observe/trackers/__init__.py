"""Where metrics and samples are sent besides the run directory, one file for each service."""
