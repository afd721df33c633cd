"""Stand-ins for a part, and parts that go wrong on purpose."""
