"""The commands of `rlsys`, one file each: arguments in, exit code out."""
