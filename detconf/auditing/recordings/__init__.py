"""Audits of recordings with values."""
