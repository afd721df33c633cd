"""The five papers, a folder each, with all that is one paper's own: what several share is in the rooms beside this."""
