"""The workbench in Chromium, against a real server, a real worker and a real database."""
