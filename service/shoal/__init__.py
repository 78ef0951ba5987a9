"""Shoal: streams and tables of personal records made k-anonymous while they move."""
