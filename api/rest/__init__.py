"""The resources of /api/v1/, a module each."""
