"""Delivery of weights: from what the ranks wrote on their nodes to every engine, checked there."""
