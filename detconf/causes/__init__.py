"""Why results differ: hypotheses tried by running again, and what they prove."""
