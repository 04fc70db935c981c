"""Audit: why two computations differ, with a proof made here and fixes that were tried here."""
