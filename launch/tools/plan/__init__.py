"""`rlsys plan`: memory and seconds of a run on given machines, by arithmetic and by a simulated step."""
