"""The cluster side: it watches, decides with pure functions, and writes through one server-side apply."""
