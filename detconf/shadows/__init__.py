"""Shadows: the values of a run carried in higher precision beside the real ones, and what was computed with what.

Framework-neutral. The engines of the frameworks (`frameworks/*/shadow.py`) report to a `Study`.
"""
