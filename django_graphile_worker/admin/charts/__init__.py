"""The charts: the points, the axes, the drawing and the table of figures. Start with chart.py.

A chart is HTML: its axes are text, the image in the middle has no text, and a table has the same figures.
"""
