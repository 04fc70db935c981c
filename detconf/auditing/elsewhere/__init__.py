"""Sides that run in other processes, perhaps under other interpreters."""
