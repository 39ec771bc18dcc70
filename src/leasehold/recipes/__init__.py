"""Recipes: locks and what is built from them. They run in the client, on any engine."""
