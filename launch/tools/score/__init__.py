"""`rlsys score`, rewards of answers that lie in a file, and `rlsys play`, an episode whose messages a person writes."""
