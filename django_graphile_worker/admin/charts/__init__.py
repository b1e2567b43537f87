"""The charts of the statistics: the points, the axes, and the drawing. Start with chart_data.py."""
