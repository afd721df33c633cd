"""The command line and the driver: the only place that constructs actors."""
