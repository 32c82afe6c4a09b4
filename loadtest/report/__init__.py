"""`bench report`: one page of HTML with charts, from the results of benches."""

__all__ = ["report"]
