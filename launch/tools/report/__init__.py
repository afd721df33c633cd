"""`rlsys report`: a run as one HTML page, with tables, charts and advice."""
