"""The workbench: its pages' frame, its login, and the modules that browsers load (client/)."""

__all__ = ["files", "links", "pages"]
