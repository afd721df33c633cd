"""Public data sets as task files and corpora: what `rlsys data` does.

sets/       tables of the public sets, by kind: where each lies, its licence, counts, how a record becomes a row
recipes.py  the files that each recipe reads, and of which sets they are made
sources.py  the files of a set: in a folder, by hand, or on the hub
build.py    one file: what is read, left out, drawn and counted
prepare.py  from the one to the other, file by file, with a manifest of what was done
"""
