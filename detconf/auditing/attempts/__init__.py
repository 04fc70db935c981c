"""Experiments that each show, or fail to show, one kind of cause."""
