"""Amplitude equations in closed form, for scalar blocks to cubic order."""
