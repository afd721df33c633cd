"""How models write calls of tools, a file for each way: reader and writer. Their table: `envs/protocols/native.py`."""
