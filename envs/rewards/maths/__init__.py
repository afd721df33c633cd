"""Whether two answers of mathematics are equal: LaTeX and words to values, and values compared."""
