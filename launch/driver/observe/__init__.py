"""What a run says of itself while it runs: rows of metrics, events, health, progress, trackers."""
