"""Failing tests as questions: the operands of a comparison are the sides."""
