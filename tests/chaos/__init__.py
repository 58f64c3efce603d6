"""Chaos: real processes under random faults, and a judge of what they have left in their histories."""
