"""A record and a plan as a table, a picture, a page."""
