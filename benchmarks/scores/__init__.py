"""The table of scores: rows of stored results, figures to compare with, the page, pictures and lines of configs."""
