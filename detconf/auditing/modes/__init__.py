"""Graph modes of one program: the rungs of a ladder, where its bits change, and why."""
