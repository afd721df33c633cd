"""From YAML files and the command line to a `RunConfig`, or to one line that says what is wrong."""
